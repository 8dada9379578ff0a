//! `split` and `verify` through ONNX Runtime, and what they say where something is missing.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use common::{Place, Ran};
use serde_json::Value;

fn cut(place: &Place, more: &[&str]) -> Value {
    place.perceptron("m.onnx");
    place.json(
        0,
        &[&["split", "m.onnx", "--at", "b", "-o", "m.seam"], more].concat(),
    )
}

fn max_rel(document: &Value) -> f64 {
    let outputs = document["outputs"].as_array().unwrap();
    outputs
        .iter()
        .map(|output| output["max_rel"].as_f64().unwrap())
        .fold(0.0, f64::max)
}

#[test]
fn a_bundle_is_made_and_its_halves_equal_the_whole() {
    let place = Place::new();
    let bundle = cut(&place, &["--edge-tail", "--cloud-head"]);
    let ids: Vec<&Value> = bundle["cuts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|cut| &cut["id"])
        .collect();
    assert_eq!(
        (ids.len(), ids[0], ids[2]),
        (3, &"input".into(), &"output".into())
    );
    assert_eq!(bundle["cuts"][1]["batched"], true, "{bundle}");
    for level in ["off", "basic", "extended", "all"] {
        let verified = place.json(0, &["verify", "m.seam", "--level", level]);
        assert!(max_rel(&verified) <= 1e-5, "{verified}");
        assert_eq!(verified["inputs"], 3);
        let levels = verified["levels"].as_array().unwrap();
        assert_eq!((levels.len(), &levels[0]["level"]), (1, &level.into()));
        assert_eq!(levels[0]["cuts"].as_array().unwrap().len(), 3);
    }
    let verified = place.json(0, &["verify", "m.seam"]);
    let levels: Vec<&Value> = verified["levels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|level| &level["level"])
        .collect();
    assert_eq!(levels, ["off", "basic", "extended", "all"]);
    assert_eq!(verified["passed"], true, "{verified}");
    let text = place.run(&["verify", "m.seam"]).stdout;
    assert!(text.contains("passed: every max rel"), "{text}");
}

#[test]
fn inputs_shared_between_stages_cross_the_cut_in_front() {
    let place = Place::new();
    let mut builder = seamline_graph::builder::GraphBuilder::new("late", 15);
    let dims = ["N".into(), 4.into()];
    builder
        .input("x", seamline_plan::DType::F32, &dims)
        .input("late", seamline_plan::DType::F32, &dims)
        .output("y", seamline_plan::DType::F32, &dims)
        .node("Relu", &["x"], &["a"])
        .node("Relu", &["a"], &["b"])
        .node("Add", &["b", "late"], &["y"]);
    let path = place.path("late.onnx");
    builder
        .build()
        .unwrap()
        .write(&path, &seamline_graph::WriteOptions::default())
        .unwrap();
    let bundle = place.json(
        0,
        &[
            "split",
            "late.onnx",
            "--at",
            "a",
            "-o",
            "late.seam",
            "--cloud-head",
        ],
    );
    assert_eq!(
        bundle["cuts"][0]["crossing"].as_array().unwrap().len(),
        2,
        "{bundle}"
    );
    assert_eq!(
        max_rel(&place.json(0, &["verify", "late.seam", "--level", "off"])),
        0.0
    );
}

#[test]
fn lossy_codecs_have_no_limit_unless_one_is_given() {
    let place = Place::new();
    cut(&place, &["--codec", "int8"]);
    let verified = place.json(0, &["verify", "m.seam"]);
    assert!(
        max_rel(&verified) > 1e-5 && verified["levels"][0]["limits"].is_null(),
        "{verified}"
    );
    place.json(1, &["verify", "m.seam", "--limit", "1e-9"]);
    // Every value can still be sent unchanged.
    assert!(max_rel(&place.json(0, &["verify", "m.seam", "--codec", "raw"])) <= 1e-5);
    // A codec that nothing can be sent in is not passed over.
    place.refused(
        &["verify", "m.seam", "--codec", "jpeg85"],
        &["no value of these cuts allows the codec `jpeg85`; they allow f16, int8"],
    );
}

#[test]
fn files_are_requests_and_must_fit() {
    let place = Place::new();
    cut(&place, &[]);
    std::fs::write(
        place.path("two.json"),
        "[[1,2,3,4,5,6,7,8],[8,7,6,5,4,3,2,1]]",
    )
    .unwrap();
    std::fs::write(place.path("short.json"), "[[1,2,3]]").unwrap();
    let two = [
        "verify",
        "m.seam",
        "--input",
        "two.json",
        "--input",
        "x=two.json",
    ];
    assert_eq!(place.json(0, &two)["inputs"], 2);
    let refused = |file: &str, parts: &[&str]| {
        place.refused(&["verify", "m.seam", "--input", file], parts);
    };
    refused(
        "short.json",
        &["short.json", "`x` has shape [1, 3]; expected [N, 8]"],
    );
    refused("absent.npy", &["absent.npy"]);
    refused("two.txt", &[".npy, .png"]);
}

#[test]
fn a_picture_enters_where_preprocessing_is_in_front() {
    let place = Place::new();
    place.convolution("conv.onnx");
    let split = [
        "split",
        "conv.onnx",
        "--at",
        "a",
        "-o",
        "c.seam",
        "--image",
        "size=16x16",
    ];
    place.json(0, &split);
    image::RgbImage::from_fn(40, 30, |x, _| {
        image::Rgb([if x < 20 { 0 } else { 200 }, 90, 7])
    })
    .save(place.path("photo.png"))
    .unwrap();
    let verified = place.json(
        0,
        &["verify", "c.seam", "--level", "off", "--input", "photo.png"],
    );
    assert_eq!(max_rel(&verified), 0.0);
}

#[test]
fn seams_that_do_not_exist_are_refused_and_nothing_is_left() {
    let place = Place::new();
    place.perceptron("m.onnx");
    let split = |at: &str, parts: &[&str]| {
        place.refused(&["split", "m.onnx", "--at", at, "-o", "m.seam"], parts);
    };
    split("nowhere", &["`nowhere`", "seamline seams"]);
    split("w1", &["is a weight"]);
    place.refused(
        &["split", "m.onnx", "-o", "m.seam"],
        &["--at", "--cloud-head"],
    );
    let state = [
        "split", "m.onnx", "--at", "b", "-o", "m.seam", "--state", "h=hn",
    ];
    place.refused(&state, &["no input `h`", "x"]);
    let left: Vec<_> = std::fs::read_dir(place.path("")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    std::fs::create_dir(place.path("precious.seam")).unwrap();
    let onto = ["split", "m.onnx", "--at", "b", "-o", "precious.seam"];
    place.refused(&onto, &["precious.seam", "not a bundle"]);
}

#[test]
fn a_bundle_edited_by_hand_is_refused() {
    let place = Place::new();
    let edit = |file: &str, change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        cut(&place, &[]);
        let path = place.path("m.seam").join(file);
        std::fs::write(&path, change(std::fs::read(&path).unwrap())).unwrap();
    };
    let refused = |parts: &[&str]| place.refused(&["verify", "m.seam"], parts);
    edit("edge/stage0.onnx", &|mut bytes| {
        bytes.push(0);
        bytes
    });
    refused(&["stage0.onnx", "split the model again"]);
    edit("manifest.json", &|_| b"{}".to_vec());
    refused(&["manifest.json", "format"]);
    edit("source.json", &|_| b"{".to_vec());
    refused(&["source.json", "--model"]);
    place.json(0, &["verify", "m.seam", "--model", "m.onnx"]);
    cut(&place, &[]);
    std::fs::remove_file(place.path("m.onnx")).unwrap();
    refused(&["m.onnx", "--model"]);
    place.convolution("other.onnx");
    let other = ["verify", "m.seam", "--model", "other.onnx"];
    place.refused(&other, &["is not the model that this bundle was cut from"]);
    place.refused(
        &["verify", "absent.seam"],
        &["is not a bundle", "seamline split"],
    );
    cut(&place, &[]);
    place.refused(&["verify", "m.seam", "--cut", "s9"], &["no cut `s9`"]);
}

#[test]
fn without_runtime_pip_and_npm_it_says_what_to_install() {
    let place = Place::new();
    place.perceptron("m.onnx");
    let run = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        let cache = place.path("cache");
        command
            .env("PATH", "")
            .env("SEAMLINE_CACHE", cache)
            .env_remove("ORT_DYLIB_PATH");
        Ran::of(command.output().unwrap())
    };
    let help = ["Python with pip", "Node.js with npm", "ORT_DYLIB_PATH"];
    run(&["split", "m.onnx", "--at", "b", "-o", "m.seam"]).assert_refused(1, &help);
    run(&["zoo", "get", "orientation"]).assert_refused(1, &["pip", "install"]);
    let doctor = run(&["doctor"]);
    assert_eq!(doctor.code, 1);
    for part in help {
        assert!(doctor.stdout.contains(part), "{}", doctor.stdout);
    }
    // What only reads models needs none of them.
    assert_eq!(run(&["seams", "m.onnx"]).code, 0);

    let mut wrong = place.command(&["doctor"]);
    let ran = Ran::of(
        wrong
            .env("ORT_DYLIB_PATH", place.path("none.so"))
            .output()
            .unwrap(),
    );
    assert!(
        ran.code == 1 && ran.stdout.contains("none.so"),
        "{}",
        ran.stdout
    );
}

#[test]
fn sizes_at_which_the_model_does_not_run_are_named() {
    let place = Place::new();
    let mut builder = seamline_graph::builder::GraphBuilder::new("narrow", 15);
    builder
        .input("x", seamline_plan::DType::F32, &["N".into(), "W".into()])
        .output("y", seamline_plan::DType::F32, &["N".into(), 7.into()])
        .weight_f32("w", &[5, 7], &[0.5; 35])
        .node("Relu", &["x"], &["a"])
        .node("MatMul", &["a", "w"], &["y"]);
    let path = place.path("narrow.onnx");
    builder
        .build()
        .unwrap()
        .write(&path, &seamline_graph::WriteOptions::default())
        .unwrap();
    let split = ["split", "narrow.onnx", "--at", "a", "-o", "n.seam"];
    place.refused(&split, &["does not run", "W=32", "--shape NAME=N"]);
    assert!(!place.path("n.seam").exists());
    place.json(0, &[&split[..], &["--shape", "W=5"]].concat());
}
