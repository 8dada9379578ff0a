//! Cases that batching must get right, in virtual time.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use seamline_cloud::batcher::{
    Batch, BatchLimits, BatchLimitsError, Batcher, Decision, RejectReason, Request, Taken, Ticket,
};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn limits(max_batch_size: u32, delay_ms: u64, preferred: &[u32]) -> BatchLimits {
    BatchLimits {
        max_batch_size,
        preferred_batch_sizes: preferred.to_vec(),
        max_queue_delay: ms(delay_ms),
        ..BatchLimits::default()
    }
}

/// What the next free executor gets: the items, or the decision not to run.
fn next<K, T>(batcher: &mut Batcher<K, T>, now: Instant) -> Result<Vec<T>, Decision<K>>
where
    K: std::hash::Hash + Eq + Clone,
{
    let mut taken = Vec::new();
    match batcher.next(now, &mut taken) {
        Decision::Run(_) => Ok(taken.into_iter().map(|t| t.item).collect()),
        other => Err(other),
    }
}

fn expired<K, T>(batcher: &mut Batcher<K, T>, now: Instant) -> Vec<T>
where
    K: std::hash::Hash + Eq + Clone,
{
    let mut taken = Vec::new();
    batcher.take_expired(now, &mut taken);
    taken.into_iter().map(|t| t.item).collect()
}

/// Deadlines of waiting requests and ends of queue delays are driven by the clock alone. The only
/// executor is busy from 0 to 100 ms; a second one becomes free at 5 ms.
#[test]
fn case_29_deadlines_fire_while_a_batch_runs() {
    let start = Instant::now();
    let mut batcher: Batcher<&str, &str> = Batcher::new(limits(1, 0, &[])).unwrap();
    batcher.push(start, "a", Request::new("running")).unwrap();
    assert_eq!(next(&mut batcher, start), Ok(vec!["running"]));
    let deadline = Some(start + ms(20));
    batcher
        .push(
            start + ms(1),
            "a",
            Request {
                deadline,
                ..Request::new("late")
            },
        )
        .unwrap();
    batcher
        .push(start + ms(1), "a", Request::new("patient"))
        .unwrap();
    assert_eq!(
        batcher.poll_timeout(),
        deadline,
        "not the end of the running batch"
    );
    assert!(expired(&mut batcher, start + ms(19)).is_empty());
    assert_eq!(expired(&mut batcher, start + ms(20)), ["late"]);
    assert_eq!(batcher.poll_timeout(), None);
    assert_eq!(next(&mut batcher, start + ms(100)), Ok(vec!["patient"]));

    let mut batcher: Batcher<&str, &str> = Batcher::new(limits(4, 10, &[])).unwrap();
    batcher.push(start, "a", Request::new("first")).unwrap();
    assert_eq!(
        next(&mut batcher, start + ms(5)),
        Err(Decision::WaitUntil(start + ms(10)))
    );
    batcher
        .push(start + ms(6), "a", Request::new("second"))
        .unwrap();
    assert_eq!(batcher.poll_timeout(), Some(start + ms(10)));
    assert_eq!(
        next(&mut batcher, start + ms(10)),
        Ok(vec!["first", "second"])
    );
}

/// A request that cannot wait the full queue delay does not wait itself to death.
#[test]
fn case_29_a_queue_delay_ends_well_before_the_deadline() {
    let start = Instant::now();
    let mut batcher: Batcher<&str, &str> = Batcher::new(limits(4, 50, &[])).unwrap();
    batcher.push(start, "a", Request::new("patient")).unwrap();
    let deadline = Some(start + ms(20));
    batcher
        .push(
            start,
            "a",
            Request {
                deadline,
                ..Request::new("hurried")
            },
        )
        .unwrap();
    assert_eq!(
        next(&mut batcher, start),
        Err(Decision::WaitUntil(start + ms(10)))
    );
    assert_eq!(
        next(&mut batcher, start + ms(10)),
        Ok(vec!["patient", "hurried"])
    );
}

