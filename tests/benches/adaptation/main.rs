//! A device that re-chooses its cut while the link's rate moves between 1 and 50 Mbit/s, beside an
//! oracle that knows the trace.
//!
//! `cargo bench -p seamline-tests --bench adaptation [-- --json] [--seeds N] [--first SEED]`
//!
//! In virtual time, on a fluid link (`seamline_tests::adaptation` says what is in it): it measures
//! the decisions, not this machine. Each seed is a trace of ten minutes. The oracle takes the best
//! option for each request, with the same luck, and changes as often as it likes. "Fixed" is the
//! best single option for that trace, which a plan without re-choice could have at most.

#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[allow(dead_code, reason = "other benchmarks use the rest")]
#[path = "../harness/report.rs"]
mod report;

use report::{Row, Samples};
use seamline_tests::adaptation::{Case, Fared, simulate};

/// Of the oracle's mean latency.
const LIMIT: f64 = 1.07;
/// Virtual time of a trace, in seconds.
const SECONDS: f64 = 600.0;

fn main() {
    let argument = |flag: &str| {
        let mut arguments = std::env::args().skip_while(|argument| argument != flag);
        arguments.nth(1).map(|value| value.parse::<u64>().unwrap())
    };
    let json = std::env::args().any(|argument| argument == "--json");
    let first = argument("--first").unwrap_or(1);
    let seeds = argument("--seeds").unwrap_or(50);
    if !json {
        println!(
            "{:<30}{:>9}{:>9}{:>8}{:>8}{:>8}{:>9}{:>10}{:>9}{:>9}",
            "trace",
            "ours",
            "oracle",
            "ratio",
            "spread",
            "worst",
            "fixed",
            "changes/m",
            "dwell",
            "probes"
        );
    }
    for case in Case::all() {
        let runs: Vec<Fared> = (first..first + seeds)
            .map(|seed| simulate(&case, seed, SECONDS))
            .collect();
        report(&case, &runs, json);
    }
}

fn report(case: &Case, runs: &[Fared], json: bool) {
    let of = |value: fn(&Fared) -> f64| runs.iter().map(value).collect::<Samples>();
    let ratio = of(|run| run.ours / run.oracle);
    let to_fixed = of(|run| run.ours / run.fixed);
    if json {
        let row = |peer: &str, peer_value, ratio: &Samples, limit| Row {
            bench: "adaptation",
            case: case.name(),
            ours: of(|run| run.ours).median(),
            peer: peer.into(),
            peer_value,
            unit: "ms",
            ratio: ratio.median(),
            limit,
            spread: ratio.spread(),
        };
        row("oracle", of(|run| run.oracle).median(), &ratio, Some(LIMIT)).print();
        row(
            "best fixed cut",
            of(|run| run.fixed).median(),
            &to_fixed,
            None,
        )
        .print();
        return;
    }
    println!(
        "{:<30}{:>9.1}{:>9.1}{:>8.3}{:>6.1} %{:>8.3}{:>9.1}{:>10.1}{:>7.1} s{:>9.0}",
        case.name(),
        of(|run| run.ours).median(),
        of(|run| run.oracle).median(),
        ratio.median(),
        ratio.spread() * 100.0,
        ratio.quantile(1.0),
        of(|run| run.fixed).median(),
        of(|run| run.changes as f64).median() * 60.0 / SECONDS,
        of(|run| run.least_dwell).quantile(0.0),
        of(|run| f64::from(run.probes)).median(),
    );
}
