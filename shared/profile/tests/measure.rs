//! A small kit made by hand, measured for real.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use seamline_assets::Store;
use seamline_graph::ExternalWeights;
use seamline_graph::builder::{GraphBuilder, int};
use seamline_ort::{Provider, Runtime, RuntimeOptions, locate};
use seamline_plan::{
    Bindings, CodecSpec, Crossing, DType, Dim, Fingerprint, KIT_FILE, KIT_FORMAT, Kit, KitSeam,
    KitTensor, PartTime, Profile, ProfiledModel, Side, Tensor, TensorSpec, WHOLE,
};
use seamline_profile::{
    Effort, MeasureError, MeasureOptions, Measured, Progress, measure, partial_path,
};

/// Columns of the head's matrix, which so has 4 MiB.
const WIDE: u64 = 1024;

/// As little as there can be.
const EFFORT: Effort = Effort {
    passes: 2,
    min_runs: 2,
    max_runs: 4,
    time: Duration::ZERO,
    codec_time: Duration::ZERO,
};

/// The process's runtime, for one test at a time: resident memory is the process's.
fn runtime() -> (Runtime, MutexGuard<'static, ()>) {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let load = || {
        let path = std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
        let library = locate(path.as_deref(), &Store::from_env()).unwrap();
        Runtime::load(&RuntimeOptions::new(library)).unwrap()
    };
    (RUNTIME.get_or_init(load).clone(), turn)
}

fn options(side: Side, threads: &[usize]) -> MeasureOptions {
    MeasureOptions {
        side,
        name: Some("bench".into()),
        providers: vec![Provider::Cpu],
        threads: threads.into(),
        batches: vec![1, 2, 4],
        effort: EFFORT,
    }
}

fn row(columns: u64) -> [Dim; 2] {
    [Dim::Sym("N".into()), Dim::Fixed(columns)]
}

fn weight(graph: &mut GraphBuilder, name: &str, columns: u64) {
    let data: Vec<f32> = (0..WIDE * columns)
        .map(|at| (at % 13) as f32 / 64.0 - 0.1)
        .collect();
    graph.weight_f32(name, &[WIDE as i64, columns as i64], &data);
}

/// `h = Relu(x · W)`; `y = h · V + idx`: the input `idx` crosses as it is.
fn model(head: bool, tail: bool) -> GraphBuilder {
    let mut graph = GraphBuilder::new("two", 17);
    if head {
        graph.input("x", DType::F32, &row(WIDE));
        weight(&mut graph, "W", WIDE);
        graph.node("MatMul", &["x", "W"], &["product"]);
        graph.node("Relu", &["product"], &["h"]);
    } else {
        graph.input("h", DType::F32, &row(WIDE));
    }
    if tail {
        graph.input("idx", DType::I64, &row(8));
        weight(&mut graph, "V", 8);
        graph.node("MatMul", &["h", "V"], &["small"]);
        graph.node_with("Cast", &["idx"], &["idx_f32"], vec![int("to", 1)]);
        graph.node("Add", &["small", "idx_f32"], &["y"]);
        graph.output("y", DType::F32, &row(8));
    } else {
        graph.output("h", DType::F32, &row(WIDE));
    }
    graph
}

fn write_model(path: &Path, graph: &GraphBuilder) {
    let mut graph = graph.build().unwrap();
    for (index, node) in graph.nodes.iter_mut().enumerate() {
        node.name = format!("n{index}");
    }
    let mut weights = ExternalWeights::new("none", u64::MAX);
    std::fs::write(path, graph.encode_with_external(&mut weights)).unwrap();
}

fn crossing(name: &str, dtype: DType, columns: u64) -> Crossing {
    let codecs = match dtype {
        DType::F32 => vec![CodecSpec::Raw, CodecSpec::F16, CodecSpec::Int8 { axis: 0 }],
        _ => vec![CodecSpec::Packed, CodecSpec::Raw],
    };
    Crossing {
        spec: TensorSpec {
            name: name.into(),
            dtype,
            shape: row(columns).into(),
        },
        codecs,
        batch_axis: Some(0),
        reference: vec![1, columns],
    }
}

/// A kit of [`model`] with one seam and the whole.
fn kit(folder: &Path) -> Kit {
    for (file, head, tail) in [
        ("nodes.onnx", true, true),
        ("whole.onnx", true, true),
        ("head.onnx", true, false),
        ("tail.onnx", false, true),
    ] {
        write_model(&folder.join(file), &model(head, tail));
    }
    let x: Vec<f32> = (0..WIDE).map(|at| at as f32 / WIDE as f32 - 0.5).collect();
    let x = Tensor::from_vec(vec![1, x.len()], x).unwrap();
    let idx = Tensor::from_vec(vec![1, 8], (0..8i64).collect()).unwrap();
    let sample = [("x", x), ("idx", idx)].map(|(name, tensor)| {
        let file = format!("{name}.bin");
        std::fs::write(folder.join(&file), tensor.bytes()).unwrap();
        KitTensor {
            name: name.into(),
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            file,
        }
    });
    let seam = |seam: &str, head: &str, tail: &str, first: &str| KitSeam {
        seam: seam.into(),
        head: head.into(),
        tail: tail.into(),
        crossing: vec![
            crossing(first, DType::F32, WIDE),
            crossing("idx", DType::I64, 8),
        ],
    };
    let kit = Kit {
        format: KIT_FORMAT,
        model: ProfiledModel {
            name: "two".into(),
            graph_hash: Fingerprint::of(b"two"),
            shapes: Bindings::from([("N".to_owned(), 1)]),
        },
        nodes: "nodes.onnx".into(),
        seams: vec![
            seam(WHOLE, "whole.onnx", "whole.onnx", "x"),
            seam("h", "head.onnx", "tail.onnx", "h"),
        ],
        samples: vec![sample.into()],
    };
    write(&kit, folder);
    kit
}

