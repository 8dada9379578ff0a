//! Profiles from files, or of this machine, measured now and kept by content.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::Context;
use seamline_ort::Provider;
use seamline_partitioner::plan::{self, Place};
use seamline_partitioner::{Model, Prober};
use seamline_plan::{Profile, Side, Tensor};
use seamline_profile::{Effort, MeasureOptions, measure};

use super::{Plan, Planning};
use crate::cli::{Machine, bar};

/// Rounds of measuring a choice that was figured from its neighbours, and choosing again.
const ROUNDS: usize = 4;

/// What stands for the machine that the plan is made on.
const THIS: &str = "this";

/// Gives profiles; measures this machine where it is asked for.
pub(super) struct Measurer<'p> {
    plan: &'p Plan,
    folder: PathBuf,
    rounds: usize,
}

/// One random request, where there is no real data.
pub(super) fn samples(model: &Model, seed: u64) -> anyhow::Result<Vec<BTreeMap<String, Tensor>>> {
    let inputs = model.probe_inputs(None)?;
    Ok(vec![Prober::new(seed).draw(&inputs)?])
}

impl<'p> Measurer<'p> {
    pub(super) fn new(plan: &'p Plan, planning: &Planning, machine: &Machine) -> Measurer<'p> {
        let folder = machine.store.root().join("plans");
        Measurer {
            plan,
            folder: folder.join(planning.model.hash.short()),
            rounds: 0,
        }
    }

    /// The profiles of device and service.
    pub(super) fn profiles(
        &mut self,
        planning: &Planning,
        shortlist: &[Place],
    ) -> anyhow::Result<(Profile, Profile)> {
        let machines = &self.plan.machines;
        let mut both = Vec::new();
        for (side, given) in [
            (Side::Edge, &machines.device),
            (Side::Cloud, &machines.cloud),
        ] {
            both.push(if given == THIS {
                self.measure(planning, shortlist, side)?
            } else {
                Profile::read(Path::new(given), side)?
            });
        }
        let cloud = both.pop().context("two sides")?;
        let device = both.pop().context("two sides")?;
        Ok((device, cloud))
    }

    /// Profiles of `place` alone, where both machines are this one.
    pub(super) fn more(
        &mut self,
        planning: &Planning,
        place: Option<&Place>,
    ) -> anyhow::Result<Option<(Profile, Profile)>> {
        let machines = &self.plan.machines;
        let Some(place) = place else { return Ok(None) };
        if self.rounds >= ROUNDS || machines.device != THIS || machines.cloud != THIS {
            return Ok(None);
        }
        self.rounds += 1;
        let places = std::slice::from_ref(place);
        let device = self.measure(planning, places, Side::Edge)?;
        Ok(Some((device, self.measure(planning, places, Side::Cloud)?)))
    }

    fn measure(
        &self,
        planning: &Planning,
        places: &[Place],
        side: Side,
    ) -> anyhow::Result<Profile> {
        let samples = samples(&planning.model, self.plan.seed)?;
        let chosen: Vec<&Place> = places.iter().collect();
        let work = self.folder.join(format!("kit-{}", std::process::id()));
        let kit = plan::write_kit(&planning.model, &chosen, &samples, &work)?;
        let options = MeasureOptions {
            side,
            name: None,
            providers: vec![Provider::Cpu],
            threads: match side {
                Side::Edge => self.plan.machines.device_threads,
                Side::Cloud => self.plan.machines.cloud_threads,
            }
            .map_or_else(default_threads, |threads| vec![threads]),
            batches: batches(self.plan.service.max_batch, side),
            effort: if self.plan.machines.quick {
                Effort::QUICK
            } else {
                Effort::FULL
            },
        };
        let key = blake3_of(&kit.to_json(), &options);
        let path = self.folder.join(format!("{}-{key}.json", side.folder()));
        let cached = Profile::read(&path, side).ok();
        let profile = match cached {
            Some(profile) => Ok(profile),
            None => self.measure_kit(planning, &work, &path, &options),
        };
        // Models of many MB: the profile is what is kept.
        let _ = std::fs::remove_dir_all(&work);
        profile
    }

    fn measure_kit(
        &self,
        planning: &Planning,
        work: &Path,
        path: &Path,
        options: &MeasureOptions,
    ) -> anyhow::Result<Profile> {
        let progress = bar(
            match options.side {
                Side::Edge => "measuring heads on this machine",
                Side::Cloud => "measuring tails on this machine",
            },
            0,
        );
        let tell = |at: &seamline_profile::Progress| {
            progress.set_length(at.total as u64);
            progress.set_position(at.done as u64);
            ControlFlow::Continue(())
        };
        let measured = measure(&planning.runtime, work, path, options, tell);
        progress.finish_and_clear();
        Ok(measured?.profile)
    }
}

/// One thread and all of them.
fn default_threads() -> Vec<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores == 1 { vec![1] } else { vec![1, cores] }
}

fn batches(max_batch: u64, side: Side) -> Vec<u64> {
    match side {
        Side::Edge => vec![1],
        Side::Cloud => (0..7)
            .map(|power| 1 << power)
            .filter(|rows| *rows <= max_batch.max(1))
            .collect(),
    }
}

fn blake3_of(kit: &[u8], options: &MeasureOptions) -> String {
    let mut content = kit.to_vec();
    let MeasureOptions {
        side,
        name,
        providers,
        threads,
        batches,
        effort,
    } = options;
    content
        .extend(format!("{side:?}{name:?}{providers:?}{threads:?}{batches:?}{effort:?}").bytes());
    content.extend(env!("CARGO_PKG_VERSION").bytes());
    seamline_plan::Fingerprint::of(&content).short()
}
