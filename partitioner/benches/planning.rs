//! What planning itself takes, once everything is measured: from profiles to the choice and the cuts
//! that the bundle keeps.
//!
//! `cargo bench -p seamline-partitioner --bench planning [-- --json] [--rounds N]`. The peer is the
//! budget; the spread is the distance between the quartiles of the rounds over their median. Values
//! are pictures of bytes, so that eleven codecs take each, and a shortlist of seams is measured
//! whole, as after `seamline-edge profile`; residual sums join every third node with an earlier one.

#![allow(clippy::unwrap_used, reason = "a failed unwrap ends the benchmark")]

use std::collections::BTreeMap;
use std::time::Instant;

use seamline_graph::builder::GraphBuilder;
use seamline_partitioner::Model;
use seamline_partitioner::plan::{
    Constraints, Findings, OVERHEAD, Place, Scenario, apply, best, keep, mark_pareto, places,
    shortlist, weigh,
};
use seamline_plan::{
    Bindings, CodecTime, DType, Dim, Fingerprint, LinkModel, Machine, NodeTime, Objective,
    PROFILE_FORMAT, PartTime, Prices, Profile, ProfiledModel, Side, Spread, WHOLE,
};

/// Seams that profiles tell of.
const SHORTLIST: usize = 12;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let at = arguments.iter().position(|it| it == "--rounds");
    let rounds = at.map_or(15, |at| arguments[at + 1].parse().unwrap());
    for (nodes, limit_ms) in [(1_500, 100.0), (10_000, 2_000.0)] {
        let case = Case::new(nodes);
        let (candidates, codecs) = case.plan();
        let mut times: Vec<f64> = (0..rounds)
            .map(|_| {
                let started = Instant::now();
                case.plan();
                started.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let at = |share: f64| {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "an index"
            )]
            let index = ((times.len() - 1) as f64 * share) as usize;
            times[index]
        };
        let (median, spread) = (at(0.5), (at(0.75) - at(0.25)) / at(0.5));
        let name = format!("{nodes} nodes, {codecs} codecs, {candidates} candidates");
        if json {
            println!(
                "{}",
                serde_json::json!({
                    "bench": "planning", "case": name, "ours": median, "peer": "budget",
                    "peer_value": limit_ms, "unit": "ms", "ratio": median / limit_ms,
                    "limit": null, "spread": spread,
                })
            );
        } else {
            println!("{name}: {median:.1} ms of {limit_ms:.0} ms (spread {spread:.2})");
        }
    }
}

struct Case {
    model: Model,
    device: Profile,
    cloud: Profile,
}

impl Case {
    fn new(nodes: usize) -> Case {
        let shape: [Dim; 4] = [1.into(), 64.into(), 64.into(), 3.into()];
        let mut builder = GraphBuilder::new("residual", 17);
        builder.input("v0", DType::U8, &shape);
        for index in 0..nodes {
            let (from, to) = (format!("v{index}"), format!("v{}", index + 1));
            let other = format!("v{}", if index % 3 == 2 { index - 2 } else { index });
            builder.node("Add", &[&from, &other], &[&to]);
        }
        builder.output(&format!("v{nodes}"), DType::U8, &shape);
        let graph = builder.build().unwrap();
        let hash = Fingerprint([7; 32]);
        let model = Model::new(graph, "residual".into(), hash, &Bindings::new()).unwrap();
        let all = places(&model, None).unwrap();
        let inner = shortlist(&all, model.flops.iter().sum(), SHORTLIST);
        let measured: Vec<&Place> = inner.iter().map(|&index| &all[index]).collect();
        Case {
            device: profile(&model, Side::Edge, &measured, 40.0),
            cloud: profile(&model, Side::Cloud, &measured, 4.0),
            model,
        }
    }

    /// Plans; how many candidates there were, and codecs.
    fn plan(&self) -> (usize, usize) {
        let scenario = Scenario {
            device: &self.device,
            cloud: &self.cloud,
            device_threads: None,
            cloud_threads: None,
            link: LinkModel::preset("lte").unwrap(),
            objective: Objective::Latency,
            constraints: Constraints::default(),
            prices: Prices::default(),
            arrivals_per_s: 20.0,
            executors: 1,
            max_batch: 8,
            overhead: OVERHEAD,
        };
        let findings = Findings::default();
        let mut weighing = weigh(&self.model, &scenario, &findings).unwrap();
        let (places, candidates) = (&weighing.places, &mut weighing.candidates);
        apply(&scenario.constraints, &findings, places, candidates);
        mark_pareto(&findings, candidates);
        let chosen = best(&scenario.constraints, &findings, candidates).unwrap();
        let kept = keep(&self.model.graph, &scenario, places, candidates, chosen, 4);
        assert!(!kept.is_empty());
        (candidates.len(), places[0].codecs().len())
    }
}

/// A machine that takes `node_us` for a node and as much for what is left of a head or tail.
fn profile(model: &Model, side: Side, places: &[&Place], node_us: f64) -> Profile {
    let nodes = model.graph.nodes.len();
    let codecs = places[0].codecs();
    let part = |place: Option<&Place>, batch: u64, share: f64| PartTime {
        values: place.map(Place::values).unwrap_or_default(),
        seam: place.map_or(WHOLE.into(), |place| place.id.clone()),
        batch,
        threads: 1,
        time: Spread::exactly(share * node_us * nodes as f64 * batch as f64),
        resident_bytes: 1 << 20,
        placement: BTreeMap::new(),
        codecs: codecs
            .iter()
            .map(|&codec| CodecTime {
                codec: codec.into(),
                time: Spread::exactly(50.0),
                bytes: 6_000,
            })
            .collect(),
    };
    let mut parts = Vec::new();
    for batch in [1, 2, 4, 8] {
        parts.push(part(None, batch, 1.0));
        for place in places {
            let share = match side {
                Side::Edge => place.depth,
                Side::Cloud => 1.0 - place.depth,
            };
            parts.push(part(Some(place), batch, share));
        }
    }
    Profile {
        format: PROFILE_FORMAT,
        side,
        model: ProfiledModel {
            name: model.name.clone(),
            graph_hash: model.hash,
            shapes: model.reference.clone(),
        },
        machine: Machine::default(),
        slowdown: 1.0,
        corrected: 1.0,
        nodes: (0..nodes)
            .map(|node| NodeTime { node, us: node_us })
            .collect(),
        parts,
    }
}
