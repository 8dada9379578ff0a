//! Commands that only read models: no ONNX Runtime, no network.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use common::Place;
use seamline_graph::WriteOptions;
use seamline_graph::builder::{self, GraphBuilder};
use seamline_plan::DType;

#[test]
fn inspect_tells_what_a_model_is() {
    let place = Place::new();
    place.perceptron("m.onnx");
    let model = place.json(0, &["inspect", "m.onnx", "--shape", "N=2"]);
    assert_eq!(model["name"], "m");
    assert_eq!(model["opset"], 15);
    assert_eq!(model["inputs"][0]["name"], "x");
    assert_eq!(model["inputs"][0]["shape"], serde_json::json!(["N", 8]));
    assert_eq!(model["inputs"][0]["reference"], serde_json::json!([2, 8]));
    assert_eq!(
        model["operators"],
        serde_json::json!({ "MatMul": 3, "Relu": 1, "Add": 1 })
    );
    assert_eq!(model["weight_bytes"], 4 * (128 + 256 + 64));
    assert_eq!(model["batch_symbol"], "N");
    assert_eq!(model["unknown_values"], serde_json::json!([]));
    // Two operations a weight and row in each product, one an element elsewhere.
    let flops = model["flops"].as_f64().unwrap();
    assert!(
        (2.0 * 2.0 * 448.0..2.0 * 2.0 * 448.0 + 200.0).contains(&flops),
        "{flops}"
    );

    let text = place.run(&["inspect", "m.onnx"]).stdout;
    for part in ["[N, 8]", "MatMul 3", "N=1", "1.8 KiB", "all known"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn weights_in_constant_nodes_count() {
    let place = Place::new();
    let weight = builder::tensor("", DType::F32, &[4], vec![0; 16]);
    let mut builder = GraphBuilder::new("constant", 13);
    builder
        .input("x", DType::F32, &[4.into()])
        .output("y", DType::F32, &[4.into()])
        .node_with(
            "Constant",
            &[],
            &["w"],
            vec![builder::tensor_attribute("value", weight)],
        )
        .node("Add", &["x", "w"], &["y"]);
    let path = place.path("constant.onnx");
    builder
        .build()
        .unwrap()
        .write(&path, &WriteOptions::default())
        .unwrap();
    assert_eq!(
        place.json(0, &["inspect", "constant.onnx"])["weight_bytes"],
        16
    );
}

#[test]
fn seams_have_exactly_the_fields_that_scripts_read() {
    let place = Place::new();
    place.perceptron("m.onnx");
    let document = place.json(0, &["seams", "m.onnx"]);
    let seams = document["seams"].as_array().unwrap();
    assert!(!seams.is_empty());
    let fields = [
        "bytes_f16",
        "bytes_f32",
        "bytes_int8",
        "depth",
        "depth_flops",
        "elements",
        "id",
        "values",
    ];
    for seam in seams {
        assert!(seam.as_object().unwrap().keys().eq(fields), "{seam}");
        let bytes = |name: &str| seam[name].as_u64().unwrap();
        assert_eq!(bytes("bytes_f32"), 4 * bytes("elements"));
        assert_eq!(bytes("bytes_f16"), 2 * bytes("elements"));
        let depth = seam["depth"].as_f64().unwrap();
        assert!(0.0 < depth && depth < 1.0, "{seam}");
    }
    assert!(
        seams
            .iter()
            .any(|seam| seam["values"] == serde_json::json!(["b"])),
        "{document}"
    );
    assert!(seams.is_sorted_by_key(|seam| seam["depth_flops"].as_u64().unwrap()));

    let text = place.run(&["seams", "m.onnx"]).stdout;
    assert!(
        text.contains("values crossing") && text.contains("next: seamline split"),
        "{text}"
    );
}

#[test]
fn preprocessing_makes_the_input_a_picture() {
    let place = Place::new();
    place.convolution("conv.onnx");
    let spec = "size=16x16,name=photo,order=bgr";
    let model = place.json(0, &["inspect", "conv.onnx", "--image", spec]);
    assert_eq!(model["inputs"][0]["name"], "photo");
    assert_eq!(model["inputs"][0]["dtype"], "u8");
    place.perceptron("m.onnx");
    place.refused(
        &["inspect", "m.onnx", "--image", "imagenet"],
        &["no input", "x: f32 [N, 8]"],
    );
}

#[test]
fn convert_keeps_the_model_and_moves_weights_out() {
    let place = Place::new();
    place.perceptron("m.onnx");
    let external = [
        "convert",
        "m.onnx",
        "out.onnx",
        "--external",
        "w.bin",
        "--threshold",
        "512",
    ];
    let document = place.json(0, &external);
    assert_eq!(document["nodes"], 5);
    // w1 of 512 bytes and w2 of 1,024, each on a page of its own; w3 stays.
    assert_eq!(document["external"]["bytes"], 4096 + 1024);
    let same = |name: &str| {
        let mut model = place.json(0, &["inspect", name]);
        let fields = model.as_object_mut().unwrap();
        fields.retain(|name, _| !["name", "blake3"].contains(&name.as_str()));
        model
    };
    assert_eq!(same("out.onnx"), same("m.onnx"));
    place.json(0, &["convert", "out.onnx", "back.onnx"]);
    std::fs::remove_file(place.path("w.bin")).unwrap();
    assert_eq!(same("back.onnx"), same("m.onnx"));
    place.refused(&["inspect", "out.onnx"], &["out.onnx", "w.bin"]);
    place.refused(
        &["convert", "m.onnx", "out.onnx", "--external", "../w.bin"],
        &["--external ../w.bin", "without a folder"],
    );
}

#[test]
fn convert_takes_a_folder_and_goes_on_after_a_model_that_it_refuses() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("in/below")).unwrap();
    place.perceptron("in/a.onnx");
    place.perceptron("in/below/c.onnx");
    std::fs::write(place.path("in/below/b.onnx"), b"no model").unwrap();
    std::fs::write(place.path("in/notes.txt"), b"no model either").unwrap();
    let document = place.json(1, &["convert", "in", "out"]);
    let written: Vec<&str> = document["written"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["path"].as_str().unwrap())
        .collect();
    assert_eq!(written, ["out/a.onnx", "out/below/c.onnx"]);
    let failed = document["failed"].as_array().unwrap();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0]["input"], "in/below/b.onnx");
    let error = failed[0]["error"].as_str().unwrap();
    assert!(error.contains("not an ONNX model"), "{error}");
    let nodes = |name: &str| place.json(0, &["inspect", name])["nodes"].clone();
    assert_eq!(nodes("out/below/c.onnx"), nodes("in/below/c.onnx"));

    std::fs::remove_file(place.path("in/below/b.onnx")).unwrap();
    place.json(0, &["convert", "in", "out"]);
    place.refused(&["convert", "in", "in/out"], &["in/out", "another folder"]);
    place.refused(
        &["convert", "in", "out", "--external", "w.bin"],
        &["--external", "one by one"],
    );
    std::fs::create_dir(place.path("none")).unwrap();
    place.refused(&["convert", "none", "out"], &["none", ".onnx"]);
}

