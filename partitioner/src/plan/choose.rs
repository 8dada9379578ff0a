//! The choice: which candidates keep the constraints, which is best, and which others the bundle
//! holds so that the device may change to them.

use seamline_graph::Graph;
use seamline_plan::{CutOption, LinkModel, Load, Manifest};
use thiserror::Error;

use super::findings::Findings;
use super::places::Place;
use super::record::{Candidate, Constraints, Placement};
use super::weigh::{Scenario, Weighed};

/// Rates that a kept cut should be best at, as shares of the link's own.
const RATES: [f64; 5] = [0.1, 0.25, 1.0, 4.0, 10.0];

/// No candidate keeps all constraints.
#[derive(Debug, Error)]
#[error(
    "no candidate keeps every constraint:\n{}\nloosen one of them",
    nearest.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
)]
pub struct Impossible {
    /// For each constraint that binds, the candidate that comes nearest and what it misses.
    pub nearest: Vec<String>,
}

/// A limit, and what a candidate has by it.
struct Check {
    /// What the user calls it.
    name: &'static str,
    /// The candidate's figure; none where it was not measured.
    value: Option<f64>,
    limit: f64,
    show: fn(f64) -> String,
}

impl Check {
    fn breaks(&self) -> Option<String> {
        match self.value {
            None => Some(format!("its {} was not measured", self.name)),
            Some(value) if value > self.limit => Some(format!(
                "{} {}, {} more than the {} allowed",
                self.name,
                (self.show)(value),
                (self.show)(value - self.limit),
                (self.show)(self.limit)
            )),
            Some(_) => None,
        }
    }
}

/// Fills in which constraints each candidate breaks.
pub fn apply(
    constraints: &Constraints,
    findings: &Findings,
    places: &[Place],
    candidates: &mut [Weighed],
) {
    for weighed in candidates {
        let place = places
            .iter()
            .find(|place| place.id == weighed.candidate.cut);
        let candidate = &weighed.candidate;
        let checks = checks(constraints, findings, candidate);
        let mut breaks: Vec<String> = checks.iter().filter_map(Check::breaks).collect();
        let mut open = checks
            .iter()
            .all(|check| check.value.is_none() || check.breaks().is_none());
        let codec = candidate.codec.as_deref().unwrap_or_default();
        if let Some(overload) = &weighed.overload {
            breaks.push(overload.clone());
            open = false;
        }
        let found = findings.get(&candidate.values, codec);
        if let Some(problem) = found.and_then(|found| found.problem.as_ref()) {
            breaks.push(format!("it fails on calibration data: {problem}"));
            open = false;
        }
        let lossless = place.is_none_or(|place| place.is_lossless(codec));
        if findings.metric.is_none() && !lossless {
            breaks.push(
                "what it does to the answers was not measured (--calibration DIR would)".into(),
            );
            open = false;
        }
        weighed.open = open && !breaks.is_empty();
        weighed.candidate.breaks = breaks;
    }
}

