//! What the reader of a plan should know of its figures.

use seamline_partitioner::plan::{Calibration, Candidate, Findings, SPLITTING_IS_NOT_PRIVACY};
use seamline_plan::{Profile, WHOLE};

use super::profiles::Profiles;

pub(super) fn notes(
    profiles: &Profiles<'_>,
    findings: &Findings,
    data: Option<&Calibration>,
    chosen: &Candidate,
) -> Vec<String> {
    let mut notes = Vec::new();
    for (what, profile) in [
        ("device", &profiles.device),
        ("service's machine", &profiles.cloud),
    ] {
        if profile.slowdown != 1.0 {
            notes.push(format!(
                "The {what} was not measured: its times are those of {} multiplied by {}.",
                profile.machine.name, profile.slowdown
            ));
        }
        if (profile.corrected - 1.0).abs() > 0.01 {
            notes.push(format!(
                "Times of the {what} were multiplied by {:.2}, as requests taught (--measure, \
                 --learn).",
                profile.corrected
            ));
        }
        notes.extend(handed_back(what, profile));
    }
    if !chosen.measured_whole && chosen.id != "device" {
        notes.push(format!(
            "{} was not measured whole on these machines; its times are figured from its \
             neighbours. A kit with a longer shortlist (--kit DIR --shortlist N) measures it.",
            chosen.id
        ));
    }
    match data {
        None => notes.push(
            "Without calibration data (--calibration DIR) neither accuracy nor leakage was \
             measured, codecs that change the answers were left out, and the sizes of compressed \
             payloads are those of random values."
                .into(),
        ),
        Some(data) if data.samples.len() < data.available => notes.push(format!(
            "Accuracy, payload and leakage were measured on {} of {} requests (--samples).",
            data.samples.len(),
            data.available
        )),
        Some(_) => {}
    }
    if let Some(why) = &findings.no_attack {
        notes.push(format!("Leakage has no figure: {why}."));
    }
    if findings.attack.is_some() {
        notes.push(SPLITTING_IS_NOT_PRIVACY.into());
    }
    notes
}

/// Nodes of the whole model that another provider than the one that was asked for ran.
fn handed_back(what: &str, profile: &Profile) -> Option<String> {
    let asked = profile.machine.providers.first()?;
    let whole = profile.parts.iter().find(|part| part.seam == WHOLE)?;
    let nodes: usize = whole.placement.values().sum();
    let on_cpu = whole
        .placement
        .get("CPUExecutionProvider")
        .copied()
        .unwrap_or_default();
    (asked != "cpu" && on_cpu > 0).then(|| {
        format!(
            "On the {what}, {on_cpu} of the whole model's {nodes} nodes ran on the CPU although \
             {asked} was asked for; the times are as measured."
        )
    })
}
