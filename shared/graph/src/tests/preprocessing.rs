//! Preprocessing in front of a model.

use seamline_plan::{DType, Dim};

use super::{same_answers, sized};
use crate::Graph;
use crate::builder::GraphBuilder;
use crate::preprocess::{ChannelOrder, ImagePreprocess, PreprocessError, Resize};
use crate::seams::SeamFinder;

fn classifier(opset: i64, dtype: DType) -> Graph {
    let mut builder = GraphBuilder::new("classifier", opset);
    builder
        .input("x", dtype, &["N".into(), 3.into(), 224.into(), 224.into()])
        .node("Relu", &["x"], &["a"])
        .node("Relu", &["a"], &["y"])
        .output("y", dtype, &["N".into(), 3.into(), 224.into(), 224.into()]);
    builder.build().unwrap()
}

fn typical() -> ImagePreprocess {
    ImagePreprocess {
        input: "x".into(),
        resize: Resize::ShortSide(256),
        center_crop: Some((224, 224)),
        mean: [0.485, 0.456, 0.406],
        std: [0.229, 0.224, 0.225],
        ..ImagePreprocess::default()
    }
}

fn ops(graph: &Graph) -> Vec<&str> {
    graph
        .nodes
        .iter()
        .map(|node| node.op_type.as_str())
        .collect()
}

#[test]
fn a_picture_of_bytes_replaces_the_float_input() {
    let graph = typical().apply(&classifier(15, DType::F32)).unwrap();
    let input = graph.value(graph.inputs[0]);
    assert_eq!(
        (input.name.as_str(), input.dtype),
        ("image", Some(DType::U8))
    );
    let symbol = |name: &str| Dim::Sym(name.into());
    assert_eq!(
        input.shape,
        Some(vec![
            symbol("N"),
            symbol("image_height"),
            symbol("image_width"),
            3.into()
        ])
    );
    let added: Vec<_> = graph
        .nodes
        .iter()
        .filter(|node| node.name.starts_with("seamline/pre/"))
        .collect();
    assert!(added.len() == graph.nodes.len() - 2 || graph.find("x").is_some());
    // The old input keeps its name and type, so that a cut can lie there.
    let x = graph.value(graph.find("x").unwrap());
    assert_eq!(x.shape.as_ref().map(Vec::len), Some(4));
    let costed = sized(&graph);
    let cut = SeamFinder::new(&costed).at("x").unwrap().cut;
    same_answers(&graph, &[cut]);
}

#[test]
fn operators_fit_the_opset() {
    let resize = |opset| {
        let graph = typical().apply(&classifier(opset, DType::F32)).unwrap();
        graph
            .nodes
            .into_iter()
            .find(|node| node.is("Resize"))
            .unwrap()
    };
    assert!(
        resize(11).inputs[..3].iter().all(Option::is_some),
        "`scales` is required until 13"
    );
    assert!(resize(13).inputs[1..3].iter().all(Option::is_none));
    let smooth = ImagePreprocess {
        antialias: true,
        ..typical()
    };
    let error = smooth.apply(&classifier(17, DType::F32)).unwrap_err();
    assert!(
        matches!(
            error,
            PreprocessError::Opset {
                needed: 18,
                got: 17,
                ..
            }
        ),
        "{error}"
    );
    let graph = smooth.apply(&classifier(18, DType::F32)).unwrap();
    assert_eq!(
        graph
            .nodes
            .iter()
            .find(|node| node.is("Resize"))
            .unwrap()
            .int("antialias"),
        Some(1)
    );
    let error = typical().apply(&classifier(10, DType::F32)).unwrap_err();
    assert!(
        matches!(
            error,
            PreprocessError::Opset {
                needed: 11,
                got: 10,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn only_the_steps_asked_for_are_added() {
    let plain = ImagePreprocess {
        input: "x".into(),
        ..ImagePreprocess::default()
    };
    let graph = plain.apply(&classifier(15, DType::F32)).unwrap();
    assert_eq!(ops(&graph), ["Transpose", "Cast", "Mul", "Relu", "Relu"]);
    let shape = graph.value(graph.inputs[0]).shape.clone().unwrap();
    assert_eq!(shape[1..], [224.into(), 224.into(), 3.into()]);
    let swapped = ImagePreprocess {
        order: ChannelOrder::Bgr,
        ..plain
    };
    let graph = swapped.apply(&classifier(15, DType::F16)).unwrap();
    assert_eq!(
        ops(&graph),
        ["Transpose", "Cast", "Gather", "Mul", "Cast", "Relu", "Relu"]
    );
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let model = classifier(15, DType::F32);
    let refused = |change: &dyn Fn(&mut ImagePreprocess)| {
        let mut settings = typical();
        change(&mut settings);
        settings.apply(&model).unwrap_err()
    };
    let error = refused(&|settings| settings.input = "z".into());
    assert!(matches!(error, PreprocessError::NoInput { .. }), "{error}");
    let error = refused(&|settings| settings.picture = "a".into());
    assert!(
        matches!(error, PreprocessError::NameTaken { .. }),
        "{error}"
    );
    let error = refused(&|settings| settings.std[1] = 0.0);
    assert!(
        matches!(error, PreprocessError::Factor { field: "std", .. }),
        "{error}"
    );
    let error = refused(&|settings| settings.scale = f32::NAN);
    assert!(
        matches!(error, PreprocessError::Factor { field: "scale", .. }),
        "{error}"
    );
    for change in [
        &(|settings: &mut ImagePreprocess| settings.center_crop = Some((300, 300)))
            as &dyn Fn(&mut ImagePreprocess),
        &|settings| settings.center_crop = Some((200, 224)),
        &|settings| settings.center_crop = None,
        &|settings| settings.resize = Resize::ShortSide(0),
    ] {
        let error = refused(change);
        assert!(matches!(error, PreprocessError::Size(_)), "{error}");
    }
    let integers = classifier(15, DType::I64);
    let error = typical().apply(&integers).unwrap_err();
    assert!(
        matches!(error, PreprocessError::NotPicture { .. }),
        "{error}"
    );
}
