//! Timed runs within a budget.
//!
//! A part that answers one request now and then runs slower than in a loop, by a half where it is
//! short: its threads have gone to sleep, and its weights have left the nearest caches. Single rows are
//! therefore timed with [`PAUSE`] in front of each.

use std::time::{Duration, Instant};

/// What lies between requests of a device that waits for each answer: about a round trip.
pub(crate) const PAUSE: Duration = Duration::from_millis(25);

/// Runs once to warm up, then at least `min` times and on until `time` has passed, at most `max`
/// times, `pause` before each; `run` is told which run it is. Returns the times in microseconds.
pub(crate) fn timed<E>(
    min: usize,
    max: usize,
    time: Duration,
    pause: Duration,
    mut run: impl FnMut(usize) -> Result<(), E>,
) -> Result<Vec<f64>, E> {
    run(0)?;
    let mut times = Vec::new();
    let started = Instant::now();
    while times.len() < max.max(1) && (times.len() < min.max(1) || started.elapsed() < time) {
        std::thread::sleep(pause);
        let at = Instant::now();
        run(times.len())?;
        times.push(at.elapsed().as_secs_f64() * 1e6);
    }
    Ok(times)
}

/// The median of `values`; 0 without any.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_between_the_fewest_and_the_most() {
        let mut count = 0;
        let mut run = |_| {
            count += 1;
            Ok::<(), ()>(())
        };
        assert_eq!(
            timed(5, 50, Duration::ZERO, Duration::ZERO, &mut run)
                .unwrap()
                .len(),
            5
        );
        let most = timed(5, 50, Duration::from_secs(60), Duration::ZERO, &mut run).unwrap();
        assert_eq!(most.len(), 50);
        assert_eq!(count, 57, "one more each, to warm up");
    }

    #[test]
    fn a_failed_run_ends_it() {
        let failed = timed(5, 50, Duration::ZERO, Duration::ZERO, |run| {
            if run == 2 { Err("third") } else { Ok(()) }
        });
        assert_eq!(failed, Err("third"));
    }
}
