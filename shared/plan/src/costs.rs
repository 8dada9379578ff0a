//! `costs.json`: what each way to answer a request costs, and the formulas that planner and device
//! share. It lies in a bundle outside the contract: relearning it changes no fingerprint.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Fingerprint, LinkModel, LinkState, Manifest, Spread, read_text, write_atomic};

/// The format of `costs.json` that this build writes and reads.
pub const COSTS_FORMAT: u32 = 1;

/// The file's name in a bundle.
pub const COSTS_FILE: &str = "costs.json";

/// The most bytes of the file.
const MAX_COSTS_BYTES: u64 = 16 << 20;

/// What is to be small, or, for [`Objective::Throughput`], large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Median time from the call to the answer.
    #[default]
    Latency,
    /// 95th percentile of it.
    LatencyP95,
    /// Energy of the device for a request.
    Energy,
    /// Bytes that are sent.
    Bytes,
    /// What the service costs.
    CloudCost,
    /// Requests a second of a stream of them: device, link and service work at the same time.
    Throughput,
}

/// Watts and prices. What a device draws differs tenfold between devices: give your own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// What the device draws while it computes, in watts.
    pub compute_w: f64,
    /// What it draws while it waits for the answer, in watts, its radio left out.
    pub wait_w: f64,
    /// What the service's machine costs, in US dollars an hour.
    pub cloud_usd_per_hour: f64,
}

impl Default for Prices {
    /// 4 W and 0.5 W: a phone's processor under load and at rest, round numbers. 0.17 US dollars:
    /// a virtual machine of four cores.
    fn default() -> Prices {
        Prices {
            compute_w: 4.0,
            wait_w: 0.5,
            cloud_usd_per_hour: 0.17,
        }
    }
}

impl Prices {
    /// Why these cannot be prices; `None` where they can.
    pub fn problem(&self) -> Option<String> {
        let figures = [
            ("compute_w", self.compute_w),
            ("wait_w", self.wait_w),
            ("cloud_usd_per_hour", self.cloud_usd_per_hour),
        ];
        let wrong = figures
            .into_iter()
            .find(|(_, figure)| !(0.0..=1e6).contains(figure));
        wrong.map(|(name, figure)| format!("`{name}` is {figure}; expected 0 to 1e6"))
    }
}

/// What each way to answer a request costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// [`COSTS_FORMAT`].
    pub format: u32,
    /// The contract that the cuts belong to.
    pub contract: Fingerprint,
    /// What the plan was made for.
    pub objective: Objective,
    /// The link that it was made for.
    pub link: LinkModel,
    /// Watts and prices.
    pub prices: Prices,
    /// The service's machines that run tails at the same time.
    pub executors: usize,
    /// The ways, the plan's choice first. Those that break a constraint are not among them.
    pub options: Vec<CutOption>,
}

/// One way to answer: a cut and a codec.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CutOption {
    /// The cut's id in the manifest.
    pub cut: String,
    /// The codec of every crossing value that allows it; none where nothing crosses.
    pub codec: Option<String>,
    /// The head.
    pub head: Spread,
    /// Encoding of what crosses.
    pub encode: Spread,
    /// Payload bytes to the service; 0 where nothing crosses.
    pub up_bytes: u64,
    /// Decoding in the service.
    pub decode: Spread,
    /// The tail, by rows that run together, rising; empty where nothing is left for the service.
    pub tail: Vec<TailTime>,
    /// Payload bytes of the answer.
    pub down_bytes: u64,
    /// What a request takes beyond all that is listed: framing, system calls, wake-ups.
    pub overhead: Spread,
}

/// The tail for some rows at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TailTime {
    /// Rows.
    pub batch: u64,
    /// Time of all of them.
    pub time: Spread,
}

/// How busy a service is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// What a request waits for an executor, in microseconds.
    pub queue_us: f64,
    /// Rows that run together; below 1 counts as 1.
    pub batch: f64,
}

/// Where the time of a request goes, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// The head on the device.
    pub edge_us: f64,
    /// Encoding.
    pub encode_us: f64,
    /// To the service.
    pub send_us: f64,
    /// Waiting in the service.
    pub queue_us: f64,
    /// Decoding in the service.
    pub decode_us: f64,
    /// The tail.
    pub tail_us: f64,
    /// The answer's way back.
    pub answer_us: f64,
    /// All else.
    pub overhead_us: f64,
}

