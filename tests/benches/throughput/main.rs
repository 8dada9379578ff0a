//! Requests a second of 32 clients on one service, beside ONNX Runtime running the same tail.
//!
//! `cargo bench -p seamline-tests --bench throughput [-- --json] [--cases a,b] [--seconds S]
//! [--rounds N] [--max-batch N]`
//!
//! Clients are in a process of their own, each with its own connection and one request in flight;
//! their activations are encoded beforehand. The service is in another process, with its defaults.
//! The peer is ONNX Runtime in a third process, running the same tail on the same values in a loop
//! with as many threads, at its best batch size; twice, with spinning threads and without, and the
//! better one counts. Ours and the peer are measured in turns.

#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[path = "../harness/mod.rs"]
mod harness;

mod clients;
mod direct;
mod measure;

use std::path::{Path, PathBuf};

use seamline_ort::Runtime;
use seamline_partitioner::ImagePreprocess;

use harness::bundles::Subject;
use harness::service::{runtime, serve_if_asked};
use measure::{Case, Settings};

const MODEL: &str = "orientation";

fn main() {
    if serve_if_asked() || clients::run_if_asked() || direct::run_if_asked() {
        return;
    }
    let number = |flag: &str, default: f64| {
        harness::argument(flag).map_or(default, |number| number.parse().unwrap())
    };
    let settings = Settings {
        json: harness::has("--json"),
        seconds: number("--seconds", 3.0),
        rounds: harness::argument("--rounds").map_or(5, |rounds| rounds.parse().unwrap()),
        max_batch: harness::argument("--max-batch").map(|size| size.parse().unwrap()),
    };
    let wanted = harness::argument("--cases");
    let folder = tempfile::tempdir().unwrap();
    for case in cases(folder.path()) {
        if wanted
            .as_deref()
            .is_none_or(|wanted| wanted.split(',').any(|id| id == case.id))
        {
            measure::measure(&case, folder.path(), &settings);
        }
    }
}

fn cases(folder: &Path) -> Vec<Case> {
    let runtime = runtime(false);
    let plain = Subject::open(MODEL, &runtime, None);
    let (seam, depth) = plain.cheapest_mid_seam();
    let mid = bundle(&plain, &runtime, folder, "mid", Some(&seam));
    let whole = bundle(&plain, &runtime, folder, "whole", None);
    let picture = Subject::open(MODEL, &runtime, Some(preprocessing()));
    let picture = bundle(&picture, &runtime, folder, "picture", None);
    let case = |id, name: String, bundle: &Path, codec, limit| Case {
        id,
        name,
        bundle: bundle.to_owned(),
        codec,
        limit,
    };
    let at = |codec| format!("{MODEL} tail at {:.0} %, {codec}", depth * 100.0);
    vec![
        case("int8", at("int8"), &mid, "int8", Some(0.8)),
        case("f16", at("f16"), &mid, "f16", Some(0.8)),
        case(
            "whole",
            format!("{MODEL} whole, f32 input"),
            &whole,
            "raw",
            None,
        ),
        case(
            "picture",
            format!("{MODEL} whole, u8 picture"),
            &picture,
            "raw",
            None,
        ),
    ]
}

fn bundle(
    subject: &Subject,
    runtime: &Runtime,
    folder: &Path,
    name: &str,
    at: Option<&str>,
) -> PathBuf {
    subject.split(runtime, &folder.join(format!("{name}.seam")), at)
}

/// Of pictures that have the model's size.
fn preprocessing() -> ImagePreprocess {
    ImagePreprocess {
        input: "x".into(),
        picture: "picture".into(),
        center_crop: Some((224, 224)),
        mean: [0.485, 0.456, 0.406],
        std: [0.229, 0.224, 0.225],
        ..ImagePreprocess::default()
    }
}
