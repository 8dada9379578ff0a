//! What every candidate costs: each place to cut with each codec, on a device, a service and a
//! link.

use std::collections::BTreeMap;

use seamline_plan::{CutOption, LinkModel, Load, Objective, Prices, Profile, Spread, TailTime};
use thiserror::Error;

use super::findings::Findings;
use super::places::{NodeCosts, Place, places};
use super::queue::{load_of, overload};
use super::record::{Candidate, Constraints, Placement};
use super::times::SideTimes;
use super::work::Work;
use crate::contract::{INPUT_CUT, OUTPUT_CUT};
use crate::model::Model;
use crate::split::SplitError;

/// What a request takes beyond its parts: framing, system calls, and threads on both sides that wake
/// up. Measured where requests come now and then (`cargo bench -p seamline-tests --bench prediction`);
/// it is 300 µs where they follow each other (`--bench split_overhead`).
pub const OVERHEAD: Spread = Spread {
    p50_us: 500.0,
    p95_us: 1000.0,
    samples: 0,
};

/// Links that the graph is divided for beside the one that is planned for, as shares of its rate:
/// where it gets worse or better, the device may change to them.
const OTHER_RATES: [f64; 3] = [1.0, 0.25, 4.0];

/// Machines, link and aims.
#[derive(Clone, Debug)]
pub struct Scenario<'s> {
    /// The device's profile.
    pub device: &'s Profile,
    /// The service's.
    pub cloud: &'s Profile,
    /// Threads on the device; the fastest for the whole model without it.
    pub device_threads: Option<usize>,
    /// Threads in the service.
    pub cloud_threads: Option<usize>,
    /// The link.
    pub link: LinkModel,
    /// What is to be small.
    pub objective: Objective,
    /// What has to hold.
    pub constraints: Constraints,
    /// Watts and prices.
    pub prices: Prices,
    /// Requests that arrive in the service each second beside one's own.
    pub arrivals_per_s: f64,
    /// Tails that the service runs at the same time.
    pub executors: usize,
    /// The most rows that the service joins.
    pub max_batch: u64,
    /// What a request takes beyond its parts.
    pub overhead: Spread,
}

/// Profiles that do not fit.
#[derive(Debug, Error)]
pub enum WeighError {
    /// Of another model.
    #[error(
        "the {side} profile is of model {profiled} ({profiled_hash}), this is {model} ({hash}); measure this one: seamline plan MODEL --kit DIR"
    )]
    OtherModel {
        /// `device` or `cloud`.
        side: &'static str,
        /// The profile's model.
        profiled: String,
        /// The start of its hash.
        profiled_hash: String,
        /// This model.
        model: String,
        /// The start of its hash.
        hash: String,
    },
    /// Of other sizes.
    #[error(
        "the {side} profile was measured at {profiled}, the plan is for {sizes}; give the same --shape, or measure again"
    )]
    OtherSizes {
        /// `device` or `cloud`.
        side: &'static str,
        /// The profile's.
        profiled: String,
        /// The plan's.
        sizes: String,
    },
    /// Without what a plan needs.
    #[error("the {side} profile cannot be used: {problem}; measure again")]
    Profile {
        /// `device` or `cloud`.
        side: &'static str,
        /// What it lacks.
        problem: String,
    },
    /// The places cannot be made.
    #[error(transparent)]
    Places(#[from] SplitError),
}

/// A candidate with what it needs to become part of a bundle.
#[derive(Clone, Debug)]
pub struct Weighed {
    /// For the record.
    pub candidate: Candidate,
    /// For the device.
    pub option: CutOption,
    /// Why the service cannot keep up, where it cannot.
    pub overload: Option<String>,
    /// Whether only what is not measured yet stands against it.
    pub open: bool,
}

/// All candidates and the places that they cut at.
pub struct Weighing {
    /// By rising depth.
    pub candidates: Vec<Weighed>,
    /// By rising depth.
    pub places: Vec<Place>,
    /// Threads on the device and in the service.
    pub threads: (usize, usize),
}

