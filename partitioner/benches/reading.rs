//! What `seamline inspect` and `seamline seams` cost, against their budgets: the program's whole
//! time, and the most memory that the same work takes.
//!
//! `cargo bench -p seamline-partitioner [-- --json] [--rounds N]`. The peer is the budget; the
//! spread is the distance between the quartiles of the rounds over their median. The 3 GiB of
//! weights are a hole in a file, which takes no disk but would take memory if it were read.

#![allow(clippy::unwrap_used, reason = "a failed unwrap ends the benchmark")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use seamline_assets::{MODELS, Store};
use seamline_graph::WriteOptions;
use seamline_graph::builder::{self, GraphBuilder};
use seamline_graph::proto::{StringStringEntryProto, tensor_proto};
use seamline_partitioner::{Model, find_seams};
use seamline_plan::{Bindings, DType, Dim};

/// Asks this program to do the work itself and print its peak memory in bytes.
const CHILD: &str = "--peak-memory-of";

/// A model with the time that each command may take, and the memory that both may take.
struct Case {
    name: &'static str,
    path: PathBuf,
    seconds: f64,
    bytes: Option<f64>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let after = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(at + 1)
    };
    if let Some(path) = after(CHILD) {
        work(Path::new(path));
        println!("{}", peak_memory());
        return;
    }
    let json = arguments.iter().any(|argument| argument == "--json");
    let rounds: usize = after("--rounds").map_or(9, |rounds| rounds.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    for case in cases(folder.path()) {
        for command in ["inspect", "seams"] {
            let name = format!("{command} {}", case.name);
            let times = (0..rounds).map(|_| seconds(command, &case.path)).collect();
            report(json, &name, times, "s", case.seconds);
        }
        if let Some(limit) = case.bytes {
            let peaks = (0..rounds.min(3)).map(|_| child_memory(&case.path) / 1e6);
            let name = format!("memory of both, {}", case.name);
            report(json, &name, peaks.collect(), "MB", limit / 1e6);
        }
    }
}

fn cases(folder: &Path) -> Vec<Case> {
    let vit = MODELS.iter().find(|model| model.name == "vit-s").unwrap();
    let case = |name, path, seconds| Case {
        name,
        path,
        seconds,
        bytes: None,
    };
    vec![
        case("vit-s", Store::from_env().get(&vit.pin).unwrap(), 0.5),
        case("a chain of 10,000 nodes", chain(folder, 10_000), 1.0),
        case("5,000 nodes side by side", wide(folder, 5_000), 1.0),
        Case {
            bytes: Some(200e6),
            ..case("3 GiB of external data", external(folder), 2.0)
        },
    ]
}

fn save(builder: &GraphBuilder, path: PathBuf) -> PathBuf {
    let options = WriteOptions::default();
    builder.build().unwrap().write(&path, &options).unwrap();
    path
}

fn chain(folder: &Path, length: usize) -> PathBuf {
    let mut builder = GraphBuilder::new("chain", 17);
    builder.input("v0", DType::F32, &[4.into()]);
    for index in 0..length {
        let (from, to) = (format!("v{index}"), format!("v{}", index + 1));
        builder.node("Relu", &[&from], &[&to]);
    }
    builder.output(&format!("v{length}"), DType::F32, &[4.into()]);
    save(&builder, folder.join("chain.onnx"))
}

fn wide(folder: &Path, width: usize) -> PathBuf {
    let parts: Vec<String> = (0..width).map(|part| format!("part{part}")).collect();
    let mut builder = GraphBuilder::new("wide", 17);
    builder.input("x", DType::F32, &[4.into()]);
    for part in &parts {
        builder.node("Relu", &["x"], &[part]);
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    builder
        .node_with("Concat", &parts, &["all"], vec![builder::int("axis", 0)])
        .node("Relu", &["all"], &["y"])
        .output("y", DType::F32, &[Dim::Fixed(4 * width as u64)]);
    save(&builder, folder.join("wide.onnx"))
}

/// Twelve layers of 4,096 × 16,384 and back, 256 MiB a weight.
fn external(folder: &Path) -> PathBuf {
    const LAYERS: u64 = 12;
    const WEIGHT: u64 = 256 << 20;
    let file = std::fs::File::create(folder.join("weights.bin")).unwrap();
    file.set_len(LAYERS * WEIGHT).unwrap();
    let mut builder = GraphBuilder::new("external", 17);
    builder.input("h0", DType::F32, &[Dim::Sym("N".into()), 4096.into()]);
    for layer in 0..LAYERS {
        let name = format!("w{layer}");
        let dims = if layer % 2 == 0 {
            [4096, 16_384]
        } else {
            [16_384, 4096]
        };
        let mut weight = builder::tensor(&name, DType::F32, &dims, Vec::new());
        weight.raw_data = None;
        weight.data_location = Some(tensor_proto::DataLocation::External.into());
        let entry = |key: &str, value: String| StringStringEntryProto {
            key: Some(key.into()),
            value: Some(value),
        };
        weight.external_data = vec![
            entry("location", "weights.bin".into()),
            entry("offset", (layer * WEIGHT).to_string()),
            entry("length", WEIGHT.to_string()),
        ];
        let (from, to) = (format!("h{layer}"), format!("h{}", layer + 1));
        builder
            .weight(weight)
            .node("MatMul", &[&from, &name], &[&to]);
    }
    let last = format!("h{LAYERS}");
    builder.output(&last, DType::F32, &[Dim::Sym("N".into()), 4096.into()]);
    // The message itself is written: reading it would take the weights in.
    let path = folder.join("external.onnx");
    std::fs::write(&path, builder.encode()).unwrap();
    path
}

/// The time from the program's start to its end.
fn seconds(command: &str, model: &Path) -> f64 {
    let started = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_seamline"))
        .arg(command)
        .arg(model)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    started.elapsed().as_secs_f64()
}

/// Peak memory in bytes of a process that does what both commands do.
fn child_memory(model: &Path) -> f64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .arg(CHILD)
        .arg(model)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

fn work(path: &Path) {
    let model = Model::open(path, &Bindings::new(), None).unwrap();
    assert_eq!(model.unknown_values().count(), 0);
    assert!(!find_seams(&model, &[]).unwrap().listed.is_empty());
}

/// The most memory that this process has held so far, mapped files included.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    1024 * peak.unwrap().parse::<u64>().unwrap()
}

fn report(json: bool, case: &str, mut values: Vec<f64>, unit: &str, limit: f64) {
    values.sort_by(f64::total_cmp);
    let quantile = |part: usize| values[(values.len() - 1) * part / 4];
    let (ours, spread) = (quantile(2), (quantile(3) - quantile(1)) / quantile(2));
    let ratio = ours / limit;
    if json {
        let row = serde_json::json!({
            "bench": "reading", "case": case, "ours": ours, "peer": "budget",
            "peer_value": limit, "unit": unit, "ratio": ratio, "limit": 1.0, "spread": spread,
        });
        println!("{row}");
    } else {
        println!(
            "{case}: {ours:.3} {unit}, budget {limit} {unit}, ratio {ratio:.3}, spread {:.0} %",
            100.0 * spread
        );
    }
}
