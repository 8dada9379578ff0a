//! Split equals whole at every seam of trained models, on several requests: the long run.
//!
//! `cargo run --release -p seamline-tests --bin every-seam [-- MODEL …]`; without models, all of
//! the zoo. Every seam counts that `seamline seams` lists, and with `--values` also the cheapest
//! one through every value. Ends with 1 where a seam does not hold.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;

use seamline_assets::MODELS;
use seamline_graph::seams::Seam;
use seamline_partitioner::{Difference, Model, find_seams};
use seamline_tests::law::split_differences;
use seamline_tests::{draw, model};

/// |difference| / max(1, |whole|); 0 is expected.
const MAX_REL: f64 = 1e-5;

/// Requests that each seam is tried with, by the seeds of their inputs.
const SEEDS: [u64; 2] = [7, 8];

/// Seams whose halves lie in memory at once.
const AT_ONCE: usize = 32;

fn main() -> ExitCode {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let through_values = names.iter().any(|name| name == "--values");
    names.retain(|name| name != "--values");
    let known = |name: &String| MODELS.iter().any(|model| model.name == name);
    if let Some(stranger) = names.iter().find(|name| !known(name)) {
        eprintln!("error: no model `{stranger}`; `seamline zoo list` names them");
        return ExitCode::from(2);
    }
    if names.is_empty() {
        names = MODELS.iter().map(|model| model.name.to_owned()).collect();
    }
    let (mut held, mut failed) = (0, 0);
    for name in &names {
        let (good, bad) = try_model(name, through_values);
        (held, failed) = (held + good, failed + bad);
    }
    println!(
        "{held} of {} seams of {} models hold, {} requests each (seeds {SEEDS:?})",
        held + failed,
        names.len(),
        SEEDS.len()
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// How many seams hold, and how many do not.
fn try_model(name: &str, through_values: bool) -> (usize, usize) {
    let started = Instant::now();
    let model = model(name);
    let mut seams = find_seams(&model, &[]).expect("seams").listed;
    if through_values {
        seams.extend(seams_through_values(&model, &seams));
    }
    let requests = SEEDS.map(|seed| draw(&model, seed));
    let mut worst = Difference::default();
    let mut failed = 0;
    for seams in seams.chunks(AT_ONCE) {
        for found in split_differences(&model, seams, &requests) {
            if found.holds(MAX_REL) {
                worst = found.result.map_or(worst, |(_, other)| worst.max(other));
            } else {
                failed += 1;
                println!("{name}: FAILED {found:?}");
            }
        }
    }
    println!(
        "{name}: {} of {} seams hold, max_rel {:e}, {:.0} s",
        seams.len() - failed,
        seams.len(),
        worst.max_rel,
        started.elapsed().as_secs_f64()
    );
    (seams.len() - failed, failed)
}

/// The cheapest seam through each value that has one, those of `listed` left out.
fn seams_through_values(model: &Model, listed: &[Seam]) -> Vec<Seam> {
    let mut seen: BTreeSet<_> = listed
        .iter()
        .map(|seam| seam.cut.crossing.clone())
        .collect();
    let mut found = Vec::new();
    for value in &model.graph.values {
        let at = [value.name.clone()];
        // A weight, or a value with nothing behind it, has none.
        found.extend(find_seams(model, &at).map_or(Vec::new(), |seams| seams.chosen));
    }
    found.retain(|seam| {
        let is_within = 0 < seam.depth_flops && seam.depth_flops < seam.total_flops;
        is_within && seen.insert(seam.cut.crossing.clone())
    });
    found
}
