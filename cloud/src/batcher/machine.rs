//! The state machine itself.

use std::hash::Hash;
use std::time::{Duration, Instant};

use super::heap::Heap;
use super::queue::{Facts, Groups, Links, List, NONE, Slab};
use super::{
    Batch, BatchLimits, BatchLimitsError, Decision, RejectReason, Rejected, Request,
    STARVATION_BOUND, Taken, Ticket,
};

/// The queue of a service; see the [module](super) for its rules. `K` should be cheap to clone.
///
/// The instants passed to one batcher should not go back; one that does counts as the latest seen.
#[derive(Debug)]
pub struct Batcher<K, T> {
    limits: BatchLimits,
    /// Rows at which a key is ready without waiting.
    enough_rows: u64,
    latest: Option<Instant>,
    next_seq: u64,
    slab: Slab<T>,
    groups: Groups<K>,
    /// Links of the lists inside groups.
    in_group: Links,
    /// Links of `oldest_first` and, since a request is in only one of them, of `expired`.
    by_age: Links,
    oldest_first: List,
    expired: List,
    /// Requests by deadline, then arrival.
    deadlines: Heap<(Instant, u64)>,
    /// Requests by the end of their queue delay.
    delays: Heap<(Instant, u64)>,
    /// Ready groups by priority, then arrival, of their first request.
    ready: Heap<(u8, u64)>,
    /// Batches in a row that did not take the oldest request.
    passed_over: u32,
    /// The batch being formed; kept for its memory.
    chosen: Vec<u32>,
}

impl<K: Hash + Eq + Clone, T> Batcher<K, T> {
    /// An empty queue, or the reason why `limits` cannot be used.
    pub fn new(mut limits: BatchLimits) -> Result<Batcher<K, T>, BatchLimitsError> {
        limits.check()?;
        limits.preferred_batch_sizes.sort_unstable();
        limits.preferred_batch_sizes.dedup();
        let enough = limits
            .preferred_batch_sizes
            .first()
            .unwrap_or(&limits.max_batch_size);
        Ok(Batcher {
            enough_rows: u64::from(*enough),
            limits,
            latest: None,
            next_seq: 0,
            slab: Slab::new(),
            groups: Groups::new(),
            in_group: Links::default(),
            by_age: Links::default(),
            oldest_first: List::EMPTY,
            expired: List::EMPTY,
            deadlines: Heap::new(),
            delays: Heap::new(),
            ready: Heap::new(),
            passed_over: 0,
            chosen: Vec::new(),
        })
    }

    /// The limits in force.
    pub fn limits(&self) -> &BatchLimits {
        &self.limits
    }

    /// Requests held: waiting, or expired and not yet taken.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Different keys among the waiting requests.
    pub fn keys(&self) -> usize {
        self.groups.len()
    }

    /// When the request that has waited longest arrived.
    pub fn oldest_arrival(&self) -> Option<Instant> {
        let head = self.oldest_first.head;
        (head != NONE).then(|| self.slab.facts(head).arrived)
    }

    /// Queues a request.
    ///
    /// # Errors
    /// When the queue is full, the rows do not fit a batch, or the deadline has passed; the item
    /// comes back.
    pub fn push(
        &mut self,
        now: Instant,
        key: K,
        request: Request<T>,
    ) -> Result<Ticket, Rejected<T>> {
        let now = self.latest(now);
        let Request {
            priority,
            deadline,
            batchable,
            rows,
            item,
        } = request;
        if let Err(reason) = self.check(now, rows, batchable, deadline) {
            return Err(Rejected { reason, item });
        }
        let full = RejectReason::QueueFull {
            limit: self.limits.max_queue_len,
        };
        let Some(group) = self.groups.find_or_add(key) else {
            return Err(Rejected { reason: full, item });
        };
        let seq = self.next_seq;
        let delay_ends = self.delay_ends(now, deadline);
        let due = delay_ends.is_none();
        let facts = Facts {
            seq,
            group,
            priority,
            rows,
            batchable,
            due,
            expired: false,
            arrived: now,
            deadline,
        };
        let slot = match self.slab.insert(facts, item) {
            Ok(slot) => slot,
            Err(item) => {
                self.refresh(group);
                return Err(Rejected { reason: full, item });
            }
        };
        self.next_seq += 1;
        self.groups
            .get_mut(group)
            .add(&mut self.in_group, slot, &facts);
        self.by_age.push_back(&mut self.oldest_first, slot);
        if let Some(deadline) = deadline {
            self.deadlines.set(slot, (deadline, seq));
        }
        if let Some(end) = delay_ends {
            self.delays.set(slot, (end, seq));
        }
        self.refresh(group);
        Ok(Ticket { slot, seq })
    }

