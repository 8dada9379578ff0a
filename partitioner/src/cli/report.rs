//! `seamline report`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use seamline_partitioner::plan::PlanRecord;
use seamline_partitioner::report;
use seamline_plan::write_atomic;

use super::Machine;
use super::text::{bytes, plural};

#[derive(Args)]
pub(crate) struct Report {
    /// A bundle that `seamline plan` made, or its plan.json.
    #[arg(value_name = "BUNDLE")]
    plan: PathBuf,
    /// The page to write; one that is there already is replaced.
    #[arg(short = 'o', long = "output", value_name = "FILE.html")]
    output: PathBuf,
}

impl Report {
    pub(crate) fn run(self, machine: &Machine) -> anyhow::Result<ExitCode> {
        let output = &self.output;
        anyhow::ensure!(
            !output.is_dir(),
            "{} is a folder; give the name of a file, for example {}",
            output.display(),
            output.join("report.html").display()
        );
        // A slip must not replace a bundle's own files.
        anyhow::ensure!(
            output
                .extension()
                .is_some_and(|extension| extension == "html"),
            "{}: a page's name ends in .html",
            output.display()
        );
        let record = PlanRecord::read(&self.plan)?;
        let page = report::html(&record);
        write_atomic(output, page.as_bytes()).with_context(|| format!("{}", output.display()))?;
        let candidates = record.candidates.len();
        if machine.json {
            let document = serde_json::json!({
                "report": output,
                "bytes": page.len(),
                "model": record.model,
                "candidates": candidates,
                "chosen": record.chosen,
            });
            seamline_plan::outln!("{document}");
        } else {
            seamline_plan::outln!(
                "{}  {}: {}, {} chosen; open it in a browser",
                output.display(),
                bytes(page.len() as u64),
                plural(candidates, "candidate"),
                record.chosen
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
