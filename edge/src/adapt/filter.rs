//! Delay and pace of one direction, from what transfers of different sizes took.

use std::time::{Duration, Instant};

/// How far the delay drifts, relative to itself, in the square root of a second.
const DELAY_DRIFT: f64 = 0.05;

/// The same of the pace: what a radio's rate does while nothing special happens.
const PACE_DRIFT: f64 = 0.4;

/// The delay is never known better than to this share of it.
const DELAY_FLOOR: f64 = 0.03;

/// A transfer repeats to this share of its time at best.
const NOISE_SHARE: f64 = 0.03;

/// The least noise of a measured time, in microseconds: wake-ups and timers.
const NOISE_US: f64 = 300.0;

/// Beyond so many standard deviations something has happened.
const SURPRISE: f64 = 3.0;

/// Of a transfer of so many bytes, half of a surprise is put down to the delay.
const SPLIT_BYTES: f64 = 4096.0;

/// A suspicion that nothing confirms for so long is dropped.
const SUSPECT_FOR: Duration = Duration::from_secs(5);

/// Longer than what a single lost packet costs, in microseconds and in delays: a transfer that is
/// late by more needs no second one to be believed.
const STALL: (f64, f64) = (500_000.0, 8.0);

/// Bounds of the pace: 8 kbit/s and 100 Gbit/s, in microseconds a byte.
const PACES: (f64, f64) = (8e-5, 1000.0);

/// No delay is longer, in microseconds.
const MOST_DELAY: f64 = 1e8;

/// What a transfer said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// About what was expected.
    Usual,
    /// The direction has changed, and the estimate with it.
    Changed,
    /// Much slower than expected: one lost packet, or the beginning of something. The next
    /// transfer decides.
    Suspect,
}

/// `time = delay + bytes × pace`, both drifting: a Kalman filter (R. E. Kalman, 1960) of two
/// states, which is least squares weighted by age and noise. Transfers of different sizes tell
/// delay from pace; while all are of one size, a delay that is measured elsewhere does.
///
/// A filter alone would follow a step of the rate slowly or every outlier at once. So a transfer
/// that is out of all expectation is believed at once where it was fast (nothing makes a link look
/// faster than it is), and on its second occurrence where it was slow.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    /// Microseconds.
    delay: f64,
    /// Microseconds a byte on the wire.
    pace: f64,
    var_delay: f64,
    covariance: f64,
    var_pace: f64,
    /// Of measured times, in microseconds squared; learnt.
    var_noise: f64,
    suspect_since: Option<Instant>,
    updated: Instant,
}

impl Filter {
    /// Begins with a delay and a pace, each with its standard deviation relative to it.
    pub(super) fn new(now: Instant, delay: (f64, f64), pace: (f64, f64)) -> Filter {
        let (delay, doubt_of_delay) = (delay.0.clamp(0.0, MOST_DELAY), delay.1);
        let (pace, doubt_of_pace) = (pace.0.clamp(PACES.0, PACES.1), pace.1);
        Filter {
            delay,
            pace,
            var_delay: (delay * doubt_of_delay).powi(2),
            covariance: 0.0,
            var_pace: (pace * doubt_of_pace).powi(2),
            var_noise: NOISE_US.powi(2),
            suspect_since: None,
            updated: now,
        }
    }

    /// Microseconds.
    pub(super) fn delay(&self) -> f64 {
        self.delay
    }

    /// Bits per second.
    pub(super) fn bps(&self) -> f64 {
        8e6 / self.pace
    }

    /// Whether the last transfer was slower than anything expected, and nothing has confirmed it.
    pub(super) fn is_suspect(&self, now: Instant) -> bool {
        self.suspect_since
            .is_some_and(|since| now.saturating_duration_since(since) < SUSPECT_FOR)
    }

    /// A delay that was measured apart, with its standard deviation, in microseconds.
    pub(super) fn learn_delay(&mut self, now: Instant, us: f64, deviation: f64) {
        self.age(now);
        self.update(us - self.delay, 0.0, deviation.powi(2));
        self.settle();
    }

