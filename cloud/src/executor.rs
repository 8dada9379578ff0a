//! The threads around the batcher: executors that run batches, and a reaper that answers requests
//! whose deadline passes while they wait, whether or not an executor is free.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use seamline_wire::ErrorCode;
use tokio::sync::oneshot;

use crate::admin::{Health, Heartbeat};
use crate::batcher::{BatchLimits, Batcher, Decision, Rejected, Request, Taken, Ticket};
use crate::contract::{BatchKey, CheckedRequest, Contract};
use crate::metrics::Metrics;
use crate::run::{Answer, Failure, Input, micros, run_batch};
use crate::sessions::Step;
use crate::tail::Tail;

/// A request on its way to an executor.
pub struct Job {
    /// What was checked.
    pub request: CheckedRequest,
    /// The values' payloads, in the cut's order.
    pub payloads: Vec<Bytes>,
    /// The session's state, for a step of a session.
    pub step: Option<Step>,
    /// Where the answer goes. Dropped by the client's task when nobody waits any more.
    pub answer: oneshot::Sender<Result<Answer, Failure>>,
}

/// How a job waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// 0 is the most urgent.
    pub priority: u8,
    /// When the answer stops being useful.
    pub deadline: Option<Instant>,
}

struct Queue {
    batcher: Batcher<BatchKey, Job>,
    /// When the reaper wakes by itself.
    reaper_wakes: Option<Instant>,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    reaper: Condvar,
    contracts: Arc<Vec<Contract>>,
    metrics: Arc<Metrics>,
}

/// The executors and their queue.
pub struct Executors {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What an executor thread owns: a tail for each contract, in the contracts' order.
pub type Tails = Vec<Box<dyn Tail>>;

impl Executors {
    /// Starts one thread for each element of `tails`, and the reaper.
    ///
    /// # Errors
    /// The operating system's, where it gives no thread.
    pub fn start(
        limits: BatchLimits,
        contracts: Arc<Vec<Contract>>,
        tails: Vec<Tails>,
        metrics: Arc<Metrics>,
        health: &Health,
    ) -> std::io::Result<Executors> {
        let batcher = Batcher::new(limits).map_err(std::io::Error::other)?;
        let queue = Queue {
            batcher,
            reaper_wakes: None,
            closed: false,
        };
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
            work: Condvar::new(),
            reaper: Condvar::new(),
            contracts,
            metrics,
        });
        let mut threads = Vec::new();
        for (index, tails) in tails.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            let heartbeat = health.add_executor(Instant::now());
            let thread = std::thread::Builder::new().name(format!("executor-{index}"));
            threads.push(thread.spawn(move || execute(&shared, tails, &heartbeat))?);
        }
        let reaper = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("reaper".into());
        threads.push(thread.spawn(move || reap(&reaper))?);
        Ok(Executors { shared, threads })
    }

    /// Queues a job.
    ///
    /// # Errors
    /// The job, where the queue is full or its deadline has passed.
    pub fn push(&self, job: Job, waiting: Waiting) -> Result<Ticket, Box<Rejected<Job>>> {
        let request = Request {
            priority: waiting.priority,
            deadline: waiting.deadline,
            batchable: job.request.batchable,
            rows: u32::try_from(job.request.rows).unwrap_or(u32::MAX),
            item: job,
        };
        let key = request.item.request.key.clone();
        let mut queue = self.shared.queue.lock();
        let ticket = queue
            .batcher
            .push(Instant::now(), key, request)
            .map_err(Box::new)?;
        let wake_reaper = match (waiting.deadline, queue.reaper_wakes) {
            (Some(deadline), Some(wakes)) => deadline < wakes,
            (Some(_), None) => true,
            (None, _) => false,
        };
        drop(queue);
        self.shared.work.notify_one();
        if wake_reaper {
            self.shared.reaper.notify_one();
        }
        Ok(ticket)
    }

    /// Takes a job back that has not started. Nothing happens where it has.
    pub fn cancel(&self, ticket: Ticket) {
        drop(self.shared.queue.lock().batcher.cancel(ticket));
    }

    /// Requests that wait.
    pub fn queue_length(&self) -> usize {
        self.shared.queue.lock().batcher.len()
    }

    /// How long the oldest waiting request has waited.
    pub fn oldest_wait(&self) -> Duration {
        let arrived = self.shared.queue.lock().batcher.oldest_arrival();
        arrived.map_or(Duration::ZERO, |arrived| arrived.elapsed())
    }

    /// Answers what waits with `Draining`, lets running batches end, and ends the threads.
    pub fn stop(&mut self) {
        let mut waiting = Vec::new();
        {
            let mut queue = self.shared.queue.lock();
            queue.closed = true;
            queue.batcher.take_all(&mut waiting);
        }
        self.shared.work.notify_all();
        self.shared.reaper.notify_all();
        for taken in waiting {
            let message = "the service is stopping; ask another one".to_owned();
            refuse(taken.item, ErrorCode::Draining, message);
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("an executor thread ended by a panic");
            }
        }
    }
}

