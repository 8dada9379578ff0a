//! Writing: what was read comes out again.

use bytes::Bytes;
use prost::Message;
use seamline_plan::DType;

use crate::builder::{self, GraphBuilder};
use crate::proto::{ModelProto, NodeProto, TensorAnnotation, TensorProto, TrainingInfoProto};
use crate::{ExternalOptions, Graph, WriteOptions};

fn rich() -> ModelProto {
    let mut builder = GraphBuilder::new("rich", 21);
    builder
        .import("com.example", 2)
        .input("x", DType::F32, &["N".into(), 4.into()])
        .weight_f32("w", &[512], &vec![1.0; 512])
        .weight_i64("i", &[1], &[7])
        .declare("a", DType::F32, &["N".into(), 4.into()])
        .node_with(
            "com.example::Strange",
            &["x", "", "w"],
            &["a", "", "extra"],
            vec![builder::float("alpha", 0.5), builder::string("mode", "odd")],
        )
        .node("Add", &["a", "i"], &["y"])
        .output("y", DType::F32, &["N".into(), 4.into()]);
    let mut model = builder.to_model_proto();
    model.domain = Some("com.example.models".into());
    model.model_version = Some(12);
    model.training_info.push(TrainingInfoProto::default());
    if let Some(graph) = &mut model.graph {
        graph.doc_string = Some("a graph".into());
        graph.node[0].doc_string = Some("a node".into());
        graph.quantization_annotation.push(TensorAnnotation {
            tensor_name: Some("a".into()),
            ..TensorAnnotation::default()
        });
    }
    model
}

#[test]
fn a_model_is_the_same_after_reading_and_writing() {
    let model = rich();
    let written = Graph::from_model_proto(model.clone())
        .unwrap()
        .to_model_proto();
    assert_eq!(written, model);
}

/// Every type of ONNX, one that it does not have yet, and the bits of an element.
const TYPES: [(i32, u64); 27] = [
    (1, 32),
    (2, 8),
    (3, 8),
    (4, 16),
    (5, 16),
    (6, 32),
    (7, 64),
    (8, 0),
    (9, 8),
    (10, 16),
    (11, 64),
    (12, 32),
    (13, 64),
    (14, 64),
    (15, 128),
    (16, 16),
    (17, 8),
    (18, 8),
    (19, 8),
    (20, 8),
    (21, 4),
    (22, 4),
    (23, 4),
    (24, 8),
    (25, 2),
    (26, 2),
    (99, 0),
];

#[test]
fn weights_of_every_type_are_kept_in_whatever_form_they_have() {
    const ELEMENTS: u64 = 5;
    let mut model = rich();
    let graph = model.graph.as_mut().unwrap();
    for (code, bits) in TYPES {
        let base = TensorProto {
            name: Some(format!("raw{code}")),
            data_type: Some(code),
            dims: vec![5],
            ..TensorProto::default()
        };
        // What has no size of its own is kept with whatever content it has.
        let length = usize::try_from((ELEMENTS * bits).div_ceil(8))
            .unwrap()
            .max(1);
        graph.initializer.push(TensorProto {
            raw_data: Some(vec![0x5a; length].into()),
            ..base.clone()
        });
        graph.initializer.push(TensorProto {
            name: Some(format!("typed{code}")),
            int32_data: vec![1, 2, 3, 0, 1],
            string_data: vec![b"any"[..].into(), b"\xff\x00"[..].into()],
            ..base
        });
    }
    let bytes = Bytes::from(model.encode_to_vec());
    let read = Graph::from_bytes(&bytes).unwrap();
    assert_eq!(read.to_model_proto(), model);
    for (code, bits) in TYPES {
        let weight = &read.initializers[&read.find(&format!("raw{code}")).unwrap()];
        assert_eq!(weight.is_sized(), bits > 0, "type {code}");
        assert_eq!(weight.byte_len().unwrap(), (ELEMENTS * bits).div_ceil(8));
    }
}

#[test]
fn training_and_repeated_or_empty_node_names_are_kept() {
    let mut model = rich();
    let inner = model.graph.clone();
    model.training_info[0].algorithm = inner.clone();
    model.training_info[0].initialization = inner;
    let graph = model.graph.as_mut().unwrap();
    let node = |name: &str, from: &str, to: &str| NodeProto {
        name: (!name.is_empty()).then(|| name.into()),
        ..builder::node("Relu", &[from], &[to], vec![])
    };
    graph.node.extend([
        node("twin", "y", "z1"),
        node("twin", "z1", "z2"),
        node("", "z2", "z3"),
        node("", "z3", "z4"),
    ]);
    let written = Graph::from_model_proto(model.clone()).unwrap();
    assert_eq!(written.to_model_proto(), model);
}

#[test]
fn before_ir_4_initializers_are_declared_as_inputs_and_are_not_inputs_here() {
    let mut model = rich();
    model.ir_version = Some(3);
    let graph = Graph::from_model_proto(model).unwrap();
    let written = graph.to_model_proto();
    let names: Vec<&str> = written
        .graph
        .as_ref()
        .unwrap()
        .input
        .iter()
        .map(|input| input.name())
        .collect();
    assert_eq!(names, ["x", "w", "i"]);
    let read = Graph::from_model_proto(written.clone()).unwrap();
    assert_eq!(read.inputs.len(), 1);
    assert_eq!(read.overridable.len(), 2);
    assert_eq!(read.to_model_proto(), written);
}

#[test]
fn external_weights_are_written_beside_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rich.onnx");
    let graph = Graph::from_model_proto(rich()).unwrap();
    let options = WriteOptions {
        external: Some(ExternalOptions {
            file: "rich.bin".into(),
            threshold: 1024,
        }),
    };
    graph.write(&path, &options).unwrap();
    assert_eq!(
        std::fs::metadata(folder.path().join("rich.bin"))
            .unwrap()
            .len(),
        2048
    );
    assert!(std::fs::metadata(&path).unwrap().len() < 1024);
    let read = Graph::read(&path).unwrap();
    assert_eq!(read.source.as_ref(), Some(&path));
    assert_eq!(
        read.to_model_proto().encode_to_vec(),
        graph.to_model_proto().encode_to_vec()
    );
}