    /// A transfer of `bytes` on the wire that took `us` microseconds.
    pub(super) fn learn_transfer(&mut self, now: Instant, bytes: f64, us: f64) -> Verdict {
        self.age(now);
        let error = us - self.delay - bytes * self.pace;
        let noise = self.var_noise + (NOISE_SHARE * us).powi(2);
        let explained = self.explained(bytes);
        if error.abs() <= SURPRISE * (explained + noise).sqrt() {
            self.learn_noise(error, explained);
            self.update(error, bytes, noise);
            self.suspect_since = None;
            self.settle();
            return Verdict::Usual;
        }
        let stalled = error > STALL.0 + STALL.1 * self.delay;
        if error > 0.0 && !stalled && !self.is_suspect(now) {
            self.suspect_since = Some(now);
            return Verdict::Suspect;
        }
        // As if nothing had been known: the small ones tell of the delay, the large ones of the pace.
        let to_pace = bytes / (bytes + SPLIT_BYTES);
        self.var_pace += to_pace * (error / bytes.max(1.0)).powi(2);
        self.var_delay += (1.0 - to_pace) * error.powi(2);
        self.update(error, bytes, noise);
        self.suspect_since = None;
        self.settle();
        Verdict::Changed
    }

    /// Variance of the prediction for `bytes`, without noise.
    fn explained(&self, bytes: f64) -> f64 {
        let variance =
            self.var_delay + 2.0 * bytes * self.covariance + bytes * bytes * self.var_pace;
        variance.max(0.0)
    }

