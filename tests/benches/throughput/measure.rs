//! One case: service, clients and peer, each in a process of its own, measured in turns.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout};

use crate::harness::cpu;
use crate::harness::report::{Row, Samples};
use crate::harness::service::{ServiceProcess, spawn_self};
use crate::{clients, direct};

const BATCHES: [usize; 5] = [1, 2, 4, 8, 16];
/// Seconds of the search for the peer's best batch size, a size and a round.
const SEARCH_SECONDS: f64 = 0.7;
const SEARCH_ROUNDS: usize = 3;

pub(crate) struct Case {
    pub(crate) id: &'static str,
    pub(crate) name: String,
    pub(crate) bundle: PathBuf,
    pub(crate) codec: &'static str,
    /// The least ratio that is promised.
    pub(crate) limit: Option<f64>,
}

pub(crate) struct Settings {
    pub(crate) json: bool,
    /// Of each turn.
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) max_batch: Option<u32>,
}

pub(crate) fn measure(case: &Case, folder: &Path, settings: &Settings) {
    let service = ServiceProcess::start(folder, &case.bundle, |config| {
        if let Some(size) = settings.max_batch {
            config.batching.max_batch_size = size;
        }
    });
    let mut clients = Peer::start(&[
        "--clients",
        case.bundle.to_str().unwrap(),
        "--cloud",
        &service.addresses.service.to_string(),
        "--identity",
        service.identity.to_str().unwrap(),
        "--codec",
        case.codec,
    ]);
    assert_eq!(clients.line().trim(), "ready");
    let (mut direct, batch) = best_direct(&case.bundle);
    let mut figures = Figures {
        batch,
        ..Figures::default()
    };
    for round in 0..=settings.rounds {
        let before = cpu::seconds_by_thread(service.process());
        let cpu_before = [service.process(), clients.child.id(), direct.child.id()].map(total_cpu);
        let ours: clients::Turn = clients.ask(&settings.seconds.to_string());
        let after = cpu::seconds_by_thread(service.process());
        let peer: direct::Turn = direct.ask(&format!("{batch} {}", settings.seconds));
        // The first round warms up.
        if round > 0 {
            let cpu_after =
                [service.process(), clients.child.id(), direct.child.id()].map(total_cpu);
            let [service, clients, direct] = std::array::from_fn(|i| cpu_after[i] - cpu_before[i]);
            figures.add_cpu(
                (service + clients) / ours.requests as f64,
                direct / peer.rows as f64,
            );
            figures.add(&ours, &peer, &cpu::since(&before, &after));
        }
    }
    figures.report(case, settings.json);
}

fn total_cpu(process: u32) -> f64 {
    cpu::seconds_by_thread(process).values().sum()
}

/// The peer at its best: spinning or not, and the batch size.
fn best_direct(bundle: &Path) -> (Peer, usize) {
    let mut best: Option<(f64, Peer, usize)> = None;
    for spin in ["no", "yes"] {
        let mut peer = Peer::start(&["--direct", bundle.to_str().unwrap(), "--spin", spin]);
        let mut rates: BTreeMap<usize, Samples> = BTreeMap::new();
        for _ in 0..SEARCH_ROUNDS {
            for batch in BATCHES {
                let turn: direct::Turn = peer.ask(&format!("{batch} {SEARCH_SECONDS}"));
                rates.entry(batch).or_default().add(turn.rows_per_second);
            }
        }
        let rates = rates.iter().map(|(&batch, rates)| (rates.median(), batch));
        let (rate, batch) = rates.max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
        eprintln!("peer, spinning {spin}: best {rate:.0} rows/s in batches of {batch}");
        if best.as_ref().is_none_or(|(best, ..)| rate > *best) {
            best = Some((rate, peer, batch));
        }
    }
    let (_, peer, batch) = best.unwrap();
    (peer, batch)
}

