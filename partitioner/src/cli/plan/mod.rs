//! `seamline plan`.

mod arguments;
mod old;
mod profiles;
mod show;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use seamline_ort::Runtime;
use seamline_partitioner::plan::{
    self, Findings, MachineRecord, OVERHEAD, PLAN_FILE, PLAN_FORMAT, Place, PlanRecord, Scenario,
    Weighing, read_link,
};
use seamline_partitioner::{INPUT_CUT, Model, OUTPUT_CUT, Source, SplitOptions, split_at};
use seamline_plan::{COSTS_FILE, COSTS_FORMAT, Costs, Fingerprint, Profile, WHOLE, write_atomic};

pub(crate) use arguments::Plan;
use profiles::Measurer;

use super::{Machine, learn};

/// A model that is being planned.
struct Planning {
    model: Model,
    source: Source,
    runtime: Runtime,
    notes: Vec<String>,
}

/// A plan that was made.
struct Made {
    weighing: Weighing,
    chosen: usize,
    record: PlanRecord,
}

impl Plan {
    pub(crate) fn run(self, machine: &Machine) -> anyhow::Result<ExitCode> {
        ensure!(
            self.margin.is_finite() && self.margin >= 0.0,
            "--margin is {}; expected a share, 0.1 for a tenth",
            self.margin
        );
        if self.model.path().is_dir() {
            return old::why_not(self.model.path(), self.why_not.as_deref(), machine);
        }
        let (mut model, source) = self.model.open()?;
        let mut notes = Vec::new();
        let (_, problem) = learn(&mut model, machine, self.seed)?;
        notes.extend(problem.map(|problem| format!("A probe run failed: {problem}")));
        let mut planning = Planning {
            runtime: machine.runtime()?,
            model,
            source,
            notes,
        };
        if let Some(folder) = &self.kit {
            return self.write_kit(&planning, folder, machine);
        }
        let made = self.plan(&mut planning, machine)?;
        if let Some(old) = &self.check {
            return old::check(old, &made.weighing, made.chosen, self.margin, machine);
        }
        if let Some(asked) = &self.why_not {
            return old::answer(&made.record, asked, machine);
        }
        let fingerprint = match &self.output {
            Some(out) => Some(self.write(&planning, &made, out)?),
            None => None,
        };
        show::plan(
            &made.record,
            self.output.as_deref().zip(fingerprint),
            machine.json,
        );
        Ok(ExitCode::SUCCESS)
    }

    fn plan(&self, planning: &mut Planning, machine: &Machine) -> anyhow::Result<Made> {
        let constraints = self.aims.constraints()?;
        let link = read_link(&self.machines.link)?;
        let prices = self.aims.prices()?;
        let places = plan::places(&planning.model, None)?;
        let shortlist = self.shortlist(&planning.model, &places);
        let mut measurer = Measurer::new(self, planning, machine);
        let (device, cloud) = measurer.profiles(planning, &shortlist)?;
        let mut profiles = (
            device.scaled(self.machines.device_slowdown),
            cloud.scaled(self.machines.cloud_slowdown),
        );
        let findings = Findings::default();
        let mut weighing;
        let chosen;
        loop {
            let scenario = Scenario {
                device: &profiles.0,
                cloud: &profiles.1,
                device_threads: self.machines.device_threads,
                cloud_threads: self.machines.cloud_threads,
                link: link.clone(),
                objective: self.aims.objective(),
                constraints,
                prices,
                arrivals_per_s: self.service.arrivals,
                executors: self.service.executors,
                max_batch: self.service.max_batch,
                overhead: OVERHEAD,
            };
            weighing = plan::weigh(&planning.model, &scenario, &findings)?;
            let Weighing {
                places, candidates, ..
            } = &mut weighing;
            plan::apply(&constraints, &findings, places, candidates);
            plan::mark_pareto(&findings, candidates);
            let best = plan::best(&constraints, &findings, candidates)?;
            // A choice that was figured from its neighbours is measured, and chosen again.
            let candidate = &candidates[best].candidate;
            let place = places.iter().find(|place| place.id == candidate.cut);
            let place = place.filter(|_| !candidate.measured_whole);
            if let Some(more) = measurer.more(planning, place)? {
                profiles
                    .0
                    .parts
                    .extend(more.0.scaled(self.machines.device_slowdown).parts);
                profiles
                    .1
                    .parts
                    .extend(more.1.scaled(self.machines.cloud_slowdown).parts);
                continue;
            }
            let most = usize::from(self.keep);
            let kept = plan::keep(
                &planning.model.graph,
                &scenario,
                places,
                candidates,
                best,
                most,
            );
            for weighed in candidates.iter_mut() {
                weighed.candidate.kept =
                    kept.contains(&weighed.candidate.cut) && weighed.candidate.breaks.is_empty();
            }
            chosen = best;
            break;
        }
        let all: Vec<_> = weighing
            .candidates
            .iter()
            .map(|it| it.candidate.clone())
            .collect();
        let mut notes = std::mem::take(&mut planning.notes);
        notes.extend(self.caveats(
            &profiles.0,
            &profiles.1,
            &all[chosen].id,
            all[chosen].measured_whole,
        ));
        let record = PlanRecord {
            format: PLAN_FORMAT,
            model: planning.model.name.clone(),
            graph_hash: planning.model.hash,
            shapes: planning.model.reference.clone(),
            objective: self.aims.objective(),
            constraints,
            link,
            device: machine_record(&profiles.0, weighing.threads.0),
            cloud: machine_record(&profiles.1, weighing.threads.1),
            prices,
            arrivals_per_s: self.service.arrivals,
            metric: None,
            attack: None,
            chosen: all[chosen].id.clone(),
            reason: plan::reasons(self.aims.objective(), &all, &all[chosen]),
            candidates: all,
            notes,
        };
        Ok(Made {
            weighing,
            chosen,
            record,
        })
    }

