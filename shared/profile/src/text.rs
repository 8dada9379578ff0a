//! A finished measurement for people, and as one JSON document.

use std::path::Path;

use seamline_plan::PartTime;
use serde_json::json;

use crate::{MeasureOptions, Measured};

impl Measured {
    /// A table of the parts, and what a provider handed back to the CPU.
    pub fn table(&self, options: &MeasureOptions) -> String {
        let titles = [
            "seam", "threads", "batch", "p50 ms", "p95 ms", "memory", "ran on",
        ];
        let mut rows = vec![titles.map(str::to_owned)];
        rows.extend(self.profile.parts.iter().map(row));
        let mut text = aligned(&rows);
        for ran_on in &self.ran_on {
            let nodes = ran_on.handed_back(&options.providers);
            if !nodes.is_empty() {
                let names = shortened(nodes);
                let line = format!(
                    "{}: {} nodes ran on the CPU: {names}\n",
                    ran_on.seam,
                    nodes.len()
                );
                text.push_str(&line);
            }
        }
        text
    }

    /// The figures of the table with stable fields; times in milliseconds, memory in bytes.
    pub fn document(&self, out: &Path, options: &MeasureOptions) -> serde_json::Value {
        let parts = self.profile.parts.iter().map(|part| {
            json!({
                "seam": part.seam,
                "values": part.values,
                "threads": part.threads,
                "batch": part.batch,
                "p50_ms": part.time.p50_us / 1e3,
                "p95_ms": part.time.p95_us / 1e3,
                "runs": part.time.samples,
                "resident_bytes": part.resident_bytes,
                "placement": part.placement,
                "codecs": part.codecs,
            })
        });
        let handed_back = self.ran_on.iter().filter_map(|ran_on| {
            let nodes = ran_on.handed_back(&options.providers);
            (!nodes.is_empty()).then(|| json!({ "seam": ran_on.seam, "nodes": nodes }))
        });
        json!({
            "profile": out,
            "machine": self.profile.machine,
            "resumed_steps": self.resumed,
            "parts": parts.collect::<Vec<_>>(),
            "handed_back_to_cpu": handed_back.collect::<Vec<_>>(),
        })
    }
}

fn row(part: &PartTime) -> [String; 7] {
    let placement = part.placement.iter();
    let placement: Vec<String> = placement
        .map(|(provider, nodes)| {
            let name = provider.trim_end_matches("ExecutionProvider");
            format!("{name} {nodes}")
        })
        .collect();
    let memory = match part.resident_bytes {
        0 => "-".to_owned(),
        bytes => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    };
    [
        part.seam.clone(),
        part.threads.to_string(),
        part.batch.to_string(),
        format!("{:.2}", part.time.p50_us / 1e3),
        format!("{:.2}", part.time.p95_us / 1e3),
        memory,
        placement.join(", "),
    ]
}

/// Columns two blanks apart: text to the left, numbers to the right.
fn aligned(rows: &[[String; 7]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or_default()
    };
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = width(column);
            match column {
                0 => format!("{cell:<width$}"),
                6 => cell.clone(),
                _ => format!("{cell:>width$}"),
            }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The first few names.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = names.len().saturating_sub(SHOWN);
    let shown = names.iter().take(SHOWN).map(String::as_str);
    let shown = shown.collect::<Vec<_>>().join(", ");
    if more == 0 {
        shown
    } else {
        format!("{shown} and {more} more (all with --json)")
    }
}
