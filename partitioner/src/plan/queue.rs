//! How long a request waits in a service that others use too.

use seamline_plan::{CutOption, Load};

/// The busiest that a service is figured as: beyond it queues grow without bound.
const MOST_BUSY: f64 = 0.98;

/// What a request at `option` meets where `arrivals_per_s` others arrive at random and `executors`
/// tails run at the same time. A free executor takes whatever waits, so batches form while all are
/// busy: a batch holds what arrives during the one before, and the time of a batch follows from
/// that. Waiting is the Pollaczek-Khinchine mean for constant times, shared among the executors.
pub(crate) fn load_of(
    option: &CutOption,
    arrivals_per_s: f64,
    executors: usize,
    max_batch: u64,
) -> Load {
    if arrivals_per_s <= 0.0 || option.is_local() {
        return Load {
            queue_us: 0.0,
            batch: 1.0,
        };
    }
    let per_us = arrivals_per_s / 1e6 / executors.max(1) as f64;
    let most = max_batch.max(1) as f64;
    let mut batch = 1.0;
    // A fixed point; times grow with the batch more slowly than the batch itself, or it is full.
    for _ in 0..32 {
        let time = option.decode.p50_us * batch + option.tail(batch).p50_us;
        batch = (per_us * time).clamp(1.0, most);
    }
    let time = option.decode.p50_us * batch + option.tail(batch).p50_us;
    let busy = (per_us * time / batch).min(MOST_BUSY);
    Load {
        queue_us: busy * time / (2.0 * (1.0 - busy)),
        batch,
    }
}

/// Why the service cannot keep up with all that arrives, where it cannot.
pub(crate) fn overload(
    option: &CutOption,
    load: &Load,
    arrivals_per_s: f64,
    executors: usize,
) -> Option<String> {
    let us = option.decode.p50_us * load.batch + option.tail(load.batch).p50_us;
    if option.is_local() || us <= 0.0 {
        return None;
    }
    let most = load.batch * executors.max(1) as f64 * 1e6 / us;
    (arrivals_per_s > most * MOST_BUSY).then(|| {
        format!(
            "the service cannot keep up: {arrivals_per_s:.1} requests arrive each second, and it \
             answers {most:.1} (--executors, --max-batch)"
        )
    })
}

#[cfg(test)]
mod tests {
    use seamline_plan::{Spread, TailTime};

    use super::*;

    fn option() -> CutOption {
        CutOption {
            cut: "s0".into(),
            codec: None,
            head: Spread::default(),
            encode: Spread::default(),
            up_bytes: 1,
            decode: Spread::default(),
            tail: [(1, 1000.0), (8, 4500.0)]
                .map(|(batch, us)| TailTime {
                    batch,
                    time: Spread::exactly(us),
                })
                .into(),
            down_bytes: 1,
            overhead: Spread::default(),
        }
    }

    #[test]
    fn a_service_of_ones_own_does_not_keep_one_waiting() {
        assert_eq!(load_of(&option(), 0.0, 1, 8).queue_us, 0.0);
    }

    #[test]
    fn more_arrivals_wait_longer_in_larger_batches() {
        let loads = [100.0, 500.0, 900.0, 1500.0].map(|rate| load_of(&option(), rate, 1, 8));
        assert!(
            loads
                .windows(2)
                .all(|pair| pair[0].queue_us < pair[1].queue_us),
            "{loads:?}"
        );
        assert!(loads[0].batch == 1.0 && loads[3].batch > 2.0, "{loads:?}");
        let shared = load_of(&option(), 1500.0, 4, 8);
        assert!(shared.queue_us < loads[3].queue_us);
        // One at a time, a tail of 1 ms waits rho / (2 (1 - rho)) ms at 500 a second.
        let alone = load_of(&option(), 500.0, 1, 1);
        assert!((alone.queue_us - 500.0).abs() < 1e-6, "{alone:?}");
    }
}