/// Weighs every candidate.
///
/// # Errors
/// [`WeighError`].
pub fn weigh(
    model: &Model,
    scenario: &Scenario<'_>,
    findings: &Findings,
) -> Result<Weighing, WeighError> {
    check(model, scenario.device, "device")?;
    check(model, scenario.cloud, "cloud")?;
    let nodes = model.graph.nodes.len();
    let plain = places(model, None)?;
    let mut work = Work::new(&model.graph);
    let known: BTreeMap<Vec<String>, &Place> =
        plain.iter().map(|place| (place.values(), place)).collect();
    let input_bytes = plain.first().map_or(0.0, |place| place.raw_bytes as f64);
    let mut part_work = |head: bool, values: &[String], node_us: &[f64]| {
        if values.is_empty() {
            return Some((node_us.iter().sum(), input_bytes));
        }
        let place = known.get(values)?;
        let [behind] = work.behind(&place.seam.as_ref()?.cut, [node_us]);
        let total: f64 = node_us.iter().sum();
        Some((
            if head { total - behind } else { behind },
            place.raw_bytes as f64,
        ))
    };
    let wrong = |side| move |problem| WeighError::Profile { side, problem };
    let device = SideTimes::new(
        scenario.device,
        nodes,
        scenario.device_threads,
        |values, us| part_work(true, values, us),
    )
    .map_err(wrong("device"))?;
    let cloud = SideTimes::new(
        scenario.cloud,
        nodes,
        scenario.cloud_threads,
        |values, us| part_work(false, values, us),
    )
    .map_err(wrong("cloud"))?;
    let places = divide(model, scenario, &device, &cloud)?;
    let mut candidates = Vec::new();
    for place in &places {
        let [behind_device, behind_cloud] = match &place.seam {
            Some(seam) => work.behind(&seam.cut, [&device.node_us, &cloud.node_us]),
            None => [0.0, 0.0],
        };
        let weigher = Weigher {
            scenario,
            device: &device,
            cloud: &cloud,
            findings,
            place,
            head_us: device.node_us.iter().sum::<f64>() - behind_device,
            tail_us: behind_cloud,
        };
        candidates.extend(weigher.candidates());
    }
    Ok(Weighing {
        threads: (device.threads(), cloud.threads()),
        candidates,
        places,
    })
}

fn check(model: &Model, profile: &Profile, side: &'static str) -> Result<(), WeighError> {
    if profile.model.graph_hash != model.hash {
        return Err(WeighError::OtherModel {
            side,
            profiled: profile.model.name.clone(),
            profiled_hash: profile.model.graph_hash.short(),
            model: model.name.clone(),
            hash: model.hash.short(),
        });
    }
    if profile.model.shapes != model.reference {
        return Err(WeighError::OtherSizes {
            side,
            profiled: crate::format_bindings(&profile.model.shapes),
            sizes: crate::format_bindings(&model.reference),
        });
    }
    Ok(())
}

/// The places of the model, its cheapest divisions by these costs among them. Node times are
/// brought to the whole model's own time, as it runs with everything fused.
fn divide(
    model: &Model,
    scenario: &Scenario<'_>,
    device: &SideTimes<'_>,
    cloud: &SideTimes<'_>,
) -> Result<Vec<Place>, WeighError> {
    let fused = |side: &SideTimes<'_>| -> Vec<f64> {
        let total: f64 = side.node_us.iter().sum();
        let whole = side.time(&[], true, total).time.p50_us;
        side.node_us
            .iter()
            .map(|us| us * 1e3 * whole / total)
            .collect()
    };
    let usual = scenario.link.usual();
    let byte_ns = OTHER_RATES.map(|share| 8e9 / (usual.up_bps * share));
    let costs = NodeCosts {
        head_ns: &fused(device),
        tail_ns: &fused(cloud),
        byte_ns: &byte_ns,
        reply_byte_ns: 8e9 / usual.down_bps,
    };
    Ok(places(model, Some(&costs))?)
}

/// One place with everything that its candidates need.
struct Weigher<'w> {
    scenario: &'w Scenario<'w>,
    device: &'w SideTimes<'w>,
    cloud: &'w SideTimes<'w>,
    findings: &'w Findings,
    place: &'w Place,
    /// Node times of the head and of the tail.
    head_us: f64,
    tail_us: f64,
}

