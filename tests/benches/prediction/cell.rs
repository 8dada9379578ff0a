//! One model, link and slowdown: every candidate in turns, for real.

use std::path::Path;
use std::time::{Duration, Instant};

use seamline_edge::{Client, Values};
use seamline_ort::Runtime;
use seamline_partitioner::plan::{Candidate, Placement};
use seamline_plan::LinkModel;
use seamline_tests::link::{LinkOptions, LinkProxy, PipeOptions, Queue};

use crate::bundle_path;
use crate::harness::report::Samples;
use crate::harness::service::ServiceProcess;

/// A candidate that takes longer is left out.
const LONGEST_US: f64 = 10e6;
const DEADLINE: Duration = Duration::from_secs(60);
/// Requests of a block before the first that counts.
const WARM_UP: usize = 1;
/// A device asks now and then, and not in a loop.
const THINK: Duration = Duration::from_millis(25);
/// Candidates take turns in blocks: a device runs one of them, not all in turn.
const BLOCKS: usize = 2;

pub(crate) struct Cell<'c> {
    pub(crate) model: &'c str,
    pub(crate) link: &'c str,
    pub(crate) slowdown: f64,
    pub(crate) inputs: &'c Values,
    pub(crate) bundles: &'c Path,
}

/// What a candidate was predicted to take, and took.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) candidate: Candidate,
    pub(crate) predicted_us: f64,
    pub(crate) measured: Samples,
}

/// A cell that has run; the choice is the last.
pub(crate) struct Ran {
    pub(crate) name: String,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) left_out: usize,
}

impl Cell<'_> {
    pub(crate) fn run(
        &self,
        runtime: &Runtime,
        service: &ServiceProcess,
        candidates: Vec<Candidate>,
        rounds: usize,
    ) -> Ran {
        let link = LinkProxy::start(service.addresses.service, emulated(self.link)).unwrap();
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let count = candidates.len();
        let mut running: Vec<(Client, Outcome)> = Vec::new();
        for candidate in candidates {
            let predicted_us = candidate.latency.total_us();
            if predicted_us > LONGEST_US {
                continue;
            }
            let client = tokio.block_on(self.client(runtime, service, &link, &candidate));
            running.push((
                client,
                Outcome {
                    candidate,
                    predicted_us,
                    measured: Samples::default(),
                },
            ));
        }
        for block in 0..BLOCKS {
            for (client, outcome) in &mut running {
                // What takes seconds wanders little.
                let counted = if outcome.predicted_us > 1e6 {
                    1
                } else {
                    rounds.div_ceil(BLOCKS)
                };
                for round in 0..WARM_UP + counted {
                    if round < WARM_UP && block > 0 && outcome.predicted_us > 1e6 {
                        continue;
                    }
                    let took = tokio.block_on(self.request(client, &outcome.candidate));
                    if round >= WARM_UP {
                        outcome.measured.add(took.as_secs_f64() * 1e6);
                    }
                }
            }
        }
        Ran {
            name: format!(
                "{}, {}, device {} x slower",
                self.model, self.link, self.slowdown
            ),
            left_out: count - running.len(),
            outcomes: running.into_iter().map(|(_, outcome)| outcome).collect(),
        }
    }

    async fn client(
        &self,
        runtime: &Runtime,
        service: &ServiceProcess,
        link: &LinkProxy,
        candidate: &Candidate,
    ) -> Client {
        let mut builder = Client::builder(bundle_path(self.bundles, candidate))
            .runtime(runtime.clone())
            .deadline(DEADLINE);
        if candidate.placement == Placement::Device {
            builder = builder.cut("output");
        } else {
            builder = builder
                .cloud(&link.addr().to_string())
                .identity_folder(&service.identity, "device");
            if candidate.placement != Placement::Split {
                builder = builder.cut("input");
            }
        }
        if let Some(codec) = &candidate.codec {
            builder = builder.codec(codec);
        }
        builder.build().await.unwrap()
    }

    /// One request from the call to the answer, on a device that is slower by the factor.
    async fn request(&self, client: &Client, candidate: &Candidate) -> Duration {
        // A slower device is busy while this one sleeps: its caches are not those of a machine that
        // has slept for as long.
        drop(client.prepare_here(self.inputs.clone()).unwrap());
        tokio::time::sleep(THINK).await;
        let started = Instant::now();
        let prepared = client.prepare_here(self.inputs.clone()).unwrap();
        if candidate.placement != Placement::CloudRaw {
            std::thread::sleep(started.elapsed().mul_f64(self.slowdown - 1.0));
        }
        client.send(prepared).await.unwrap();
        started.elapsed()
    }
}

/// The link that a preset describes.
fn emulated(name: &str) -> LinkOptions {
    let model = LinkModel::preset(name).unwrap();
    let way = Duration::from_secs_f64(model.round_trip.p50_us / 2e6);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a preset's rate"
    )]
    let pipe = |bps: f64| PipeOptions {
        rate: Some(bps as u64),
        delay: way,
        queue: Queue::Time((8 * way).max(Duration::from_millis(100))),
        ..PipeOptions::default()
    };
    LinkOptions {
        up: pipe(model.up.p50_bps),
        down: pipe(model.down.p50_bps),
        ..LinkOptions::perfect()
    }
}
