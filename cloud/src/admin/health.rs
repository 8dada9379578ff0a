//! Whether the service is alive and ready, as its executors show it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// What the probes tell. Clones are handles to the same state. The time is passed in.
#[derive(Debug, Clone)]
pub struct Health {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    start: Instant,
    stall_after: Duration,
    phase: Mutex<Phase>,
    executors: Mutex<Vec<Arc<Executor>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Warming { done: usize, total: usize },
    Warm,
    Draining,
}

#[derive(Debug)]
struct Executor {
    /// Last beat, in milliseconds since `Inner::start`.
    beat: AtomicU64,
    ended: AtomicBool,
}

/// Why the service is not alive: it should be restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unhealthy {
    /// An executor has not beaten for too long.
    #[error("executor {executor} has been silent for {} ms, longer than {} ms", silent.as_millis(), limit.as_millis())]
    ExecutorStuck {
        /// Its number.
        executor: u32,
        /// Time since its last beat.
        silent: Duration,
        /// The silence allowed.
        limit: Duration,
    },
    /// An executor ended while the service runs.
    #[error("executor {executor} has ended")]
    ExecutorEnded {
        /// Its number.
        executor: u32,
    },
}

/// Why the service is not ready: requests should go elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// Bundles are being loaded and warmed.
    #[error("warming up: {done} of {total} steps done")]
    WarmingUp {
        /// Steps done.
        done: usize,
        /// Steps known.
        total: usize,
    },
    /// The service is stopping.
    #[error("draining")]
    Draining,
    /// Nothing would run the requests.
    #[error("no executor is running")]
    NoExecutor,
    /// It is not even alive.
    #[error(transparent)]
    Unhealthy(#[from] Unhealthy),
}

/// One executor's proof of life. Dropping it before the drain makes the service unhealthy.
#[derive(Debug)]
pub struct Heartbeat {
    inner: Arc<Inner>,
    executor: Arc<Executor>,
}

impl Health {
    /// A service that starts at `now`, warming up. An executor that is silent for longer than
    /// `stall_after` counts as stuck.
    pub fn new(now: Instant, stall_after: Duration) -> Health {
        let inner = Inner {
            start: now,
            stall_after,
            phase: Mutex::new(Phase::Warming { done: 0, total: 0 }),
            executors: Mutex::new(Vec::new()),
        };
        Health {
            inner: Arc::new(inner),
        }
    }

    /// Adds an executor, numbered from 0 in the order of calls.
    pub fn add_executor(&self, now: Instant) -> Heartbeat {
        let executor = Arc::new(Executor {
            beat: AtomicU64::new(self.inner.millis(now)),
            ended: AtomicBool::new(false),
        });
        self.inner.executors.lock().push(Arc::clone(&executor));
        Heartbeat {
            inner: Arc::clone(&self.inner),
            executor,
        }
    }

    /// States how far warm-up has come.
    pub fn set_warming(&self, done: usize, total: usize) {
        let mut phase = self.inner.phase.lock();
        if let Phase::Warming { .. } = *phase {
            *phase = Phase::Warming { done, total };
        }
    }

    /// States that everything is loaded and warm.
    pub fn set_warm(&self) {
        let mut phase = self.inner.phase.lock();
        if let Phase::Warming { .. } = *phase {
            *phase = Phase::Warm;
        }
    }

    /// States that the service is stopping; final. Executors may end from now on.
    pub fn set_draining(&self) {
        *self.inner.phase.lock() = Phase::Draining;
    }

    /// Whether the process and all its executors work.
    ///
    /// # Errors
    /// Every executor that does not.
    pub fn alive(&self, now: Instant) -> Result<(), Vec<Unhealthy>> {
        let draining = *self.inner.phase.lock() == Phase::Draining;
        let mut reasons = Vec::new();
        for (executor, state) in (0u32..).zip(self.inner.executors.lock().iter()) {
            let silent = self.inner.silence(state, now);
            let limit = self.inner.stall_after;
            if state.ended.load(Ordering::Acquire) {
                if !draining {
                    reasons.push(Unhealthy::ExecutorEnded { executor });
                }
            } else if silent > limit {
                reasons.push(Unhealthy::ExecutorStuck {
                    executor,
                    silent,
                    limit,
                });
            }
        }
        if reasons.is_empty() {
            Ok(())
        } else {
            Err(reasons)
        }
    }

