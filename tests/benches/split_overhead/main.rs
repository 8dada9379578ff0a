//! What a cut costs beside the same two halves in one process.
//!
//! `cargo bench -p seamline-tests --bench split_overhead [-- --json] [--models a,b] [--rounds N]`
//!
//! Ours is a blocking client's `infer`, head included, against a service in a process of its own
//! over loopback, values sent as they are (codec `raw`). Its budget is the time of the same two
//! halves in this process, with the same runtime settings, + 1.3 × a bare quinn exchange of the
//! same bytes (as many there, as many back, one stream each) with the service's process + 0.1 ms.
//! All three are measured in turns; a round's ratio is of its own medians.
//!
//! Beside it, "in place": the same halves in this process with the bare exchange between them, over
//! the same budget. It is what a split without any code of Seamline's would cost: an exchange between
//! two computations finds cold caches and sleeping cores, which exchanges back to back do not.

#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[path = "../harness/mod.rs"]
mod harness;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use seamline_edge::Client;
use seamline_ort::Runtime;

use harness::bundles::{Halves, Subject};
use harness::exchange::Exchange;
use harness::report::{Row, Samples};
use harness::service::{ServiceProcess, runtime, serve_if_asked};

const MODELS: [&str; 4] = ["orientation", "ocr-rec", "minilm-l3", "vit-s"];
const DEPTHS: [f64; 3] = [0.25, 0.5, 0.75];
const ROUNDS: usize = 15;
/// How long each side of a round is measured, about.
const TURN: Duration = Duration::from_millis(120);
const EXCHANGE_FACTOR: f64 = 1.3;
const ALLOWANCE_MS: f64 = 0.1;

fn main() {
    if serve_if_asked() {
        return;
    }
    let json = harness::has("--json");
    let wanted = harness::argument("--models");
    let rounds = harness::argument("--rounds").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let runtime = runtime(false);
    if !json {
        println!(
            "{:<24}{:>10}{:>9}{:>12}{:>11}{:>9}{:>8}{:>8}{:>11}{:>8}",
            "case",
            "bytes",
            "split",
            "in process",
            "exchange",
            "budget",
            "ratio",
            "spread",
            "in place",
            "ratio"
        );
    }
    for name in MODELS {
        if wanted
            .as_deref()
            .is_none_or(|wanted| wanted.split(',').any(|other| other == name))
        {
            measure_model(name, &runtime, rounds, json);
        }
    }
}

fn measure_model(name: &'static str, runtime: &Runtime, rounds: usize, json: bool) {
    let folder = tempfile::tempdir().unwrap();
    let subject = Subject::open(name, runtime, None);
    let bundles = folder.path().join("bundles");
    let mut cases: Vec<(String, PathBuf)> = Vec::new();
    for depth in DEPTHS {
        let (seam, depth) = subject.seam_at(depth);
        let path = bundles.join(format!("{name}-{seam}.seam"));
        if !path.exists() {
            subject.split(runtime, &path, Some(&seam));
            cases.push((format!("{name} at {:.0} %", depth * 100.0), path));
        }
    }
    let service = ServiceProcess::start(folder.path(), &bundles, |config| {
        // One client: larger batches are not formed, and warming them up takes time.
        config.batching.max_batch_size = 1;
    });
    let exchange = Exchange::connect(&service.identity, service.addresses.exchange);
    for (case, bundle) in cases {
        let mut sides = Sides::new(runtime, &bundle, &service, &exchange, &subject);
        sides.measure(rounds).report(&case, sides.bytes, json);
    }
}

/// What is measured in turns.
struct Sides<'a> {
    client: seamline_edge::BlockingClient,
    halves: Halves,
    exchange: &'a Exchange,
    inputs: harness::bundles::Values,
    payload: Bytes,
    bytes: u64,
    back: u64,
}

