//! Random scripts over the batcher and over a model that keeps one plain list and searches it.
//! After every step both must agree on what was decided, and on what is left.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use seamline_cloud::batcher::{
    BatchLimits, Batcher, Decision, RejectReason, Request, STARVATION_BOUND, Taken, Ticket,
};

#[derive(Debug, Clone)]
enum TestOp {
    Push {
        key: u8,
        priority: u8,
        rows: u32,
        deadline_ms: Option<u64>,
        batchable: bool,
    },
    /// Cancels the n-th request ever accepted, wherever it is by now.
    Cancel {
        which: usize,
    },
    Advance {
        ms: u64,
    },
    /// Moves the time to what `poll_timeout` says.
    AdvanceToTimeout,
    /// An executor becomes free.
    Next,
    TakeExpired,
    TakeAll,
}

fn op() -> impl Strategy<Value = TestOp> {
    let push = (
        0u8..3,
        prop::sample::select(vec![0u8, 1, 128, 255]),
        prop_oneof![8 => 1u32..3, 1 => 0u32..12],
        prop::option::of(0u64..40),
        prop::bool::weighted(0.9),
    );
    let push = push.prop_map(
        |(key, priority, rows, deadline_ms, batchable)| TestOp::Push {
            key,
            priority,
            rows,
            deadline_ms,
            batchable,
        },
    );
    prop_oneof![
        12 => push,
        3 => (0usize..80).prop_map(|which| TestOp::Cancel { which }),
        3 => (0u64..12).prop_map(|ms| TestOp::Advance { ms }),
        2 => Just(TestOp::AdvanceToTimeout),
        6 => Just(TestOp::Next),
        2 => Just(TestOp::TakeExpired),
        1 => prop::bool::weighted(0.05).prop_map(|all| if all { TestOp::TakeAll } else { TestOp::Next }),
    ]
}

fn limits() -> impl Strategy<Value = BatchLimits> {
    let sizes = prop::sample::select(vec![vec![], vec![4], vec![2, 6], vec![8, 1, 3]]);
    (sizes, prop::sample::select(vec![0u64, 5, 20]), 1u32..24).prop_map(
        |(preferred_batch_sizes, delay, max_queue_len)| BatchLimits {
            max_batch_size: 8,
            preferred_batch_sizes,
            max_queue_delay: Duration::from_millis(delay),
            max_queue_len,
        },
    )
}

/// A waiting request, as the model sees it. Its item is its arrival number.
#[derive(Debug, Clone)]
struct Waiting {
    id: u64,
    key: u8,
    priority: u8,
    rows: u32,
    batchable: bool,
    deadline: Option<Instant>,
    arrived: Instant,
    delay_ends: Instant,
}

/// The specification, written for reading.
struct Model {
    limits: BatchLimits,
    /// In order of arrival.
    waiting: Vec<Waiting>,
    /// In order of expiry.
    expired: Vec<u64>,
    passed_over: u32,
}

impl Model {
    fn push(&mut self, now: Instant, request: Waiting) -> Result<(), RejectReason> {
        let limit = self.limits.max_batch_size;
        if request.batchable && (request.rows == 0 || request.rows > limit) {
            return Err(RejectReason::Rows {
                rows: request.rows,
                limit,
            });
        }
        if request.deadline.is_some_and(|deadline| deadline <= now) {
            return Err(RejectReason::DeadlinePassed);
        }
        let limit = self.limits.max_queue_len;
        if self.waiting.len() + self.expired.len() >= limit as usize {
            return Err(RejectReason::QueueFull { limit });
        }
        self.waiting.push(request);
        Ok(())
    }

    fn cancel(&mut self, id: u64) -> bool {
        let before = self.waiting.len() + self.expired.len();
        self.waiting.retain(|w| w.id != id);
        self.expired.retain(|e| *e != id);
        self.waiting.len() + self.expired.len() < before
    }

    fn expire(&mut self, now: Instant) {
        let is_late = |w: &Waiting| w.deadline.is_some_and(|deadline| deadline <= now);
        let mut late: Vec<_> = self
            .waiting
            .iter()
            .filter(|w| is_late(w))
            .map(|w| (w.deadline, w.id))
            .collect();
        late.sort();
        self.waiting.retain(|w| !is_late(w));
        self.expired.extend(late.into_iter().map(|(_, id)| id));
    }

