//! The first request of every warmed batch size against the second.
//!
//! `cargo bench -p seamline-tests --bench warm_up [-- --json] [--starts N]`
//!
//! Each start is a fresh service; each size is asked for by one request of so many rows, twice.
//! Times are the tail's own, as the service reports them. Beside it the same tail in a session
//! that nobody warmed up, to show what warming saves.

#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[path = "../harness/mod.rs"]
mod harness;

use std::time::Instant;

use seamline_edge::Client;
use seamline_plan::Tensor;

use harness::bundles::{Halves, Subject, Values};
use harness::report::{Row, Samples};
use harness::service::{ServiceProcess, runtime, serve_if_asked};

const STARTS: usize = 7;
const SIZES: usize = 8;

/// Milliseconds of the first and the second run of one size, over all starts.
#[derive(Default)]
struct Pair {
    first: Samples,
    second: Samples,
    ratio: Samples,
}

impl Pair {
    fn add(&mut self, first: f64, second: f64) {
        self.first.add(first);
        self.second.add(second);
        self.ratio.add(first / second);
    }

    fn report(&self, case: String, json: bool) {
        let (first, second) = (self.first.median(), self.second.median());
        let (ratio, spread) = (self.ratio.median(), self.ratio.spread());
        if json {
            let peer = "second request".to_owned();
            let bench = "warm_up";
            let (ours, peer_value, unit) = (first, second, "ms");
            Row {
                bench,
                case,
                ours,
                peer,
                peer_value,
                unit,
                ratio,
                limit: None,
                spread,
            }
            .print();
        } else {
            println!(
                "{case:<32}{first:>8.2} ms{second:>8.2} ms   ratio {ratio:.2}   spread {:.0} %",
                spread * 100.0
            );
        }
    }
}

fn main() {
    if serve_if_asked() {
        return;
    }
    let json = harness::has("--json");
    let starts = harness::argument("--starts").map_or(STARTS, |starts| starts.parse().unwrap());
    let runtime = runtime(false);
    let folder = tempfile::tempdir().unwrap();
    let subject = Subject::open("orientation", &runtime, None);
    let (seam, _) = subject.cheapest_mid_seam();
    let bundle = folder.path().join("bundles").join("orientation.seam");
    subject.split(&runtime, &bundle, Some(&seam));
    let inputs = subject.inputs(1);

    let mut warm: [Pair; SIZES] = Default::default();
    let mut cold: [Pair; SIZES] = Default::default();
    for _ in 0..starts {
        let service = ServiceProcess::start(folder.path(), &bundle, |config| {
            config.batching.max_batch_size = u32::try_from(SIZES).unwrap();
        });
        let client = Client::builder(&bundle)
            .runtime(runtime.clone())
            .cloud(&service.addresses.service.to_string())
            .identity_folder(&service.identity, "device")
            .build_blocking()
            .unwrap();
        for (index, pair) in warm.iter_mut().enumerate() {
            let inputs = rows(&inputs, index + 1);
            let ask = || {
                let answer = client.infer(inputs.clone()).unwrap();
                answer.timings.cloud.as_secs_f64() * 1e3
            };
            pair.add(ask(), ask());
        }
        client.close();
        drop(service);
        let mut halves = Halves::load(&runtime, &bundle);
        let crossing = halves.head(inputs.clone());
        for (index, pair) in cold.iter_mut().enumerate() {
            let values = halves.repeat(&crossing, index + 1);
            let mut run = || {
                let started = Instant::now();
                halves.tail(values.clone());
                started.elapsed().as_secs_f64() * 1e3
            };
            pair.add(run(), run());
        }
    }
    for (index, pair) in warm.iter().enumerate() {
        pair.report(format!("service, batch of {}", index + 1), json);
    }
    for (index, pair) in cold.iter().enumerate() {
        pair.report(format!("not warmed, batch of {}", index + 1), json);
    }
}

/// One row, so many times.
fn rows(inputs: &Values, rows: usize) -> Values {
    let repeat = |(name, tensor): (&String, &Tensor)| {
        let mut shape = tensor.shape().to_vec();
        shape[0] *= rows;
        let tensor = Tensor::new(tensor.dtype(), shape, tensor.bytes().repeat(rows).into());
        (name.clone(), tensor.unwrap().aligned())
    };
    inputs.iter().map(repeat).collect()
}