impl<'a> Sides<'a> {
    fn new(
        runtime: &Runtime,
        bundle: &Path,
        service: &ServiceProcess,
        exchange: &'a Exchange,
        subject: &Subject,
    ) -> Sides<'a> {
        let client = Client::builder(bundle)
            .runtime(runtime.clone())
            .cloud(&service.addresses.service.to_string())
            .identity_folder(&service.identity, "device")
            .codec("raw")
            .build_blocking()
            .unwrap();
        let inputs = subject.inputs(1);
        let answer = client.infer(inputs.clone()).unwrap();
        let bytes = usize::try_from(answer.bytes_sent).unwrap();
        Sides {
            client,
            halves: Halves::load(runtime, bundle),
            exchange,
            inputs,
            payload: vec![7u8; bytes].into(),
            bytes: answer.bytes_sent,
            back: answer.bytes_received,
        }
    }

    fn split(&self) {
        self.client.infer(self.inputs.clone()).unwrap();
    }

    fn in_process(&mut self) {
        let values = self.halves.head(self.inputs.clone());
        self.halves.tail(values);
    }

    fn in_place(&mut self) {
        let values = self.halves.head(self.inputs.clone());
        self.exchange();
        self.halves.tail(values);
    }

    fn exchange(&self) {
        self.exchange.run(&self.payload, self.back);
    }

    fn measure(&mut self, rounds: usize) -> Figures {
        let mut figures = Figures::default();
        // The first round warms up: path MTU, congestion window, allocators.
        for round in 0..=rounds {
            let split = turn(|| self.split());
            let in_process = turn(|| self.in_process());
            let exchange = turn(|| self.exchange());
            let in_place = turn(|| self.in_place());
            if round > 0 {
                figures.add(&split, &in_process, &exchange, &in_place);
            }
        }
        figures
    }
}

/// Milliseconds of each call in one turn.
fn turn(mut call: impl FnMut()) -> Samples {
    const LEAST: usize = 5;
    let started = Instant::now();
    let mut times = Vec::new();
    while times.len() < LEAST || started.elapsed() < TURN {
        let called = Instant::now();
        call();
        times.push(called.elapsed().as_secs_f64() * 1e3);
    }
    // The first call after another side's turn finds cold caches.
    times.into_iter().skip(1).collect()
}

#[derive(Default)]
struct Figures {
    split: Samples,
    in_process: Samples,
    exchange: Samples,
    in_place: Samples,
    budget: Samples,
    ratio: Samples,
    in_place_ratio: Samples,
}

impl Figures {
    /// Adds a round.
    fn add(
        &mut self,
        split: &Samples,
        in_process: &Samples,
        exchange: &Samples,
        in_place: &Samples,
    ) {
        let (split, in_place) = (split.median(), in_place.median());
        let (in_process, exchange) = (in_process.median(), exchange.median());
        let budget = in_process + EXCHANGE_FACTOR * exchange + ALLOWANCE_MS;
        self.split.add(split);
        self.in_process.add(in_process);
        self.exchange.add(exchange);
        self.in_place.add(in_place);
        self.budget.add(budget);
        self.ratio.add(split / budget);
        self.in_place_ratio.add(in_place / budget);
    }

    fn report(&self, case: &str, bytes: u64, json: bool) {
        if json {
            let row = |case: String, ours: &Samples, ratio: &Samples| Row {
                bench: "split_overhead",
                case,
                ours: ours.median(),
                peer: "in process + 1.3 x exchange + 0.1 ms".into(),
                peer_value: self.budget.median(),
                unit: "ms",
                ratio: ratio.median(),
                limit: Some(1.0),
                spread: ratio.spread(),
            };
            row(case.to_owned(), &self.split, &self.ratio).print();
            let in_place = format!("{case}: bare exchange in place");
            row(in_place, &self.in_place, &self.in_place_ratio).print();
            return;
        }
        println!(
            "{case:<24}{bytes:>10}{:>9.3}{:>12.3}{:>11.3}{:>9.3}{:>8.2}{:>6.0} %{:>11.3}{:>8.2}   ms",
            self.split.median(),
            self.in_process.median(),
            self.exchange.median(),
            self.budget.median(),
            self.ratio.median(),
            self.ratio.spread() * 100.0,
            self.in_place.median(),
            self.in_place_ratio.median()
        );
    }
}
