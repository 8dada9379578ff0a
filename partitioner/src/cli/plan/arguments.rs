//! The arguments of `seamline plan`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use seamline_partitioner::plan::{
    Constraints, ExamineOptions, LeakageOptions, MetricChoice, MetricName,
};
use seamline_plan::{Objective, Prices, StateSpec};

use crate::cli::ModelArguments;
use crate::cli::split::{bundle_path, parse_state};

#[derive(Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(super) model: ModelArguments,
    /// The bundle to make (NAME.seam), with the plan in it; without it the plan is only printed.
    #[arg(short = 'o', long = "output", value_name = "BUNDLE", value_parser = bundle_path)]
    pub(super) output: Option<PathBuf>,
    #[command(flatten)]
    pub(super) machines: Machines,
    #[command(flatten)]
    pub(super) aims: Aims,
    #[command(flatten)]
    pub(super) data: Data,
    #[command(flatten)]
    pub(super) service: Service,
    /// Only write a measuring kit into this folder, to be copied to the machines concerned.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "check", "why_not", "learn"])]
    pub(super) kit: Option<PathBuf>,
    /// Seams that are measured whole; others are figured from them.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(super) shortlist: usize,
    /// Cuts that the bundle holds at most, so that the device may change between them.
    #[arg(long, value_name = "K", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=32))]
    pub(super) keep: u8,
    /// Run the candidates that the bundle keeps on this machine and compare with what was predicted;
    /// costs and profiles learn from it.
    #[arg(long, requires = "output")]
    pub(super) measure: bool,
    /// Correct the profiles by what a device that ran this bundle has learnt (seamline-edge run or
    /// bench, --learn), and plan by that.
    #[arg(long, value_name = "BUNDLE")]
    pub(super) learn: Option<PathBuf>,
    /// Say why a candidate, a cut or a value was not chosen. With a bundle in place of the model,
    /// about the plan that is in it.
    #[arg(long, value_name = "SEAM")]
    pub(super) why_not: Option<String>,
    /// Compare an old plan with the best one now; ends with 1 where it has become worse by more
    /// than --margin.
    #[arg(long, value_name = "OLD.seam")]
    pub(super) check: Option<PathBuf>,
    /// How much worse an old plan may be, as a share.
    #[arg(long, value_name = "SHARE", default_value_t = 0.1)]
    pub(super) margin: f64,
    /// An output that is the next request's input, kept by the service; may be repeated.
    #[arg(long = "state", value_name = "IN=OUT", value_parser = parse_state)]
    pub(super) states: Vec<StateSpec>,
    /// Seed of probe inputs and of the choice of samples.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
}

/// Machines and the link between them.
#[derive(Args)]
#[command(next_help_heading = "Machines")]
pub(crate) struct Machines {
    /// The device: the file that `seamline-edge profile` wrote, or `this` to measure this machine.
    #[arg(long, value_name = "FILE|this", default_value = "this")]
    pub(super) device: String,
    /// The service's machine: the file that `seamline-cloud profile` wrote, or `this`.
    #[arg(long, value_name = "FILE|this", default_value = "this")]
    pub(super) cloud: String,
    /// The device takes this many times as long as the machine of its profile.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub(super) device_slowdown: f64,
    /// The service takes this many times as long as the machine of its profile.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub(super) cloud_slowdown: f64,
    /// Threads on the device; without it, as many as were fastest.
    #[arg(long, value_name = "N", value_parser = count)]
    pub(super) device_threads: Option<usize>,
    /// Threads in the service; without it, as many as were fastest.
    #[arg(long, value_name = "N", value_parser = count)]
    pub(super) cloud_threads: Option<usize>,
    /// The link: 3g, lte, wifi, 5g, ethernet, the file of `seamline-edge probe` (.json), or a trace
    /// (.csv with a column up_mbps, and optionally down_mbps, rtt_ms, loss).
    #[arg(long, value_name = "LINK", default_value = "wifi")]
    pub(super) link: String,
    /// Measure this machine for less long; figures wander more.
    #[arg(long)]
    pub(super) quick: bool,
}

/// What is to be small, and what has to hold.
#[derive(Args)]
#[command(next_help_heading = "Aims")]
pub(crate) struct Aims {
    /// What the best plan has least of (most, for throughput).
    #[arg(long, value_name = "OBJECTIVE", default_value = "latency")]
    objective: ObjectiveName,
    /// Most loss of the end metric, in its own unit (0.01: one point of a hundred).
    #[arg(long, value_name = "LOSS", default_value_t = 0.01)]
    max_accuracy_loss: f64,
    /// Most resident memory on the device, in MiB.
    #[arg(long, value_name = "MIB")]
    max_memory: Option<f64>,
    /// Most of the input that what is sent may give away, 0 to 1.
    #[arg(long, value_name = "SHARE")]
    max_leakage: Option<f64>,
    /// Longest 95th percentile of the latency, in milliseconds.
    #[arg(long, value_name = "MS")]
    deadline_ms: Option<f64>,
    /// What the device draws while it computes, in watts.
    #[arg(long, value_name = "W", default_value_t = Prices::default().compute_w)]
    compute_watts: f64,
    /// What the device draws while it waits, its radio left out, in watts.
    #[arg(long, value_name = "W", default_value_t = Prices::default().wait_w)]
    wait_watts: f64,
    /// What the service's machine costs, in US dollars an hour.
    #[arg(long, value_name = "USD", default_value_t = Prices::default().cloud_usd_per_hour)]
    cloud_usd_per_hour: f64,
}