    fn is_ready(&self, key: u8, now: Instant) -> bool {
        let of_key = || self.waiting.iter().filter(|w| w.key == key);
        let rows: u32 = of_key().filter(|w| w.batchable).map(|w| w.rows).sum();
        let enough = self.limits.preferred_batch_sizes.iter().min();
        rows >= *enough.unwrap_or(&self.limits.max_batch_size)
            || of_key().any(|w| !w.batchable || w.delay_ends <= now)
    }

    /// The batch that a free executor gets.
    fn next(&mut self, now: Instant) -> Option<Vec<u64>> {
        self.expire(now);
        let ready = |w: &&Waiting| self.is_ready(w.key, now);
        let oldest = self.waiting.first();
        let leader = match oldest.filter(ready) {
            Some(oldest) if self.passed_over >= STARVATION_BOUND => oldest,
            _ => self
                .waiting
                .iter()
                .filter(ready)
                .min_by_key(|w| (w.priority, w.id))?,
        };
        let mut order: Vec<&Waiting> = self
            .waiting
            .iter()
            .filter(|w| w.key == leader.key && w.id != leader.id)
            .collect();
        order.sort_by_key(|w| (w.priority, w.id));
        let mut batch = vec![leader.id];
        if leader.batchable {
            let preferred = &self.limits.preferred_batch_sizes;
            let mut rows = leader.rows;
            let mut best = if preferred.contains(&rows) { 1 } else { 0 };
            for follower in order {
                if !follower.batchable || rows + follower.rows > self.limits.max_batch_size {
                    break;
                }
                rows += follower.rows;
                batch.push(follower.id);
                if preferred.contains(&rows) {
                    best = batch.len();
                }
            }
            if best > 0 {
                batch.truncate(best);
            }
        }
        let has_oldest = oldest.is_some_and(|oldest| batch.contains(&oldest.id));
        self.passed_over = if has_oldest { 0 } else { self.passed_over + 1 };
        self.waiting.retain(|w| !batch.contains(&w.id));
        Some(batch)
    }

    fn next_delay_end(&self, seen: Instant) -> Option<Instant> {
        let pending = |w: &&Waiting| w.delay_ends > seen.max(w.arrived);
        self.waiting
            .iter()
            .filter(pending)
            .map(|w| w.delay_ends)
            .min()
    }
}

struct Pair {
    batcher: Batcher<u8, u64>,
    model: Model,
    start: Instant,
    now: Instant,
    /// The last time at which either was advanced: delays that ended later are still pending.
    seen: Instant,
    tickets: Vec<(Ticket, u64)>,
    next_id: u64,
}

impl Pair {
    fn new(limits: BatchLimits) -> Pair {
        let start = Instant::now();
        let model = Model {
            limits: limits.clone(),
            waiting: vec![],
            expired: vec![],
            passed_over: 0,
        };
        let batcher = Batcher::new(limits).unwrap();
        Pair {
            batcher,
            model,
            start,
            now: start,
            seen: start,
            tickets: vec![],
            next_id: 0,
        }
    }

    fn apply(&mut self, op: TestOp) {
        match op {
            TestOp::Push {
                key,
                priority,
                rows,
                deadline_ms,
                batchable,
            } => {
                self.push(key, priority, rows, deadline_ms, batchable);
            }
            TestOp::Cancel { which } => {
                if let Some((ticket, id)) = self.tickets.get(which).copied() {
                    let expected = self.model.cancel(id).then_some(id);
                    assert_eq!(self.batcher.cancel(ticket), expected, "cancel {id}");
                    assert_eq!(self.batcher.cancel(ticket), None, "cancelled twice");
                }
            }
            TestOp::Advance { ms } => self.now += Duration::from_millis(ms),
            TestOp::AdvanceToTimeout => {
                if let Some(timeout) = self.batcher.poll_timeout() {
                    self.now = self.now.max(timeout);
                }
            }
            TestOp::Next => self.next(),
            TestOp::TakeExpired => {
                self.model.expire(self.now);
                self.seen = self.now;
                let expected = std::mem::take(&mut self.model.expired);
                let mut taken = Vec::new();
                assert_eq!(
                    self.batcher.take_expired(self.now, &mut taken),
                    expected.len()
                );
                assert_eq!(ids(&taken), expected);
            }
            TestOp::TakeAll => {
                let mut expected = std::mem::take(&mut self.model.expired);
                expected.extend(self.model.waiting.drain(..).map(|w| w.id));
                let mut taken = Vec::new();
                self.batcher.take_all(&mut taken);
                assert_eq!(ids(&taken), expected);
            }
        }
        self.compare();
    }

