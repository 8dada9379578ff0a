//! A device that re-chooses its cut while the link's rate moves between 1 and 50 Mbit/s, beside an
//! oracle that knows the trace.
//!
//! `cargo bench -p seamline-tests --bench adaptation [-- --json] [--seeds N] [--first SEED]`
//!
//! In virtual time, on a fluid link (`seamline_tests::adaptation` says what is in it): it measures
//! the decisions, not this machine. Each seed is a trace of ten minutes. The oracle takes the best
//! option for each request, with the same luck, and changes as often as it likes. "Best fixed" is
//! the best single option for that trace, which a plan without re-choice could have at most, and
//! "worst fixed" the worst. Ratios are medians over the seeds; "worst" is the worst seed's.

#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

#[allow(dead_code, reason = "other benchmarks use the rest")]
#[path = "../harness/report.rs"]
mod report;

use report::{Row, Samples};
use seamline_edge::adapt::MIN_DWELL;
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
        println!("seeds {first} to {}, {SECONDS} s each", first + seeds - 1);
        println!(
            "{:<30}{:>9}{:>9}{:>8}{:>8}{:>8}{:>12}{:>13}{:>11}{:>9}{:>8}",
            "trace",
            "ours, ms",
            "oracle",
            "ratio",
            "spread",
            "worst",
            "best fixed",
            "worst fixed",
            "changes/m",
            "dwell",
            "probes"
        );
    }
    for case in Case::all() {
        let runs: Vec<Fared> = (first..first + seeds)
            .map(|seed| simulate(&case, seed, SECONDS))
            .collect();
        report(&case, (first, first + seeds - 1), &runs, json);
    }
}

fn report(case: &Case, (first, last): (u64, u64), runs: &[Fared], json: bool) {
    let of = |value: fn(&Fared) -> f64| runs.iter().map(value).collect::<Samples>();
    let ratio = of(|run| run.ours / run.oracle);
    let changes = of(|run| run.changes as f64 * 60.0 / SECONDS);
    if json {
        let row = |peer: &str, ours: f64, peer_value, unit, ratio: &Samples, limit| {
            let row = Row {
                bench: "adaptation",
                case: format!("{}, seeds {first} to {last}", case.name()),
                ours,
                peer: peer.into(),
                peer_value,
                unit,
                ratio: ratio.median(),
                limit,
                spread: ratio.spread(),
            };
            row.print();
        };
        let ours = of(|run| run.ours).median();
        let oracle = of(|run| run.oracle).median();
        row("oracle", ours, oracle, "ms", &ratio, Some(LIMIT));
        let (best, worst) = (of(|run| run.fixed), of(|run| run.worst));
        let to_best = of(|run| run.ours / run.fixed);
        row("best fixed cut", ours, best.median(), "ms", &to_best, None);
        let to_worst = of(|run| run.ours / run.worst);
        row(
            "worst fixed cut",
            ours,
            worst.median(),
            "ms",
            &to_worst,
            None,
        );
        let most = 60.0 / MIN_DWELL.as_secs_f64();
        let share = of(|run| run.changes as f64 * MIN_DWELL.as_secs_f64() / SECONDS);
        row(
            "one change in 2 s",
            changes.median(),
            most,
            "changes/min",
            &share,
            Some(1.0),
        );
        return;
    }
    println!(
        "{:<30}{:>9.1}{:>9.1}{:>8.3}{:>6.1} %{:>8.3}{:>12.1}{:>13.1}{:>11.1}{:>7.1} s{:>8.0}",
        case.name(),
        of(|run| run.ours).median(),
        of(|run| run.oracle).median(),
        ratio.median(),
        ratio.spread() * 100.0,
        ratio.quantile(1.0),
        of(|run| run.fixed).median(),
        of(|run| run.worst).median(),
        changes.median(),
        of(|run| run.least_dwell).quantile(0.0),
        of(|run| f64::from(run.probes)).median(),
    );
}
