//! What the demo found, for people and for programs.

use std::collections::BTreeMap;
use std::time::Duration;

use seamline_edge::Timings;

/// One page's answer beside the truth and the whole model's.
pub(crate) struct Outcome {
    /// The class that the split model answered.
    pub(crate) class: usize,
    /// The class that the whole model answered.
    pub(crate) whole_class: usize,
    /// The class that is right.
    pub(crate) right_class: usize,
    /// The largest difference of a score from the whole model's.
    pub(crate) max_abs_diff: f32,
    /// Bytes of the picture's pixels.
    pub(crate) raw_bytes: u64,
    /// Bytes of the crossing values as f32.
    pub(crate) f32_bytes: u64,
    /// Payload bytes that were sent.
    pub(crate) bytes_sent: u64,
    /// Where the time went.
    pub(crate) timings: Timings,
}

/// All that the demo found.
pub(crate) struct Report {
    /// The model's name.
    pub(crate) model: &'static str,
    /// Where it was cut.
    pub(crate) seam: String,
    /// One a page.
    pub(crate) outcomes: Vec<Outcome>,
    /// One a request of the concurrent pass.
    pub(crate) batch_sizes: Vec<u32>,
}

type Step = (&'static str, fn(&Timings) -> Duration);

const STEPS: [Step; 6] = [
    ("edge", |timings| timings.edge),
    ("encode", |timings| timings.encode),
    ("wire", |timings| timings.wire),
    ("queue", |timings| timings.queue),
    ("cloud", |timings| timings.cloud),
    ("decode", |timings| timings.decode),
];

impl Report {
    /// Whether every page was answered rightly.
    pub(crate) fn is_right(&self) -> bool {
        self.correct() == self.outcomes.len()
    }

    fn correct(&self) -> usize {
        self.outcomes
            .iter()
            .filter(|outcome| outcome.class == outcome.right_class)
            .count()
    }

    fn agree(&self) -> usize {
        self.outcomes
            .iter()
            .filter(|outcome| outcome.class == outcome.whole_class)
            .count()
    }

    fn max_abs_diff(&self) -> f32 {
        self.outcomes
            .iter()
            .map(|outcome| outcome.max_abs_diff)
            .fold(0.0, f32::max)
    }

    fn mean(&self, bytes: impl Fn(&Outcome) -> u64) -> u64 {
        self.outcomes.iter().map(bytes).sum::<u64>() / self.outcomes.len().max(1) as u64
    }

    /// The time in milliseconds below which a share `q` of the requests lies.
    fn quantile_ms(&self, q: f64, time: impl Fn(&Timings) -> Duration) -> f64 {
        let mut times: Vec<Duration> = self
            .outcomes
            .iter()
            .map(|outcome| time(&outcome.timings))
            .collect();
        times.sort_unstable();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "q lies within 0 and 1"
        )]
        let index = (times.len().saturating_sub(1) as f64 * q).round() as usize;
        times.get(index).copied().unwrap_or_default().as_secs_f64() * 1e3
    }

    fn batches(&self) -> BTreeMap<u32, usize> {
        let mut batches = BTreeMap::new();
        for &size in &self.batch_sizes {
            *batches.entry(size).or_default() += 1;
        }
        batches
    }

    /// One line.
    pub(crate) fn json(&self) -> String {
        let round = |ms: f64| (ms * 1e4).round() / 1e4;
        let steps: serde_json::Map<String, serde_json::Value> = STEPS
            .iter()
            .map(|(name, time)| {
                (
                    (*name).to_owned(),
                    round(self.quantile_ms(0.5, time)).into(),
                )
            })
            .collect();
        let batches: serde_json::Map<String, serde_json::Value> = self
            .batches()
            .into_iter()
            .map(|(size, count)| (size.to_string(), count.into()))
            .collect();
        serde_json::json!({
            "model": self.model,
            "seam": self.seam,
            "inputs": self.outcomes.len(),
            "correct": self.correct(),
            "agree_with_whole": self.agree(),
            "max_abs_diff": self.max_abs_diff(),
            "bytes_per_request": self.mean(|outcome| outcome.bytes_sent),
            "bytes_f32": self.mean(|outcome| outcome.f32_bytes),
            "bytes_raw": self.mean(|outcome| outcome.raw_bytes),
            "p50_ms": round(self.quantile_ms(0.5, |timings| timings.total)),
            "p99_ms": round(self.quantile_ms(0.99, |timings| timings.total)),
            "steps_ms": steps,
            "batch_sizes": batches,
        })
        .to_string()
    }

    /// For people.
    pub(crate) fn print(&self) {
        let pages = self.outcomes.len();
        let sent = self.mean(|outcome| outcome.bytes_sent);
        let ratio = |other: u64| other as f64 / sent.max(1) as f64;
        let (f32_bytes, raw) = (
            self.mean(|outcome| outcome.f32_bytes),
            self.mean(|outcome| outcome.raw_bytes),
        );
        println!();
        println!("right     {} of {pages} pages", self.correct());
        println!(
            "agree     {} of {pages} with the model uncut (scores within {:.0e})",
            self.agree(),
            self.max_abs_diff()
        );
        println!(
            "sent      {:.1} KB a request: {:.1} x less than f32, {:.1} x less than the raw picture",
            sent as f64 / 1e3,
            ratio(f32_bytes),
            ratio(raw)
        );
        println!(
            "latency   p50 {:.2} ms   p99 {:.2} ms",
            self.quantile_ms(0.5, |timings| timings.total),
            self.quantile_ms(0.99, |timings| timings.total)
        );
        for (name, time) in STEPS {
            let (p50, p99) = (self.quantile_ms(0.5, time), self.quantile_ms(0.99, time));
            println!("  {name:<8}{p50:>8.2} ms {p99:>9.2} ms");
        }
        let batches: Vec<String> = self
            .batches()
            .into_iter()
            .map(|(size, count)| format!("{count} in batches of {size}"))
            .collect();
        println!(
            "batching  {} requests at a time: {}",
            super::CONCURRENT,
            batches.join(", ")
        );
    }
}
