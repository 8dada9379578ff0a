//! What real data tells of candidates beyond their costs.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::record::{AttackRecord, Leakage, MetricRecord};

/// Measured with calibration data, by the values that cross and codec; empty without.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// How answers are judged, and the whole model's own figure.
    pub metric: Option<MetricRecord>,
    /// The attacker; none where it is too weak to say anything.
    pub attack: Option<AttackRecord>,
    /// Why there is no figure of leakage at all.
    pub no_attack: Option<String>,
    /// What was found of each candidate that was examined.
    found: HashMap<Vec<String>, Vec<FoundCodec>>,
}

/// A cut by one codec on calibration data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundCodec {
    /// The codec's name.
    pub codec: String,
    /// The end metric.
    pub accuracy: Option<f64>,
    /// Why it could not be had.
    pub problem: Option<String>,
    /// Payload bytes, the mean.
    pub up_bytes: u64,
    /// Payload bytes of the answer, the mean.
    pub down_bytes: u64,
    /// Leakage.
    pub leakage: Option<Leakage>,
    /// Why there is none.
    pub no_leakage: Option<String>,
}

impl Findings {
    /// Findings by a metric, nothing examined yet.
    pub fn of(metric: MetricRecord) -> Findings {
        Findings {
            metric: Some(metric),
            ..Findings::default()
        }
    }

    /// Enters what was found where `values` cross.
    pub fn add(&mut self, values: Vec<String>, found: Vec<FoundCodec>) {
        self.found.insert(values, found);
    }

    /// What was found where `values` cross by `codec`.
    pub fn get(&self, values: &[String], codec: &str) -> Option<&FoundCodec> {
        let codecs = self.found.get(values)?;
        codecs.iter().find(|found| found.codec == codec)
    }

    /// Whether the place where `values` cross was examined.
    pub fn has(&self, values: &[String]) -> bool {
        self.found.contains_key(values)
    }

    /// The whole model's own figure.
    pub fn baseline(&self) -> Option<f64> {
        self.metric.as_ref().map(|metric| metric.baseline)
    }

    /// How much worse `figure` is than the whole model's own.
    pub fn loss(&self, figure: f64) -> Option<f64> {
        let metric = self.metric.as_ref()?;
        Some(if metric.higher_is_better {
            metric.baseline - figure
        } else {
            figure - metric.baseline
        })
    }
}
