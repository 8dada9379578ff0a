//! How fast the service answers, for telling clients when to come back.

use std::time::{Duration, Instant};

/// Memory of the estimate: completions this long ago count 1/e.
const WINDOW: Duration = Duration::from_secs(1);

/// Bounds of what clients are told. The lower keeps shed clients from a busy loop; the upper keeps
/// one slow batch from sending them away for long.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(5);

/// What clients are told before anything is known about the rate.
const UNKNOWN: Duration = Duration::from_millis(100);

/// An exponentially decaying count of completions.
#[derive(Debug)]
pub(super) struct DrainRate {
    /// Completions, decayed up to `at`.
    count: f64,
    at: Option<Instant>,
}

impl DrainRate {
    pub(super) const fn new() -> DrainRate {
        DrainRate {
            count: 0.0,
            at: None,
        }
    }

    pub(super) fn record(&mut self, now: Instant) {
        self.count = self.decayed(now) + 1.0;
        self.at = Some(self.at.map_or(now, |at| at.max(now)));
    }

    /// The time in which `in_flight` requests will have been answered at the present rate.
    pub(super) fn time_to_drain(&self, now: Instant, in_flight: u32) -> Duration {
        let per_second = self.decayed(now) / WINDOW.as_secs_f64();
        if self.at.is_none() {
            return UNKNOWN;
        }
        let seconds = f64::from(in_flight) / per_second;
        // A rate that has decayed to nothing gives an infinite time, or no number at all.
        if seconds.is_nan() || seconds >= LONGEST.as_secs_f64() {
            return LONGEST;
        }
        Duration::from_secs_f64(seconds).max(SHORTEST)
    }

    fn decayed(&self, now: Instant) -> f64 {
        let age = self
            .at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.count * (-age.as_secs_f64() / WINDOW.as_secs_f64()).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_rate_of_completions() {
        let start = Instant::now();
        let mut rate = DrainRate::new();
        assert_eq!(rate.time_to_drain(start, 10), UNKNOWN);
        // 200 a second for five seconds.
        let mut now = start;
        for _ in 0..1000 {
            now += Duration::from_millis(5);
            rate.record(now);
        }
        let told = rate.time_to_drain(now, 100);
        assert!(
            (told.as_secs_f64() - 0.5).abs() < 0.01,
            "100 at 200/s take 0.5 s, told {told:?}"
        );
        assert_eq!(rate.time_to_drain(now, 0), SHORTEST);
        // Nothing completes for a while: the estimate grows up to its bound.
        assert!(rate.time_to_drain(now + Duration::from_secs(1), 100) > told);
        assert_eq!(
            rate.time_to_drain(now + Duration::from_secs(3600), 100),
            LONGEST
        );
        assert_eq!(
            rate.time_to_drain(now + Duration::from_secs(1 << 32), 0),
            LONGEST
        );
    }
}