impl Latency {
    /// The parts with their names, in order.
    pub fn parts(&self) -> [(&'static str, f64); 8] {
        [
            ("edge", self.edge_us),
            ("encode", self.encode_us),
            ("send", self.send_us),
            ("queue", self.queue_us),
            ("decode", self.decode_us),
            ("tail", self.tail_us),
            ("answer", self.answer_us),
            ("overhead", self.overhead_us),
        ]
    }

    /// From the call to the answer.
    pub fn total_us(&self) -> f64 {
        self.parts().iter().map(|(_, us)| us).sum()
    }
}

impl CutOption {
    /// Whether the device answers alone.
    pub fn is_local(&self) -> bool {
        self.tail.is_empty()
    }

    /// The tail's time for `batch` rows, between those that were measured by proportion, beyond
    /// them by the slope of the last two.
    pub fn tail(&self, batch: f64) -> Spread {
        let (Some(first), Some(last)) = (self.tail.first(), self.tail.last()) else {
            return Spread::default();
        };
        if batch <= first.batch as f64 {
            return first.time;
        }
        let pair = self.tail.windows(2);
        let pair = pair
            .filter(|pair| batch <= pair[1].batch as f64)
            .chain(self.tail.windows(2).last());
        let Some([low, high]) = pair.into_iter().next() else {
            // One measurement only: rows in proportion.
            return last.time.scaled(batch / last.batch as f64);
        };
        let share = (batch - low.batch as f64) / (high.batch as f64 - low.batch as f64);
        let between = |low: f64, high: f64| (low + (high - low) * share).max(0.0);
        Spread {
            p50_us: between(low.time.p50_us, high.time.p50_us),
            p95_us: between(low.time.p95_us, high.time.p95_us),
            samples: low.time.samples.min(high.time.samples),
        }
    }

    /// Where the time goes on a link of `link`, at a service that is as busy as `load`.
    pub fn latency(&self, link: &LinkState, load: &Load) -> Latency {
        self.latency_by(link, load, |spread| spread.p50_us)
    }

    /// The 95th percentile of the time. Parts vary independently, so their distances from the
    /// median add up as squares.
    pub fn latency_p95_us(&self, link: &LinkModel, load: &Load) -> f64 {
        let usual = self.latency(&link.usual(), load);
        let bad = self.latency_by(&link.bad(), load, |spread| spread.p95_us);
        let parts = usual.parts().into_iter().zip(bad.parts());
        let squares: f64 = parts
            .map(|((_, usual), (_, bad))| (bad - usual).powi(2))
            .sum();
        usual.total_us() + squares.sqrt()
    }

    fn latency_by(&self, link: &LinkState, load: &Load, of: impl Fn(&Spread) -> f64) -> Latency {
        let mut latency = Latency {
            edge_us: of(&self.head),
            ..Latency::default()
        };
        if self.is_local() {
            return latency;
        }
        latency.encode_us = of(&self.encode);
        latency.send_us = link.send_us(self.up_bytes);
        latency.queue_us = load.queue_us;
        latency.decode_us = of(&self.decode);
        latency.tail_us = of(&self.tail(load.batch));
        latency.answer_us = link.answer_us(self.down_bytes);
        latency.overhead_us = of(&self.overhead);
        latency
    }

    /// Energy of the device for one request, in joules.
    pub fn energy_j(&self, link: &LinkModel, load: &Load, prices: &Prices) -> f64 {
        let state = link.usual();
        let latency = self.latency(&state, load);
        let computing = (latency.edge_us + latency.encode_us) / 1e6;
        let waiting = latency.total_us() / 1e6 - computing;
        // The radio is active while bits pass, not while they are under way.
        let way = state.round_trip_us / 2.0;
        let sending = (latency.send_us - way).max(0.0) / 1e6;
        let receiving = (latency.answer_us - way).max(0.0) / 1e6;
        let radio = &link.radio;
        let up_w = radio.base_w + radio.up_w_per_mbps * state.up_bps / 1e6;
        let down_w = radio.base_w + radio.down_w_per_mbps * state.down_bps / 1e6;
        let on_air = if self.is_local() {
            0.0
        } else {
            sending * up_w + receiving * down_w
        };
        computing * prices.compute_w + waiting * prices.wait_w + on_air
    }

    /// What the service's machine costs for a thousand requests, in US dollars.
    pub fn cloud_usd_per_thousand(&self, load: &Load, prices: &Prices, executors: usize) -> f64 {
        let busy_s = self.service_us(load) / executors.max(1) as f64 / 1e6;
        1000.0 * busy_s * prices.cloud_usd_per_hour / 3600.0
    }

