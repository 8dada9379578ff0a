//! `plan.json`: every candidate that a plan weighed, for reports and for asking why not. It lies in
//! a bundle outside the contract.

use seamline_plan::{Bindings, Fingerprint, Latency, LinkModel, Machine, Objective, Prices};
use serde::{Deserialize, Serialize};

/// The format of `plan.json` that this build writes and reads.
pub const PLAN_FORMAT: u32 = 1;

/// The file's name in a bundle.
pub const PLAN_FILE: &str = "plan.json";

/// A plan and all that it was chosen from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRecord {
    /// [`PLAN_FORMAT`].
    pub format: u32,
    /// The model's name.
    pub model: String,
    /// BLAKE3 of its file.
    pub graph_hash: Fingerprint,
    /// Sizes of its symbols.
    pub shapes: Bindings,
    /// What was to be small.
    pub objective: Objective,
    /// What had to hold.
    pub constraints: Constraints,
    /// The link.
    pub link: LinkModel,
    /// The device.
    pub device: MachineRecord,
    /// The service's machine.
    pub cloud: MachineRecord,
    /// Watts and prices.
    pub prices: Prices,
    /// Requests that arrive in the service each second beside one's own.
    pub arrivals_per_s: f64,
    /// How the answers of candidates were judged; none without calibration data.
    pub metric: Option<MetricRecord>,
    /// What was tried to recover the input; none without calibration data, or where the attack
    /// failed at the input itself.
    pub attack: Option<AttackRecord>,
    /// Every candidate, by rising depth.
    pub candidates: Vec<Candidate>,
    /// [`Candidate::id`] of the choice.
    pub chosen: String,
    /// Why, in sentences.
    pub reason: Vec<String>,
    /// What the reader should know: a scaled profile, a figure that was not measured.
    pub notes: Vec<String>,
}

/// Limits that a plan must keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Constraints {
    /// Most loss of the end metric, in its own unit (0.005: half a percent point).
    pub accuracy_loss: Option<f64>,
    /// Most resident memory on the device, in bytes.
    pub device_memory: Option<u64>,
    /// Most leakage, as [`Leakage::recovered`].
    pub leakage: Option<f64>,
    /// Longest 95th percentile of the latency, in microseconds.
    pub deadline_us: Option<f64>,
}

/// A machine and whether it was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineRecord {
    /// What was measured.
    pub machine: Machine,
    /// 1, or how many times as slow the machine meant is.
    pub slowdown: f64,
    /// Threads of ONNX Runtime.
    pub threads: usize,
}

/// How answers were judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricRecord {
    /// Its name, `top-1 agreement`.
    pub name: String,
    /// Whether more is better.
    pub higher_is_better: bool,
    /// The whole model's own, nothing compressed.
    pub baseline: f64,
    /// Inputs that it was measured on.
    pub samples: usize,
}

/// The attacker of the leakage figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttackRecord {
    /// What it does.
    pub name: String,
    /// The share of the input that it recovers from the input itself, 0 to 1.
    pub at_input: f64,
    /// Inputs that it learnt from, and others that it was tried on.
    pub trained_on: usize,
    /// Inputs that it was tried on.
    pub tried_on: usize,
}

/// Where a candidate computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// All on the device.
    Device,
    /// All in the service, the input sent unchanged.
    CloudRaw,
    /// All in the service, the input sent compressed.
    CloudCompressed,
    /// Head and tail.
    Split,
}

/// One way to answer a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// `device`, or the cut and the codec: `input/jpeg85`, `s12/int8`.
    pub id: String,
    /// Where it computes.
    pub placement: Placement,
    /// The cut: a seam's id, `input` or `output`.
    pub cut: String,
    /// Values that cross, by name.
    pub values: Vec<String>,
    /// The codec of those that take it; none where nothing crosses.
    pub codec: Option<String>,
    /// Precision of the head.
    pub precision: String,
    /// Share of the work before the cut, 0 to 1.
    pub depth: f64,
    /// Whether head and tail were measured whole, or are sums over nodes.
    pub measured_whole: bool,
    /// Where the median time goes.
    pub latency: Latency,
    /// 95th percentile, in microseconds.
    pub latency_p95_us: f64,
    /// Energy of the device, in joules a request.
    pub energy_j: f64,
    /// Payload to the service, in bytes.
    pub up_bytes: u64,
    /// Payload of the answer, in bytes.
    pub down_bytes: u64,
    /// The service, in US dollars for a thousand requests.
    pub cloud_usd_per_thousand: f64,
    /// Requests a second of a stream of them.
    pub throughput_per_s: f64,
    /// Resident on the device, in bytes; none where it is not known.
    pub device_memory: Option<u64>,
    /// The end metric, measured.
    pub accuracy: Option<f64>,
    /// How much of the input what is sent gives away, measured.
    pub leakage: Option<Leakage>,
    /// What it is by the objective; smaller is better.
    pub score: f64,
    /// Constraints that it breaks, and by how much; empty where it keeps all.
    pub breaks: Vec<String>,
    /// Whether no other candidate is as good in everything and better in something.
    pub pareto: bool,
    /// Whether the bundle holds it, so that the device may change to it.
    pub kept: bool,
    /// What `plan --measure` found.
    pub measured: Option<MeasuredRun>,
}

/// How much of the input an attacker recovers from what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Leakage {
    /// The share of the input's variance that is recovered, beyond the best guess without looking:
    /// 0 is a guess, 1 is all.
    pub recovered: f64,
    /// Peak signal-to-noise ratio of what is recovered, in decibels; of pictures.
    pub psnr_db: Option<f64>,
}

/// A candidate as it ran: head, codec and tail measured, its ways by the link's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredRun {
    /// Where the median time went.
    pub latency: Latency,
    /// 95th percentile, in microseconds.
    pub p95_us: f64,
    /// Requests.
    pub requests: usize,
}