    /// Whether requests can be sent here.
    ///
    /// # Errors
    /// Everything that stands against it.
    pub fn ready(&self, now: Instant) -> Result<(), Vec<NotReady>> {
        let mut reasons = Vec::new();
        match *self.inner.phase.lock() {
            Phase::Warming { done, total } => reasons.push(NotReady::WarmingUp { done, total }),
            Phase::Draining => reasons.push(NotReady::Draining),
            Phase::Warm => {
                if self.inner.executors.lock().is_empty() {
                    reasons.push(NotReady::NoExecutor);
                }
            }
        }
        if let Err(unhealthy) = self.alive(now) {
            reasons.extend(unhealthy.into_iter().map(NotReady::from));
        }
        if reasons.is_empty() {
            Ok(())
        } else {
            Err(reasons)
        }
    }

    /// Each executor's number and the time since its last beat.
    pub fn heartbeat_ages(&self, now: Instant) -> Vec<(u32, Duration)> {
        let executors = self.inner.executors.lock();
        (0u32..)
            .zip(executors.iter())
            .map(|(n, e)| (n, self.inner.silence(e, now)))
            .collect()
    }
}

impl Inner {
    fn millis(&self, now: Instant) -> u64 {
        let elapsed = now.saturating_duration_since(self.start).as_millis();
        u64::try_from(elapsed).unwrap_or(u64::MAX)
    }

    fn silence(&self, executor: &Executor, now: Instant) -> Duration {
        let beat = executor.beat.load(Ordering::Acquire);
        Duration::from_millis(self.millis(now).saturating_sub(beat))
    }
}

impl Heartbeat {
    /// Shows that the executor works. To be called before and after every batch, and at least
    /// every [`Heartbeat::interval`] while there is none.
    pub fn beat(&self, now: Instant) {
        self.executor
            .beat
            .fetch_max(self.inner.millis(now), Ordering::AcqRel);
    }

    /// How often an idle executor should beat: a quarter of the silence allowed.
    pub fn interval(&self) -> Duration {
        self.inner.stall_after / 4
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.executor.ended.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(30);

    #[test]
    fn ready_once_warm_and_until_draining() {
        let now = Instant::now();
        let health = Health::new(now, STALL);
        health.set_warming(3, 8);
        let reasons = health.ready(now).unwrap_err();
        assert_eq!(reasons, [NotReady::WarmingUp { done: 3, total: 8 }]);
        assert_eq!(reasons[0].to_string(), "warming up: 3 of 8 steps done");
        health.set_warm();
        assert_eq!(health.ready(now), Err(vec![NotReady::NoExecutor]));
        let heartbeat = health.add_executor(now);
        assert_eq!(health.ready(now), Ok(()));
        health.set_draining();
        health.set_warm();
        health.set_warming(0, 1);
        assert_eq!(health.ready(now), Err(vec![NotReady::Draining]));
        drop(heartbeat);
        assert_eq!(
            health.alive(now),
            Ok(()),
            "executors may end while draining"
        );
    }

    #[test]
    fn a_silent_executor_is_unhealthy_until_it_beats_again() {
        let start = Instant::now();
        let health = Health::new(start, STALL);
        let first = health.add_executor(start);
        let second = health.add_executor(start);
        health.set_warm();
        let late = start + STALL + Duration::from_millis(1);
        first.beat(late);
        let silent = STALL + Duration::from_millis(1);
        let stuck = Unhealthy::ExecutorStuck {
            executor: 1,
            silent,
            limit: STALL,
        };
        assert_eq!(health.alive(start + STALL), Ok(()));
        assert_eq!(health.alive(late), Err(vec![stuck]));
        assert_eq!(health.ready(late), Err(vec![NotReady::Unhealthy(stuck)]));
        assert_eq!(
            health.heartbeat_ages(late),
            [(0, Duration::ZERO), (1, silent)]
        );
        second.beat(late);
        assert_eq!(health.alive(late), Ok(()));
        drop(second);
        assert_eq!(
            health.alive(late),
            Err(vec![Unhealthy::ExecutorEnded { executor: 1 }])
        );
    }
}
