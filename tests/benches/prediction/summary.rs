//! Rows and what they come to.

use seamline_partitioner::plan::Placement;

use crate::cell::{Outcome, Ran};
use crate::harness::report::{Row, Samples};

/// Promised of the relative errors of predictions: the median, and the 90th percentile.
const ERROR: (f64, f64) = (0.08, 0.20);
/// The choice is promised to be within this of the best that was measured.
const REGRET: f64 = 0.05;
/// In so many cells.
const CELLS: f64 = 0.95;

pub(crate) struct Summary {
    json: bool,
    errors: Samples,
    regrets: Vec<f64>,
    behind_simple: Vec<f64>,
    speedups: [Vec<f64>; 2],
    left_out: usize,
}

impl Summary {
    pub(crate) fn new(json: bool) -> Summary {
        if !json {
            println!(
                "{:<44}{:<16}{:>10}{:>10}{:>8}",
                "cell", "candidate", "predicted", "measured", "error"
            );
        }
        Summary {
            json,
            errors: Samples::default(),
            regrets: Vec::new(),
            behind_simple: Vec::new(),
            speedups: [Vec::new(), Vec::new()],
            left_out: 0,
        }
    }

    pub(crate) fn add(&mut self, ran: Ran) {
        self.left_out += ran.left_out;
        let Some((choice, others)) = ran.outcomes.split_last() else {
            return;
        };
        for outcome in &ran.outcomes {
            self.row(&ran.name, outcome);
        }
        // The choice counts once where it is one of the others too.
        let others: Vec<&Outcome> = others
            .iter()
            .filter(|it| it.candidate.id != choice.candidate.id)
            .collect();
        let same = ran
            .outcomes
            .iter()
            .filter(|it| it.candidate.id == choice.candidate.id);
        let chosen = same
            .map(|it| it.measured.median())
            .fold(f64::INFINITY, f64::min);
        let best_of = |placements: &[Placement]| {
            let kept = ran
                .outcomes
                .iter()
                .filter(|it| placements.contains(&it.candidate.placement));
            kept.map(|it| it.measured.median())
                .fold(f64::INFINITY, f64::min)
        };
        let best = others
            .iter()
            .map(|it| it.measured.median())
            .fold(chosen, f64::min);
        self.regrets.push(chosen / best - 1.0);
        let simple = best_of(&[Placement::Device, Placement::CloudCompressed]);
        if simple.is_finite() {
            self.behind_simple.push(chosen / simple - 1.0);
            self.speedups[0].push(simple / chosen);
        }
        let raw = best_of(&[Placement::CloudRaw]);
        if raw.is_finite() {
            self.speedups[1].push(raw / chosen);
        }
        if !self.json {
            println!(
                "{:<44}{:<16}{:>41.1} % above the best measured\n",
                "",
                choice.candidate.id,
                100.0 * (chosen / best - 1.0)
            );
        }
    }

    fn row(&mut self, cell: &str, outcome: &Outcome) {
        let measured = outcome.measured.median();
        let error = (outcome.predicted_us - measured).abs() / measured;
        self.errors.add(error);
        let id = &outcome.candidate.id;
        if self.json {
            Row {
                bench: "prediction",
                case: format!("{cell}, {id}"),
                ours: outcome.predicted_us / 1e3,
                peer: "measured".into(),
                peer_value: measured / 1e3,
                unit: "ms",
                ratio: outcome.predicted_us / measured,
                limit: None,
                spread: outcome.measured.spread(),
            }
            .print();
            return;
        }
        println!(
            "{cell:<44}{id:<16}{:>10.1}{:>10.1}{:>7.1} %",
            outcome.predicted_us / 1e3,
            measured / 1e3,
            100.0 * error
        );
    }

    pub(crate) fn print(&self) {
        let cells = self.regrets.len();
        let within = |values: &[f64]| {
            let good = values.iter().filter(|it| **it <= REGRET).count();
            good as f64 / values.len().max(1) as f64
        };
        let rows = [
            (
                "error of predictions, median",
                self.errors.median(),
                Some(ERROR.0),
            ),
            (
                "error of predictions, 90th percentile",
                self.errors.quantile(0.9),
                Some(ERROR.1),
            ),
            (
                "cells within 5 % of the best measured",
                within(&self.regrets),
                Some(CELLS),
            ),
            (
                "cells within 5 % of device and compressed input",
                within(&self.behind_simple),
                Some(1.0),
            ),
            (
                "worst regret",
                self.regrets.iter().copied().fold(0.0, f64::max),
                None,
            ),
            (
                "speed-up over the better of the two, geometric mean",
                mean(&self.speedups[0]),
                None,
            ),
            (
                "speed-up over the raw input, geometric mean",
                mean(&self.speedups[1]),
                None,
            ),
        ];
        for (name, value, limit) in rows {
            if self.json {
                Row {
                    bench: "prediction",
                    case: format!("{name}, {cells} cells"),
                    ours: value,
                    peer: "promise".into(),
                    peer_value: limit.unwrap_or(f64::NAN),
                    unit: "ratio",
                    ratio: limit.map_or(f64::NAN, |limit| value / limit),
                    limit,
                    spread: 0.0,
                }
                .print();
            } else {
                let promise = limit.map_or(String::new(), |limit| format!("   promise {limit}"));
                println!("{name:<56}{value:>8.3}{promise}");
            }
        }
        if !self.json {
            println!(
                "{cells} cells, {} candidates left out as too slow",
                self.left_out
            );
        }
    }
}

fn mean(ratios: &[f64]) -> f64 {
    let logs: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (logs / ratios.len().max(1) as f64).exp()
}
