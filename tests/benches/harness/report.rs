//! Samples, their median and spread, and rows of JSON.

use serde::Serialize;

/// Measurements of one thing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn add(&mut self, value: f64) {
        let at = self.0.partition_point(|&other| other < value);
        self.0.insert(at, value);
    }

    /// The value below which `share` of the samples lie; NaN without samples.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index between 0 and the number of samples"
        )]
        let index = (share * self.0.len().saturating_sub(1) as f64).round() as usize;
        self.0.get(index).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The distance between the quartiles, relative to the median.
    pub(crate) fn spread(&self) -> f64 {
        (self.quantile(0.75) - self.quantile(0.25)) / self.median()
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Samples {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Samples(sorted)
    }
}

/// One line of `--json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) bench: &'static str,
    pub(crate) case: String,
    pub(crate) ours: f64,
    pub(crate) peer: String,
    pub(crate) peer_value: f64,
    pub(crate) unit: &'static str,
    /// `ours` to `peer_value`, both of the same rounds.
    pub(crate) ratio: f64,
    /// What `ratio` is promised to keep to; null where nothing is promised.
    pub(crate) limit: Option<f64>,
    /// Distance between the quartiles of the rounds' ratios, relative to their median.
    pub(crate) spread: f64,
}

impl Row {
    pub(crate) fn print(&self) {
        println!("{}", serde_json::to_string(self).unwrap());
    }
}
