//! Calibration data on the command line.

use std::collections::BTreeMap;

use seamline_partitioner::plan::{Calibration, CalibrationOptions, Examiner, Place};
use seamline_partitioner::{Model, Prober};
use seamline_plan::Tensor;

use super::arguments::Data;
use super::{Plan, Planning, profiles};
use crate::cli::{Machine, bar};

/// Requests of the data that kits run on.
const KIT_SAMPLES: usize = 4;

impl Data {
    /// The data that `--calibration` names.
    pub(super) fn read(&self, plan: &Plan, model: &Model) -> anyhow::Result<Option<Calibration>> {
        let Some(folder) = &self.calibration else {
            return Ok(None);
        };
        let options = CalibrationOptions {
            samples: self.samples,
            seed: plan.seed,
            states: plan.states.iter().map(|it| it.input.clone()).collect(),
        };
        Ok(Some(Calibration::read(folder, model, &options)?))
    }
}

/// What machines are measured on: requests of the data, or one random request.
pub(super) fn samples(
    model: &Model,
    data: Option<&Calibration>,
    seed: u64,
) -> anyhow::Result<Vec<BTreeMap<String, Tensor>>> {
    if let Some(data) = data {
        // Spread over the data, which may be sorted by something that matters.
        let step = data.samples.len().div_ceil(KIT_SAMPLES).max(1);
        let spread = data.samples.iter().step_by(step);
        return Ok(spread.map(|sample| sample.values.clone()).collect());
    }
    let inputs = model.probe_inputs(None)?;
    Ok(vec![Prober::new(seed).draw(&inputs)?])
}

/// Runs the whole model on the data.
pub(super) fn examiner<'a>(
    plan: &Plan,
    planning: &'a Planning,
    data: &'a Calibration,
    machine: &Machine,
) -> anyhow::Result<Examiner<'a>> {
    let progress = crate::cli::spinner("running the whole model on the calibration data");
    let options = plan.data.options(profiles::folder(planning, machine));
    let examiner = Examiner::new(&planning.runtime, &planning.model, data, options)?;
    progress.finish_and_clear();
    Ok(examiner)
}

/// Measures accuracy, payload and leakage at `places`.
pub(super) fn examine_all(examiner: &mut Examiner<'_>, places: &[Place]) -> anyhow::Result<()> {
    let progress = bar("measuring accuracy, bytes and leakage", places.len());
    for place in places {
        examiner.examine(place)?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok(())
}
