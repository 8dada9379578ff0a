//! A manifest: it is refused, or means the same when it is written and read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use seamline_fuzz::{bounded, plant};
use seamline_plan::{Bindings, Manifest};

fuzz_target!(
    init: plant(seeds()),
    |data: &[u8]| {
        let most = (64 << 10) + 256 * data.len();
        let manifest = bounded(most, || Manifest::parse(data));
        let manifest = match manifest {
            Ok(manifest) => manifest,
            Err(error) => return assert!(!error.to_string().is_empty()),
        };
        let json = manifest.to_json().expect("it was valid");
        assert_eq!(Manifest::parse(&json).expect("written by us"), manifest);
        for file in &manifest.files {
            let leads_out = |part: &str| part.is_empty() || part == "..";
            assert!(!file.path.split('/').any(leads_out), "{}", file.path);
        }
        for cut in &manifest.cuts {
            assert!(cut.stage <= manifest.stages.len());
            let mut bindings = Bindings::new();
            for crossing in &cut.crossing {
                let shape: Vec<usize> = crossing.reference.iter().map(|&d| d as usize).collect();
                let _ = crossing.spec.check(crossing.spec.dtype, &shape, &mut bindings);
            }
        }
    }
);

fn seeds() -> Vec<Vec<u8>> {
    let hash = "0".repeat(64);
    let manifest = serde_json::json!({
        "format": 1,
        "model": {"name": "m", "graph_hash": hash, "metadata": {"labels": "a,b"}},
        "inputs": [
            {"name": "x", "dtype": "f32", "shape": ["N", 4]},
            {"name": "h", "dtype": "f32", "shape": [1, 4]}
        ],
        "outputs": [
            {"name": "y", "dtype": "f32", "shape": ["N", null]},
            {"name": "hn", "dtype": "f32", "shape": [1, 4]}
        ],
        "states": [{"input": "h", "output": "hn"}],
        "stages": [
            {"inputs": ["x"], "outputs": ["a"], "nodes": 1, "edge": "edge/stage0.onnx"},
            {"inputs": ["a", "h"], "outputs": ["y", "hn"], "nodes": 2, "cloud": "cloud/stage1.onnx"}
        ],
        "cuts": [{
            "id": "s1",
            "stage": 1,
            "depth": 0.5,
            "crossing": [{
                "spec": {"name": "a", "dtype": "f32", "shape": ["N", 4]},
                "codecs": [{"kind": "raw"}, {"kind": "int8", "axis": 1}],
                "batch_axis": 0,
                "reference": [1, 4]
            }],
            "replies": [{
                "spec": {"name": "y", "dtype": "f32", "shape": ["N", null]},
                "codec": {"kind": "f16"},
                "batch_axis": null
            }]
        }],
        "default_cut": "s1",
        "files": [
            {"path": "edge/stage0.onnx", "bytes": 3, "blake3": hash},
            {"path": "cloud/stage1.onnx", "bytes": 3, "blake3": hash}
        ]
    });
    let seed = manifest.to_string().into_bytes();
    Manifest::parse(&seed).expect("the seed is valid");
    vec![seed]
}
