//! Questions to a plan that was made before.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use seamline_partitioner::Model;
use seamline_partitioner::plan::{self, PLAN_FILE, PlanRecord};
use seamline_plan::{Bundle, Costs};

use super::Made;
use super::measure::check_model;
use crate::cli::Machine;

/// `seamline plan X.seam --why-not SEAM`.
pub(super) fn why_not(
    bundle: &Path,
    asked: Option<&str>,
    machine: &Machine,
) -> anyhow::Result<ExitCode> {
    let asked = asked.with_context(|| {
        format!(
            "{} is a bundle; give the model (ONNX) to plan, or --why-not SEAM to ask about the \
             plan in it",
            bundle.display()
        )
    })?;
    let record = PlanRecord::read(&bundle.join(PLAN_FILE))?;
    answer(&record, asked, machine)
}

pub(super) fn answer(
    record: &PlanRecord,
    asked: &str,
    machine: &Machine,
) -> anyhow::Result<ExitCode> {
    let sentences = plan::why_not(record, asked).map_err(anyhow::Error::msg)?;
    if machine.json {
        seamline_plan::outln!(
            "{}",
            serde_json::json!({ "asked": asked, "chosen": record.chosen, "answer": sentences })
        );
    } else {
        for sentence in sentences {
            seamline_plan::outln!("{sentence}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// `seamline plan MODEL --check OLD.seam`.
pub(super) fn check(
    old: &Path,
    model: &Model,
    made: &Made,
    margin: f64,
    machine: &Machine,
) -> anyhow::Result<ExitCode> {
    let (manifest, fingerprint) = Bundle::read_manifest(old)?;
    check_model(old, &manifest, model)?;
    let costs = Costs::read(old, &manifest, fingerprint)?.with_context(|| {
        format!(
            "{} has no costs.json: it was made by `seamline split`; plan it with `seamline plan`",
            old.display()
        )
    })?;
    let weighing = &made.weighing;
    let best = &weighing.candidates[made.chosen].candidate;
    let old_choice = costs.options.first();
    let own = old_choice
        .and_then(|option| plan::find(&manifest, option, &weighing.candidates))
        .with_context(|| {
            format!(
                "{}: the model now has no seam like the plan's cut",
                old.display()
            )
        })?;
    // What costs nothing, such as the bytes of a device alone, is as good as itself.
    let regret = if own.candidate.score == best.score {
        1.0
    } else {
        own.candidate.score / best.score
    };
    let is_good = regret <= 1.0 + margin && own.candidate.breaks.is_empty();
    if machine.json {
        seamline_plan::outln!(
            "{}",
            serde_json::json!({
                "old": own.candidate.id, "best": best.id, "ratio": regret, "margin": margin,
                "breaks": own.candidate.breaks, "passed": is_good,
            })
        );
    } else {
        let (verdict, end) = if is_good {
            ("holds", "")
        } else {
            ("has become worse", "; plan again")
        };
        seamline_plan::outln!(
            "the old plan {verdict}: {} now has {}, {regret:.2} times as much as the best, {} \
             ({}); {:.2} is allowed{end}",
            own.candidate.id,
            plan::figure(&own.candidate, costs.objective),
            best.id,
            plan::figure(best, costs.objective),
            1.0 + margin
        );
        for problem in &own.candidate.breaks {
            seamline_plan::outln!("  it breaks a constraint: {problem}");
        }
    }
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
