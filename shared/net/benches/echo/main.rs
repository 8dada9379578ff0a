//! What a request costs on the wire: an echo over loopback, on a warm connection.
//!
//! `cargo bench -p seamline-net --bench echo [-- --json]`. Ours is a request of one tensor whose
//! payload the service sends back, header checks, session and deadlines included. The peers, in
//! alternation with it in the same process and runtime:
//! - `quinn`: a new bidirectional stream for each echo, the same TLS, windows and MTU; the server
//!   reads to the end, then writes, in its accept loop;
//! - `tonic`: a unary gRPC call without TLS, with a codec that passes bytes through.
//!
//! A figure is the median of all echoes, the ratio that of the two medians, the spread the
//! distance of the extreme rounds' medians relative to the median.

#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

mod grpc;
mod ours;
mod quic;

use std::time::{Duration, Instant};

use bytes::Bytes;

const ROUNDS: usize = 15;
const CASES: [Case; 2] = [
    Case {
        name: "1 KiB",
        bytes: 1 << 10,
        echoes: 400,
        most: 1.3,
    },
    Case {
        name: "300 KiB",
        bytes: 300 << 10,
        echoes: 60,
        most: 1.25,
    },
];

struct Case {
    name: &'static str,
    bytes: usize,
    /// Echoes in a round of each side.
    echoes: usize,
    /// The promised ratio to quinn.
    most: f64,
}

/// Times of one side of a case.
#[derive(Default)]
struct Times {
    all: Vec<Duration>,
    rounds: Vec<Duration>,
}

impl Times {
    fn add(&mut self, mut round: Vec<Duration>) {
        round.sort();
        self.rounds.push(round[round.len() / 2]);
        self.all.extend(round);
    }

    fn median_us(&mut self) -> f64 {
        self.all.sort();
        self.all[self.all.len() / 2].as_secs_f64() * 1e6
    }

    fn spread(&mut self) -> f64 {
        self.rounds.sort();
        let (first, last) = (self.rounds[0], self.rounds[self.rounds.len() - 1]);
        (last - first).as_secs_f64() * 1e6 / self.median_us()
    }
}

async fn round<F: Future<Output = Bytes>>(
    case: &Case,
    payload: &Bytes,
    mut echo: impl FnMut(Bytes) -> F,
) -> Vec<Duration> {
    let mut times = Vec::with_capacity(case.echoes);
    for _ in 0..case.echoes {
        let started = Instant::now();
        let back = echo(payload.clone()).await;
        times.push(started.elapsed());
        assert_eq!(back.len(), payload.len());
    }
    times
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    // The client runs in a worker like any other task, not in the thread of `block_on`.
    tokio::spawn(run()).await.unwrap();
}

async fn run() {
    let json = std::env::args().any(|argument| argument == "--json");
    let dir = ours::identities();
    let ours = ours::Echo::start(dir.path()).await;
    let quic = quic::Echo::start(dir.path()).await;
    let grpc = grpc::Echo::start().await;
    let mut kept = true;
    for case in &CASES {
        let payload: Bytes = vec![7u8; case.bytes].into();
        let mut times: [Times; 3] = Default::default();
        for number in 0..=ROUNDS {
            let samples = [
                round(case, &payload, |payload| ours.echo(payload)).await,
                round(case, &payload, |payload| quic.echo(payload)).await,
                round(case, &payload, |payload| grpc.echo(payload)).await,
            ];
            // The first round warms up: path MTU, congestion window, allocator.
            if number > 0 {
                times
                    .iter_mut()
                    .zip(samples)
                    .for_each(|(times, round)| times.add(round));
            }
        }
        let [mut ours, mut quinn, mut tonic] = times;
        kept &= ours.median_us() / quinn.median_us() <= case.most;
        report(json, case, "quinn", &mut ours, &mut quinn);
        report(json, case, "tonic", &mut ours, &mut tonic);
    }
    if !kept {
        eprintln!("the promised ratio to quinn was not kept; is the machine quiet?");
    }
}

fn report(json: bool, case: &Case, peer: &str, ours: &mut Times, theirs: &mut Times) {
    let (value, peer_value) = (ours.median_us(), theirs.median_us());
    let (ratio, spread) = (value / peer_value, ours.spread());
    if json {
        let row = serde_json::json!({
            "bench": "echo", "case": case.name, "ours": value, "peer": peer,
            "peer_value": peer_value, "unit": "µs", "ratio": ratio, "limit": null,
            "spread": spread,
        });
        println!("{row}");
    } else {
        let promise = if peer == "quinn" {
            format!(", promise {:.2}", case.most)
        } else {
            String::new()
        };
        println!(
            "{:<8} {value:>7.1} µs   {peer} {peer_value:>7.1} µs   ratio {ratio:.2}{promise}   spread {:.0} %",
            case.name,
            spread * 100.0
        );
    }
}
