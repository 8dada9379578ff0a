//! `seamline plan`.

mod arguments;
mod data;
mod decide;
mod measure;
mod notes;
mod old;
mod profiles;
mod show;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use seamline_ort::Runtime;
use seamline_partitioner::plan::{
    self, Calibration, MachineRecord, PLAN_FILE, PLAN_FORMAT, Place, PlanRecord, Weighing,
    read_link,
};
use seamline_partitioner::{INPUT_CUT, Model, OUTPUT_CUT, Source, SplitOptions, split_at};
use seamline_plan::{COSTS_FILE, COSTS_FORMAT, Costs, Fingerprint, Profile, write_atomic};

pub(crate) use arguments::Plan;
use decide::Decided;
use profiles::THIS;

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
        ensure!(
            !self.measure || (self.machines.device == THIS && self.machines.cloud == THIS),
            "--measure runs the bundle on this machine, and --device or --cloud is a file of \
             another; let the device learn (seamline-edge bench --learn) and plan with --learn \
             BUNDLE"
        );
        if self.model.path().is_dir() {
            return old::why_not(self.model.path(), self.why_not.as_deref(), machine);
        }
        let (mut model, source) = self.model.open()?;
        let mut notes = Vec::new();
        let (_, problem) = learn(&mut model, machine, self.seed)?;
        notes.extend(problem.map(|problem| format!("A probe run failed: {problem}")));
        let planning = Planning {
            runtime: machine.runtime()?,
            model,
            source,
            notes,
        };
        if let Some(folder) = &self.kit {
            return self.write_kit(&planning, folder, machine);
        }
        let data = self.data.read(&self, &planning.model)?;
        let mut made = self.plan(&planning, data.as_ref(), machine)?;
        if let Some(bundle) = &self.learn {
            let factors = measure::learnt(bundle, &planning.model, &made.weighing)?;
            profiles::learn(&self, &planning, machine, factors)?;
            made = self.plan(&planning, data.as_ref(), machine)?;
        }
        if let Some(old) = &self.check {
            return old::check(old, &planning.model, &made, self.margin, machine);
        }
        if let Some(asked) = &self.why_not {
            return old::answer(&made.record, asked, machine);
        }
        let fingerprint = match &self.output {
            Some(out) => Some(self.write(&planning, data.as_ref(), &mut made, out, machine)?),
            None => None,
        };
        show::plan(
            &made.record,
            self.output.as_deref().zip(fingerprint),
            machine.json,
        );
        Ok(ExitCode::SUCCESS)
    }

    fn plan(
        &self,
        planning: &Planning,
        data: Option<&Calibration>,
        machine: &Machine,
    ) -> anyhow::Result<Made> {
        let link = read_link(&self.machines.link)?;
        let Decided {
            profiles,
            findings,
            weighing,
            chosen,
        } = self.decide(planning, data, &link, machine)?;
        let all: Vec<_> = weighing
            .candidates
            .iter()
            .map(|it| it.candidate.clone())
            .collect();
        let mut notes = planning.notes.clone();
        notes.extend(notes::notes(&profiles, &findings, data, &all[chosen]));
        let record = PlanRecord {
            format: PLAN_FORMAT,
            model: planning.model.name.clone(),
            graph_hash: planning.model.hash,
            shapes: planning.model.reference.clone(),
            objective: self.aims.objective(),
            constraints: self.aims.constraints()?,
            link,
            device: machine_record(&profiles.device, weighing.threads.0),
            cloud: machine_record(&profiles.cloud, weighing.threads.1),
            prices: self.aims.prices()?,
            arrivals_per_s: self.service.arrivals,
            metric: findings.metric,
            attack: findings.attack,
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

    fn write_kit(
        &self,
        planning: &Planning,
        folder: &Path,
        machine: &Machine,
    ) -> anyhow::Result<ExitCode> {
        let places = plan::places(&planning.model, None)?;
        let shortlist = self.shortlist(&planning.model, &places);
        let data = self.data.read(self, &planning.model)?;
        let samples = data::samples(&planning.model, data.as_ref(), self.seed)?;
        let chosen: Vec<&Place> = shortlist.iter().collect();
        let kit = plan::write_kit(&planning.model, &chosen, &samples, folder)?;
        show::kit(&kit, folder, machine.json);
        Ok(ExitCode::SUCCESS)
    }

    fn write(
        &self,
        planning: &Planning,
        data: Option<&Calibration>,
        made: &mut Made,
        out: &Path,
        machine: &Machine,
    ) -> anyhow::Result<Fingerprint> {
        let candidates = &made.record.candidates;
        let is_kept = |id: &str| candidates.iter().any(|it| it.cut == id && it.kept);
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
        let mut options = plan::options(&made.weighing.candidates, made.chosen, &kept);
        if self.measure {
            self.try_out(planning, data, made, &mut options, out)?;
            let candidates = &made.weighing.candidates;
            let factors = plan::corrections(&report.manifest, &options, candidates);
            profiles::learn(self, planning, machine, factors)?;
        }
        let record = &made.record;
        let costs = Costs {
            format: COSTS_FORMAT,
            contract: report.fingerprint,
            objective: record.objective,
            link: record.link.clone(),
            prices: record.prices,
            executors: self.service.executors,
            options,
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
