//! What the planner predicts against what really happens, and what its choice costs against the
//! best that was measured: trained models × links × device slowdowns × cuts.
//!
//! `cargo bench -p seamline-tests --bench prediction [-- --json] [--models a,b] [--links a,b]
//! [--slowdowns 1,4,16] [--rounds N] [--quick]`
//!
//! Each model is profiled once on this machine (the planner's own shortlist of 12 seams, measured
//! whole), behind its preprocessing where it takes pictures, on a real request. Then every cell of the grid is run for real: head in this process, tail in a service of
//! its own, and the bytes through the link emulator. A slower device sleeps after head and encoding
//! for as much longer as it is slower. Requests come 25 ms after the last answer, and a head that does
//! not count is run in front of that pause, as what a sleeping machine forgets a slow one does not. The cuts lie at fixed quantiles of the depth, not on the
//! planner's shortlist; device alone, the raw input and the compressed input are run too, and the
//! planner's choice. Candidates of a cell take turns in two blocks of requests. One that is predicted to take more than
//! 10 s is left out, and counted.

#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

mod cell;
#[path = "../harness/mod.rs"]
mod harness;
mod summary;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use seamline_edge::Values;
use seamline_ort::Runtime;
use seamline_partitioner::plan::{
    Candidate, Constraints, Findings, OVERHEAD, Place, Placement, Scenario, Weighing, places,
    shortlist, weigh, write_kit,
};
use seamline_partitioner::{INPUT_CUT, Model, OUTPUT_CUT, Source, SplitOptions, split_at};
use seamline_plan::{LinkModel, Objective, Prices, Profile, Side};
use seamline_profile::{Effort, MeasureOptions, measure};

use cell::Cell;
use harness::service::{ServiceProcess, runtime, serve_if_asked};
use summary::Summary;

const MODELS: &str = "orientation,ocr-rec,ocr-cls,minilm-l3,vit-s";
const LINKS: &str = "3g,lte,wifi,ethernet";
const SLOWDOWNS: &str = "1,4,16";
/// Shares of the work before the fixed cuts.
const DEPTHS: [f64; 6] = [0.08, 0.25, 0.42, 0.58, 0.75, 0.92];
/// How inner cuts are sent.
const CODEC: &str = "int8";
/// Codecs that candidates are taken of: those that keep the answers of these models on their
/// calibration data (`cargo run -p seamline-tests --bin accuracy-and-leakage`).
const CODECS: [&str; 8] = [
    "raw", "f16", "int8", "packed", "zstd", "png", "jpeg85", "webp75",
];
/// Seams that are profiled whole.
const SHORTLIST: usize = 12;
/// Real requests of a model; what runs is the first.
const SAMPLES: usize = 4;

fn main() {
    if serve_if_asked() {
        return;
    }
    let list = |flag: &str, default: &str| -> Vec<String> {
        let text = harness::argument(flag).unwrap_or_else(|| default.into());
        text.split(',').map(str::to_owned).collect()
    };
    let json = harness::has("--json");
    let rounds = harness::argument("--rounds").map_or(6, |rounds| rounds.parse().unwrap());
    let links = list("--links", LINKS);
    let slowdowns: Vec<f64> = list("--slowdowns", SLOWDOWNS)
        .iter()
        .map(|it| it.parse().unwrap())
        .collect();
    let runtime = runtime(false);
    let mut summary = Summary::new(json);
    for name in list("--models", MODELS) {
        let subject = Subject::new(&name, &runtime);
        subject.run(&runtime, &links, &slowdowns, rounds, &mut summary);
    }
    summary.print();
}

/// A model, its profiles, and the places where it is cut.
struct Subject {
    name: String,
    model: Model,
    inputs: Values,
    device: Profile,
    cloud: Profile,
}

impl Subject {
    fn new(name: &str, runtime: &Runtime) -> Subject {
        let (model, calibration) = seamline_tests::calibrated::calibrated(name, SAMPLES);
        let inputs = calibration.samples[0].values.clone();
        let folder = tempfile::tempdir().unwrap();
        let all = places(&model, None).unwrap();
        let inner = shortlist(&all, model.flops.iter().sum(), SHORTLIST);
        let chosen: Vec<&Place> = all
            .iter()
            .take(1)
            .chain(inner.iter().map(|&index| &all[index]))
            .collect();
        let kit = folder.path().join("kit");
        write_kit(&model, &chosen, std::slice::from_ref(&inputs), &kit).unwrap();
        let cores = std::thread::available_parallelism().unwrap().get();
        let profile = |side| {
            let options = MeasureOptions {
                side,
                name: None,
                providers: vec![seamline_ort::Provider::Cpu],
                threads: vec![cores],
                batches: vec![1],
                effort: if harness::has("--quick") {
                    Effort::QUICK
                } else {
                    Effort::FULL
                },
            };
            let out = folder.path().join(format!("{side:?}.json"));
            measure(runtime, &kit, &out, &options, |_| ControlFlow::Continue(()))
                .unwrap()
                .profile
        };
        Subject {
            name: name.to_owned(),
            device: profile(Side::Edge),
            cloud: profile(Side::Cloud),
            model,
            inputs,
        }
    }

