//! A measured time: its median and how far it wanders.

use serde::{Deserialize, Serialize};

/// The longest time that is taken for one: 11 days.
const MAX_US: f64 = 1e12;

/// The distribution of a time, as far as plans need it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Median, in microseconds.
    pub p50_us: f64,
    /// 95th percentile, in microseconds; at least the median.
    pub p95_us: f64,
    /// Runs that were measured; 0 for a figure that was not measured itself.
    pub samples: u32,
}

impl Spread {
    /// A time that never varies.
    pub const fn exactly(us: f64) -> Spread {
        Spread {
            p50_us: us,
            p95_us: us,
            samples: 0,
        }
    }

    /// Median and 95th percentile of `times`, in microseconds; all zero without any.
    pub fn of(times: &[f64]) -> Spread {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |numerator: usize, denominator: usize| {
            let last = sorted.len().saturating_sub(1);
            sorted
                .get((last * numerator).div_ceil(denominator))
                .copied()
                .unwrap_or_default()
        };
        Spread {
            p50_us: at(1, 2),
            p95_us: at(19, 20),
            samples: u32::try_from(times.len()).unwrap_or(u32::MAX),
        }
    }

    /// The same on a machine that takes `factor` times as long.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Spread {
        Spread {
            p50_us: self.p50_us * factor,
            p95_us: self.p95_us * factor,
            samples: self.samples,
        }
    }

    /// Why this cannot be a time; `None` where it can.
    pub fn problem(&self) -> Option<String> {
        let Spread { p50_us, p95_us, .. } = *self;
        let is_time = |us: f64| (0.0..=MAX_US).contains(&us);
        if is_time(p50_us) && is_time(p95_us) && p95_us >= p50_us {
            return None;
        }
        Some(format!(
            "p50_us is {p50_us} and p95_us is {p95_us}; expected times of 0 to {MAX_US:e}, the \
             second not below the first"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_times() {
        let times: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let spread = Spread::of(&times);
        assert_eq!(
            (spread.p50_us, spread.p95_us, spread.samples),
            (51.0, 96.0, 100)
        );
        assert_eq!(Spread::of(&[]), Spread::default());
        assert_eq!(Spread::of(&[3.0]).p95_us, 3.0);
    }

    #[test]
    fn what_is_no_time_is_named() {
        for (p50_us, p95_us) in [
            (f64::NAN, 1.0),
            (1.0, f64::INFINITY),
            (-1.0, 1.0),
            (2.0, 1.0),
        ] {
            let spread = Spread {
                p50_us,
                p95_us,
                samples: 1,
            };
            assert!(spread.problem().is_some(), "{spread:?}");
        }
        assert_eq!(Spread::exactly(2.0).problem(), None);
    }
}