#[test]
fn case_30_cancelled_or_late_work_is_never_started() {
    let start = Instant::now();
    let mut batcher: Batcher<&str, &str> = Batcher::new(limits(8, 0, &[])).unwrap();
    let deadline = Some(start + ms(10));
    let gone = batcher.push(start, "a", Request::new("gone")).unwrap();
    batcher
        .push(
            start,
            "a",
            Request {
                deadline,
                ..Request::new("late")
            },
        )
        .unwrap();
    batcher.push(start, "a", Request::new("good")).unwrap();
    assert_eq!(batcher.cancel(gone), Some("gone"));
    // Nobody called `take_expired` in time: the late one is still not run.
    assert_eq!(next(&mut batcher, start + ms(10)), Ok(vec!["good"]));
    assert_eq!(
        batcher.poll_timeout(),
        Some(start + ms(10)),
        "it waits to be answered"
    );
    assert_eq!(expired(&mut batcher, start + ms(10)), ["late"]);
    assert!(batcher.is_empty());

    let late = batcher.push(
        start + ms(10),
        "a",
        Request {
            deadline,
            ..Request::new("later")
        },
    );
    let rejected = late.unwrap_err();
    assert_eq!(
        (rejected.reason, rejected.item),
        (RejectReason::DeadlinePassed, "later")
    );

    // An expired request whose client also goes away is handed back once, by the cancel.
    let deadline = Some(start + ms(30));
    let request = Request {
        deadline,
        ..Request::new("both")
    };
    let ticket = batcher.push(start + ms(20), "a", request).unwrap();
    assert_eq!(next(&mut batcher, start + ms(30)), Err(Decision::Idle));
    assert_eq!(batcher.cancel(ticket), Some("both"));
    assert!(expired(&mut batcher, start + ms(40)).is_empty());
    assert!(batcher.is_empty());
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// An item that counts its answers; whoever owns it answers it once.
struct Answer(Arc<AtomicU32>);

impl Answer {
    fn send(self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

const REQUESTS: u64 = 20_000;

/// 10,000 random cancels before, during and after the batch of their request, in virtual time:
/// each request is answered exactly once.
#[test]
fn case_31_cancels_race_with_completion() {
    let seed = 31;
    let mut random = Random(seed);
    let mut now = Instant::now();
    let mut batcher: Batcher<u64, Answer> = Batcher::new(limits(8, 1, &[4])).unwrap();
    let answers: Vec<_> = (0..REQUESTS).map(|_| Arc::new(AtomicU32::new(0))).collect();
    let mut tickets: Vec<Ticket> = Vec::new();
    let mut running: Vec<Vec<Taken<Answer>>> = Vec::new();
    let (mut cancels, mut effective) = (0, 0);
    let mut pushed = 0;
    while pushed < answers.len() || cancels < 10_000 {
        now += Duration::from_micros(random.below(200));
        match random.below(5) {
            0 | 1 if pushed < answers.len() => {
                let deadline = (random.below(3) == 0).then(|| now + ms(random.below(6) + 1));
                let item = Answer(Arc::clone(&answers[pushed]));
                let request = Request {
                    deadline,
                    ..Request::new(item)
                };
                pushed += 1;
                match batcher.push(now, random.below(5), request) {
                    Ok(ticket) => tickets.push(ticket),
                    Err(rejected) => rejected.item.send(),
                }
            }
            2 => {
                let mut taken = Vec::new();
                batcher.take_expired(now, &mut taken);
                taken.into_iter().for_each(|t| t.item.send());
                let mut batch = Vec::new();
                if let Decision::Run(_) = batcher.next(now, &mut batch) {
                    running.push(batch);
                }
            }
            3 if !running.is_empty() => {
                let batch = usize::try_from(random.below(running.len() as u64)).unwrap();
                running
                    .swap_remove(batch)
                    .into_iter()
                    .for_each(|t| t.item.send());
            }
            _ if !tickets.is_empty() => {
                let recent = random.below(tickets.len().min(64) as u64);
                let which = tickets.len() - 1 - usize::try_from(recent).unwrap();
                cancels += 1;
                if let Some(item) = batcher.cancel(tickets[which]) {
                    item.send();
                    effective += 1;
                }
            }
            _ => {}
        }
    }
    let mut rest = Vec::new();
    batcher.take_all(&mut rest);
    running
        .into_iter()
        .flatten()
        .chain(rest)
        .for_each(|t| t.item.send());
    assert!(
        effective > 1000,
        "seed {seed}: only {effective} of {cancels} cancels came in time"
    );
    assert!(batcher.is_empty() && batcher.keys() == 0, "seed {seed}");
    for (request, count) in answers.iter().enumerate() {
        let (answers, owners) = (count.load(Ordering::Relaxed), Arc::strong_count(count));
        assert_eq!(
            (answers, owners),
            (1, 1),
            "seed {seed}: request {request} (answers, owners)"
        );
    }
}

/// The same with real threads: two clients that cancel, two executors that complete.
#[test]
fn case_31_cancels_race_with_completion_on_threads() {
    let batcher: Mutex<Batcher<u64, Answer>> = Mutex::new(Batcher::new(limits(4, 0, &[])).unwrap());
    let answers: Vec<_> = (0..REQUESTS).map(|_| Arc::new(AtomicU32::new(0))).collect();
    let done = AtomicU32::new(0);
    let total = u32::try_from(REQUESTS).unwrap();
    let finish = |items: &mut dyn Iterator<Item = Answer>| {
        for item in items {
            item.send();
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for half in answers.chunks(answers.len() / 2) {
            let (batcher, finish) = (&batcher, &finish);
            scope.spawn(move || {
                for (n, answer) in (0u64..).zip(half) {
                    let request = Request::new(Answer(Arc::clone(answer)));
                    // The lock is released before the cancel: executors may come in between.
                    let pushed = batcher.lock().unwrap().push(Instant::now(), n % 3, request);
                    match pushed {
                        Ok(ticket) if n % 2 == 0 => {
                            let item = batcher.lock().unwrap().cancel(ticket);
                            finish(&mut item.into_iter());
                        }
                        Ok(_) => {}
                        Err(rejected) => finish(&mut std::iter::once(rejected.item)),
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let mut taken = Vec::new();
                while done.load(Ordering::Relaxed) < total {
                    batcher.lock().unwrap().next(Instant::now(), &mut taken);
                    if taken.is_empty() {
                        std::thread::yield_now();
                    }
                    finish(&mut taken.drain(..).map(|t| t.item));
                }
            });
        }
    });
    assert!(batcher.lock().unwrap().is_empty());
    for (request, count) in answers.iter().enumerate() {
        let (answers, owners) = (count.load(Ordering::Relaxed), Arc::strong_count(count));
        assert_eq!(
            (answers, owners),
            (1, 1),
            "request {request} (answers, owners)"
        );
    }
}

/// A key as the service has it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    contract: u8,
    cut: &'static str,
    codecs: Vec<u8>,
    shapes: Vec<Vec<usize>>,
}

/// Requests that differ in contract, cut, codec or shape never share a batch; equal ones do,
/// whatever came in between.
#[test]
fn case_32_only_equal_keys_share_a_batch() {
    let base = Key {
        contract: 1,
        cut: "c1",
        codecs: vec![2],
        shapes: vec![vec![1, 8]],
    };
    let keys = [
        base.clone(),
        Key {
            contract: 2,
            ..base.clone()
        },
        Key {
            cut: "c2",
            ..base.clone()
        },
        Key {
            codecs: vec![3],
            ..base.clone()
        },
        Key {
            shapes: vec![vec![1, 9]],
            ..base.clone()
        },
        Key {
            shapes: vec![vec![1, 8], vec![1]],
            ..base
        },
    ];
    let now = Instant::now();
    for seed in 0..50 {
        let mut random = Random(seed);
        let mut arrivals: Vec<usize> = (0..keys.len() * 4).map(|n| n % keys.len()).collect();
        for n in (1..arrivals.len()).rev() {
            arrivals.swap(n, usize::try_from(random.below(n as u64 + 1)).unwrap());
        }
        let mut batcher: Batcher<Key, (Key, usize)> = Batcher::new(limits(4, 0, &[])).unwrap();
        for (order, key) in arrivals.iter().enumerate() {
            let item = (keys[*key].clone(), order);
            batcher
                .push(now, keys[*key].clone(), Request::new(item))
                .unwrap();
        }
        let mut batches: HashMap<Key, Vec<usize>> = HashMap::new();
        loop {
            let mut taken = Vec::new();
            let Decision::Run(Batch { key, len, rows }) = batcher.next(now, &mut taken) else {
                break;
            };
            assert_eq!(
                (len, rows),
                (4, 4),
                "seed {seed}: equal requests were not joined"
            );
            assert!(taken.iter().all(|t| t.item.0 == key), "seed {seed}: mixed");
            let order: Vec<usize> = taken.iter().map(|t| t.item.1).collect();
            assert!(
                order.is_sorted(),
                "seed {seed}: not in order of arrival: {order:?}"
            );
            assert!(
                batches.insert(key, order).is_none(),
                "seed {seed}: a key ran twice"
            );
        }
        assert_eq!(batches.len(), keys.len(), "seed {seed}");
    }
}

#[test]
fn case_32_requests_that_are_not_batchable_run_alone() {
    let now = Instant::now();
    let mut batcher: Batcher<&str, u32> = Batcher::new(limits(8, 50, &[])).unwrap();
    for item in 0..3 {
        // Rows mean nothing then: the first axis may be time.
        let request = Request {
            batchable: false,
            rows: 1000,
            ..Request::new(item)
        };
        batcher.push(now, "stream", request).unwrap();
    }
    for item in 0..3 {
        assert_eq!(next(&mut batcher, now), Ok(vec![item]));
    }
    assert_eq!(next(&mut batcher, now), Err(Decision::Idle));
}

#[test]
fn preferred_sizes_are_waited_for_and_then_the_largest_that_fits_is_run() {
    let start = Instant::now();
    let mut batcher: Batcher<&str, u32> = Batcher::new(limits(8, 10, &[6, 4])).unwrap();
    for item in 0..3 {
        batcher.push(start, "a", Request::new(item)).unwrap();
    }
    assert_eq!(
        next(&mut batcher, start),
        Err(Decision::WaitUntil(start + ms(10)))
    );
    batcher.push(start + ms(2), "a", Request::new(3)).unwrap();
    assert_eq!(next(&mut batcher, start + ms(2)), Ok(vec![0, 1, 2, 3]));
    for item in 0..7 {
        batcher
            .push(start + ms(3), "a", Request::new(item))
            .unwrap();
    }
    assert_eq!(
        next(&mut batcher, start + ms(3)),
        Ok(vec![0, 1, 2, 3, 4, 5])
    );
    assert_eq!(
        next(&mut batcher, start + ms(3)),
        Err(Decision::WaitUntil(start + ms(13)))
    );
    assert_eq!(
        next(&mut batcher, start + ms(13)),
        Ok(vec![6]),
        "what is there"
    );
}

#[test]
fn rows_are_counted_and_order_is_kept() {
    let now = Instant::now();
    let mut batcher: Batcher<&str, &str> = Batcher::new(limits(4, 0, &[])).unwrap();
    let rows = |rows, item| Request {
        rows,
        ..Request::new(item)
    };
    batcher.push(now, "a", rows(2, "two")).unwrap();
    batcher.push(now, "a", rows(3, "three")).unwrap();
    batcher.push(now, "a", rows(1, "one")).unwrap();
    assert_eq!(
        next(&mut batcher, now),
        Ok(vec!["two"]),
        "a small one does not overtake"
    );
    assert_eq!(next(&mut batcher, now), Ok(vec!["three", "one"]));
    for bad in [0, 5] {
        let rejected = batcher.push(now, "a", rows(bad, "bad")).unwrap_err();
        assert_eq!(
            rejected.reason,
            RejectReason::Rows {
                rows: bad,
                limit: 4
            }
        );
    }
}

#[test]
fn a_full_queue_refuses_with_the_item_and_serves_on() {
    let now = Instant::now();
    let limits = BatchLimits {
        max_queue_len: 2,
        ..BatchLimits::default()
    };
    let mut batcher: Batcher<u8, u32> = Batcher::new(limits).unwrap();
    for item in 0..2 {
        batcher.push(now, 0, Request::new(item)).unwrap();
    }
    let rejected = batcher.push(now, 1, Request::new(2)).unwrap_err();
    assert_eq!(
        (rejected.reason, rejected.item),
        (RejectReason::QueueFull { limit: 2 }, 2)
    );
    assert_eq!(batcher.keys(), 1, "a refused request leaves nothing behind");
    assert_eq!(next(&mut batcher, now), Ok(vec![0, 1]));
    batcher.push(now, 1, Request::new(3)).unwrap();
}

#[test]
fn limits_out_of_bounds_are_named() {
    let error = |limits| Batcher::<u8, u8>::new(limits).unwrap_err();
    assert_eq!(error(limits(0, 0, &[])), BatchLimitsError::ZeroBatch);
    let preferred = BatchLimitsError::Preferred {
        size: 9,
        max_batch_size: 8,
    };
    assert_eq!(error(limits(8, 0, &[4, 9])), preferred);
    let queue = BatchLimits {
        max_queue_len: 0,
        ..BatchLimits::default()
    };
    assert_eq!(error(queue), BatchLimitsError::QueueLen(0));
}