    fn weigh(&self, link: &str, slowdown: f64) -> Weighing {
        let device = self.device.clone().scaled(slowdown);
        let scenario = Scenario {
            device: &device,
            cloud: &self.cloud,
            device_threads: None,
            cloud_threads: None,
            link: LinkModel::preset(link).unwrap(),
            objective: Objective::Latency,
            constraints: Constraints::default(),
            prices: Prices::default(),
            arrivals_per_s: 0.0,
            executors: 1,
            max_batch: 1,
            overhead: OVERHEAD,
        };
        weigh(&self.model, &scenario, &Findings::default()).unwrap()
    }

    fn run(
        &self,
        runtime: &Runtime,
        links: &[String],
        slowdowns: &[f64],
        rounds: usize,
        summary: &mut Summary,
    ) {
        let fixed = fixed_cuts(&places(&self.model, None).unwrap());
        let mut cells = Vec::new();
        for link in links {
            for &slowdown in slowdowns {
                let weighing = self.weigh(link, slowdown);
                let candidates = to_run(&weighing, &fixed);
                cells.push((link, slowdown, weighing, candidates));
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let bundles = folder.path().join("bundles");
        std::fs::create_dir(&bundles).unwrap();
        for (.., weighing, candidates) in &cells {
            for candidate in candidates {
                self.bundle(runtime, &bundles, weighing, candidate);
            }
        }
        let service = ServiceProcess::start(folder.path(), &bundles, |config| {
            config.batching.max_batch_size = 1;
        });
        for (link, slowdown, _, candidates) in cells {
            let cell = Cell {
                model: &self.name,
                link,
                slowdown,
                inputs: &self.inputs,
                bundles: &bundles,
            };
            summary.add(cell.run(runtime, &service, candidates, rounds));
        }
    }

    /// The bundle of a candidate's cut alone, so that head and tail are whole.
    fn bundle(
        &self,
        runtime: &Runtime,
        bundles: &Path,
        weighing: &Weighing,
        candidate: &Candidate,
    ) {
        let path = bundle_path(bundles, candidate);
        if path.exists() {
            return;
        }
        let place = weighing
            .places
            .iter()
            .find(|place| place.id == candidate.cut)
            .unwrap();
        let is_end = place.seam.is_none();
        let options = SplitOptions {
            edge_tail: is_end,
            cloud_head: is_end,
            seed: 1,
            ..SplitOptions::default()
        };
        let seams: Vec<_> = place.seam.iter().cloned().collect();
        let source = Source::default();
        split_at(&self.model, runtime, &path, &seams, &options, &source).unwrap();
    }
}

/// Seams of the division by flow have ids that differ between scenarios: what crosses names them.
fn bundle_path(bundles: &Path, candidate: &Candidate) -> PathBuf {
    let ends = [INPUT_CUT, OUTPUT_CUT].contains(&candidate.cut.as_str());
    let name = if ends {
        "whole".to_owned()
    } else {
        seamline_plan::Fingerprint::of(candidate.values.join("\n").as_bytes()).short()
    };
    bundles.join(format!("{name}.seam"))
}

/// The ids of the places nearest to [`DEPTHS`].
fn fixed_cuts(places: &[Place]) -> BTreeSet<String> {
    let inner: Vec<&Place> = places.iter().filter(|place| place.seam.is_some()).collect();
    let nearest = |depth: f64| {
        let off = |place: &Place| (place.depth - depth).abs();
        inner
            .iter()
            .min_by(|a, b| off(a).total_cmp(&off(b)))
            .unwrap()
    };
    DEPTHS
        .iter()
        .map(|&depth| nearest(depth).id.clone())
        .collect()
}

/// The candidates of a cell: fixed cuts, device, raw and best compressed input, the choice (last).
fn to_run(weighing: &Weighing, fixed: &BTreeSet<String>) -> Vec<Candidate> {
    let keeps = |it: &&Candidate| {
        let codec = it.codec.as_deref();
        codec.is_none_or(|codec| CODECS.contains(&codec))
    };
    let all = weighing.candidates.iter().map(|it| &it.candidate);
    let all: Vec<&Candidate> = all.filter(keeps).collect();
    let is_fixed = |it: &&&Candidate| fixed.contains(&it.cut) && it.codec.as_deref() == Some(CODEC);
    let mut chosen: Vec<Candidate> = all
        .iter()
        .filter(is_fixed)
        .map(|it| (*it).clone())
        .collect();
    let best = |keep: &dyn Fn(&Candidate) -> bool| {
        let kept = all.iter().filter(|it| keep(it));
        kept.min_by(|a, b| a.score.total_cmp(&b.score))
            .map(|it| (*it).clone())
    };
    chosen.extend(best(&|it| it.placement == Placement::Device));
    chosen.extend(best(&|it| it.placement == Placement::CloudRaw));
    chosen.extend(best(&|it| it.placement == Placement::CloudCompressed));
    chosen.extend(best(&|_| true));
    chosen
}