    /// Requests a second of a stream of them: the slowest of device, link and service decides.
    pub fn throughput_per_s(&self, link: &LinkState, load: &Load, executors: usize) -> f64 {
        let device = self.head.p50_us + self.encode.p50_us;
        let slowest = if self.is_local() {
            self.head.p50_us
        } else {
            let way = link.round_trip_us / 2.0;
            let up = link.send_us(self.up_bytes) - way;
            let down = link.answer_us(self.down_bytes) - way;
            let service = self.service_us(load) / executors.max(1) as f64;
            device.max(up).max(down).max(service)
        };
        1e6 / slowest.max(1.0)
    }

    /// What `objective` makes of this, smaller is better.
    pub fn score(
        &self,
        objective: Objective,
        link: &LinkModel,
        load: &Load,
        prices: &Prices,
        executors: usize,
    ) -> f64 {
        match objective {
            Objective::Latency => self.latency(&link.usual(), load).total_us(),
            Objective::LatencyP95 => self.latency_p95_us(link, load),
            Objective::Energy => self.energy_j(link, load, prices),
            Objective::Bytes => self.up_bytes as f64,
            Objective::CloudCost => self.cloud_usd_per_thousand(load, prices, executors),
            Objective::Throughput => 1e6 / self.throughput_per_s(&link.usual(), load, executors),
        }
    }

    /// What one request keeps an executor busy for, its share of the batch.
    fn service_us(&self, load: &Load) -> f64 {
        if self.is_local() {
            return 0.0;
        }
        let batch = load.batch.max(1.0);
        self.decode.p50_us + self.tail(batch).p50_us / batch
    }
}

/// A `costs.json` that cannot be used.
#[derive(Debug, Error)]
pub enum CostsError {
    /// The operating system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// Not costs, or those of another bundle.
    #[error("{}: {problem}; plan again, or remove the file", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What was expected and what came.
        problem: String,
    },
}

