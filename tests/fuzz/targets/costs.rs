//! What a plan was made from: costs, profiles. They are refused, or mean the same when they are
//! written and read again, and every figure that is made of them is one.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use seamline_fuzz::{bounded, plant};
use seamline_plan::{Costs, Fingerprint, Load, Manifest, Objective, Profile};

static MANIFEST: LazyLock<Manifest> = LazyLock::new(manifest);

const CONTRACT: Fingerprint = Fingerprint([0; 32]);

fuzz_target!(
    init: plant(seeds()),
    |data: &[u8]| {
        let Ok(text) = std::str::from_utf8(data) else { return };
        let most = (64 << 10) + 256 * data.len();
        match bounded(most, || Costs::parse(text, &MANIFEST, CONTRACT)) {
            Ok(costs) => check(&costs),
            Err(error) => assert!(!error.is_empty()),
        }
        if let Ok(profile) = bounded(most, || Profile::parse(text)) {
            let json = String::from_utf8(profile.to_json()).expect("JSON is UTF-8");
            assert_eq!(Profile::parse(&json).expect("written by us"), profile);
        }
    }
);

fn check(costs: &Costs) {
    let json = String::from_utf8(costs.to_json()).expect("JSON is UTF-8");
    assert_eq!(Costs::parse(&json, &MANIFEST, CONTRACT).as_ref(), Ok(costs));
    let objectives = [
        Objective::Latency,
        Objective::LatencyP95,
        Objective::Energy,
        Objective::Bytes,
        Objective::CloudCost,
        Objective::Throughput,
    ];
    for option in &costs.options {
        for load in [
            Load::default(),
            Load {
                queue_us: 5e6,
                batch: 3.5,
            },
        ] {
            for objective in objectives {
                let score = option.score(
                    objective,
                    &costs.link,
                    &load,
                    &costs.prices,
                    costs.executors,
                );
                assert!(
                    score.is_finite() && score >= 0.0,
                    "{objective:?} is {score}: {option:?}"
                );
            }
        }
    }
}

fn manifest() -> Manifest {
    let value = |name: &str| serde_json::json!({"name": name, "dtype": "f32", "shape": ["N", 4]});
    let json = serde_json::json!({
        "format": 1,
        "model": {"name": "m", "graph_hash": "0".repeat(64)},
        "inputs": [value("x")],
        "outputs": [value("y")],
        "stages": [
            {"inputs": ["x"], "outputs": ["a"], "nodes": 1},
            {"inputs": ["a"], "outputs": ["y"], "nodes": 2}
        ],
        "cuts": [
            {
                "id": "s1", "stage": 1, "depth": 0.5,
                "crossing": [{
                    "spec": value("a"), "codecs": [{"kind": "raw"}, {"kind": "f16"}],
                    "batch_axis": 0, "reference": [1, 4]
                }],
                "replies": [{"spec": value("y"), "codec": {"kind": "raw"}, "batch_axis": 0}]
            },
            {"id": "output", "stage": 2, "depth": 1.0, "crossing": [], "replies": []}
        ],
        "default_cut": "s1",
        "files": []
    });
    Manifest::parse(json.to_string().as_bytes()).expect("a valid manifest")
}

fn seeds() -> Vec<Vec<u8>> {
    let time = serde_json::json!({"p50_us": 10.5, "p95_us": 12, "samples": 9});
    let none = serde_json::json!({"p50_us": 0, "p95_us": 0, "samples": 0});
    let costs = serde_json::json!({
        "format": 1, "contract": CONTRACT, "objective": "latency-p95",
        "link": {
            "name": "wifi", "source": "preset",
            "up": {"p50_bps": 18e6, "p5_bps": 1e6}, "down": {"p50_bps": 5e7, "p5_bps": 2e7},
            "round_trip": time, "loss": 0.01,
            "radio": {"base_w": 0.1, "up_w_per_mbps": 0.2, "down_w_per_mbps": 0.1}
        },
        "prices": {"compute_w": 4, "wait_w": 0.5, "cloud_usd_per_hour": 0.2},
        "executors": 1,
        "options": [
            {
                "cut": "s1", "codec": "f16", "head": time, "encode": time, "up_bytes": 1000,
                "decode": time, "tail": [{"batch": 1, "time": time}, {"batch": 4, "time": time}],
                "down_bytes": 20, "overhead": time
            },
            {
                "cut": "output", "codec": null, "head": time, "encode": none, "up_bytes": 0,
                "decode": none, "tail": [], "down_bytes": 0, "overhead": none
            }
        ]
    });
    let profile = serde_json::json!({
        "format": 1, "side": "edge",
        "model": {"name": "m", "graph_hash": CONTRACT, "shapes": {"N": 1}},
        "machine": {
            "name": "this", "cpu": "a", "cores": 2, "platform": "x86_64-linux",
            "memory_bytes": 1024, "runtime": "ONNX Runtime", "providers": [], "kernels": []
        },
        "slowdown": 1.0, "nodes": [{"node": 0, "us": 3.5}],
        "parts": [{
            "values": ["a"], "seam": "s1", "batch": 1, "threads": 2, "time": time,
            "resident_bytes": 10, "placement": {"CPUExecutionProvider": 3},
            "codecs": [{"codec": "raw", "time": time, "bytes": 16}]
        }]
    });
    let (costs, profile) = (costs.to_string(), profile.to_string());
    Costs::parse(&costs, &MANIFEST, CONTRACT).expect("the seed is valid");
    Profile::parse(&profile).expect("the seed is valid");
    vec![costs.into_bytes(), profile.into_bytes()]
}