    /// Takes a request out that is still held. `None` if it was started, taken or cancelled before:
    /// then whoever got it owns its answer.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<T> {
        let Ticket { slot, seq } = ticket;
        if !self.slab.holds(slot, seq) {
            return None;
        }
        let Facts { expired, group, .. } = *self.slab.facts(slot);
        if expired {
            self.by_age.remove(&mut self.expired, slot);
        } else {
            self.detach(slot);
            self.refresh(group);
        }
        self.slab.remove(slot)
    }

    /// Appends to `into` the requests whose deadline passed before they were started, earliest
    /// deadline first, and returns how many. They are to be answered as having missed it.
    pub fn take_expired(&mut self, now: Instant, into: &mut Vec<Taken<T>>) -> usize {
        self.advance(now);
        let before = into.len();
        while !self.expired.is_empty() {
            let slot = self.expired.head;
            self.by_age.remove(&mut self.expired, slot);
            into.extend(self.take(slot));
        }
        into.len() - before
    }

    /// Decides for one free executor. On [`Decision::Run`] the requests have been appended to
    /// `into` in the order of their rows. Nothing whose deadline is at or before `now` is started,
    /// even if [`Batcher::take_expired`] was not called in time.
    pub fn next(&mut self, now: Instant, into: &mut Vec<Taken<T>>) -> Decision<K> {
        self.advance(now);
        let Some(leader) = self.leader() else {
            return match self.delays.front() {
                Some(((instant, _), _)) => Decision::WaitUntil(instant),
                None => Decision::Idle,
            };
        };
        let group = self.slab.facts(leader).group;
        let Some(key) = self.groups.key(group).cloned() else {
            return Decision::Idle;
        };
        let oldest = self.oldest_first.head;
        self.choose(leader);
        let mut chosen = std::mem::take(&mut self.chosen);
        self.passed_over = if chosen.contains(&oldest) {
            0
        } else {
            self.passed_over.saturating_add(1)
        };
        let before = into.len();
        let mut rows = 0u32;
        for slot in chosen.drain(..) {
            rows = rows.saturating_add(self.slab.facts(slot).rows);
            self.detach(slot);
            into.extend(self.take(slot));
        }
        self.chosen = chosen;
        self.refresh(group);
        Decision::Run(Batch {
            key,
            len: into.len() - before,
            rows,
        })
    }

    /// The next instant at which something happens by itself: a deadline passes or a queue delay
    /// ends. The caller then calls [`Batcher::take_expired`], and [`Batcher::next`] for executors
    /// that are free. An instant in the past means at once.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.expired.is_empty() {
            return self.latest;
        }
        let deadline = self.deadlines.front().map(|((instant, _), _)| instant);
        let delay = self.delays.front().map(|((instant, _), _)| instant);
        deadline.into_iter().chain(delay).min()
    }

    /// When the next waiting request expires: what a caller waits for that only takes expired
    /// requests. A queue delay that ended while every executor is busy is none of its business.
    pub fn next_deadline(&self) -> Option<Instant> {
        if !self.expired.is_empty() {
            return self.latest;
        }
        self.deadlines.front().map(|((instant, _), _)| instant)
    }

    /// Empties the queue, oldest first with expired requests in front, when the service stops.
    pub fn take_all(&mut self, into: &mut Vec<Taken<T>>) {
        while !self.expired.is_empty() {
            let slot = self.expired.head;
            self.by_age.remove(&mut self.expired, slot);
            into.extend(self.take(slot));
        }
        while !self.oldest_first.is_empty() {
            let slot = self.oldest_first.head;
            let group = self.slab.facts(slot).group;
            self.detach(slot);
            into.extend(self.take(slot));
            self.refresh(group);
        }
    }

    fn check(
        &self,
        now: Instant,
        rows: u32,
        batchable: bool,
        deadline: Option<Instant>,
    ) -> Result<(), RejectReason> {
        let limit = self.limits.max_batch_size;
        if batchable && !(1..=limit).contains(&rows) {
            return Err(RejectReason::Rows { rows, limit });
        }
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Err(RejectReason::DeadlinePassed);
        }
        let limit = self.limits.max_queue_len;
        if self.len() >= limit as usize {
            return Err(RejectReason::QueueFull { limit });
        }
        Ok(())
    }

    /// When a request that arrives now stops waiting for company; `None` is at once.
    fn delay_ends(&self, now: Instant, deadline: Option<Instant>) -> Option<Instant> {
        let mut delay = self.limits.max_queue_delay;
        if let Some(deadline) = deadline {
            delay = delay.min(deadline.saturating_duration_since(now) / 2);
        }
        if delay == Duration::ZERO {
            None
        } else {
            now.checked_add(delay)
        }
    }

    fn latest(&mut self, now: Instant) -> Instant {
        let latest = self.latest.map_or(now, |latest| latest.max(now));
        self.latest = Some(latest);
        latest
    }

    /// Sets expired requests apart and ends the queue delays that are over.
    fn advance(&mut self, now: Instant) {
        let now = self.latest(now);
        while let Some(((deadline, _), slot)) = self.deadlines.front() {
            if deadline > now {
                break;
            }
            let group = self.slab.facts(slot).group;
            self.detach(slot);
            self.slab.facts_mut(slot).expired = true;
            self.by_age.push_back(&mut self.expired, slot);
            self.refresh(group);
        }
        while let Some(((end, _), slot)) = self.delays.front() {
            if end > now {
                break;
            }
            self.delays.remove(slot);
            let facts = self.slab.facts_mut(slot);
            facts.due = true;
            let group = facts.group;
            self.groups.get_mut(group).due += 1;
            self.refresh(group);
        }
    }

    /// The request that the next batch starts with.
    fn leader(&self) -> Option<u32> {
        let (_, group) = self.ready.front()?;
        let oldest = self.oldest_first.head;
        if self.passed_over >= STARVATION_BOUND
            && oldest != NONE
            && self.is_ready(self.slab.facts(oldest).group)
        {
            return Some(oldest);
        }
        self.groups.get(group).head()
    }

    fn is_ready(&self, group: u32) -> bool {
        let group = self.groups.get(group);
        self.limits.max_queue_delay.is_zero()
            || group.due > 0
            || group.solo > 0
            || group.rows >= self.enough_rows
    }

    /// Fills `chosen` with the batch that `leader` starts.
    fn choose(&mut self, leader: u32) {
        let facts = *self.slab.facts(leader);
        self.chosen.clear();
        self.chosen.push(leader);
        if !facts.batchable {
            return;
        }
        let preferred = &self.limits.preferred_batch_sizes;
        let is_preferred = |rows: u32| preferred.binary_search(&rows).is_ok();
        let mut rows = facts.rows;
        let mut best = if is_preferred(rows) { 1 } else { 0 };
        for slot in self.groups.get(facts.group).iter(&self.in_group) {
            if rows == self.limits.max_batch_size {
                break;
            }
            if slot == leader {
                continue;
            }
            let follower = self.slab.facts(slot);
            let joined = rows.saturating_add(follower.rows);
            if !follower.batchable || joined > self.limits.max_batch_size {
                break;
            }
            rows = joined;
            self.chosen.push(slot);
            if is_preferred(rows) {
                best = self.chosen.len();
            }
        }
        if best > 0 {
            self.chosen.truncate(best);
        }
    }

    /// Takes a waiting request out of all lists and heaps; its slot stays in use.
    fn detach(&mut self, slot: u32) {
        let facts = *self.slab.facts(slot);
        self.groups
            .get_mut(facts.group)
            .remove(&mut self.in_group, slot, &facts);
        self.by_age.remove(&mut self.oldest_first, slot);
        if facts.deadline.is_some() {
            self.deadlines.remove(slot);
        }
        if !facts.due {
            self.delays.remove(slot);
        }
    }

    /// Brings `ready` up to date after a change to `group`, and frees the group if it is empty.
    fn refresh(&mut self, group: u32) {
        match self.groups.get(group).head() {
            None => {
                self.ready.remove(group);
                self.groups.release(group);
            }
            Some(head) if self.is_ready(group) => {
                let facts = self.slab.facts(head);
                self.ready.set(group, (facts.priority, facts.seq));
            }
            Some(_) => {
                self.ready.remove(group);
            }
        }
    }

    fn take(&mut self, slot: u32) -> Option<Taken<T>> {
        let Facts {
            seq,
            arrived,
            rows,
            priority,
            deadline,
            ..
        } = *self.slab.facts(slot);
        let item = self.slab.remove(slot)?;
        Some(Taken {
            ticket: Ticket { slot, seq },
            item,
            arrived,
            rows,
            priority,
            deadline,
        })
    }
}