    fn push(
        &mut self,
        key: u8,
        priority: u8,
        rows: u32,
        deadline_ms: Option<u64>,
        batchable: bool,
    ) {
        let id = self.next_id;
        self.next_id += 1;
        let deadline = deadline_ms.map(|ms| self.start + Duration::from_millis(ms * 2));
        let left = deadline.map(|d| d.saturating_duration_since(self.now) / 2);
        let delay = left
            .unwrap_or(Duration::MAX)
            .min(self.model.limits.max_queue_delay);
        let delay_ends = self.now + delay;
        let request = Waiting {
            id,
            key,
            priority,
            rows,
            batchable,
            deadline,
            arrived: self.now,
            delay_ends,
        };
        let expected = self.model.push(self.now, request);
        let request = Request {
            priority,
            deadline,
            batchable,
            rows,
            item: id,
        };
        match self.batcher.push(self.now, key, request) {
            Ok(ticket) => {
                assert_eq!(expected, Ok(()));
                self.tickets.push((ticket, id));
            }
            Err(rejected) => {
                assert_eq!(expected, Err(rejected.reason));
                assert_eq!(rejected.item, id);
            }
        }
    }

    fn next(&mut self) {
        let expected = self.model.next(self.now);
        self.seen = self.now;
        let mut taken = Vec::new();
        let decision = self.batcher.next(self.now, &mut taken);
        match (decision, expected) {
            (Decision::Run(batch), Some(expected)) => {
                assert_eq!(ids(&taken), expected);
                assert_eq!(batch.len, expected.len());
                assert_eq!(batch.rows, taken.iter().map(|t| t.rows).sum::<u32>());
            }
            (Decision::WaitUntil(until), None) => {
                assert_eq!(Some(until), self.model.next_delay_end(self.seen));
            }
            (Decision::Idle, None) => assert!(self.model.waiting.is_empty()),
            (decision, expected) => panic!("decided {decision:?}, expected {expected:?}"),
        }
    }

    fn compare(&self) {
        let held = self.model.waiting.len() + self.model.expired.len();
        assert_eq!(self.batcher.len(), held);
        let mut keys: Vec<u8> = self.model.waiting.iter().map(|w| w.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(self.batcher.keys(), keys.len());
        if self.model.expired.is_empty() {
            let deadline = self.model.waiting.iter().filter_map(|w| w.deadline).min();
            let delay = self.model.next_delay_end(self.seen);
            let expected = deadline.into_iter().chain(delay).min();
            assert_eq!(self.batcher.poll_timeout(), expected);
        } else {
            assert!(self.batcher.poll_timeout().is_some_and(|at| at <= self.now));
        }
    }
}

fn ids(taken: &[Taken<u64>]) -> Vec<u64> {
    taken.iter().map(|t| t.item).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_model(limits in limits(), script in prop::collection::vec(op(), 1..120)) {
        let mut pair = Pair::new(limits);
        for op in script {
            pair.apply(op);
        }
    }
}

/// The starvation bound as documented: with `n` older requests in front, a request of the lowest
/// priority starts after at most (n + 1) × (bound + 1) batches of a flood of urgent ones.
#[test]
fn a_flood_of_urgent_requests_cannot_starve_the_others() {
    let limits = BatchLimits {
        max_batch_size: 2,
        ..BatchLimits::default()
    };
    let mut batcher: Batcher<u8, &str> = Batcher::new(limits).unwrap();
    let now = Instant::now();
    let push = |batcher: &mut Batcher<u8, &'static str>, key, priority, item| {
        batcher
            .push(
                now,
                key,
                Request {
                    priority,
                    ..Request::new(item)
                },
            )
            .unwrap();
    };
    let older = 3;
    for key in 0..older {
        push(&mut batcher, key, 200, "older");
    }
    push(&mut batcher, 100, 255, "patient");
    let bound = (u32::from(older) + 1) * (STARVATION_BOUND + 1);
    let mut taken = Vec::new();
    for batch in 1..=bound {
        push(&mut batcher, 50, 0, "urgent");
        push(&mut batcher, 50, 0, "urgent");
        assert!(matches!(batcher.next(now, &mut taken), Decision::Run(_)));
        if taken.drain(..).any(|t| t.item == "patient") {
            assert_eq!(batch, bound, "this flood is the worst case");
            return;
        }
    }
    panic!("not started within {bound} batches");
}