/// This program in another role: a line is asked, a line of JSON answered.
struct Peer {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Peer {
    fn start(arguments: &[&str]) -> Peer {
        let mut child = spawn_self(arguments);
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        Peer {
            child,
            stdin,
            stdout: BufReader::new(stdout.unwrap()),
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    fn ask<T: serde::de::DeserializeOwned>(&mut self, question: &str) -> T {
        writeln!(self.stdin.as_mut().unwrap(), "{question}").unwrap();
        serde_json::from_str(&self.line()).expect("an answer of the other process")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It ends with its input; where that fails it is gone already.
        drop(self.stdin.take());
        let _ = self.child.wait();
    }
}

#[derive(Default)]
struct Figures {
    batch: usize,
    ours: Samples,
    peer: Samples,
    ratio: Samples,
    p50: Samples,
    p99: Samples,
    mean_batch: Samples,
    run_us: Samples,
    beyond_us: Samples,
    cpu_us: Samples,
    peer_cpu_us: Samples,
    cpu_ratio: Samples,
    bytes: u64,
}

impl Figures {
    fn add(&mut self, ours: &clients::Turn, peer: &direct::Turn, cpu: &BTreeMap<String, f64>) {
        self.ours.add(ours.per_second);
        self.peer.add(peer.rows_per_second);
        self.ratio.add(ours.per_second / peer.rows_per_second);
        self.p50.add(ours.p50_ms);
        self.p99.add(ours.p99_ms);
        self.mean_batch.add(ours.mean_batch);
        self.run_us.add(ours.run_us);
        // Of the executor's own thread only decoding and encoding are ours: the rest, and the
        // pool's threads, is the tail.
        let network: f64 = cpu
            .iter()
            .filter(|(thread, _)| thread.starts_with("tokio") || thread.starts_with("reaper"))
            .map(|(_, seconds)| seconds)
            .sum();
        self.beyond_us
            .add(network * 1e6 / ours.requests as f64 + ours.codec_us);
        self.bytes = ours.bytes_sent;
    }

    /// Seconds of CPU for a request (service and clients) and for a row of the peer. On a machine
    /// that is shared with other programs their ratio says more than that of the rates.
    fn add_cpu(&mut self, ours: f64, peer: f64) {
        self.cpu_us.add(ours * 1e6);
        self.peer_cpu_us.add(peer * 1e6);
        self.cpu_ratio.add(peer / ours);
    }

    fn report(&self, case: &Case, json: bool) {
        let batch = self.batch;
        if json {
            Row {
                bench: "throughput",
                case: case.name.clone(),
                ours: self.ours.median(),
                peer: format!("ONNX Runtime alone, batches of {batch}"),
                peer_value: self.peer.median(),
                unit: "requests/s",
                ratio: self.ratio.median(),
                limit: case.limit,
                spread: self.ratio.spread(),
            }
            .print();
            self.beyond_row(case).print();
            self.cpu_row(case).print();
            return;
        }
        println!(
            "{:<34}{:>6.0} requests/s   ONNX Runtime alone {:>6.0} in batches of {batch}   ratio {:.2}   spread {:.0} %",
            case.name,
            self.ours.median(),
            self.peer.median(),
            self.ratio.median(),
            self.ratio.spread() * 100.0
        );
        println!(
            "{:<34}p50 {:.1} ms, p99 {:.1} ms, batches of {:.1}, {} bytes, tail {:.0} µs, service CPU beyond it {:.0} µs a request",
            "",
            self.p50.median(),
            self.p99.median(),
            self.mean_batch.median(),
            self.bytes,
            self.run_us.median(),
            self.beyond_us.median()
        );
        println!(
            "{:<34}CPU of service and clients {:.0} µs a request, of ONNX Runtime alone {:.0} µs a row: ratio {:.2}, spread {:.0} %",
            "",
            self.cpu_us.median(),
            self.peer_cpu_us.median(),
            self.cpu_ratio.median(),
            self.cpu_ratio.spread() * 100.0
        );
    }

    fn cpu_row(&self, case: &Case) -> Row {
        Row {
            bench: "throughput_cpu",
            case: case.name.clone(),
            ours: self.cpu_us.median(),
            peer: "ONNX Runtime alone, its CPU a row".into(),
            peer_value: self.peer_cpu_us.median(),
            unit: "us/request",
            // As for the rates, more is better.
            ratio: self.cpu_ratio.median(),
            limit: case.limit,
            spread: self.cpu_ratio.spread(),
        }
    }

    fn beyond_row(&self, case: &Case) -> Row {
        let (ours, tail) = (self.beyond_us.median(), self.run_us.median());
        Row {
            bench: "service_cpu_beyond_tail",
            case: case.name.clone(),
            ours,
            peer: "the tail's own wall time".into(),
            peer_value: tail,
            unit: "us/request",
            ratio: ours / tail,
            limit: None,
            spread: self.beyond_us.spread(),
        }
    }
}
