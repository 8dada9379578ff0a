//! Dynamic batching as a pure state machine: no clock, no threads, no sockets. The caller passes
//! the time in and drives it.
//!
//! A request has a **key** (contract, cut, codecs, shapes: whatever must be equal for two requests
//! to be computed together) and waits in the queue of that key. A free executor calls
//! [`Batcher::next`]; the caller also calls [`Batcher::take_expired`] whenever the instant of
//! [`Batcher::poll_timeout`] is reached, *whether or not an executor is free*: deadlines do not
//! wait for the running batch.
//!
//! # When a batch is formed
//!
//! A key is *ready* when any of these holds:
//! - `max_queue_delay` is zero: a free executor never waits;
//! - its waiting rows reach the smallest preferred size (`max_batch_size` where none is given);
//! - the queue delay of one of its requests is over. The delay is `max_queue_delay`, or half the
//!   time that the request had left to its deadline when it arrived if that is shorter, so that
//!   waiting for company never costs a request its deadline;
//! - it has a request that must run alone.
//!
//! Of the ready keys, the one whose first request is the most urgent (lowest priority number, then
//! oldest) goes first. Its requests are taken in that order until the next would exceed
//! `max_batch_size` rows. If some first part of them has exactly a preferred number of rows, the
//! largest such part is the batch; else all of them are.
//!
//! # Starvation bound
//!
//! Priorities are strict, but after [`STARVATION_BOUND`] batches in a row that passed over the
//! oldest waiting request, that request leads the next batch (once its key is ready, which takes
//! at most `max_queue_delay`). A request with n older ones in front of it is therefore started, or
//! has expired, after at most (n + 1) × ([`STARVATION_BOUND`] + 1) batches, whatever arrives later.
//!
//! # Ownership
//!
//! Each accepted item is handed back exactly once: by [`Batcher::next`], [`Batcher::cancel`],
//! [`Batcher::take_expired`] or [`Batcher::take_all`]. No operation allocates once the queue has
//! been as long, over as many keys, with batches as large, as it is now (and a key has at most 16
//! different priorities waiting).

mod heap;
mod machine;
mod queue;

use std::time::{Duration, Instant};

pub use machine::Batcher;

/// Batches in a row that may pass over the oldest waiting request.
pub const STARVATION_BOUND: u32 = 8;

/// Longest queue that can be configured, in requests.
pub const MAX_QUEUE_LEN: u32 = 1 << 16;

pub use seamline_wire::DEFAULT_PRIORITY;

/// How requests are joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most rows in one batch; at least 1.
    pub max_batch_size: u32,
    /// Sizes in rows that run best, each at most `max_batch_size`; order does not matter.
    pub preferred_batch_sizes: Vec<u32>,
    /// Longest time that a request waits for others while an executor is free.
    pub max_queue_delay: Duration,
    /// Most waiting requests; at most [`MAX_QUEUE_LEN`].
    pub max_queue_len: u32,
}

impl Default for BatchLimits {
    /// Batches of up to 8 rows of what is there, without waiting; 1024 requests in the queue.
    fn default() -> BatchLimits {
        BatchLimits {
            max_batch_size: 8,
            preferred_batch_sizes: Vec::new(),
            max_queue_delay: Duration::ZERO,
            max_queue_len: 1024,
        }
    }
}

/// Why [`Batcher::new`] refused its limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchLimitsError {
    /// No request could ever run.
    #[error("max_batch_size must be at least 1 row, got 0")]
    ZeroBatch,
    /// A preferred size that no batch can have.
    #[error(
        "preferred batch size must be within 1..={max_batch_size} (max_batch_size), got {size}"
    )]
    Preferred {
        /// The size given, in rows.
        size: u32,
        /// The limit on it, in rows.
        max_batch_size: u32,
    },
    /// A queue of no length, or one longer than supported.
    #[error("max_queue_len must be within 1..={MAX_QUEUE_LEN} requests, got {0}")]
    QueueLen(u32),
}

impl BatchLimits {
    /// Checks the bounds of every field.
    pub fn check(&self) -> Result<(), BatchLimitsError> {
        if self.max_batch_size == 0 {
            return Err(BatchLimitsError::ZeroBatch);
        }
        let allowed = 1..=self.max_batch_size;
        if let Some(size) = self
            .preferred_batch_sizes
            .iter()
            .find(|s| !allowed.contains(s))
        {
            let max_batch_size = self.max_batch_size;
            return Err(BatchLimitsError::Preferred {
                size: *size,
                max_batch_size,
            });
        }
        if !(1..=MAX_QUEUE_LEN).contains(&self.max_queue_len) {
            return Err(BatchLimitsError::QueueLen(self.max_queue_len));
        }
        Ok(())
    }
}

/// A request as it enters the queue.
#[derive(Debug, Clone)]
pub struct Request<T> {
    /// 0 is the most urgent, 255 the least; [`DEFAULT_PRIORITY`] when the client has no wish.
    pub priority: u8,
    /// When the answer stops being useful. A request is never started at or after this instant.
    pub deadline: Option<Instant>,
    /// Whether it may share a batch with others of its key.
    pub batchable: bool,
    /// Rows along the batch axis, at least 1; of no effect when not batchable.
    pub rows: u32,
    /// Whatever the executor needs.
    pub item: T,
}

impl<T> Request<T> {
    /// One batchable row of default priority without a deadline.
    pub fn new(item: T) -> Request<T> {
        Request {
            priority: DEFAULT_PRIORITY,
            deadline: None,
            batchable: true,
            rows: 1,
            item,
        }
    }
}

/// Names one accepted request. Never reused, so a late cancel cannot hit another request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    slot: u32,
    seq: u64,
}

/// A request that was not accepted, with its item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected<T> {
    /// Why.
    pub reason: RejectReason,
    /// The item, untouched.
    pub item: T,
}

/// Why a request was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RejectReason {
    /// The queue is full.
    #[error("the queue is full: {limit} requests are waiting")]
    QueueFull {
        /// `max_queue_len`, in requests.
        limit: u32,
    },
    /// More rows than one batch may have, or none.
    #[error("a request must have 1..={limit} rows along the batch axis, got {rows}")]
    Rows {
        /// Rows of the request.
        rows: u32,
        /// `max_batch_size`, in rows.
        limit: u32,
    },
    /// The deadline had passed on arrival.
    #[error("the deadline passed before the request was queued")]
    DeadlinePassed,
}

/// A request that left the queue, to be run or to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken<T> {
    /// The name it had; cancelling it has no effect any more.
    pub ticket: Ticket,
    /// What the caller queued.
    pub item: T,
    /// When it was queued.
    pub arrived: Instant,
    /// Its rows along the batch axis.
    pub rows: u32,
    /// Its priority.
    pub priority: u8,
    /// Its deadline.
    pub deadline: Option<Instant>,
}

/// What a free executor is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<K> {
    /// Run the requests that were appended to the executor's list.
    Run(Batch<K>),
    /// Nothing to run before this instant unless a request arrives. (Waiting requests may expire
    /// earlier: see [`Batcher::poll_timeout`].)
    WaitUntil(Instant),
    /// Nothing is waiting.
    Idle,
}

/// A batch to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<K> {
    /// The key that all its requests share.
    pub key: K,
    /// Number of requests.
    pub len: usize,
    /// Rows of all of them together; 1 or more, and at most `max_batch_size` unless the batch is
    /// one request that is not batchable.
    pub rows: u32,
}
