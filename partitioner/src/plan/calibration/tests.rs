use seamline_graph::builder::GraphBuilder;
use seamline_plan::{DType, Fingerprint};

use super::*;
use crate::plan::npy;

fn model(inputs: &[(&str, DType, &[Dim])]) -> Model {
    let mut builder = GraphBuilder::new("m", 17);
    for (name, dtype, shape) in inputs {
        builder.input(name, *dtype, shape);
    }
    let first = inputs[0];
    let graph = builder
        .output("y", first.1, first.2)
        .node("Identity", &[first.0], &["y"])
        .build()
        .unwrap();
    Model::new(graph, "m".into(), Fingerprint::of(b"m"), &Bindings::new()).unwrap()
}

fn one() -> Model {
    model(&[("x", DType::F32, &["N".into(), 2.into()])])
}

fn two() -> Model {
    model(&[
        ("x", DType::F32, &["N".into(), 2.into()]),
        ("a/mask:0", DType::I64, &["N".into(), 2.into()]),
    ])
}

/// A folder of files `(name, text)`.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn read(model: &Model, files: &[(&str, &str)]) -> Result<Calibration, CalibrationError> {
    Calibration::read(folder(files).path(), model, &CalibrationOptions::default())
}

fn refused(model: &Model, files: &[(&str, &str)], parts: &[&str]) {
    let error = read(model, files).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "`{part}` is not in: {error}");
    }
}

const ROW: &str = "[[0.5, 1]]";

#[test]
fn a_file_is_a_request_in_the_order_of_names() {
    let files = [("b.json", ROW), ("a.json", "[[1, 2]]"), (".hidden", "no")];
    let calibration = read(&one(), &files).unwrap();
    let names: Vec<&str> = calibration
        .samples
        .iter()
        .map(|s| s.name.as_str())
        .collect();
    assert_eq!(names, ["a.json", "b.json"]);
    assert_eq!(
        calibration.samples[1].values["x"]
            .as_slice::<f32>()
            .unwrap(),
        [0.5, 1.0]
    );
    assert!(!calibration.is_labelled());
}

#[test]
fn a_sub_folder_is_a_request_of_several_inputs() {
    let files = [("r/x.json", ROW), ("r/a_mask_0.json", "[[1, 0]]")];
    let calibration = read(&two(), &files).unwrap();
    let values = &calibration.samples[0].values;
    assert_eq!(values["a/mask:0"].as_slice::<i64>().unwrap(), [1, 0]);
    let only = read(&one(), &[("r/x.json", ROW)]).unwrap();
    assert_eq!(only.samples[0].name, "r", "of one input too");
}

#[test]
fn labels_are_text_or_json_one_for_each_request() {
    let inputs = [("a b.json", ROW), ("c.json", ROW)];
    let with = |name, text| [inputs[0], inputs[1], (name, text)];
    let text = read(
        &one(),
        &with("labels.txt", "# c\na b.json\tto be\r\n\nc.json 3\n"),
    )
    .unwrap();
    let labels: Vec<_> = text
        .samples
        .iter()
        .map(|s| s.label.as_deref().unwrap())
        .collect();
    assert_eq!(labels, ["to be", "3"]);
    let json = read(
        &one(),
        &with("labels.json", r#"{"a b.json": 2, "c.json": "x"}"#),
    )
    .unwrap();
    assert_eq!(json.samples[0].label.as_deref(), Some("2"));

    let absent = "a b.json\t1\nc.json\t1\nd.json\t1\n";
    refused(
        &one(),
        &with("labels.txt", absent),
        &["labels.txt", "`d.json`", "not in the folder"],
    );
    refused(
        &one(),
        &with("labels.txt", "c.json 1"),
        &["no label for `a b.json`", "or none"],
    );
    refused(
        &one(),
        &with("labels.txt", "c.json"),
        &["line 1", "a tab and its label"],
    );
    refused(
        &one(),
        &with("labels.txt", "c.json 1\nc.json 2"),
        &["line 2", "already"],
    );
    refused(
        &one(),
        &with("labels.json", r#"{"c.json": [1]}"#),
        &["`c.json` has [1]"],
    );
    refused(
        &one(),
        &with("labels.json", "7"),
        &["an object of file names"],
    );
}

#[test]
fn what_is_wrong_is_named_with_what_was_expected() {
    refused(&one(), &[], &["no inputs", ".npy", "sub-folder"]);
    refused(
        &one(),
        &[("x.json", "[[1]]")],
        &["x.json", "`x` has shape [1, 1]", "[N, 2]"],
    );
    refused(&one(), &[("x.json", "[1, 2]")], &["x.json", "[1, …]"]);
    refused(&one(), &[("x.json", "[[")], &["x.json"]);
    refused(&one(), &[("x.txt", "1")], &["x.txt", ".npy"]);
    refused(
        &two(),
        &[("x.json", ROW)],
        &["x.json", "a/mask:0: i64", "x/x.npy"],
    );
    refused(
        &two(),
        &[("r/x.json", ROW)],
        &["no file for input a/mask:0", "a_mask_0.npy"],
    );
    refused(
        &two(),
        &[("r/z.json", ROW)],
        &["z.json", "no input of that name", "x: f32"],
    );
    refused(&one(), &[("r/x.json", ROW), ("r/x.npy", "")], &["x.npy"]);
    let folder = folder(&[]);
    let absent = folder.path().join("absent");
    let error = Calibration::read(&absent, &one(), &CalibrationOptions::default()).unwrap_err();
    assert!(
        error.to_string().contains("--calibration takes a folder"),
        "{error}"
    );
}

#[test]
fn another_dtype_is_refused() {
    let folder = folder(&[]);
    let tensor = Tensor::from_vec(vec![1, 2], vec![1i64, 2]).unwrap();
    std::fs::write(folder.path().join("x.npy"), npy::encode(&tensor)).unwrap();
    let error = Calibration::read(folder.path(), &one(), &CalibrationOptions::default());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("dtype i64; expected f32 [N, 2]"), "{error}");
}

#[test]
fn numbers_that_are_none_are_refused() {
    let folder = folder(&[]);
    let tensor = Tensor::from_vec(vec![2, 2], vec![0.5, f32::NAN, 1.0, f32::NAN]).unwrap();
    std::fs::write(folder.path().join("x.npy"), npy::encode(&tensor)).unwrap();
    let error = Calibration::read(folder.path(), &one(), &CalibrationOptions::default());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("x.npy") && error.contains("holds NaN, first at element 1 of 4"),
        "{error}"
    );
}

