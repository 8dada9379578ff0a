//! One direction of a link.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;

use super::loss::LossState;
use super::{PipeOptions, Queue};

/// What became of the packets of one direction. What was `offered`, and what was `duplicated`, is
/// in one of the others or still under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PipeStats {
    /// Packets that came in.
    pub offered: u64,
    /// Bytes of their payload.
    pub offered_bytes: u64,
    /// Packets that went out.
    pub delivered: u64,
    /// Bytes of their payload.
    pub delivered_bytes: u64,
    /// Copies that were made.
    pub duplicated: u64,
    /// Packets that were held back, so that others overtook them; delivered all the same.
    pub reordered: u64,
    /// Lost by [`PipeOptions::loss`].
    pub lost: u64,
    /// Dropped because the queue was full.
    pub queue_full: u64,
    /// Larger than the link takes.
    pub too_large: u64,
    /// Lost in a blackout.
    pub dark: u64,
    /// Sent by the service to a NAT mapping that is no more.
    pub unmapped: u64,
}

/// A packet under way.
#[derive(Debug)]
struct Held<T> {
    due: Instant,
    /// Keeps the order of packets that are due at the same moment.
    number: u64,
    packet: T,
}

/// The order of departure; the packet itself does not matter.
impl<T> Ord for Held<T> {
    fn cmp(&self, other: &Held<T>) -> std::cmp::Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl<T> PartialOrd for Held<T> {
    fn partial_cmp(&self, other: &Held<T>) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Held<T> {
    fn eq(&self, other: &Held<T>) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Held<T> {}

/// Who a packet belongs to, and its bytes.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) client: usize,
    pub(super) payload: Bytes,
}

/// The random choices. Each has its own source, so that one fault does not change another's.
#[derive(Debug)]
struct Dice {
    loss: LossState,
    jitter: Rng,
    reorder: Rng,
    duplicate: Rng,
}

impl Dice {
    fn new(options: &PipeOptions, seed: u64) -> Dice {
        let mut seeds = Rng::with_seed(seed);
        let mut source = || Rng::with_seed(seeds.u64(..));
        let (jitter, reorder, duplicate) = (source(), source(), source());
        Dice {
            loss: LossState::new(options.loss, seeds.u64(..)),
            jitter,
            reorder,
            duplicate,
        }
    }
}

#[derive(Debug)]
pub(super) struct Pipe {
    options: PipeOptions,
    dice: Dice,
    /// When the transmitter is through with what it was given.
    free_at: Instant,
    /// When the last packet that kept its place is due.
    last_due: Instant,
    held: BinaryHeap<Reverse<Held<Packet>>>,
    next_number: u64,
    pub(super) stats: PipeStats,
}

impl Pipe {
    pub(super) fn new(options: PipeOptions, seed: u64, now: Instant) -> Pipe {
        Pipe {
            dice: Dice::new(&options, seed),
            options,
            free_at: now,
            last_due: now,
            held: BinaryHeap::new(),
            next_number: 0,
            stats: PipeStats::default(),
        }
    }

    /// Begins the random choices anew.
    pub(super) fn reseed(&mut self, seed: u64) {
        self.dice = Dice::new(&self.options, seed);
    }

    /// Changes what the link is like for packets from now on; `seed` begins the random choices anew.
    pub(super) fn change(&mut self, options: PipeOptions, seed: u64) {
        self.options = options;
        self.reseed(seed);
    }

    pub(super) fn handle(&mut self, now: Instant, packet: Packet) {
        let bytes = packet.payload.len();
        if bytes > self.options.mtu {
            self.stats.too_large += 1;
            return;
        }
        let start = self.free_at.max(now);
        if self.is_full(start - now, bytes as u64) {
            self.stats.queue_full += 1;
            return;
        }
        self.free_at = start + self.sending(bytes as u64);
        if self.dice.loss.next() {
            self.stats.lost += 1;
            return;
        }
        let due = self.due();
        if self.dice.duplicate.f64() < self.options.duplicate {
            self.stats.duplicated += 1;
            self.hold(due, packet.clone());
        }
        self.hold(due, packet);
    }

    /// A packet that is due, and when it was.
    pub(super) fn poll_transmit(&mut self, now: Instant) -> Option<(Instant, Packet)> {
        if self.poll_timeout()? > now {
            return None;
        }
        let Reverse(held) = self.held.pop()?;
        Some((held.due, held.packet))
    }

    /// When the next packet is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.held.peek().map(|Reverse(held)| held.due)
    }

    /// How long the transmitter sends so many bytes.
    fn sending(&self, bytes: u64) -> Duration {
        let nanoseconds = |rate: u64| {
            let exact = u128::from(bytes) * 8_000_000_000 / u128::from(rate.max(1));
            u64::try_from(exact).unwrap_or(u64::MAX)
        };
        Duration::from_nanos(self.options.rate.map_or(0, nanoseconds))
    }

    fn is_full(&self, wait: Duration, bytes: u64) -> bool {
        let Some(rate) = self.options.rate else {
            return false;
        };
        match self.options.queue {
            Queue::Time(most) => wait > most,
            Queue::Bytes(most) => {
                // Up, so that a rest of a byte counts as one.
                let waiting = (wait.as_nanos() * u128::from(rate)).div_ceil(8_000_000_000);
                waiting + u128::from(bytes) > u128::from(most)
            }
        }
    }

    /// When a packet that the transmitter is through with at `free_at` arrives.
    fn due(&mut self) -> Instant {
        let jitter = self.options.jitter.mul_f64(self.dice.jitter.f64());
        let due = (self.free_at + self.options.delay + jitter).max(self.last_due);
        match self.options.reorder {
            Some(reorder) if self.dice.reorder.f64() < reorder.chance => {
                self.stats.reordered += 1;
                due + reorder.by
            }
            _ => {
                self.last_due = due;
                due
            }
        }
    }

    fn hold(&mut self, due: Instant, packet: Packet) {
        let number = self.next_number;
        self.next_number += 1;
        self.held.push(Reverse(Held {
            due,
            number,
            packet,
        }));
    }
}