impl Costs {
    /// Reads the costs of the bundle at `bundle`; `None` where it has none.
    ///
    /// # Errors
    /// [`CostsError`].
    pub fn read(
        bundle: &Path,
        manifest: &Manifest,
        fingerprint: Fingerprint,
    ) -> Result<Option<Costs>, CostsError> {
        let path = bundle.join(COSTS_FILE);
        let text = match read_text(&path, MAX_COSTS_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CostsError::Io { path, error }),
        };
        match Costs::parse(&text, manifest, fingerprint) {
            Ok(costs) => Ok(Some(costs)),
            Err(problem) => Err(CostsError::Content { path, problem }),
        }
    }

    /// Writes the costs of the bundle at `bundle`, through a rename: a reader sees the old file or
    /// the new one. The contract, and so the fingerprint, stays as it is.
    ///
    /// # Errors
    /// [`CostsError::Io`].
    pub fn write(&self, bundle: &Path) -> Result<(), CostsError> {
        let path = bundle.join(COSTS_FILE);
        write_atomic(&path, &self.to_json()).map_err(|error| CostsError::Io { path, error })
    }

    /// Reads costs and checks them against the contract that they belong to.
    ///
    /// # Errors
    /// What is wrong, by field.
    pub fn parse(
        json: &str,
        manifest: &Manifest,
        fingerprint: Fingerprint,
    ) -> Result<Costs, String> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let invalid = |error: serde_json::Error| format!("these are no costs: {error}");
        let Format { format } = serde_json::from_str(json).map_err(invalid)?;
        if format != COSTS_FORMAT {
            return Err(format!(
                "it has format {format}; this build reads {COSTS_FORMAT}"
            ));
        }
        let costs: Costs = serde_json::from_str(json).map_err(invalid)?;
        if costs.contract != fingerprint {
            return Err(format!(
                "it is of contract {}, this bundle is {}",
                costs.contract.short(),
                fingerprint.short()
            ));
        }
        costs.validate(manifest)?;
        Ok(costs)
    }

    /// The file's content.
    pub fn to_json(&self) -> Vec<u8> {
        // Plain data always has a JSON form.
        let mut json = serde_json::to_vec_pretty(self).unwrap_or_default();
        json.push(b'\n');
        json
    }

    fn validate(&self, manifest: &Manifest) -> Result<(), String> {
        if let Some(problem) = self.link.problem() {
            return Err(format!("`link`: {problem}"));
        }
        if let Some(problem) = self.prices.problem() {
            return Err(format!("`prices`: {problem}"));
        }
        if self.options.is_empty() {
            return Err("`options` is empty; a plan has at least one".into());
        }
        for (index, option) in self.options.iter().enumerate() {
            let wrong = |problem: String| format!("`options[{index}]` ({}): {problem}", option.cut);
            let Some((_, cut)) = manifest.cut(&option.cut) else {
                return Err(wrong("the bundle has no such cut".into()));
            };
            if option.is_local() != (cut.stage == manifest.stages.len()) {
                return Err(wrong(
                    "`tail` is empty for a cut with a tail, or the other way round".into(),
                ));
            }
            let allows = |name: &str| {
                let mut codecs = cut.crossing.iter().flat_map(|crossing| &crossing.codecs);
                codecs.any(|codec| codec.name() == name)
            };
            if let Some(codec) = &option.codec
                && !allows(codec)
            {
                return Err(wrong(format!(
                    "the contract allows no codec `{codec}` there"
                )));
            }
            let rising = option
                .tail
                .windows(2)
                .all(|pair| pair[0].batch < pair[1].batch);
            if !rising || option.tail.first().is_some_and(|tail| tail.batch == 0) {
                return Err(wrong("`tail` has batches that do not rise from 1".into()));
            }
            let tails = option.tail.iter().map(|tail| ("tail", tail.time));
            let rest = [
                ("head", option.head),
                ("encode", option.encode),
                ("decode", option.decode),
                ("overhead", option.overhead),
            ];
            for (name, spread) in rest.into_iter().chain(tails) {
                if let Some(problem) = spread.problem() {
                    return Err(wrong(format!("`{name}`: {problem}")));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split() -> CutOption {
        CutOption {
            cut: "s0".into(),
            codec: Some("raw".into()),
            head: Spread {
                p50_us: 1000.0,
                p95_us: 1300.0,
                samples: 9,
            },
            encode: Spread::exactly(50.0),
            up_bytes: 10_000,
            decode: Spread::exactly(20.0),
            tail: [(1, 400.0), (4, 1000.0)]
                .map(|(batch, us)| TailTime {
                    batch,
                    time: Spread::exactly(us),
                })
                .into(),
            down_bytes: 40,
            overhead: Spread::exactly(100.0),
        }
    }

    fn local() -> CutOption {
        CutOption {
            cut: "output".into(),
            codec: None,
            up_bytes: 0,
            tail: Vec::new(),
            down_bytes: 0,
            ..split()
        }
    }

    #[test]
    fn a_device_alone_waits_for_nobody() {
        let wifi = LinkModel::preset("wifi").unwrap();
        let busy = Load {
            queue_us: 9e6,
            batch: 8.0,
        };
        let latency = local().latency(&wifi.usual(), &busy);
        assert_eq!(latency.total_us(), 1000.0);
        let prices = Prices::default();
        assert!((local().energy_j(&wifi, &busy, &prices) - 0.004).abs() < 1e-12);
        assert_eq!(local().cloud_usd_per_thousand(&busy, &prices, 1), 0.0);
        assert_eq!(local().throughput_per_s(&wifi.usual(), &busy, 1), 1000.0);
    }

    #[test]
    fn tails_between_and_beyond_measurements() {
        let option = split();
        for (batch, us) in [
            (0.0, 400.0),
            (1.0, 400.0),
            (2.0, 600.0),
            (4.0, 1000.0),
            (6.0, 1400.0),
        ] {
            assert_eq!(option.tail(batch).p50_us, us, "{batch} rows");
        }
        let once = CutOption {
            tail: vec![option.tail[1]],
            ..option
        };
        assert_eq!(once.tail(8.0).p50_us, 2000.0);
    }

    #[test]
    fn bad_moments_do_not_all_come_together() {
        let option = split();
        let wifi = LinkModel::preset("wifi").unwrap();
        let load = Load::default();
        let usual = option.latency(&wifi.usual(), &load).total_us();
        let worst = option
            .latency_by(&wifi.bad(), &load, |spread| spread.p95_us)
            .total_us();
        let p95 = option.latency_p95_us(&wifi, &load);
        assert!(usual < p95 && p95 < worst, "{usual} {p95} {worst}");
    }

    #[test]
    fn a_stream_is_as_fast_as_its_slowest_part() {
        let option = split();
        let wifi = LinkModel::preset("wifi").unwrap();
        let rate = option.throughput_per_s(&wifi.usual(), &Load::default(), 1);
        let on_air = wifi.usual().send_us(10_000) - 10_000.0;
        assert!((rate - 1e6 / on_air).abs() < 1e-6, "{rate}");
        let cable = LinkModel::preset("ethernet").unwrap();
        let rate = option.throughput_per_s(&cable.usual(), &Load::default(), 1);
        assert!((rate - 1e6 / 1050.0).abs() < 1e-6, "{rate}");
    }
}
