//! Why a plan was chosen, in sentences.

use seamline_plan::Objective;

use super::record::{Candidate, Placement, PlanRecord};

/// A candidate's figure by an objective, with its unit.
pub fn figure(candidate: &Candidate, objective: Objective) -> String {
    match objective {
        Objective::Latency => format!("{} (median)", milliseconds(candidate.latency.total_us())),
        Objective::LatencyP95 => format!(
            "{} (95th percentile)",
            milliseconds(candidate.latency_p95_us)
        ),
        Objective::Energy => format!("{:.1} mJ", candidate.energy_j * 1e3),
        Objective::Bytes => format!("{} bytes", candidate.up_bytes),
        Objective::CloudCost => {
            format!(
                "{:.5} US dollars a thousand requests",
                candidate.cloud_usd_per_thousand
            )
        }
        Objective::Throughput => format!("{:.1} requests a second", candidate.throughput_per_s),
    }
}

/// `12.3 ms`.
pub fn milliseconds(us: f64) -> String {
    format!("{:.1} ms", us / 1e3)
}

/// Why `chosen` was chosen among `candidates`.
pub fn reasons(objective: Objective, candidates: &[Candidate], chosen: &Candidate) -> Vec<String> {
    let mut sentences = vec![format!(
        "{} has the best {} of {} candidates: {}{}.",
        chosen.id,
        name(objective),
        candidates.len(),
        figure(chosen, objective),
        parts(chosen)
    )];
    let allowed = |placement: Placement| {
        let own = candidates
            .iter()
            .filter(move |it| it.placement == placement && it.breaks.is_empty());
        own.min_by(|a, b| a.score.total_cmp(&b.score))
    };
    if chosen.placement != Placement::Split {
        sentences.push(match allowed(Placement::Split) {
            Some(split) => format!(
                "No split is better: the best one, {}, has {}{}{}.",
                split.id,
                figure(split, objective),
                times(split, chosen),
                parts(split)
            ),
            None => no_split(candidates),
        });
    }
    let rivals = [
        ("on the device alone", Placement::Device),
        ("the input sent as it is", Placement::CloudRaw),
        ("the input sent compressed", Placement::CloudCompressed),
    ];
    for (text, placement) in rivals {
        if placement == chosen.placement {
            continue;
        }
        let any = candidates.iter().filter(|it| it.placement == placement);
        let nearest = any.min_by(|a, b| a.score.total_cmp(&b.score));
        sentences.extend(match (allowed(placement), nearest) {
            (Some(rival), _) => Some(format!(
                "{}, {}: {}{}{}.",
                capital(text),
                rival.id,
                figure(rival, objective),
                times(rival, chosen),
                parts(rival)
            )),
            (None, Some(rival)) => Some(format!(
                "{}, {}: ruled out, {}.",
                capital(text),
                rival.id,
                rival.breaks.join(", ")
            )),
            (None, None) => None,
        });
    }
    sentences
}

fn no_split(candidates: &[Candidate]) -> String {
    let splits = candidates
        .iter()
        .filter(|it| it.placement == Placement::Split);
    match splits.min_by(|a, b| a.score.total_cmp(&b.score)) {
        Some(split) => format!(
            "No split keeps the constraints; the best one, {}: {}.",
            split.id,
            split.breaks.join(", ")
        ),
        None => "The model has no legal seam: every division would send a value that cannot be \
                 sent, or leave one side without work."
            .into(),
    }
}

/// Answers why `id`, a candidate's or a cut's, was not chosen.
///
/// # Errors
/// A sentence that says what there is, where there is no such candidate.
pub fn why_not(record: &PlanRecord, id: &str) -> Result<Vec<String>, String> {
    let mut asked: Vec<&Candidate> = record
        .candidates
        .iter()
        .filter(|it| it.id == id || it.cut == id || it.values.iter().any(|value| value == id))
        .collect();
    asked.sort_by(|a, b| a.score.total_cmp(&b.score));
    let chosen = record.candidates.iter().find(|it| it.id == record.chosen);
    let (Some(first), Some(chosen)) = (asked.first(), chosen) else {
        return Err(format!(
            "the plan weighed no candidate, cut or crossing value `{id}`; the column `id` of \
             `seamline plan --json` lists them"
        ));
    };
    if asked.iter().any(|it| it.id == record.chosen) {
        return Ok(vec![format!("{} was chosen.", record.chosen)]);
    }
    let objective = record.objective;
    let mut sentences = Vec::new();
    for candidate in asked.iter().take(8) {
        let mut sentence = format!(
            "{}: {}{}{}",
            candidate.id,
            figure(candidate, objective),
            times(candidate, chosen),
            parts(candidate)
        );
        if !candidate.breaks.is_empty() {
            sentence += &format!("; ruled out: {}", candidate.breaks.join(", "));
        }
        if !candidate.measured_whole {
            sentence += "; figured from its neighbours, not measured whole";
        }
        sentences.push(sentence + ".");
    }
    sentences.push(format!(
        "{} was chosen: {}{}.",
        chosen.id,
        figure(chosen, objective),
        parts(chosen)
    ));
    let (worst, gap) = largest_gap(first, chosen);
    if gap > 0.0 {
        sentences.push(format!(
            "What tells most between {} and {} is {worst}: {} more.",
            first.id,
            chosen.id,
            milliseconds(gap)
        ));
    }
    Ok(sentences)
}

fn largest_gap(a: &Candidate, b: &Candidate) -> (&'static str, f64) {
    let parts = a.latency.parts().into_iter().zip(b.latency.parts());
    let gaps = parts.map(|((name, a), (_, b))| (name, a - b));
    gaps.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("", 0.0))
}

fn times(candidate: &Candidate, chosen: &Candidate) -> String {
    let ratio = candidate.score / chosen.score;
    if ratio.is_finite() && chosen.score > 0.0 {
        format!(", {ratio:.2} times as much")
    } else {
        String::new()
    }
}

/// Where the time goes, parts above a hundredth of it.
fn parts(candidate: &Candidate) -> String {
    let total = candidate.latency.total_us();
    let parts: Vec<String> = candidate
        .latency
        .parts()
        .into_iter()
        .filter(|(_, us)| *us > total / 100.0)
        .map(|(name, us)| format!("{name} {:.1}", us / 1e3))
        .collect();
    if parts.len() < 2 {
        return String::new();
    }
    format!(" ({} ms)", parts.join(", "))
}

fn name(objective: Objective) -> &'static str {
    match objective {
        Objective::Latency => "latency",
        Objective::LatencyP95 => "95th percentile of latency",
        Objective::Energy => "energy",
        Objective::Bytes => "bytes",
        Objective::CloudCost => "cost of the service",
        Objective::Throughput => "throughput",
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().collect::<String>() + chars.as_str(),
        None => String::new(),
    }
}
