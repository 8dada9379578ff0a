//! The dependency graph holds to deny.toml's wrappers and to the arrows between our own crates.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

/// Which of our crates each may depend on (normal dependencies). ARCHITECTURE.md draws it.
const ARROWS: &[(&str, &[&str])] = &[
    ("kernels", &[]),
    ("plan", &[]),
    ("assets", &[]),
    ("codec", &["plan", "kernels"]),
    ("wire", &["plan"]),
    ("net", &["plan", "wire"]),
    ("ort", &["plan", "assets"]),
    ("graph", &["plan"]),
    ("profile", &["plan", "codec", "kernels", "ort"]),
    (
        "partitioner",
        &["plan", "graph", "codec", "ort", "assets", "profile"],
    ),
    (
        "edge",
        &["plan", "codec", "wire", "net", "ort", "assets", "profile"],
    ),
    (
        "cloud",
        &["plan", "codec", "wire", "net", "ort", "assets", "profile"],
    ),
];

fn metadata() -> Value {
    // Of other platforms' crates nothing has been fetched, perhaps.
    let arguments = "metadata --format-version 1 --offline --filter-platform host-tuple";
    let output = Command::new(env!("CARGO"))
        .args(arguments.split(' '))
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

struct Graph {
    names: BTreeMap<String, String>,
    /// Package id to the ids that it needs at run time.
    edges: BTreeMap<String, BTreeSet<String>>,
}

impl Graph {
    fn read() -> Graph {
        let metadata = metadata();
        let names = metadata["packages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|package| {
                (
                    package["id"].as_str().unwrap().into(),
                    package["name"].as_str().unwrap().into(),
                )
            });
        let edges = metadata["resolve"]["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| {
                let normal = |dep: &&Value| {
                    dep["dep_kinds"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .any(|kind| kind["kind"].is_null())
                };
                let deps = node["deps"].as_array().unwrap().iter().filter(normal);
                let deps = deps
                    .map(|dep| dep["pkg"].as_str().unwrap().to_owned())
                    .collect();
                (node["id"].as_str().unwrap().to_owned(), deps)
            });
        Graph {
            names: names.collect(),
            edges: edges.collect(),
        }
    }

    fn id(&self, name: &str) -> &String {
        self.names
            .iter()
            .find(|(_, found)| *found == name)
            .map(|(id, _)| id)
            .unwrap()
    }

    fn reachable(&self, name: &str) -> BTreeSet<&str> {
        let mut seen = BTreeSet::new();
        let mut open = vec![self.id(name)];
        while let Some(id) = open.pop() {
            if seen.insert(self.names[id].as_str()) {
                open.extend(&self.edges[id]);
            }
        }
        seen
    }
}

#[test]
fn our_crates_depend_only_along_the_arrows() {
    let graph = Graph::read();
    for (name, allowed) in ARROWS {
        let id = graph.id(&format!("seamline-{name}"));
        let ours = graph.edges[id]
            .iter()
            .filter_map(|id| graph.names[id].strip_prefix("seamline-"));
        for dependency in ours {
            assert!(
                allowed.contains(&dependency),
                "seamline-{name} may not use {dependency}"
            );
        }
    }
}

#[test]
fn restricted_crates_are_used_only_by_their_wrappers() {
    let text = include_str!("../../deny.toml");
    let rules: toml::Table = toml::from_str(text).unwrap();
    let graph = Graph::read();
    let mut checked = 0;
    for rule in rules["bans"]["deny"].as_array().unwrap() {
        let name = rule["crate"].as_str().unwrap();
        let wrappers: Vec<&str> = match rule.get("wrappers") {
            Some(wrappers) => wrappers
                .as_array()
                .unwrap()
                .iter()
                .map(|name| name.as_str().unwrap())
                .collect(),
            None => Vec::new(),
        };
        for (id, deps) in &graph.edges {
            if deps.iter().any(|dep| graph.names[dep] == name) {
                let user = &graph.names[id];
                assert!(
                    wrappers.contains(&user.as_str()),
                    "{user} may not use {name}: {rule}"
                );
                checked += 1;
            }
        }
    }
    assert!(
        checked > 0,
        "no rule met the graph: the names must have changed"
    );
}

#[test]
fn a_device_binary_carries_no_protobuf_and_no_compiler() {
    let graph = Graph::read();
    let device = graph.reachable("seamline-edge");
    for absent in [
        "prost",
        "seamline-graph",
        "seamline-cloud",
        "axum",
        "cudarc",
        "wasmtime",
    ] {
        assert!(!device.contains(absent), "seamline-edge reaches {absent}");
    }
    let service = graph.reachable("seamline-cloud");
    assert!(!service.contains("seamline-edge"));
}