impl Weigher<'_> {
    fn candidates(&self) -> Vec<Weighed> {
        match self.place.id.as_str() {
            OUTPUT_CUT => vec![self.local()],
            _ => {
                let names = self.place.codecs().into_iter();
                names.filter_map(|name| self.remote(name)).collect()
            }
        }
    }

    fn local(&self) -> Weighed {
        let head = self.device.time(&[], true, self.head_us);
        let option = CutOption {
            cut: OUTPUT_CUT.into(),
            codec: None,
            head: head.time,
            encode: Spread::default(),
            up_bytes: 0,
            decode: Spread::default(),
            tail: Vec::new(),
            down_bytes: 0,
            overhead: Spread::default(),
        };
        let memory = self.device.resident_bytes(&[], true);
        let candidate = self.candidate(&option, Placement::Device, head.measured, memory);
        Weighed {
            candidate,
            overload: self.overload(&option),
            option,
            open: false,
        }
    }

    /// The candidate with a codec; `None` where nothing tells how many bytes it makes.
    fn remote(&self, codec: &str) -> Option<Weighed> {
        let place = self.place;
        let values = place.values();
        let is_input = place.id == INPUT_CUT;
        let raw = place.raw_bytes as f64;
        let head = if is_input {
            Spread::default()
        } else {
            self.device.time(&values, false, self.head_us).time
        };
        let measured_head = is_input || self.device.part(&values, false).is_some();
        let tail_us = if is_input {
            self.cloud.node_us.iter().sum()
        } else {
            self.tail_us
        };
        let (encode, bytes) = self.device.codec(codec, &values, is_input, raw)?;
        let (decode, _) = self
            .cloud
            .codec(codec, &values, is_input, raw)
            .unwrap_or((encode, None));
        let found = self.findings.get(&values, codec);
        let found = found.filter(|found| found.problem.is_none());
        // What requests took comes before what the reference sizes would.
        let up_bytes = found.map(|found| found.up_bytes);
        let up_bytes = up_bytes.or(bytes).or(place.encoded_bytes(codec))?;
        let tail = self.cloud.by_batch(&values, is_input, tail_us);
        let measured_tail = self.cloud.time(&values, is_input, tail_us).measured;
        let option = CutOption {
            cut: place.id.clone(),
            codec: Some(codec.to_owned()),
            head,
            encode,
            up_bytes,
            decode,
            tail: up_to(tail, self.scenario.max_batch),
            down_bytes: found.map_or(place.reply_bytes, |found| found.down_bytes),
            overhead: self.scenario.overhead,
        };
        let placement = match (is_input, codec) {
            (true, "raw") => Placement::CloudRaw,
            (true, _) => Placement::CloudCompressed,
            (false, _) => Placement::Split,
        };
        let memory = if is_input {
            Some(0)
        } else {
            self.device.resident_bytes(&values, false)
        };
        let whole = measured_head && measured_tail;
        let candidate = self.candidate(&option, placement, whole, memory);
        Some(Weighed {
            candidate,
            overload: self.overload(&option),
            option,
            open: false,
        })
    }

    fn candidate(
        &self,
        option: &CutOption,
        placement: Placement,
        measured_whole: bool,
        device_memory: Option<u64>,
    ) -> Candidate {
        let Scenario { link, prices, .. } = self.scenario;
        let executors = self.scenario.executors;
        let load = self.load(option);
        let place = self.place;
        let codec = option.codec.clone();
        let values = place.values();
        let found = codec
            .as_deref()
            .and_then(|codec| self.findings.get(&values, codec));
        let lossless = codec
            .as_deref()
            .is_none_or(|codec| place.is_lossless(codec));
        let unchanged = self.findings.baseline().filter(|_| lossless);
        Candidate {
            id: match (&codec, placement) {
                (_, Placement::Device) => "device".into(),
                (Some(codec), _) => format!("{}/{codec}", place.id),
                (None, _) => place.id.clone(),
            },
            placement,
            cut: place.id.clone(),
            values,
            codec,
            precision: "f32".into(),
            depth: place.depth,
            measured_whole,
            latency: option.latency(&link.usual(), &load),
            latency_p95_us: option.latency_p95_us(link, &load),
            energy_j: option.energy_j(link, &load, prices),
            up_bytes: option.up_bytes,
            down_bytes: option.down_bytes,
            cloud_usd_per_thousand: option.cloud_usd_per_thousand(&load, prices, executors),
            throughput_per_s: option.throughput_per_s(&link.usual(), &load, executors),
            device_memory,
            accuracy: found.and_then(|found| found.accuracy).or(unchanged),
            leakage: found.and_then(|found| found.leakage),
            score: option.score(self.scenario.objective, link, &load, prices, executors),
            breaks: Vec::new(),
            pareto: false,
            kept: false,
            measured: None,
        }
    }

    fn overload(&self, option: &CutOption) -> Option<String> {
        let Scenario {
            arrivals_per_s,
            executors,
            ..
        } = *self.scenario;
        overload(option, &self.load(option), arrivals_per_s, executors)
    }

    fn load(&self, option: &CutOption) -> Load {
        load_of(
            option,
            self.scenario.arrivals_per_s,
            self.scenario.executors,
            self.scenario.max_batch,
        )
    }
}

fn up_to(mut tail: Vec<TailTime>, max_batch: u64) -> Vec<TailTime> {
    tail.retain(|tail| tail.batch <= max_batch.max(1));
    tail
}
