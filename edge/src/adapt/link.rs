//! What the link is like now.

use std::time::{Duration, Instant};

use seamline_plan::{LinkModel, LinkState};

use super::filter::{Filter, Verdict};

/// Without a transfer for so long, the estimate is a memory.
const STALE_AFTER: Duration = Duration::from_secs(5);

/// How far a link may be from what its plan was made for: its rate is within half and twice.
const PLAN_DOUBT: f64 = 0.7;

/// An answer of fewer bytes tells nothing about the rate down.
const DOWN_BYTES: u64 = 8 << 10;

/// What comes with an answer's first packet.
const FIRST_PACKET: u64 = 1420;

/// The share of losses is averaged over so many packets.
const LOSS_PACKETS: f64 = 1000.0;

/// A byte a microsecond, without a way: how long a payload takes there is how many bytes it is on
/// the wire.
const BYTE_A_MICROSECOND: LinkState = LinkState {
    up_bps: 8e6,
    down_bps: 8e6,
    round_trip_us: 0.0,
    loss: 0.0,
};

/// What a request took on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Transfer {
    /// Payload bytes to the service.
    pub up_bytes: u64,
    /// Payload bytes of other requests that went up in the same time.
    pub other_bytes: u64,
    /// From handing the first byte to QUIC until the answer began, less what the service accounts
    /// for and less what a request takes on the fastest link ([`CutOption::overhead`]).
    ///
    /// [`CutOption::overhead`]: seamline_plan::CutOption::overhead
    pub to_answer: Duration,
    /// Payload bytes of the answer.
    pub down_bytes: u64,
    /// From the answer's beginning to its end.
    pub receive: Duration,
}

/// What the transport measured of the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathSample {
    /// The round trip, smoothed; a transfer's own queue is in it.
    pub round_trip: Duration,
    /// The least round trip of the path.
    pub min_round_trip: Duration,
    /// Packets sent so far.
    pub sent_packets: u64,
    /// Those of them that were lost.
    pub lost_packets: u64,
}

/// A live estimate of the link, without clock or socket.
///
/// Every answered request is a measurement `time = round trip + bytes / rate`. A filter of both
/// separates them, with the transport's own round trip as a second source. It follows a rise of
/// the rate at the first request that shows it, a drop at the second, or at the first that is late
/// by more than a lost packet explains. It starts with what the plan was made for.
#[derive(Clone, Debug)]
pub struct LinkEstimate {
    up: Filter,
    /// Its delay is none: an answer's way is in the round trip.
    down: Filter,
    loss: f64,
    counted: PathSample,
    /// The fastest that either direction has been taken for, in bits per second.
    best: (f64, f64),
    measured: Option<Instant>,
}

impl LinkEstimate {
    /// The link that a plan was made for.
    pub fn new(now: Instant, plan: &LinkModel) -> LinkEstimate {
        let usual = plan.usual();
        let pace = |bps: f64| (8e6 / bps, PLAN_DOUBT);
        LinkEstimate {
            up: Filter::new(now, (usual.round_trip_us, 0.5), pace(usual.up_bps)),
            down: Filter::new(now, (0.0, 0.0), pace(usual.down_bps)),
            loss: usual.loss,
            counted: PathSample::default(),
            best: (usual.up_bps, usual.down_bps),
            measured: None,
        }
    }

    /// A request was answered.
    pub fn learn_transfer(&mut self, now: Instant, transfer: &Transfer) {
        let bytes = on_wire(transfer.up_bytes.saturating_add(transfer.other_bytes));
        let verdict = self
            .up
            .learn_transfer(now, bytes, micros(transfer.to_answer));
        if transfer.down_bytes >= DOWN_BYTES {
            let bytes = on_wire(transfer.down_bytes - FIRST_PACKET);
            self.down
                .learn_transfer(now, bytes, micros(transfer.receive));
        }
        if verdict != Verdict::Suspect {
            self.best.0 = self.best.0.max(self.up.bps());
            self.best.1 = self.best.1.max(self.down.bps());
        }
        self.measured = Some(now);
    }

    /// What the transport says of the path: after connecting, before a request, after an answer.
    pub fn learn_path(&mut self, now: Instant, path: &PathSample) {
        let least = micros(path.min_round_trip);
        if least > 0.0 {
            // Above the least are the path's own changes and our own queue; which, it does not say.
            let above = (micros(path.round_trip) - least).max(0.0);
            self.up
                .learn_delay(now, least, 200.0 + 0.1 * least + 0.5 * above);
        }
        // Fewer than before: another connection, which counts anew.
        if path.sent_packets < self.counted.sent_packets {
            self.counted = PathSample::default();
        }
        let sent = path.sent_packets - self.counted.sent_packets;
        let lost = path.lost_packets.saturating_sub(self.counted.lost_packets);
        if sent > 0 {
            let share = (lost as f64 / sent as f64).min(1.0);
            self.loss += (share - self.loss) * (1.0 - (-(sent as f64) / LOSS_PACKETS).exp());
            self.counted = *path;
        }
    }