#[test]
fn an_equation_that_hangs_the_runtime_is_refused_before_it_gets_there() {
    let place = Place::new();
    let square = [2.into(), 2.into()];
    let equation = vec![builder::string("equation", "i.j->ij")];
    GraphBuilder::new("hang", 17)
        .input("x", DType::F32, &square)
        .node_with("Einsum", &["x"], &["a"], equation)
        .node("test::Opaque", &["a"], &["b"])
        .node("Relu", &["b"], &["y"])
        .output("y", DType::F32, &square)
        .build()
        .unwrap()
        .write(&place.path("hang.onnx"), &WriteOptions::default())
        .unwrap();
    for command in ["inspect", "seams"] {
        place.refused(&[command, "hang.onnx"], &["`a/node` (Einsum)", "i.j->ij"]);
    }
}

#[test]
fn files_that_are_no_models_are_named_with_what_to_do() {
    let place = Place::new();
    let good = std::fs::read(place.perceptron("m.onnx")).unwrap();
    let files: [(&str, &[u8], &str); 3] = [
        (
            "prose.onnx",
            b"This is no model, but a sentence about one.",
            "not an ONNX model",
        ),
        ("empty.onnx", b"", "the file is empty"),
        (
            "half.onnx",
            &good[..good.len() / 2],
            "copy or export the file again",
        ),
    ];
    for (name, content, part) in files {
        std::fs::write(place.path(name), content).unwrap();
        place.refused(&["inspect", name], &[name, part]);
        place.refused(&["seams", name], &[name, part]);
        place.refused(&["convert", name, "out.onnx"], &[name, part]);
    }
    place.refused(
        &["inspect", "absent.onnx"],
        &["absent.onnx", "No such file"],
    );
}

#[test]
fn bad_usage_is_2_and_says_what_was_expected() {
    let place = Place::new();
    place.perceptron("m.onnx");
    let cases: [(&[&str], &str); 6] = [
        (&["split", "m.onnx"], "--output"),
        (&["seams"], "<MODEL>"),
        (&["seams", "m.onnx", "--shape", "N=0"], "expected NAME=N"),
        (&["seams", "m.onnx", "--image", "size=16"], "expected HxW"),
        (
            &["split", "m.onnx", "-o", "m.seam", "--codec", "zip"],
            "raw, f16, int8",
        ),
        (
            &["verify", "m.seam", "--level", "most"],
            "off, basic, extended, all",
        ),
    ];
    for (arguments, part) in cases {
        place.run(arguments).assert_refused(2, &[part]);
    }
    place.refused(
        &["seams", "m.onnx", "--shape", "M=3"],
        &["no input has a dimension `M`", "N"],
    );
}

#[test]
fn the_zoo_lists_and_refuses_by_name() {
    let place = Place::new();
    let document = place.json(0, &["zoo", "list"]);
    assert!(document["models"].as_array().unwrap().len() > 5);
    place.refused(
        &["zoo", "get", "resnet"],
        &["no model `resnet`", "orientation"],
    );
}