fn write(kit: &Kit, folder: &Path) {
    std::fs::write(folder.join(KIT_FILE), kit.to_json()).unwrap();
}

fn go_on(_: &Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn measured(folder: &Path, options: &MeasureOptions) -> Result<Measured, MeasureError> {
    let (runtime, _turn) = runtime();
    measure(&runtime, folder, &folder.join("out.json"), options, go_on)
}

/// Each codec with its bytes: 8 numbers from 0 on, packed, are a base, a width and a byte each;
/// int8 has a scale and a byte each.
fn assert_codecs(part: &PartTime) {
    let codecs = part.codecs.iter();
    let codecs: Vec<(&str, u64)> = codecs
        .map(|codec| (codec.codec.as_str(), codec.bytes))
        .collect();
    let expected = [
        ("raw", 4 * WIDE + 64),
        ("f16", 2 * WIDE + 17),
        ("int8", WIDE + 4 + 17),
        ("packed", 4 * WIDE + 17),
    ];
    assert_eq!(codecs, expected);
    assert!(part.codecs.iter().all(|codec| codec.time.samples >= 6));
}

/// One test at a time: what another frees meanwhile would be taken for this one's memory.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn heads_are_measured_whole_with_codecs_memory_and_placement() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    kit(folder.path());
    let options = options(Side::Edge, &[1, 2]);
    let measured = measured(folder.path(), &options).unwrap();
    let file = folder.path().join("out.json");
    let profile = Profile::read(&file, Side::Edge).unwrap();
    assert_eq!(profile.parts.len(), measured.profile.parts.len());
    assert!(!partial_path(&file).exists());

    let nodes: Vec<usize> = profile.nodes.iter().map(|node| node.node).collect();
    assert_eq!(nodes, [0, 1, 2, 3, 4]);
    assert_eq!(profile.machine.name, "bench");
    assert!(profile.machine.runtime.starts_with("ONNX Runtime"));
    let parts = profile.parts.iter();
    let parts: Vec<_> = parts
        .map(|part| (part.seam.as_str(), part.threads))
        .collect();
    assert_eq!(parts, [(WHOLE, 1), (WHOLE, 2), ("h", 1), ("h", 2)]);
    for part in &profile.parts {
        assert_eq!(part.batch, 1);
        assert_eq!(part.time.samples, 4, "2 passes of 2 runs");
        assert!(part.time.p50_us > 0.0);
        let nodes = part.placement.get("CPUExecutionProvider");
        assert!(nodes.is_some_and(|nodes| (1..=5).contains(nodes)));
        assert_codecs(part);
    }
    if cfg!(target_os = "linux") {
        // glibc gives back what a thread has freed, the last of it aside: one part is weighed right
        // at least.
        let weights = 4 * WIDE * WIDE;
        let most = profile.parts.iter().map(|part| part.resident_bytes).max();
        assert!(
            most.is_some_and(|most| (weights / 2..20 * weights).contains(&most)),
            "weights of {weights} bytes took {most:?}"
        );
    }
    let head: Vec<String> = vec!["h".into(), "idx".into()];
    assert_eq!(profile.parts_of(&head).count(), 2);
    assert_eq!(profile.parts_of(&[]).count(), 2, "the whole model");
    let table = measured.table(&options);
    assert_eq!(table.lines().count(), 5, "{table}");
    let document = measured.document(&file, &options);
    assert_eq!(document["parts"].as_array().unwrap().len(), 4);
}

#[test]
fn tails_are_measured_by_batch_where_rows_can_be_joined() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let mut kit = kit(folder.path());
    kit.seams[0].crossing[1].batch_axis = None;
    write(&kit, folder.path());
    let options = options(Side::Cloud, &[1]);
    let profile = measured(folder.path(), &options).unwrap().profile;
    let parts = profile.parts.iter();
    let parts: Vec<_> = parts.map(|part| (part.seam.as_str(), part.batch)).collect();
    assert_eq!(parts, [(WHOLE, 1), ("h", 1), ("h", 2), ("h", 4)]);
    profile.parts.iter().for_each(assert_codecs);
}

