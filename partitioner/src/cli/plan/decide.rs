//! From measurements to the choice.

use seamline_partitioner::Model;
use seamline_partitioner::plan::{
    self, Calibration, Findings, OVERHEAD, Place, Scenario, Weighing,
};
use seamline_plan::LinkModel;

use super::profiles::Profiles;
use super::{Plan, Planning, data};
use crate::cli::Machine;

/// The choice and what it was made from.
pub(super) struct Decided<'p> {
    pub(super) profiles: Profiles<'p>,
    pub(super) findings: Findings,
    pub(super) weighing: Weighing,
    /// The index of the choice among the candidates.
    pub(super) chosen: usize,
}

impl Plan {
    /// Measures the shortlist, and then whatever seems best, until the best is known.
    pub(super) fn decide<'p>(
        &'p self,
        planning: &'p Planning,
        data: Option<&Calibration>,
        link: &LinkModel,
        machine: &Machine,
    ) -> anyhow::Result<Decided<'p>> {
        let constraints = self.aims.constraints()?;
        self.aims.prices()?;
        let model = &planning.model;
        let shortlist = self.shortlist(model, &plan::places(model, None)?);
        let mut profiles = Profiles::new(self, planning, data, &shortlist, machine)?;
        let mut examiner = data
            .map(|data| data::examiner(self, planning, data, machine))
            .transpose()?;
        if let Some(examiner) = &mut examiner {
            data::examine_all(examiner, &shortlist)?;
        }
        loop {
            let findings = examiner
                .as_ref()
                .map_or_else(Findings::default, |examiner| examiner.findings().clone());
            let mut weighing = plan::weigh(model, &self.scenario(&profiles, link)?, &findings)?;
            let (places, candidates) = (&weighing.places, &mut weighing.candidates);
            plan::apply(&constraints, &findings, places, candidates);
            if let Some(examiner) = &mut examiner
                && let Some(place) = plan::to_examine(&findings, places, candidates)
            {
                data::examine_all(examiner, std::slice::from_ref(place))?;
                continue;
            }
            plan::mark_pareto(&findings, candidates);
            let chosen = plan::best(&constraints, &findings, candidates)?;
            // A choice that was figured from its neighbours is measured, and chosen again.
            let candidate = &candidates[chosen].candidate;
            let place = places.iter().find(|place| place.id == candidate.cut);
            let place = place.filter(|_| !candidate.measured_whole);
            if profiles.measure_more(place)? {
                continue;
            }
            let scenario = self.scenario(&profiles, link)?;
            let most = usize::from(self.keep);
            let kept = plan::keep(&model.graph, &scenario, places, candidates, chosen, most);
            for weighed in candidates.iter_mut() {
                weighed.candidate.kept =
                    kept.contains(&weighed.candidate.cut) && weighed.candidate.breaks.is_empty();
            }
            return Ok(Decided {
                profiles,
                findings,
                weighing,
                chosen,
            });
        }
    }

    fn scenario<'p>(
        &self,
        profiles: &'p Profiles<'_>,
        link: &LinkModel,
    ) -> anyhow::Result<Scenario<'p>> {
        Ok(Scenario {
            device: &profiles.device,
            cloud: &profiles.cloud,
            device_threads: self.machines.device_threads,
            cloud_threads: self.machines.cloud_threads,
            link: link.clone(),
            objective: self.aims.objective(),
            constraints: self.aims.constraints()?,
            prices: self.aims.prices()?,
            arrivals_per_s: self.service.arrivals,
            executors: self.service.executors,
            max_batch: self.service.max_batch,
            overhead: OVERHEAD,
        })
    }

    pub(super) fn shortlist(&self, model: &Model, places: &[Place]) -> Vec<Place> {
        let total: f64 = model.flops.iter().sum();
        let inner = plan::shortlist(places, total, self.shortlist);
        let ends = places.iter().take(1);
        ends.chain(inner.into_iter().map(|index| &places[index]))
            .cloned()
            .collect()
    }
}
