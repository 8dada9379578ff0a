//! `seamline plan --measure` and `--learn`: what was predicted against what is.

use std::path::Path;

use anyhow::Context;
use seamline_partitioner::Model;
use seamline_partitioner::plan::{self, Calibration, MeasuredRun, TrialOptions, Weighing, try_out};
use seamline_plan::{Bundle, Costs, CutOption, Load, Manifest};

use super::data::samples;
use super::{Made, Plan, Planning};
use crate::cli::spinner;

/// Requests of each candidate.
const REQUESTS: usize = 30;
const QUICK_REQUESTS: usize = 8;

impl Plan {
    /// Runs what the bundle in `out` keeps, and puts what it took into `options` and the record.
    pub(super) fn try_out(
        &self,
        planning: &Planning,
        data: Option<&Calibration>,
        made: &mut Made,
        options: &mut [CutOption],
        out: &Path,
    ) -> anyhow::Result<()> {
        let how = TrialOptions {
            requests: if self.machines.quick {
                QUICK_REQUESTS
            } else {
                REQUESTS
            },
            threads: made.weighing.threads,
            slowdown: (made.record.device.slowdown, made.record.cloud.slowdown),
        };
        let requests = samples(&planning.model, data, self.seed)?;
        let progress = spinner("running what the bundle keeps");
        let tried = try_out(&planning.runtime, out, &requests, options, &how)?;
        progress.finish_and_clear();
        for (option, tried) in options.iter_mut().zip(&tried) {
            *option = tried.corrects(option);
            made.enter(option, how.requests);
        }
        Ok(())
    }
}

impl Made {
    fn enter(&mut self, measured: &CutOption, requests: usize) {
        let link = &self.record.link;
        let mut candidates = self.record.candidates.iter_mut();
        let found = candidates.find(|it| it.cut == measured.cut && it.codec == measured.codec);
        let Some(candidate) = found else { return };
        // What others do to the service stays as it was predicted.
        let load = Load {
            queue_us: candidate.latency.queue_us,
            batch: 1.0,
        };
        candidate.measured = Some(MeasuredRun {
            latency: measured.latency(&link.usual(), &load),
            p95_us: measured.latency_p95_us(link, &load),
            requests,
        });
    }
}

/// Refuses a bundle of another model.
pub(super) fn check_model(root: &Path, manifest: &Manifest, model: &Model) -> anyhow::Result<()> {
    let own = &manifest.model;
    anyhow::ensure!(
        own.graph_hash == model.hash,
        "{} is a bundle of model {} ({}), and this is {} ({}); give the model that it was cut from, \
         with the same --image",
        root.display(),
        own.name,
        own.graph_hash.short(),
        model.name,
        model.hash.short()
    );
    Ok(())
}

/// How much longer device and service take than `weighing` says, by the costs of the bundle in
/// `root`, which a device that ran it has learnt.
pub(super) fn learnt(
    root: &Path,
    model: &Model,
    weighing: &Weighing,
) -> anyhow::Result<(f64, f64)> {
    let (manifest, fingerprint) = Bundle::read_manifest(root)?;
    check_model(root, &manifest, model)?;
    let costs = Costs::read(root, &manifest, fingerprint)?
        .with_context(|| format!("{} has no costs.json to learn from", root.display()))?;
    Ok(plan::corrections(
        &manifest,
        &costs.options,
        &weighing.candidates,
    ))
}