/// Real data.
#[derive(Args)]
#[command(next_help_heading = "Data")]
pub(crate) struct Data {
    /// Inputs to measure accuracy, payload and leakage on; without it only codecs that change
    /// nothing are taken.
    #[arg(long, value_name = "DIR")]
    pub(super) calibration: Option<PathBuf>,
    /// Inputs that are used at most.
    #[arg(long, value_name = "N", default_value = "64", value_parser = samples)]
    pub(super) samples: usize,
    /// How answers are judged: top1 (agreement with the whole model), accuracy, cosine, cer
    /// (character error), perplexity, max-rel. Without it, what fits the model and the labels.
    #[arg(long, value_name = "METRIC", value_parser = MetricName::from_str)]
    metric: Option<MetricName>,
    /// The output that the metric looks at; the one that fits without it.
    #[arg(long, value_name = "OUTPUT")]
    metric_output: Option<String>,
    /// A command of your own that judges answers instead, run by `sh -c`. It reads a line of JSON for
    /// each request, {"name", "label", "outputs": {NAME: PATH.npy}, "whole": {NAME: PATH.npy}}, the
    /// candidate's answer and the whole model's, and prints one number.
    #[arg(long, value_name = "COMMAND", conflicts_with = "metric")]
    metric_command: Option<String>,
    /// Less of the command's number is better.
    #[arg(long, requires = "metric_command")]
    lower_is_better: bool,
    /// The input or inner value that leakage is measured of; the main input without it.
    #[arg(long, value_name = "VALUE")]
    leakage_of: Option<String>,
    /// Leave leakage out, which takes longest to measure.
    #[arg(long, conflicts_with_all = ["leakage_of", "max_leakage"])]
    no_leakage: bool,
}

impl Data {
    /// What is to be found out.
    pub(super) fn options(&self, folder: PathBuf) -> ExamineOptions {
        ExamineOptions {
            metric: MetricChoice {
                name: self.metric,
                output: self.metric_output.clone(),
                command: self.metric_command.clone(),
                lower_is_better: self.lower_is_better,
            },
            leakage: (!self.no_leakage).then(|| LeakageOptions {
                target: self.leakage_of.clone(),
                ..LeakageOptions::default()
            }),
            folder: Some(folder),
        }
    }
}

/// How busy the service is.
#[derive(Args)]
#[command(next_help_heading = "Service")]
pub(crate) struct Service {
    /// Requests of others that arrive each second.
    #[arg(long, value_name = "RATE", default_value_t = 0.0, value_parser = rate)]
    pub(super) arrivals: f64,
    /// Tails that the service runs at the same time.
    #[arg(long, value_name = "N", default_value = "1", value_parser = count)]
    pub(super) executors: usize,
    /// The most requests that the service joins.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub(super) max_batch: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum ObjectiveName {
    Latency,
    LatencyP95,
    Energy,
    Bytes,
    CloudCost,
    Throughput,
}

impl Aims {
    pub(super) fn objective(&self) -> Objective {
        match self.objective {
            ObjectiveName::Latency => Objective::Latency,
            ObjectiveName::LatencyP95 => Objective::LatencyP95,
            ObjectiveName::Energy => Objective::Energy,
            ObjectiveName::Bytes => Objective::Bytes,
            ObjectiveName::CloudCost => Objective::CloudCost,
            ObjectiveName::Throughput => Objective::Throughput,
        }
    }

    /// The constraints, checked.
    pub(super) fn constraints(&self) -> anyhow::Result<Constraints> {
        let flags = [
            ("--max-accuracy-loss", Some(self.max_accuracy_loss)),
            ("--max-memory", self.max_memory),
            ("--max-leakage", self.max_leakage),
            ("--deadline-ms", self.deadline_ms),
        ];
        for (flag, value) in flags {
            if let Some(value) = value {
                anyhow::ensure!(
                    value.is_finite() && value >= 0.0,
                    "{flag} is {value}; expected a finite number, not negative"
                );
            }
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to be a number, not negative; beyond u64 it saturates"
        )]
        let bytes = |mib: f64| (mib * f64::from(1 << 20)) as u64;
        Ok(Constraints {
            accuracy_loss: Some(self.max_accuracy_loss),
            device_memory: self.max_memory.map(bytes),
            leakage: self.max_leakage,
            deadline_us: self.deadline_ms.map(|ms| ms * 1e3),
        })
    }

    /// Watts and prices, checked.
    pub(super) fn prices(&self) -> anyhow::Result<Prices> {
        let prices = Prices {
            compute_w: self.compute_watts,
            wait_w: self.wait_watts,
            cloud_usd_per_hour: self.cloud_usd_per_hour,
        };
        match prices.problem() {
            Some(problem) => anyhow::bail!("watts and prices: {problem}"),
            None => Ok(prices),
        }
    }
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (1e-3..=1e4).contains(&factor) => Ok(factor),
        _ => Err("expected a factor of 0.001 to 10000, for example 4".into()),
    }
}

/// Threads or machines: as many as anybody has.
fn count(text: &str) -> Result<usize, String> {
    within(text, 1024)
}

fn samples(text: &str) -> Result<usize, String> {
    within(text, 1_000_000)
}

fn within(text: &str, most: usize) -> Result<usize, String> {
    match text.parse::<usize>() {
        Ok(count) if (1..=most).contains(&count) => Ok(count),
        _ => Err(format!("expected 1 to {most}")),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if (0.0..=1e9).contains(&rate) => Ok(rate),
        _ => Err("expected requests a second, 0 to 1e9".into()),
    }
}