impl Drop for Executors {
    fn drop(&mut self) {
        self.stop();
    }
}

fn refuse(job: Job, code: ErrorCode, message: String) {
    // The receiver is gone where the client is: then nobody waits for this.
    let _ = job.answer.send(Err(Failure {
        code,
        message,
        detail: None,
    }));
}

fn execute(shared: &Shared, mut tails: Tails, heartbeat: &Heartbeat) {
    let mut taken: Vec<Taken<Job>> = Vec::new();
    loop {
        heartbeat.beat(Instant::now());
        let Some(key) = next_batch(shared, &mut taken, heartbeat.interval()) else {
            return;
        };
        let Some(key) = key else { continue };
        run_taken(shared, &key, &mut tails, &mut taken);
    }
}

/// The next batch, its jobs in `taken`; `Some(None)` where there was none within `patience`,
/// `None` where the queue is closed.
fn next_batch(
    shared: &Shared,
    taken: &mut Vec<Taken<Job>>,
    patience: Duration,
) -> Option<Option<BatchKey>> {
    let until = Instant::now() + patience;
    let mut queue = shared.queue.lock();
    loop {
        let now = Instant::now();
        let wake = match queue.batcher.next(now, taken) {
            Decision::Run(batch) => return Some(Some(batch.key)),
            Decision::WaitUntil(instant) => instant.min(until),
            Decision::Idle if queue.closed => return None,
            Decision::Idle => until,
        };
        if now >= until {
            return Some(None);
        }
        shared.work.wait_until(&mut queue, wake);
    }
}

fn run_taken(shared: &Shared, key: &BatchKey, tails: &mut Tails, taken: &mut Vec<Taken<Job>>) {
    let started = Instant::now();
    // Their clients went away while they waited.
    taken.retain(|taken| !taken.item.answer.is_closed());
    if taken.is_empty() {
        return;
    }
    let contract = &shared.contracts[key.contract()];
    let tail = tails[key.contract()].as_mut();
    let inputs: Vec<Input<'_>> = taken
        .iter()
        .map(|taken| Input {
            request: &taken.item.request,
            payloads: &taken.item.payloads,
        })
        .collect();
    let step = taken[0].item.step.as_ref();
    let run = || match step {
        Some(step) => vec![run_step(contract, key, tail, &inputs, step)],
        None => run_batch(contract, key.cut(), tail, &inputs, None),
    };
    // A panic in a tail must cost this batch, not the service.
    let results = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        inputs
            .iter()
            .map(|_| Err(Failure::internal("the tail panicked")))
            .collect()
    });
    let rows = taken.iter().map(|taken| taken.rows).sum();
    if let Some(Ok(answer)) = results.iter().find(|result| result.is_ok()) {
        let time = Duration::from_micros;
        let timings = &answer.timings;
        shared.metrics.batch_done(
            rows,
            time(timings.decode_us),
            time(timings.run_us),
            time(timings.encode_us),
        );
    }
    for (taken, mut result) in taken.drain(..).zip(results) {
        let waited = started.saturating_duration_since(taken.arrived);
        shared.metrics.queued(waited);
        match &mut result {
            Ok(answer) => answer.timings.queue_us = micros(waited),
            Err(Failure {
                detail: Some(detail),
                ..
            }) => tracing::error!(detail, "request failed"),
            Err(_) => {}
        }
        // The receiver is gone where the client is: then nobody waits for this.
        let _ = taken.item.answer.send(result);
    }
}

fn run_step(
    contract: &Contract,
    key: &BatchKey,
    tail: &mut dyn Tail,
    inputs: &[Input<'_>],
    step: &Step,
) -> Result<Answer, Failure> {
    let result = step.run(|state| {
        run_batch(contract, key.cut(), tail, inputs, Some(state))
            .pop()
            .unwrap_or_else(|| Err(Failure::internal("no answer was made")))
    });
    result.unwrap_or_else(|| {
        Err(Failure {
            code: ErrorCode::UnknownSession,
            message: "another step of this session ran first; begin at step 0".into(),
            detail: None,
        })
    })
}

/// Answers requests whose deadline passes while they wait.
fn reap(shared: &Shared) {
    let mut expired: Vec<Taken<Job>> = Vec::new();
    let mut queue = shared.queue.lock();
    while !queue.closed {
        queue.batcher.take_expired(Instant::now(), &mut expired);
        if !expired.is_empty() {
            parking_lot::MutexGuard::unlocked(&mut queue, || {
                for taken in expired.drain(..) {
                    let message = "the deadline passed while the request waited".to_owned();
                    refuse(taken.item, ErrorCode::DeadlineExceeded, message);
                }
            });
            continue;
        }
        queue.reaper_wakes = queue.batcher.next_deadline();
        match queue.reaper_wakes {
            Some(instant) => {
                shared.reaper.wait_until(&mut queue, instant);
            }
            None => shared.reaper.wait(&mut queue),
        }
    }
}
