//! What `seamline plan` prints.

use std::path::Path;

use seamline_partitioner::plan::{Candidate, Placement, PlanRecord, milliseconds};
use seamline_plan::{Fingerprint, Kit};

use crate::cli::text::{self, Align};

/// Characters of the metric's name: one of the user's own is a command.
const METRIC_WIDTH: usize = 24;

/// Rows of the table.
const ROWS: usize = 8;

pub(super) fn plan(record: &PlanRecord, bundle: Option<(&Path, Fingerprint)>, json: bool) {
    if json {
        let bundle = bundle.map(
            |(path, fingerprint)| serde_json::json!({ "path": path, "fingerprint": fingerprint }),
        );
        seamline_plan::outln!(
            "{}",
            serde_json::json!({ "plan": record, "bundle": bundle })
        );
        return;
    }
    seamline_plan::outln!("{}", table(record));
    for sentence in record.reason.iter().chain(&measured(record)) {
        seamline_plan::outln!("{sentence}");
    }
    for note in &record.notes {
        seamline_plan::outln!("note: {note}");
    }
    if let Some((path, fingerprint)) = bundle {
        let path = path.display();
        seamline_plan::outln!("\n{path}  {}", fingerprint.short());
        seamline_plan::outln!("next: seamline report {path} -o report.html");
    }
}

/// How far off the predictions were of what was measured.
fn measured(record: &PlanRecord) -> Option<String> {
    let mut errors: Vec<f64> = record
        .candidates
        .iter()
        .filter_map(|it| {
            let measured = it.measured.as_ref()?.latency.total_us();
            Some((it.latency.total_us() / measured - 1.0).abs())
        })
        .collect();
    errors.sort_by(f64::total_cmp);
    let (middle, last) = (errors.get(errors.len() / 2)?, errors.last()?);
    Some(format!(
        "Measured: {} candidates, the ways by the link's figures; the predictions were off by \
         {:.1} % in the median, by {:.1} % at most.",
        errors.len(),
        100.0 * middle,
        100.0 * last
    ))
}

/// The choice, its rivals, and the next best of other cuts.
fn table(record: &PlanRecord) -> String {
    let metric = record
        .metric
        .as_ref()
        .map_or("accuracy", |metric| &metric.name);
    let metric: String = metric.chars().take(METRIC_WIDTH).collect();
    let columns = [
        ("candidate", Align::Left),
        ("depth", Align::Right),
        ("p50", Align::Right),
        ("measured", Align::Right),
        ("p95", Align::Right),
        ("sent", Align::Right),
        ("energy", Align::Right),
        (&metric, Align::Right),
        ("leakage", Align::Right),
        ("", Align::Left),
    ];
    let rows: Vec<Vec<String>> = rows(record).into_iter().map(|it| row(record, it)).collect();
    text::table(&columns, &rows)
}

fn rows(record: &PlanRecord) -> Vec<&Candidate> {
    let mut ranked: Vec<&Candidate> = record.candidates.iter().collect();
    ranked.sort_by(|a, b| {
        let key = |it: &Candidate| (it.id != record.chosen, !it.breaks.is_empty());
        key(a).cmp(&key(b)).then(a.score.total_cmp(&b.score))
    });
    let mut shown: Vec<&Candidate> = Vec::new();
    // The best of each cut, and of each way to do without one.
    for candidate in ranked {
        let is_new = shown
            .iter()
            .all(|it| it.cut != candidate.cut || it.placement != candidate.placement);
        let is_rival = candidate.placement != Placement::Split;
        if is_new && (is_rival || shown.len() < ROWS) {
            shown.push(candidate);
        }
    }
    shown
}

fn row(record: &PlanRecord, candidate: &Candidate) -> Vec<String> {
    let remark = if candidate.id == record.chosen {
        "chosen".to_owned()
    } else {
        candidate.breaks.first().cloned().unwrap_or_default()
    };
    vec![
        candidate.id.clone(),
        format!("{:.0} %", 100.0 * candidate.depth),
        milliseconds(candidate.latency.total_us()),
        candidate
            .measured
            .as_ref()
            .map_or("-".into(), |run| milliseconds(run.latency.total_us())),
        milliseconds(candidate.latency_p95_us),
        text::bytes(candidate.up_bytes),
        format!("{:.0} mJ", candidate.energy_j * 1e3),
        candidate
            .accuracy
            .map_or("-".into(), |it| format!("{it:.4}")),
        candidate
            .leakage
            .map_or("-".into(), |it| format!("{:.2}", it.recovered)),
        remark,
    ]
}

pub(super) fn kit(kit: &Kit, folder: &Path, json: bool) {
    let seams: Vec<&str> = kit.seams.iter().map(|seam| seam.seam.as_str()).collect();
    if json {
        seamline_plan::outln!("{}", serde_json::json!({ "kit": folder, "seams": seams }));
        return;
    }
    let folder = folder.display();
    seamline_plan::outln!(
        "{folder}: {} heads and tails ({})",
        seams.len(),
        seams.join(", ")
    );
    seamline_plan::outln!(
        "\nnext, on the device:          seamline-edge profile {folder} -o device.json"
    );
    seamline_plan::outln!(
        "next, on the service's machine: seamline-cloud profile {folder} -o cloud.json"
    );
}