    /// The link as costs are predicted for it. What losses cost is in the rates, as it was in the
    /// times that they come from, so that [`LinkState::loss`] is 0.
    pub fn state(&self) -> LinkState {
        LinkState {
            up_bps: self.up.bps(),
            down_bps: self.down.bps(),
            round_trip_us: self.up.delay(),
            loss: 0.0,
        }
    }

    /// The link as good as it has been so far, or was planned to be: what might be gained by
    /// looking.
    pub fn best(&self) -> LinkState {
        LinkState {
            up_bps: self.best.0.max(self.up.bps()),
            down_bps: self.best.1.max(self.down.bps()),
            ..self.state()
        }
    }

    /// The share of packets that are lost, over the last thousand or so.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// Whether the last request was late beyond expectation and the next has to confirm it: no time
    /// for a decision.
    pub fn is_in_doubt(&self, now: Instant) -> bool {
        self.up.is_suspect(now)
    }

    /// Whether nothing was measured for 5 s, or ever.
    pub fn is_stale(&self, now: Instant) -> bool {
        self.measured
            .is_none_or(|at| now.saturating_duration_since(at) > STALE_AFTER)
    }
}

fn on_wire(bytes: u64) -> f64 {
    BYTE_A_MICROSECOND.send_us(bytes)
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> LinkModel {
        LinkModel::preset("wifi").unwrap()
    }

    /// What a request of `up` and an answer of `down` bytes take on `link`.
    fn transfer(link: &LinkState, up: u64, down: u64) -> Transfer {
        let first = down.min(FIRST_PACKET);
        let us = link.send_us(up) + link.answer_us(0);
        let receive = link.answer_us(down - first) - link.answer_us(0);
        Transfer {
            up_bytes: up,
            to_answer: Duration::from_secs_f64(us / 1e6),
            down_bytes: down,
            receive: Duration::from_secs_f64(receive / 1e6),
            ..Transfer::default()
        }
    }

    fn near(value: f64, expected: f64) -> bool {
        (value / expected - 1.0).abs() < 0.1
    }

    #[test]
    fn it_begins_with_the_plan_and_goes_over_to_what_is() {
        let mut now = Instant::now();
        let mut link = LinkEstimate::new(now, &plan());
        assert_eq!(link.state(), plan().usual());
        assert!(link.is_stale(now));
        let real = LinkState {
            up_bps: 3e6,
            down_bps: 8e6,
            round_trip_us: 45_000.0,
            loss: 0.0,
        };
        let path = PathSample {
            round_trip: Duration::from_millis(50),
            min_round_trip: Duration::from_millis(45),
            ..PathSample::default()
        };
        for up in [60_000, 8_000, 60_000, 8_000, 60_000] {
            now += Duration::from_millis(200);
            link.learn_path(now, &path);
            link.learn_transfer(now, &transfer(&real, up, 100_000));
        }
        let state = link.state();
        assert!(near(state.up_bps, 3e6), "{state:?}");
        assert!(near(state.down_bps, 8e6), "{state:?}");
        assert!(near(state.round_trip_us, 45_000.0), "{state:?}");
        assert!(!link.is_stale(now));
        assert!(link.is_stale(now + Duration::from_secs(6)));
        assert_eq!(link.best().up_bps, plan().up.p50_bps);
    }

    #[test]
    fn requests_that_share_the_link_do_not_make_it_look_slow() {
        let mut now = Instant::now();
        let mut link = LinkEstimate::new(now, &plan());
        let usual = plan().usual();
        for _ in 0..10 {
            now += Duration::from_millis(100);
            let both = Transfer {
                up_bytes: 50_000,
                other_bytes: 50_000,
                ..transfer(&usual, 100_000, 0)
            };
            link.learn_transfer(now, &both);
        }
        assert!(near(link.state().up_bps, usual.up_bps), "{link:?}");
    }

    #[test]
    fn losses_are_counted_over_connections() {
        let now = Instant::now();
        let mut link = LinkEstimate::new(now, &plan());
        for (sent, lost) in [(5_000, 100), (10_000, 200), (5_000, 100)] {
            let path = PathSample {
                sent_packets: sent,
                lost_packets: lost,
                ..PathSample::default()
            };
            link.learn_path(now, &path);
        }
        assert!(near(link.loss(), 0.02), "{}", link.loss());
        assert_eq!(link.state().loss, 0.0);
    }
}
