//! The clients, all in one process: each asks, waits for the answer, and asks again.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use seamline_edge::{Client, Prepared};
use serde::{Deserialize, Serialize};

use crate::harness::bundles::random_inputs;
use crate::harness::report::Samples;
use crate::harness::{argument, service};

/// Clients at the same time.
pub(crate) const CLIENTS: usize = 32;

/// What one turn gave.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) requests: usize,
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Requests of the batch that a request was run in, on average over the batches.
    pub(crate) mean_batch: f64,
    /// Wall time of the tail, a request.
    pub(crate) run_us: f64,
    /// Decoding and encoding in the service and of the answer, a request.
    pub(crate) codec_us: f64,
    pub(crate) bytes_sent: u64,
}

struct Answered {
    total: Duration,
    batch: u32,
    run: Duration,
    codec: Duration,
    bytes: u64,
}

/// Reads lines of seconds and asks for so long; returns true where this process was started to.
pub(crate) fn run_if_asked() -> bool {
    let Some(bundle) = argument("--clients") else {
        return false;
    };
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let clients = tokio.block_on(connect(Path::new(&bundle)));
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let seconds = Duration::from_secs_f64(line.unwrap().parse().unwrap());
        let turn = tokio.block_on(ask(&clients, seconds));
        println!("{}", serde_json::to_string(&turn).unwrap());
        std::io::stdout().flush().unwrap();
    }
    true
}

async fn connect(bundle: &Path) -> Vec<(Client, Prepared)> {
    let first = Client::builder(bundle)
        .runtime(service::runtime(false))
        .cloud(&argument("--cloud").unwrap())
        .identity_folder(Path::new(&argument("--identity").unwrap()), "device")
        .codec(&argument("--codec").unwrap())
        .build()
        .await
        .unwrap();
    let inputs = random_inputs(bundle);
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let prepared = first.prepare(inputs.clone()).await.unwrap();
        clients.push((first.with_own_connection().await.unwrap(), prepared));
    }
    clients
}

async fn ask(clients: &[(Client, Prepared)], time: Duration) -> Turn {
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (client, prepared) in clients {
        let (client, prepared) = (client.clone(), prepared.clone());
        tasks.spawn(async move {
            let mut answers = Vec::new();
            while started.elapsed() < time {
                let asked = Instant::now();
                let answer = client.send(prepared.clone()).await.unwrap();
                answers.push(Answered {
                    total: asked.elapsed(),
                    batch: answer.batch_size,
                    run: answer.timings.cloud,
                    codec: answer.timings.decode,
                    bytes: answer.bytes_sent,
                });
            }
            answers
        });
    }
    let mut answers = Vec::new();
    while let Some(task) = tasks.join_next().await {
        answers.extend(task.unwrap());
    }
    sum_up(&answers, started.elapsed())
}

fn sum_up(answers: &[Answered], time: Duration) -> Turn {
    let requests = answers.len();
    let total: Samples = answers
        .iter()
        .map(|answer| answer.total.as_secs_f64() * 1e3)
        .collect();
    // Every request of a batch reports the batch's time: a request's share is what counts.
    let share = |time: fn(&Answered) -> Duration| {
        let shares = answers
            .iter()
            .map(|a| time(a).as_secs_f64() * 1e6 / f64::from(a.batch));
        shares.sum::<f64>() / requests as f64
    };
    let batches: f64 = answers
        .iter()
        .map(|answer| 1.0 / f64::from(answer.batch))
        .sum();
    Turn {
        requests,
        per_second: requests as f64 / time.as_secs_f64(),
        p50_ms: total.median(),
        p99_ms: total.quantile(0.99),
        mean_batch: requests as f64 / batches,
        run_us: share(|answer| answer.run),
        codec_us: share(|answer| answer.codec),
        bytes_sent: answers.first().map_or(0, |answer| answer.bytes),
    }
}