    /// What the reader should know of the figures.
    fn caveats(
        &self,
        device: &Profile,
        cloud: &Profile,
        chosen: &str,
        measured: bool,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        for (what, profile) in [("device", device), ("service's machine", cloud)] {
            if profile.slowdown != 1.0 {
                notes.push(format!(
                    "The {what} was not measured: its times are those of {} multiplied by {}.",
                    profile.machine.name, profile.slowdown
                ));
            }
            notes.extend(handed_back(what, profile));
        }
        if !measured && chosen != "device" {
            notes.push(format!(
                "{chosen} was not measured whole on these machines; its times are figured from \
                 its neighbours. A kit with a longer shortlist (--kit DIR --shortlist N) measures it."
            ));
        }
        if self.data.calibration.is_none() {
            notes.push(
                "Without calibration data (--calibration DIR) neither accuracy nor leakage was \
                 measured, and codecs that change the answers were left out."
                    .into(),
            );
        }
        notes
    }

    fn shortlist(&self, model: &Model, places: &[Place]) -> Vec<Place> {
        let total: f64 = model.flops.iter().sum();
        let inner = plan::shortlist(places, total, self.shortlist);
        let ends = places.iter().take(1);
        ends.chain(inner.into_iter().map(|index| &places[index]))
            .cloned()
            .collect()
    }

    fn write_kit(
        &self,
        planning: &Planning,
        folder: &Path,
        machine: &Machine,
    ) -> anyhow::Result<ExitCode> {
        let places = plan::places(&planning.model, None)?;
        let shortlist = self.shortlist(&planning.model, &places);
        let samples = profiles::samples(&planning.model, self.seed)?;
        let chosen: Vec<&Place> = shortlist.iter().collect();
        let kit = plan::write_kit(&planning.model, &chosen, &samples, folder)?;
        show::kit(&kit, folder, machine.json);
        Ok(ExitCode::SUCCESS)
    }

    fn write(&self, planning: &Planning, made: &Made, out: &Path) -> anyhow::Result<Fingerprint> {
        let record = &made.record;
        let is_kept = |id: &str| record.candidates.iter().any(|it| it.cut == id && it.kept);
        let places = made
            .weighing
            .places
            .iter()
            .filter(|place| is_kept(&place.id));
        let seams: Vec<_> = places.filter_map(|place| place.seam.clone()).collect();
        let chosen = &made.weighing.candidates[made.chosen];
        let options = SplitOptions {
            at: Vec::new(),
            edge_tail: is_kept(OUTPUT_CUT),
            cloud_head: is_kept(INPUT_CUT),
            default_cut: Some(chosen.candidate.cut.clone()),
            codec: chosen.candidate.codec.clone(),
            states: self.states.clone(),
            seed: self.seed,
        };
        let progress = super::spinner("cutting, writing, proving batch axes");
        let report = split_at(
            &planning.model,
            &planning.runtime,
            out,
            &seams,
            &options,
            &planning.source,
        )?;
        progress.finish_and_clear();
        let kept: Vec<String> = report
            .manifest
            .cuts
            .iter()
            .map(|cut| cut.id.clone())
            .collect();
        let costs = Costs {
            format: COSTS_FORMAT,
            contract: report.fingerprint,
            objective: record.objective,
            link: record.link.clone(),
            prices: record.prices,
            executors: self.service.executors,
            options: plan::options(&made.weighing.candidates, made.chosen, &kept),
        };
        for (name, content) in [(COSTS_FILE, costs.to_json()), (PLAN_FILE, record.to_json())] {
            let path = out.join(name);
            write_atomic(&path, &content).with_context(|| path.display().to_string())?;
        }
        Ok(report.fingerprint)
    }
}

fn machine_record(profile: &Profile, threads: usize) -> MachineRecord {
    MachineRecord {
        machine: profile.machine.clone(),
        slowdown: profile.slowdown,
        threads,
    }
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
