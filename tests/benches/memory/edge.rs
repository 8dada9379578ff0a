//! What a bundle adds to a device's process.

use std::io::Read;
use std::path::Path;

use seamline_edge::{BlockingClient, Client};
use seamline_ort::Runtime;
use seamline_partitioner::SplitOptions;
use seamline_plan::{DType, Tensor};

use crate::harness;
use crate::harness::bundles::{Subject, random_inputs};
use crate::harness::service::{runtime, spawn_self};
use crate::shapes::convolutions;
use crate::{report, resident};

const MODELS: &str = "orientation,minilm-l3,vit-s";
/// Resident over weights.
const PROMISE: f64 = 1.3;

pub(crate) fn measure() {
    let models = harness::argument("--models").unwrap_or_else(|| MODELS.into());
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime(false);
    let small = convolutions(&runtime, folder.path());
    for name in models.split(',') {
        let folder = tempfile::tempdir().unwrap();
        let subject = Subject::open(name.to_owned().leak(), &runtime, None);
        let bundle = folder.path().join("model.seam");
        let (seam, _) = subject.seam_at(0.5);
        subject.split_with(
            &runtime,
            &bundle,
            &SplitOptions {
                at: vec![seam],
                edge_tail: true,
                ..SplitOptions::default()
            },
        );
        let weights = weights(&bundle);
        let paths = [&small, &bundle].map(|path| path.to_str().unwrap());
        let mut child = spawn_self(&["--small", paths[0], "--device", paths[1]]);
        let mut line = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut line)
            .unwrap();
        child.wait().unwrap();
        let [loaded, all, anonymous]: [f64; 3] = serde_json::from_str(&line).unwrap();
        report(
            format!("device, {name} loaded"),
            loaded,
            "weights",
            weights,
            Some(PROMISE),
        );
        report(
            format!("device, {name}, three requests answered"),
            all,
            "weights",
            weights,
            Some(PROMISE),
        );
        report(
            "the same, what is not from files".into(),
            anonymous,
            "weights",
            weights,
            None,
        );
    }
}

/// Bytes of the files that hold weights, and of the graphs around them.
fn weights(bundle: &Path) -> f64 {
    let files = std::fs::read_dir(bundle.join("edge")).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().len() as f64)
        .sum()
}

/// Loads a bundle, answers three requests with it alone, prints what that added, and returns true
/// where this process was started to. A small bundle goes first and pays for what every process
/// needs once: ONNX Runtime's code, its thread pool, tokio.
pub(crate) fn device_if_asked() -> bool {
    let Some(bundle) = harness::argument("--device") else {
        return false;
    };
    let bundle = Path::new(&bundle);
    let runtime = runtime(false);
    let inputs = random_inputs(bundle);
    let small = harness::argument("--small").unwrap();
    let small = load(Path::new(&small), &runtime);
    let x = Tensor::zeros(DType::F32, vec![1, 4, 64, 64]).unwrap();
    small.infer([("x".to_owned(), x)].into()).unwrap();
    let before = resident::of(std::process::id());
    let client = load(bundle, &runtime);
    let loaded = resident::of(std::process::id());
    for _ in 0..3 {
        client.infer(inputs.clone()).unwrap();
    }
    let after = resident::of(std::process::id());
    let added = [
        loaded.all - before.all,
        after.all - before.all,
        after.anonymous - before.anonymous,
    ];
    println!("{}", serde_json::to_string(&added).unwrap());
    true
}

fn load(bundle: &Path, runtime: &Runtime) -> BlockingClient {
    Client::builder(bundle)
        .runtime(runtime.clone())
        .build_blocking()
        .unwrap()
}
