//! The link as a state machine: no sockets, no clock.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::pipe::{Packet, Pipe, PipeStats};
use super::{LinkOptions, PipeOptions};

/// A packet that comes to the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// From a device.
    FromClient {
        /// Which, by a number of the caller's.
        client: usize,
        /// UDP payload.
        payload: Bytes,
    },
    /// From the service, to the port that a device's mapping had.
    FromService {
        /// The device.
        client: usize,
        /// The mapping, as [`Departure::ToService`] gave it.
        mapping: u64,
        /// UDP payload.
        payload: Bytes,
    },
}

/// A packet that leaves the link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Departure {
    /// To the service, from the port of the device's mapping; a mapping of another number is
    /// another port.
    ToService {
        /// The device.
        client: usize,
        /// The number of the mapping.
        mapping: u64,
        /// UDP payload.
        payload: Bytes,
    },
    /// To a device.
    ToClient {
        /// Which.
        client: usize,
        /// UDP payload.
        payload: Bytes,
    },
}

/// A time without any packet; without an end while it lasts.
type Span = (Instant, Option<Instant>);

/// A link between any number of devices and a service. [`Link::handle`] takes packets in,
/// [`Link::poll_transmit`] gives those out that are due, [`Link::poll_timeout`] says when to ask
/// again.
#[derive(Debug)]
pub struct Link {
    up: Pipe,
    down: Pipe,
    dark: Vec<Span>,
    start: Instant,
    rebind_every: Option<Duration>,
    /// Mappings that were dropped on demand.
    rebinds: u64,
}

impl Link {
    /// A link that begins now.
    pub fn new(now: Instant, options: &LinkOptions) -> Link {
        let (up, down) = seeds(options.seed);
        let span = |&(from, to): &(Duration, Duration)| (now + from, Some(now + to));
        Link {
            up: Pipe::new(options.up.clone(), up, now),
            down: Pipe::new(options.down.clone(), down, now),
            dark: options.blackouts.iter().map(span).collect(),
            start: now,
            rebind_every: options.rebind_every.filter(|every| !every.is_zero()),
            rebinds: 0,
        }
    }

    /// Takes a packet in; whether it comes out again is decided here, a blackout apart.
    pub fn handle(&mut self, now: Instant, arrival: Arrival) {
        let dark = self.is_dark(now);
        let current = self.mapping(now);
        let (pipe, client, mapping, payload) = match arrival {
            Arrival::FromClient { client, payload } => (&mut self.up, client, current, payload),
            Arrival::FromService {
                client,
                mapping,
                payload,
            } => (&mut self.down, client, mapping, payload),
        };
        pipe.stats.offered += 1;
        pipe.stats.offered_bytes += payload.len() as u64;
        if mapping != current {
            pipe.stats.unmapped += 1;
        } else if dark {
            pipe.stats.dark += 1;
        } else {
            pipe.handle(now, Packet { client, payload });
        }
    }

    /// A packet that is due by now, the earliest first, and when it was due.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Instant, Departure)> {
        loop {
            // A direction without packets comes last.
            let due = |pipe: &Pipe| {
                pipe.poll_timeout()
                    .map_or((true, None), |at| (false, Some(at)))
            };
            let up = due(&self.up) <= due(&self.down);
            let mapping = self.mapping(now);
            let pipe = if up { &mut self.up } else { &mut self.down };
            let (at, Packet { client, payload }) = pipe.poll_transmit(now)?;
            let dark = is_within(&self.dark, at);
            if dark {
                pipe.stats.dark += 1;
                continue;
            }
            pipe.stats.delivered += 1;
            pipe.stats.delivered_bytes += payload.len() as u64;
            let departure = if up {
                Departure::ToService {
                    client,
                    mapping,
                    payload,
                }
            } else {
                Departure::ToClient { client, payload }
            };
            return Some((at, departure));
        }
    }

    /// When the next packet is due; `None` where none is under way.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timeouts = [self.up.poll_timeout(), self.down.poll_timeout()];
        timeouts.into_iter().flatten().min()
    }

    /// Drops all NAT mappings.
    pub fn rebind(&mut self) {
        self.rebinds += 1;
    }

    /// Begins or ends a blackout: what comes to the link during it is lost, and so is what would
    /// have left.
    pub fn set_dark(&mut self, now: Instant, dark: bool) {
        let open = self.dark.iter_mut().find(|(_, to)| to.is_none());
        match (open, dark) {
            (Some(span), false) => span.1 = Some(now),
            (None, true) => self.dark.push((now, None)),
            (Some(_), true) | (None, false) => {}
        }
    }

    /// Begins the random choices anew: equal seeds and equal packets give equal fates from here.
    pub fn reseed(&mut self, seed: u64) {
        let (up, down) = seeds(seed);
        self.up.reseed(up);
        self.down.reseed(down);
    }

    /// Changes what the directions are like for packets from now on, and begins the random choices
    /// anew.
    pub fn change(&mut self, up: PipeOptions, down: PipeOptions, seed: u64) {
        let seeds = seeds(seed);
        self.up.change(up, seeds.0);
        self.down.change(down, seeds.1);
    }

    /// What became of the packets, up and down.
    pub fn stats(&self) -> (PipeStats, PipeStats) {
        (self.up.stats, self.down.stats)
    }

    fn is_dark(&self, now: Instant) -> bool {
        is_within(&self.dark, now)
    }

    /// The number of the mappings that hold at this time.
    fn mapping(&self, now: Instant) -> u64 {
        let passed = |every: Duration| (now - self.start).as_nanos() / every.as_nanos();
        let timed = self.rebind_every.map_or(0, passed);
        self.rebinds + u64::try_from(timed).unwrap_or(u64::MAX)
    }
}

fn is_within(spans: &[Span], at: Instant) -> bool {
    let within = |&(from, to): &Span| from <= at && to.is_none_or(|to| at < to);
    spans.iter().any(within)
}

/// One for each direction: the same losses in both would be no chance.
fn seeds(seed: u64) -> (u64, u64) {
    let mut seeds = fastrand::Rng::with_seed(seed);
    (seeds.u64(..), seeds.u64(..))
}