fn checks(constraints: &Constraints, findings: &Findings, candidate: &Candidate) -> Vec<Check> {
    let is_local = candidate.placement == Placement::Device;
    let loss = candidate.accuracy.and_then(|figure| findings.loss(figure));
    let check = |name, limit: Option<f64>, value, show| {
        Some(Check {
            name,
            value,
            limit: limit?,
            show,
        })
    };
    #[allow(clippy::cast_precision_loss, reason = "sizes for people")]
    let bytes = |bytes: u64| bytes as f64;
    [
        // Without data nothing can be measured; lossy candidates are left out elsewhere.
        findings.metric.as_ref().and_then(|_| {
            check(
                "loss of accuracy",
                constraints.accuracy_loss,
                loss,
                |loss| format!("{loss:.4}"),
            )
        }),
        check(
            "memory on the device",
            constraints.device_memory.map(bytes),
            candidate.device_memory.map(bytes),
            |bytes| format!("{:.1} MiB", bytes / f64::from(1 << 20)),
        ),
        check(
            "leakage",
            constraints.leakage,
            candidate
                .leakage
                .map(|leakage| leakage.recovered)
                .or(is_local.then_some(0.0)),
            |share| format!("{share:.3}"),
        ),
        check(
            "95th percentile",
            constraints.deadline_us,
            Some(candidate.latency_p95_us),
            |us| format!("{:.1} ms", us / 1e3),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Marks the candidates that no other one beats in everything: latency, energy, bytes, cost of
/// the service, and accuracy, leakage and memory where both are known.
pub fn mark_pareto(findings: &Findings, candidates: &mut [Weighed]) {
    let metric = findings.metric.as_ref();
    let higher = metric.is_none_or(|metric| metric.higher_is_better);
    #[allow(clippy::cast_precision_loss, reason = "compared only")]
    let figures = |candidate: &Candidate| -> [Option<f64>; 7] {
        [
            Some(candidate.latency.total_us()),
            Some(candidate.energy_j),
            Some(candidate.up_bytes as f64),
            Some(candidate.cloud_usd_per_thousand),
            candidate
                .accuracy
                .map(|figure| if higher { -figure } else { figure }),
            candidate.leakage.map(|leakage| leakage.recovered),
            candidate.device_memory.map(|bytes| bytes as f64),
        ]
    };
    let mut order: Vec<usize> = (0..candidates.len())
        .filter(|&index| candidates[index].candidate.breaks.is_empty())
        .collect();
    // Whoever beats another in everything comes before it.
    order.sort_by(|&a, &b| {
        let key = |index: usize| figures(&candidates[index].candidate);
        let (a, b) = (key(a), key(b));
        let pairs = a.iter().zip(&b);
        pairs
            .map(|(a, b)| compare(*a, *b))
            .find(|order| order.is_ne())
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let mut front: Vec<[Option<f64>; 7]> = Vec::new();
    for index in order {
        let own = figures(&candidates[index].candidate);
        if !front.iter().any(|other| beats(other, &own)) {
            front.push(own);
            candidates[index].candidate.pareto = true;
        }
    }
}

fn compare(a: Option<f64>, b: Option<f64>) -> std::cmp::Ordering {
    a.unwrap_or(f64::INFINITY)
        .total_cmp(&b.unwrap_or(f64::INFINITY))
}

/// As good in everything that is known of both, and the same figures known.
fn beats(a: &[Option<f64>; 7], b: &[Option<f64>; 7]) -> bool {
    a.iter().zip(b).all(|(a, b)| match (a, b) {
        (Some(a), Some(b)) => a <= b,
        (None, None) => true,
        _ => false,
    })
}

/// The index of the best candidate that keeps every constraint.
///
/// # Errors
/// [`Impossible`].
pub fn best(
    constraints: &Constraints,
    findings: &Findings,
    candidates: &[Weighed],
) -> Result<usize, Impossible> {
    let score = |index: &usize| {
        let candidate = &candidates[*index].candidate;
        (candidate.score, candidate.latency.total_us())
    };
    let allowed =
        (0..candidates.len()).filter(|&index| candidates[index].candidate.breaks.is_empty());
    let best = allowed.min_by(|a, b| {
        let ((a, a_us), (b, b_us)) = (score(a), score(b));
        a.total_cmp(&b).then(a_us.total_cmp(&b_us))
    });
    best.ok_or_else(|| impossible(constraints, findings, candidates))
}

/// The place to examine next: that of the best candidate, as far as is known, where `findings` do
/// not tell of it. None where the best is known.
pub fn to_examine<'p>(
    findings: &Findings,
    places: &'p [Place],
    candidates: &[Weighed],
) -> Option<&'p Place> {
    let possible = candidates.iter().filter(|weighed| {
        let is_known = findings.has(&weighed.candidate.values);
        weighed.candidate.breaks.is_empty() || (weighed.open && !is_known)
    });
    let best = possible.min_by(|a, b| a.candidate.score.total_cmp(&b.candidate.score))?;
    let place = places.iter().find(|place| place.id == best.candidate.cut)?;
    (!place.crossing.is_empty() && !findings.has(&best.candidate.values)).then_some(place)
}

/// For each constraint, who comes nearest to it.
fn impossible(
    constraints: &Constraints,
    findings: &Findings,
    candidates: &[Weighed],
) -> Impossible {
    let mut nearest: Vec<(&'static str, f64, String)> = Vec::new();
    for weighed in candidates {
        for check in checks(constraints, findings, &weighed.candidate) {
            let Some(value) = check.value else { continue };
            let over = value - check.limit;
            let line = match check.breaks() {
                Some(breaks) => format!(
                    "{}: the nearest, {}, has {breaks}",
                    check.name, weighed.candidate.id
                ),
                None => format!(
                    "{}: {} keeps it, but not the others",
                    check.name, weighed.candidate.id
                ),
            };
            match nearest.iter_mut().find(|(name, ..)| *name == check.name) {
                Some(entry) if entry.1 <= over => {}
                Some(entry) => *entry = (check.name, over, line),
                None => nearest.push((check.name, over, line)),
            }
        }
    }
    Impossible {
        nearest: nearest.into_iter().map(|(.., line)| line).collect(),
    }
}

/// The cuts that a bundle holds, at most `most`: the choice, and what is best where the link is
/// worse or better than it was planned for. Seams among them lie one behind the other.
pub fn keep(
    graph: &Graph,
    scenario: &Scenario<'_>,
    places: &[Place],
    candidates: &[Weighed],
    chosen: usize,
    most: usize,
) -> Vec<String> {
    let mut kept = vec![candidates[chosen].candidate.cut.clone()];
    let after = |id: &str| {
        let place = places.iter().find(|place| place.id == id)?;
        Some(place.seam.as_ref()?.cut.after(graph))
    };
    let is_nested = |kept: &[String], id: &str| {
        let Some(own) = after(id) else { return true };
        kept.iter().filter_map(|other| after(other)).all(|other| {
            let inside = |a: &[bool], b: &[bool]| a.iter().zip(b).all(|(a, b)| !a || *b);
            inside(&own, &other) || inside(&other, &own)
        })
    };
    let allowed: Vec<&Weighed> = candidates
        .iter()
        .filter(|weighed| weighed.candidate.breaks.is_empty())
        .collect();
    let mut ranked: Vec<&str> = Vec::new();
    for share in RATES {
        let link = at_rate(&scenario.link, share);
        let best = allowed.iter().min_by(|a, b| {
            let score = |option: &CutOption| {
                option.score(
                    scenario.objective,
                    &link,
                    &Load::default(),
                    &scenario.prices,
                    scenario.executors,
                )
            };
            score(&a.option).total_cmp(&score(&b.option))
        });
        ranked.extend(best.map(|best| best.candidate.cut.as_str()));
    }
    // A device that can answer alone, or send what it has, is never stuck.
    let ends = |placement| {
        let end = allowed
            .iter()
            .find(|it| it.candidate.placement == placement);
        end.map(|end| end.candidate.cut.as_str())
    };
    ranked.extend(ends(Placement::Device));
    ranked.extend(ends(Placement::CloudRaw));
    for id in ranked {
        if kept.len() < most && !kept.iter().any(|other| other == id) && is_nested(&kept, id) {
            kept.push(id.to_owned());
        }
    }
    kept
}

fn at_rate(link: &LinkModel, share: f64) -> LinkModel {
    let mut link = link.clone();
    for rate in [&mut link.up, &mut link.down] {
        rate.p50_bps *= share;
        rate.p5_bps *= share;
    }
    link
}

/// The options of the kept cuts for `costs.json`, the choice first.
pub fn options(candidates: &[Weighed], chosen: usize, kept: &[String]) -> Vec<CutOption> {
    let mut options = vec![candidates[chosen].option.clone()];
    let others = candidates.iter().enumerate().filter(|(index, weighed)| {
        *index != chosen
            && weighed.candidate.breaks.is_empty()
            && kept.contains(&weighed.candidate.cut)
    });
    options.extend(others.map(|(_, weighed)| weighed.option.clone()));
    options
}

/// The candidate that `option` of a bundle is now: the same values cross by the same codec.
pub fn find<'c>(
    manifest: &Manifest,
    option: &CutOption,
    candidates: &'c [Weighed],
) -> Option<&'c Weighed> {
    let (_, cut) = manifest.cut(&option.cut)?;
    let values = cut.crossing.iter().map(|it| it.spec.name.as_str());
    candidates.iter().find(|weighed| {
        let Candidate {
            codec,
            values: own,
            placement,
            ..
        } = &weighed.candidate;
        *codec == option.codec
            && (*placement == Placement::Device) == option.is_local()
            && own.iter().map(String::as_str).eq(values.clone())
    })
}

/// How much longer device and service take than `candidates` say, by what a bundle's costs have
/// learnt since: the medians over its options.
pub fn corrections(
    manifest: &Manifest,
    learnt: &[CutOption],
    candidates: &[Weighed],
) -> (f64, f64) {
    let pairs = learnt.iter().filter_map(|option| {
        let own = &find(manifest, option, candidates)?.option;
        Some((own, option))
    });
    let (mut device, mut cloud) = (Vec::new(), Vec::new());
    for (own, option) in pairs {
        device.extend(ratio(option.head.p50_us, own.head.p50_us));
        cloud.extend(ratio(option.tail(1.0).p50_us, own.tail(1.0).p50_us));
    }
    (median(device), median(cloud))
}

/// Times shorter than this say nothing of a machine.
const MIN_US: f64 = 50.0;

fn ratio(learnt_us: f64, own_us: f64) -> Option<f64> {
    (learnt_us >= MIN_US && own_us >= MIN_US).then(|| learnt_us / own_us)
}

/// The median; 1 without any.
fn median(mut ratios: Vec<f64>) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied().unwrap_or(1.0)
}
