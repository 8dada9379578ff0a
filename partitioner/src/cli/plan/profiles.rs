//! Profiles from files, or of this machine, measured now and kept by content.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::Context;
use seamline_ort::Provider;
use seamline_partitioner::plan::{self, Calibration, Place};
use seamline_plan::{Profile, Side, Tensor, write_atomic};
use seamline_profile::{Effort, MeasureOptions, measure};

use super::data::samples;
use super::{Plan, Planning};
use crate::cli::{Machine, bar};

/// Rounds of measuring a choice that was figured from its neighbours, and choosing again.
const ROUNDS: usize = 4;

/// More than this a correction does not change at once: the machines are other ones then.
const MOST_CORRECTION: f64 = 4.0;

/// What stands for the machine that the plan is made on.
pub(super) const THIS: &str = "this";

/// The profiles of both machines; measures this one where it is asked for.
pub(super) struct Profiles<'p> {
    measurer: Measurer<'p>,
    rounds: usize,
    /// Of the device, slowed down as the plan says.
    pub(super) device: Profile,
    /// Of the service's machine.
    pub(super) cloud: Profile,
}

/// Where what was measured of a model is kept.
pub(super) fn folder(planning: &Planning, machine: &Machine) -> PathBuf {
    let folder = machine.store.root().join("plans");
    folder.join(planning.model.hash.short())
}

impl<'p> Profiles<'p> {
    /// Profiles of `shortlist` on this machine, or from files.
    pub(super) fn new(
        plan: &'p Plan,
        planning: &'p Planning,
        data: Option<&Calibration>,
        shortlist: &[Place],
        machine: &Machine,
    ) -> anyhow::Result<Profiles<'p>> {
        let measurer = Measurer {
            plan,
            planning,
            folder: folder(planning, machine),
            samples: samples(&planning.model, data, plan.seed)?,
        };
        let profile = |given: &str, side| -> anyhow::Result<Profile> {
            if given == THIS {
                measurer.measure(shortlist, side)
            } else {
                Ok(Profile::read(Path::new(given), side)?)
            }
        };
        let machines = &plan.machines;
        Ok(Profiles {
            device: profile(&machines.device, Side::Edge)?.scaled(machines.device_slowdown),
            cloud: profile(&machines.cloud, Side::Cloud)?.scaled(machines.cloud_slowdown),
            rounds: 0,
            measurer,
        })
    }

    /// Measures `place` too, where both machines are this one; whether it did.
    pub(super) fn measure_more(&mut self, place: Option<&Place>) -> anyhow::Result<bool> {
        let machines = &self.measurer.plan.machines;
        let Some(place) = place else { return Ok(false) };
        if self.rounds >= ROUNDS || machines.device != THIS || machines.cloud != THIS {
            return Ok(false);
        }
        self.rounds += 1;
        let places = std::slice::from_ref(place);
        let device = self.measurer.measure(places, Side::Edge)?;
        let cloud = self.measurer.measure(places, Side::Cloud)?;
        let device = device.scaled(machines.device_slowdown);
        let cloud = cloud.scaled(machines.cloud_slowdown);
        self.device.parts.extend(device.parts);
        self.cloud.parts.extend(cloud.parts);
        Ok(true)
    }
}

/// Corrects the profiles, files or what is kept of this machine, by how much longer device and
/// service were found to take.
pub(super) fn learn(
    plan: &Plan,
    planning: &Planning,
    machine: &Machine,
    (device, cloud): (f64, f64),
) -> anyhow::Result<()> {
    let machines = &plan.machines;
    for (side, given, factor) in [
        (Side::Edge, &machines.device, device),
        (Side::Cloud, &machines.cloud, cloud),
    ] {
        let paths = if given == THIS {
            kept(&folder(planning, machine), side)
        } else {
            vec![PathBuf::from(given)]
        };
        let factor = factor.clamp(1.0 / MOST_CORRECTION, MOST_CORRECTION);
        for path in paths {
            let profile = Profile::read(&path, side)?.corrected(factor);
            write_atomic(&path, &profile.to_json()).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// Profiles of this machine that are kept in `folder`.
fn kept(folder: &Path, side: Side) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_one = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| {
            name.starts_with(&format!("{}-", side.folder())) && name.ends_with(".json")
        })
    };
    entries
        .map(|entry| entry.path())
        .filter(is_one)
        .filter(|path| Profile::read(path, side).is_ok())
        .collect()
}

/// Measures this machine.
struct Measurer<'p> {
    plan: &'p Plan,
    planning: &'p Planning,
    folder: PathBuf,
    /// Requests to run.
    samples: Vec<BTreeMap<String, Tensor>>,
}

impl Measurer<'_> {
    fn measure(&self, places: &[Place], side: Side) -> anyhow::Result<Profile> {
        let model = &self.planning.model;
        let chosen: Vec<&Place> = places.iter().collect();
        let work = self.folder.join(format!("kit-{}", std::process::id()));
        let kit = plan::write_kit(model, &chosen, &self.samples, &work)?;
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
            None => self.measure_kit(&work, &path, &options),
        };
        // Models of many MB: the profile is what is kept.
        let _ = std::fs::remove_dir_all(&work);
        profile
    }

    fn measure_kit(
        &self,
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
        let measured = measure(&self.planning.runtime, work, path, options, tell);
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
