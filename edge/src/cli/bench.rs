//! `seamline-edge bench`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;
use seamline_edge::{Answer, Client, Values};

use super::run::steps;
use super::{Connection, Learning, read_requests};

#[derive(Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    connection: Connection,
    /// An input, as for `run`; several are used in turn.
    #[arg(long = "input", value_name = "[NAME=]FILE", required = true)]
    inputs: Vec<String>,
    /// Requests that are measured, all clients together.
    #[arg(long, value_name = "N", default_value_t = 200)]
    requests: usize,
    /// Clients at the same time, each on a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 1)]
    concurrency: usize,
    /// Run the head once, ahead, and measure only sending and the service.
    #[arg(long, conflicts_with = "learn")]
    prepared: bool,
    #[command(flatten)]
    learning: Learning,
}

impl Bench {
    pub(crate) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        ensure!(
            self.concurrency > 0 && self.requests >= self.concurrency,
            "--requests {} for --concurrency {}: give each client at least one request",
            self.requests,
            self.concurrency
        );
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        tokio.block_on(async {
            let client = self.connection.client().await?;
            let requests = read_requests(client.manifest(), &self.inputs)?;
            let requests: Vec<Values> =
                requests.into_iter().map(|request| request.values).collect();
            self.learning.check(&client)?;
            // Each client learns for itself; the first one's lesson is kept.
            let first = client.clone();
            let mut clients = vec![client];
            while clients.len() < self.concurrency {
                clients.push(clients[0].with_own_connection().await?);
            }
            // Warm: connections, sessions, congestion window.
            for client in &clients {
                client.infer(requests[0].clone()).await?;
            }
            let (share, rest) = (self.requests / clients.len(), self.requests % clients.len());
            let started = Instant::now();
            let mut workers = Vec::new();
            for (index, client) in clients.into_iter().enumerate() {
                let share = share + usize::from(index < rest);
                let worker = work(client, requests.clone(), index, share, self.prepared);
                workers.push(tokio::spawn(worker));
            }
            let mut answers = Vec::new();
            for worker in workers {
                answers.extend(worker.await??);
            }
            report(&answers, started.elapsed(), json);
            self.learning.keep(&first, &self.connection.bundle)?;
            Ok(ExitCode::SUCCESS)
        })
    }
}

async fn work(
    client: Client,
    requests: Vec<Values>,
    first: usize,
    count: usize,
    prepared: bool,
) -> anyhow::Result<Vec<(Duration, Answer)>> {
    let mut answers = Vec::with_capacity(count);
    let ahead = if prepared {
        Some(
            client
                .prepare(requests[first % requests.len()].clone())
                .await?,
        )
    } else {
        None
    };
    for index in first..first + count {
        let started = Instant::now();
        let answer = match &ahead {
            Some(prepared) => client.send(prepared.clone()).await?,
            None => {
                client
                    .infer(requests[index % requests.len()].clone())
                    .await?
            }
        };
        answers.push((started.elapsed(), answer));
    }
    client.close().await;
    Ok(answers)
}

fn report(answers: &[(Duration, Answer)], elapsed: Duration, json: bool) {
    let total: Vec<f64> = answers
        .iter()
        .map(|(time, _)| time.as_secs_f64() * 1e3)
        .collect();
    let names = steps(&answers[0].1.timings).map(|(name, _)| name);
    let medians: Vec<(&str, f64)> = names
        .into_iter()
        .enumerate()
        .map(|(step, name)| {
            let times: Vec<f64> = answers
                .iter()
                .map(|(_, answer)| steps(&answer.timings)[step].1)
                .collect();
            (name, quantile(&times, 0.5))
        })
        .collect();
    let rate = answers.len() as f64 / elapsed.as_secs_f64();
    let batch = answers
        .iter()
        .map(|(_, answer)| f64::from(answer.batch_size))
        .sum::<f64>();
    let batch = batch / answers.len() as f64;
    let bytes = answers[0].1.bytes_sent;
    let (p50, p99) = (quantile(&total, 0.5), quantile(&total, 0.99));
    if json {
        let steps: serde_json::Map<String, serde_json::Value> = medians
            .iter()
            .map(|(name, ms)| ((*name).to_owned(), (*ms).into()))
            .collect();
        let document = serde_json::json!({
            "requests": answers.len(),
            "requests_per_s": rate,
            "p50_ms": p50,
            "p99_ms": p99,
            "steps_ms": steps,
            "bytes_per_request": bytes,
            "mean_batch_size": batch,
            "cut": answers[0].1.cut,
        });
        seamline_plan::outln!("{document}");
        return;
    }
    seamline_plan::outln!(
        "{} requests, {rate:.1} a second, mean batch {batch:.1}",
        answers.len()
    );
    seamline_plan::outln!(
        "latency  p50 {p50:.2} ms  p99 {p99:.2} ms  ({bytes} bytes sent a request)"
    );
    for (name, ms) in medians {
        seamline_plan::outln!("  {name:<8} {ms:>8.3} ms");
    }
}

/// The value below which a share `q` of `samples` lies.
fn quantile(samples: &[f64], q: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "q lies within 0 and 1"
    )]
    let index = ((sorted.len() - 1) as f64 * q).round() as usize;
    sorted[index]
}