#[test]
fn a_tail_that_runs_for_one_row_only_is_measured_for_one() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    kit(folder.path());
    let mut tail = model(false, true);
    // 8 numbers are one row's; those of another number of rows do not fit.
    tail.weight_i64("shape", &[2], &[1, 8]);
    tail.node("Reshape", &["y", "shape"], &["z"]);
    tail.output("z", DType::F32, &row(8));
    write_model(&folder.path().join("tail.onnx"), &tail);
    let options = options(Side::Cloud, &[1]);
    let profile = measured(folder.path(), &options).unwrap().profile;
    let of_tail = profile.parts.iter().filter(|part| part.seam == "h");
    let batches: Vec<u64> = of_tail.map(|part| part.batch).collect();
    assert_eq!(batches, [1]);
}

#[test]
fn an_interrupted_measurement_goes_on_where_it_was() {
    let _alone = alone();
    let (runtime, _turn) = runtime();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    kit(folder.path());
    let out = at("device.json");
    let mut options = options(Side::Edge, &[1]);
    options.effort.passes = 1;
    // Steps: node by node, the whole, the head of h.
    let stopped = measure(&runtime, folder.path(), &out, &options, |progress| {
        if progress.done == 2 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let error = stopped.unwrap_err();
    let is_stopped = matches!(
        error,
        MeasureError::Stopped {
            done: 2,
            total: 3,
            ..
        }
    );
    assert!(is_stopped, "{error}");
    assert!(!out.exists() && partial_path(&out).exists());

    // Were they measured again, their models would be missed.
    std::fs::rename(at("nodes.onnx"), at("nodes.away")).unwrap();
    std::fs::rename(at("whole.onnx"), at("whole.away")).unwrap();
    let mut told = Vec::new();
    let measured = measure(&runtime, folder.path(), &out, &options, |progress| {
        told.push((progress.done, progress.what.clone()));
        ControlFlow::Continue(())
    });
    let measured = measured.unwrap();
    assert_eq!(measured.resumed, 2);
    let expected = [(2, "head of h, 1 thread".into()), (3, "done".into())];
    assert_eq!(told, expected);
    assert_eq!(measured.profile.parts.len(), 2);
    let mut parts = measured.profile.parts.iter();
    assert!(parts.all(|part| part.time.samples == 2));
    assert_eq!(measured.profile.nodes.len(), 5);
    assert!(out.exists() && !partial_path(&out).exists());
}

#[test]
fn figures_of_other_settings_or_another_kit_are_not_gone_on_from() {
    let _alone = alone();
    let (runtime, _turn) = runtime();
    let folder = tempfile::tempdir().unwrap();
    let mut kit = kit(folder.path());
    let out = folder.path().join("device.json");
    let options = options(Side::Edge, &[1]);
    let begin = |options: &MeasureOptions| {
        let mut first = None;
        let stopped = measure(&runtime, folder.path(), &out, options, |progress| {
            first.get_or_insert(progress.done);
            if progress.done == 1 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        assert!(matches!(stopped, Err(MeasureError::Stopped { .. })));
        first.unwrap()
    };
    assert_eq!((begin(&options), begin(&options)), (0, 1));
    let named = MeasureOptions {
        name: Some("another".into()),
        ..options.clone()
    };
    assert_eq!(begin(&named), 1, "a name is no setting");
    let threads = MeasureOptions {
        threads: vec![2],
        ..options.clone()
    };
    assert_eq!(begin(&threads), 0);
    assert_eq!(begin(&threads), 1);
    kit.model.graph_hash = Fingerprint::of(b"three");
    write(&kit, folder.path());
    assert_eq!(begin(&threads), 0);
    std::fs::write(partial_path(&out), b"{ half a file").unwrap();
    assert_eq!(begin(&threads), 0);
}

#[test]
fn what_cannot_be_measured_says_why() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let text = |options: &MeasureOptions| measured(path, options).unwrap_err().to_string();
    let plain = options(Side::Edge, &[1]);
    let no_kit = text(&plain);
    assert!(no_kit.contains("a kit is a folder"), "{no_kit}");

    let mut bad = kit(path);
    bad.format = 9;
    write(&bad, path);
    let version = text(&plain);
    assert!(
        version.contains("format 9; this build reads 1"),
        "{version}"
    );

    bad.format = KIT_FORMAT;
    bad.samples[0][0].shape = vec![2, usize::try_from(WIDE).unwrap() / 2];
    write(&bad, path);
    let shape = text(&plain);
    assert!(
        shape.contains("does not run on the kit's samples") && shape.contains("`x`"),
        "{shape}"
    );

    bad.samples.clear();
    write(&bad, path);
    assert!(text(&plain).contains("`samples` is empty"));

    kit(path);
    let none = options(Side::Edge, &[0]);
    assert!(text(&none).contains("number of threads"));
    if runtime().0.providers().contains(&Provider::Qnn) {
        println!("skipped: a missing provider; this ONNX Runtime has qnn");
        return;
    }
    let missing = MeasureOptions {
        providers: vec![Provider::Qnn],
        ..plain
    };
    let missing = text(&missing);
    assert!(
        missing.contains("execution provider qnn") && missing.contains("this library has cpu"),
        "{missing}"
    );
}
