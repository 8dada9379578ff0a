//! `seamline seams`.

use std::process::ExitCode;

use clap::Args;
use seamline_graph::seams::Seam;
use seamline_partitioner::{Model, WireBytes, find_seams, wire_bytes};

use super::text::{self, Align};
use super::{Machine, ModelArguments, learn, sizes, spinner};

#[derive(Args)]
pub(crate) struct Seams {
    #[command(flatten)]
    model: ModelArguments,
    /// Seed of the probe run, where one is needed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

impl Seams {
    pub(crate) fn run(self, machine: &Machine) -> anyhow::Result<ExitCode> {
        let (mut model, _) = self.model.open()?;
        let (learnt, problem) = learn(&mut model, machine, self.seed)?;
        if let Some(problem) = problem {
            eprintln!("warning: seams at values of unknown size are left out: {problem}");
        }
        let progress = spinner("seams");
        let seams = find_seams(&model, &[])?.listed;
        progress.finish_and_clear();
        if machine.json {
            let seams: Vec<_> = seams.iter().map(|seam| document(&model, seam)).collect();
            seamline_plan::outln!("{}", serde_json::json!({ "seams": seams }));
            return Ok(ExitCode::SUCCESS);
        }
        if seams.is_empty() {
            seamline_plan::outln!("{} has no seam with work on both sides", model.name);
            return Ok(ExitCode::SUCCESS);
        }
        print(&model, &seams, learnt);
        Ok(ExitCode::SUCCESS)
    }
}

fn document(model: &Model, seam: &Seam) -> serde_json::Value {
    let WireBytes { f32, f16, int8 } = wire_bytes(model, seam);
    serde_json::json!({
        "id": seam.id,
        "values": seam.names(&model.graph),
        "depth_flops": seam.depth_flops,
        "elements": seam.elements,
        "bytes_f32": f32,
        "bytes_f16": f16,
        "bytes_int8": int8,
        "depth": seam.depth(),
    })
}

/// Bytes of all inputs at the reference sizes, where they are known.
fn input_bytes(model: &Model) -> Option<u64> {
    model
        .graph
        .inputs
        .iter()
        .map(|&id| model.facts(id).bytes())
        .sum()
}

fn print(model: &Model, seams: &[Seam], learnt: usize) {
    let input = input_bytes(model);
    let size = |bytes: u64| {
        let mark = if input.is_some_and(|input| bytes < input) {
            '*'
        } else {
            ' '
        };
        format!("{}{mark}", text::bytes(bytes))
    };
    let rows: Vec<Vec<String>> = seams
        .iter()
        .map(|seam| {
            let WireBytes { f32, f16, int8 } = wire_bytes(model, seam);
            vec![
                seam.id.clone(),
                format!("{:.1} %", 100.0 * seam.depth()),
                text::count(seam.elements),
                size(f32),
                size(f16),
                size(int8),
                seam.names(&model.graph).join(", "),
            ]
        })
        .collect();
    let columns = [
        ("seam", Align::Left),
        ("depth", Align::Right),
        ("elements", Align::Right),
        ("f32 ", Align::Right),
        ("f16 ", Align::Right),
        ("int8 ", Align::Right),
        ("values crossing", Align::Left),
    ];
    seamline_plan::out!("{}", text::table(&columns, &rows));
    seamline_plan::outln!("\n{}", sizes(model));
    if let Some(input) = input {
        seamline_plan::outln!(
            "* fewer bytes than the model's own inputs, {}",
            text::bytes(input)
        );
    }
    if learnt > 0 {
        seamline_plan::outln!(
            "{} of unknown size were learnt by a probe run",
            text::plural(learnt, "value")
        );
    }
    seamline_plan::outln!("depth: share of floating-point operations before the seam");
    seamline_plan::outln!(
        "\nnext: seamline split MODEL --at SEAM -o {}.seam, with the options of this command (ids belong to them)",
        model.name
    );
}