    fn age(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.updated).as_secs_f64();
        self.updated = self.updated.max(now);
        self.var_delay += (DELAY_DRIFT * self.delay).powi(2) * seconds;
        self.var_pace += (PACE_DRIFT * self.pace).powi(2) * seconds;
        self.settle();
    }

    /// The update of a Kalman filter for the measurement `delay + bytes × pace`.
    fn update(&mut self, error: f64, bytes: f64, noise: f64) {
        let of_delay = self.var_delay + bytes * self.covariance;
        let of_pace = self.covariance + bytes * self.var_pace;
        let total = (of_delay + bytes * of_pace + noise).max(1e-9);
        let gain = (of_delay / total, of_pace / total);
        self.delay += gain.0 * error;
        self.pace += gain.1 * error;
        self.var_delay -= gain.0 * of_delay;
        self.covariance -= gain.0 * of_pace;
        self.var_pace -= gain.1 * of_pace;
    }

    /// What residuals show beyond the filter's own uncertainty is noise.
    fn learn_noise(&mut self, error: f64, explained: f64) {
        let most = 16.0 * self.var_noise;
        let excess = (error.powi(2) - explained).clamp(0.0, most);
        self.var_noise += 0.05 * (excess - self.var_noise);
        self.var_noise = self.var_noise.max(NOISE_US.powi(2));
    }

    /// Back to what can be: no negative delay, a pace within bounds, no certainty beyond reason.
    fn settle(&mut self) {
        self.delay = self.delay.clamp(0.0, MOST_DELAY);
        self.pace = self.pace.clamp(PACES.0, PACES.1);
        let least = (DELAY_FLOOR * self.delay).powi(2);
        self.var_delay = self
            .var_delay
            .clamp(least.max(1.0), self.delay.powi(2).max(1e8));
        let pace = self.pace.powi(2);
        self.var_pace = self.var_pace.clamp(1e-4 * pace, pace);
        let most = 0.95 * (self.var_delay * self.var_pace).sqrt();
        self.covariance = self.covariance.clamp(-most, most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 ms, and 0.8 µs a byte: 10 Mbit/s.
    fn known(now: Instant) -> Filter {
        Filter::new(now, (20_000.0, 0.5), (0.8, 0.7))
    }

    fn near(value: f64, expected: f64, share: f64) -> bool {
        (value / expected - 1.0).abs() < share
    }

    #[test]
    fn sizes_tell_delay_from_pace() {
        let mut now = Instant::now();
        let mut filter = known(now);
        // Really 35 ms and 4 Mbit/s.
        for round in 0..30 {
            now += Duration::from_millis(100);
            let bytes = [3e3, 30e3, 100e3][round % 3];
            filter.learn_transfer(now, bytes, 35_000.0 + 2.0 * bytes);
        }
        assert!(near(filter.delay(), 35_000.0, 0.1), "{filter:?}");
        assert!(near(filter.bps(), 4e6, 0.05), "{filter:?}");
    }

    #[test]
    fn a_step_is_followed_within_two_transfers_down_and_one_up() {
        let mut now = Instant::now();
        let mut filter = known(now);
        let mut send = |filter: &mut Filter, pace: f64| {
            now += Duration::from_millis(100);
            filter.learn_transfer(now, 50e3, 20_000.0 + 50e3 * pace)
        };
        for _ in 0..10 {
            assert_eq!(send(&mut filter, 0.8), Verdict::Usual);
        }
        assert_eq!(send(&mut filter, 4.0), Verdict::Suspect);
        assert!(near(filter.bps(), 10e6, 0.05), "{filter:?}");
        assert_eq!(send(&mut filter, 4.0), Verdict::Changed);
        assert!(near(filter.bps(), 2e6, 0.1), "{filter:?}");
        assert_eq!(send(&mut filter, 0.2), Verdict::Changed);
        assert!(near(filter.bps(), 40e6, 0.15), "{filter:?}");
    }

    #[test]
    fn a_long_stall_is_believed_at_once() {
        let now = Instant::now();
        let mut filter = known(now);
        let verdict = filter.learn_transfer(now, 100e3, 20_000.0 + 100e3 * 16.0);
        assert_eq!(verdict, Verdict::Changed);
        assert!(near(filter.bps(), 500e3, 0.1), "{filter:?}");
    }

    #[test]
    fn a_single_outlier_changes_nothing() {
        let mut now = Instant::now();
        let mut filter = known(now);
        for round in 0..40 {
            now += Duration::from_millis(100);
            let late = if round % 8 == 5 { 250_000.0 } else { 0.0 };
            filter.learn_transfer(now, 8e3, 20_000.0 + 8e3 * 0.8 + late);
            assert!(near(filter.bps(), 10e6, 0.1), "{filter:?}");
            assert!(near(filter.delay(), 20_000.0, 0.1), "{filter:?}");
        }
    }

    #[test]
    fn a_farther_service_does_not_look_like_a_slower_link() {
        let mut now = Instant::now();
        let mut filter = known(now);
        for _ in 0..10 {
            now += Duration::from_millis(100);
            filter.learn_delay(now, 60_000.0, 5_000.0);
            filter.learn_transfer(now, 30e3, 60_000.0 + 30e3 * 0.8);
        }
        assert!(near(filter.delay(), 60_000.0, 0.1), "{filter:?}");
        assert!(near(filter.bps(), 10e6, 0.2), "{filter:?}");
    }

    #[test]
    fn nothing_measured_makes_it_lose_its_footing() {
        let seed = 11;
        let mut random = 1u64 + seed;
        let mut next = || -> u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            random >> 33
        };
        let mut now = Instant::now();
        let mut filter = known(now);
        for _ in 0..20_000 {
            now += Duration::from_micros(next() % 3_000_000);
            let bytes = [0.0, 1.0, 1e3, 1e9][usize::try_from(next() % 4).unwrap()];
            let us = [0.0, 1.0, 1e4, 1e9][usize::try_from(next() % 4).unwrap()];
            filter.learn_transfer(now, bytes, us);
            filter.learn_delay(now, us, us);
            assert!(filter.delay().is_finite() && filter.delay() >= 0.0);
            assert!(
                filter.bps().is_finite() && filter.bps() > 0.0,
                "seed {seed}"
            );
        }
    }
}
