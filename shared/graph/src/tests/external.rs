//! External data: mapped, confined to the model's folder, shared between models.

use std::path::Path;

use prost::Message;
use seamline_plan::DType;

use super::{same_answers, sized};
use crate::builder::{self, GraphBuilder};
use crate::proto::{ModelProto, StringStringEntryProto, TensorProto, tensor_proto::DataLocation};
use crate::seams::SeamFinder;
use crate::{Graph, ReadProblem};

fn at(location: &str, offset: u64, length: u64, dims: &[i64]) -> TensorProto {
    let entry = |key: &str, value: String| StringStringEntryProto {
        key: Some(key.into()),
        value: Some(value),
    };
    TensorProto {
        raw_data: None,
        data_location: Some(DataLocation::External.into()),
        external_data: vec![
            entry("location", location.into()),
            entry("offset", offset.to_string()),
            entry("length", length.to_string()),
        ],
        ..builder::tensor("w", DType::U8, dims, vec![])
    }
}

fn model(weight: TensorProto) -> ModelProto {
    let mut builder = GraphBuilder::new("external", 17);
    builder
        .input("x", DType::U8, &[4.into()])
        .weight(weight)
        .node("Relu", &["x"], &["a"])
        .node("test::Use", &["a", "w"], &["y"])
        .output("y", DType::U8, &[4.into()]);
    builder.to_model_proto()
}

fn write(folder: &Path, model: &ModelProto) -> std::path::PathBuf {
    let path = folder.join("model.onnx");
    std::fs::write(&path, model.encode_to_vec()).unwrap();
    path
}

#[test]
fn external_data_is_read_at_its_offset() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("data")).unwrap();
    std::fs::write(folder.path().join("data/w.bin"), [9, 8, 7, 6, 5]).unwrap();
    let graph = Graph::read(&write(folder.path(), &model(at("data/w.bin", 1, 3, &[3])))).unwrap();
    let weight = graph.constant(graph.find("w").unwrap()).unwrap();
    assert_eq!(&weight.bytes().unwrap()[..], [8, 7, 6]);
}

#[test]
fn locations_outside_the_folder_and_ranges_outside_the_file_are_refused() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("model");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(outer.path().join("secret"), [1; 8]).unwrap();
    std::fs::write(folder.join("w.bin"), [1; 8]).unwrap();
    let absolute = outer.path().join("secret").display().to_string();
    let mut bad = vec![
        ("../secret".to_owned(), 0, 4),
        ("data/../../secret".to_owned(), 0, 4),
        (absolute, 0, 4),
        ("C:secret".to_owned(), 0, 4),
        ("..\\secret".to_owned(), 0, 4),
        ("missing.bin".to_owned(), 0, 4),
        ("w.bin".to_owned(), 6, 4),
        ("w.bin".to_owned(), u64::MAX, 4),
        ("w.bin".to_owned(), 0, u64::MAX),
        (String::new(), 0, 4),
    ];
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(outer.path().join("secret"), folder.join("link")).unwrap();
        std::os::unix::fs::symlink(outer.path(), folder.join("up")).unwrap();
        bad.push(("link".to_owned(), 0, 4));
        bad.push(("up/secret".to_owned(), 0, 4));
    }
    for (location, offset, length) in bad {
        let error = Graph::read(&write(&folder, &model(at(&location, offset, length, &[4]))))
            .expect_err(&location);
        assert!(
            matches!(&error.problem, ReadProblem::ExternalData { tensor, .. } if tensor == "w"),
            "{location}: {error}"
        );
    }
    let error = Graph::from_model_proto(model(at("w.bin", 0, 4, &[4]))).unwrap_err();
    assert!(error.to_string().contains("from memory"), "{error}");
}

/// Resident memory in bytes.
#[cfg(target_os = "linux")]
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}

#[cfg(target_os = "linux")]
#[test]
fn case_04_three_gibibytes_of_external_weights_are_never_loaded() {
    const SIZE: u64 = 3 << 30;
    let folder = tempfile::tempdir().unwrap();
    // A hole: takes no disk, but would take memory if it were read.
    std::fs::File::create(folder.path().join("w.bin"))
        .unwrap()
        .set_len(SIZE)
        .unwrap();
    let size = i64::try_from(SIZE).unwrap();
    let path = write(folder.path(), &model(at("w.bin", 0, SIZE, &[size])));
    let before = resident();
    let graph = Graph::read(&path).unwrap();
    let costed = sized(&graph);
    let cut = SeamFinder::new(&costed).at("a").unwrap().cut;
    let types = |_| Some((DType::U8, Some(vec![4.into()])));
    let stages = crate::extract::extract(&graph, &[cut], types)
        .unwrap()
        .stages;
    let weight = &stages[1].graph.initializers[&stages[1].graph.find("w").unwrap()];
    assert_eq!(weight.bytes().unwrap().len() as u64, SIZE);
    // Other tests run at the same time: the bound is far from both.
    let grown = resident().saturating_sub(before);
    assert!(grown < SIZE / 4, "resident memory grew by {grown} bytes");
}

#[test]
fn stages_share_one_external_file_and_store_equal_weights_once() {
    let mut builder = GraphBuilder::new("shared", 17);
    builder
        .input("x", DType::F32, &[4.into()])
        .weight_f32("w", &[1024], &vec![1.5; 1024])
        .weight_f32("same", &[1024], &vec![1.5; 1024])
        .weight_f32("other", &[1024], &vec![2.5; 1024])
        .weight_f32("small", &[1], &[0.5])
        .node("Add", &["x", "w"], &["a"])
        .node("Add", &["a", "same"], &["b"])
        .node("Add", &["b", "other"], &["c"])
        .node("Add", &["c", "small"], &["y"])
        .output("y", DType::F32, &[4.into()]);
    let graph = builder.build().unwrap();
    let costed = sized(&graph);
    let cut = SeamFinder::new(&costed).at("a").unwrap().cut;
    let stages = same_answers(&graph, &[cut]).stages;

    let folder = tempfile::tempdir().unwrap();
    let mut weights = crate::ExternalWeights::new("weights.bin", 1024);
    let models: Vec<ModelProto> = stages
        .iter()
        .map(|stage| {
            let mut model = stage.graph.to_model_proto();
            weights.take(&mut model);
            model
        })
        .collect();
    assert_eq!(weights.byte_len(), 2 * 4096);
    let mut file = Vec::new();
    weights.write_to(&mut file).unwrap();
    assert_eq!(file.len() as u64, weights.byte_len());
    std::fs::write(folder.path().join("weights.bin"), file).unwrap();
    for (model, stage) in models.iter().zip(&stages) {
        let read = Graph::read(&write(folder.path(), model)).unwrap();
        assert_eq!(read.initializers, stage.graph.initializers);
    }
}
