//! Writing: what was read comes out again.

use prost::Message;
use seamline_plan::DType;

use crate::builder::{self, GraphBuilder};
use crate::proto::{ModelProto, TensorAnnotation, TrainingInfoProto};
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