#[test]
fn a_broken_file_is_named_with_what_is_wrong() {
    let tensor = Tensor::from_vec(vec![1, 2], vec![0.5f32, 1.0]).unwrap();
    let whole = npy::encode(&tensor);
    let picture = model(&[(
        "x",
        DType::U8,
        &["N".into(), "H".into(), "W".into(), 3.into()],
    )]);
    let cases: [(&Model, &str, &[u8], &str); 4] = [
        (&one(), "x.npy", &whole[..whole.len() - 1], "reached EOF"),
        (&one(), "x.npy", &whole[..30], "no header"),
        (&one(), "x.npy", b"", "no header"),
        (&picture, "a.png", b"\x89PNG\r\n\x1a\nnot one", "a.png"),
    ];
    for (model, name, bytes, part) in cases {
        let folder = folder(&[]);
        std::fs::write(folder.path().join(name), bytes).unwrap();
        let error = Calibration::read(folder.path(), model, &CalibrationOptions::default());
        let error = error.unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(name), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn links_that_lead_to_themselves_end() {
    use std::os::unix::fs::symlink;
    let error = |at: &str, link: &str| {
        let folder = folder(&[("a/x.json", ROW)]);
        symlink(at, folder.path().join(link)).unwrap();
        let error = Calibration::read(folder.path(), &one(), &CalibrationOptions::default());
        error.unwrap_err().to_string()
    };
    assert!(error("loop.npy", "loop.npy").contains("loop.npy"));
    // A request whose files are the folder's own: `a` is no input.
    let within = error(".", "loop");
    assert!(within.contains("no input of that name"), "{within}");
}

#[test]
fn what_is_no_file_is_not_read() {
    let folder = folder(&[("a/x.npy/inner.json", ROW)]);
    let error = Calibration::read(folder.path(), &one(), &CalibrationOptions::default());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("x.npy: not a file"), "{error}");
}

#[test]
fn a_picture_for_a_float_input_names_the_way() {
    let net = model(&[("x", DType::F32, &["N".into(), 3.into(), 4.into(), 4.into()])]);
    let folder = folder(&[]);
    image::RgbImage::new(4, 4)
        .save(folder.path().join("a.png"))
        .unwrap();
    let error = Calibration::read(folder.path(), &net, &CalibrationOptions::default());
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("a.png") && error.contains("--image"),
        "{error}"
    );
}

#[test]
fn a_seed_draws_the_same_requests_again() {
    let names: Vec<String> = (0..20).map(|index| format!("{index:02}.json")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), ROW)).collect();
    let folder = folder(&files);
    let drawn = |seed| {
        let options = CalibrationOptions {
            samples: 5,
            seed,
            ..CalibrationOptions::default()
        };
        let calibration = Calibration::read(folder.path(), &one(), &options).unwrap();
        assert_eq!((calibration.samples.len(), calibration.available), (5, 20));
        let names: Vec<String> = calibration.samples.into_iter().map(|s| s.name).collect();
        assert!(names.is_sorted());
        names
    };
    assert_eq!(drawn(3), drawn(3));
    assert_ne!(drawn(3), drawn(4));
}

#[test]
fn a_state_without_a_file_is_zeros_of_the_requests_size() {
    let net = model(&[
        ("x", DType::F32, &["N".into(), 2.into()]),
        ("h", DType::F32, &[3.into(), "N".into()]),
    ]);
    let folder = folder(&[("a.json", "[[1, 2], [3, 4]]"), ("b/x.json", ROW)]);
    let options = CalibrationOptions {
        states: vec!["h".into()],
        ..CalibrationOptions::default()
    };
    let calibration = Calibration::read(folder.path(), &net, &options).unwrap();
    let shapes: Vec<_> = calibration
        .samples
        .iter()
        .map(|s| s.values["h"].shape().to_vec())
        .collect();
    assert_eq!(shapes, [[3, 2], [3, 1]]);
}
