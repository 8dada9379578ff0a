//! From the times of requests to what the link is like.

use seamline_plan::{Rate, Spread};

use super::{LinkProbe, ProbedRate};

/// Differences of times below this are noise of the two machines, in microseconds.
const RESOLUTION_US: f64 = 100.0;

/// Answers below this many bytes are a few packets: too little to time.
const MIN_ANSWER_BYTES: u64 = 16 << 10;

/// The first packet of an answer starts the clock, and does not count.
const PACKET_BYTES: f64 = 1400.0;

/// Bytes on the wire for each byte of an answer, as `seamline_plan`'s links have it.
const WIRE_OVERHEAD: f64 = 1.022;

/// Packets that are needed to tell of losses of a percent.
const MIN_PACKETS: u64 = 100;

/// A small question and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// There and back.
    pub(crate) us: f64,
    /// Bytes of UDP payload that were sent.
    pub(crate) sent: u64,
}

/// One request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// From the call to the answer's first packet, less the time in the service.
    pub(crate) up_us: f64,
    /// From the answer's first packet to its last.
    pub(crate) down_us: f64,
    /// Payload of the answer.
    pub(crate) answer_bytes: u64,
    /// Bytes of UDP payload that were sent.
    pub(crate) sent: u64,
    /// Packets that were sent.
    pub(crate) packets: u64,
    /// Packets that were lost.
    pub(crate) lost: u64,
}

/// All that was measured.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    pub(crate) exchanges: Vec<Exchange>,
    small: Vec<Sample>,
    gentle: Vec<Sample>,
    large: Vec<Sample>,
    answers: Vec<Sample>,
}

impl Samples {
    /// Adds one round.
    pub(crate) fn add(&mut self, small: Sample, gentle: Sample, large: Sample, answer: Sample) {
        self.small.push(small);
        self.gentle.push(gentle);
        self.large.push(large);
        self.answers.push(answer);
    }

    pub(crate) fn rounds(&self) -> usize {
        self.large.len()
    }

    pub(crate) fn probe(&self) -> LinkProbe {
        let times: Vec<f64> = self.exchanges.iter().map(|exchange| exchange.us).collect();
        LinkProbe {
            round_trip: Spread::of(&times),
            loss: self.loss(),
            up: self.up(),
            down: self.down(),
            rounds: self.rounds(),
        }
    }

    /// Of small requests: a large one fills the queue in front of the link, and what that drops is
    /// no property of the way. Where they are too few, of all.
    fn loss(&self) -> f64 {
        let share = |samples: &mut dyn Iterator<Item = &Sample>| {
            let (packets, lost) = samples.fold((0, 0), |(packets, lost), sample| {
                (packets + sample.packets, lost + sample.lost)
            });
            (packets, lost as f64 / (packets.max(1)) as f64)
        };
        let (packets, loss) = share(&mut self.small.iter().chain(&self.gentle));
        if packets >= MIN_PACKETS {
            return loss;
        }
        let all = self.small.iter().chain(&self.gentle);
        share(&mut all.chain(&self.large).chain(&self.answers)).1
    }

    /// The bytes that a large request has more than a small one, over the time that it takes
    /// longer. The round trip and all that does not depend on size fall out of the difference.
    fn up(&self) -> Option<ProbedRate> {
        let (mut base_us, mut base_sent) = middle(&self.small)?;
        let (_, large_sent) = middle(&self.large)?;
        // Requests of one size only: the small exchange is the other one.
        if base_sent * 2.0 > large_sent {
            base_us = Spread::of(&self.exchanges.iter().map(|e| e.us).collect::<Vec<_>>()).p50_us;
            base_sent = self.exchanges.iter().map(|e| e.sent as f64).sum::<f64>()
                / self.exchanges.len().max(1) as f64;
        }
        // A request that lost packets waits for them; what is left is the link's own rate.
        let whole = self.large.iter().filter(|sample| sample.lost == 0);
        let mut used: Vec<&Sample> = whole.collect();
        if used.is_empty() {
            used.extend(&self.large);
        }
        let differences = used.iter();
        let differences =
            differences.map(|sample| (sample.sent as f64 - base_sent, sample.up_us - base_us));
        rate(differences)
    }

    fn down(&self) -> Option<ProbedRate> {
        let long = self.answers.iter();
        let long = long.filter(|sample| sample.answer_bytes >= MIN_ANSWER_BYTES);
        let followed = |sample: &Sample| {
            let bytes = sample.answer_bytes as f64 * WIRE_OVERHEAD - PACKET_BYTES;
            (bytes, sample.down_us)
        };
        rate(long.map(followed))
    }
}

/// The median time and bytes of a request.
fn middle(samples: &[Sample]) -> Option<(f64, f64)> {
    let last = samples.len().checked_sub(1)?;
    let mut times: Vec<f64> = samples.iter().map(|sample| sample.up_us).collect();
    let mut sent: Vec<f64> = samples.iter().map(|sample| sample.sent as f64).collect();
    times.sort_by(f64::total_cmp);
    sent.sort_by(f64::total_cmp);
    Some((times[last / 2], sent[last / 2]))
}

/// Median and 5th percentile of bytes over microseconds.
fn rate(samples: impl Iterator<Item = (f64, f64)>) -> Option<ProbedRate> {
    let samples = samples.filter(|(bytes, _)| *bytes > 0.0);
    let mut rates: Vec<(f64, bool)> = samples
        .map(|(bytes, us)| {
            let bps = bytes * 8e6 / us.max(RESOLUTION_US);
            (bps, us < RESOLUTION_US)
        })
        .collect();
    rates.sort_by(|a, b| a.0.total_cmp(&b.0));
    let last = rates.len().checked_sub(1)?;
    let (p50_bps, at_least) = rates[last / 2];
    Some(ProbedRate {
        rate: Rate {
            p50_bps,
            p5_bps: rates[last / 20].0,
        },
        at_least,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(bytes: u64, up_us: f64, answer_bytes: u64, down_us: f64) -> Sample {
        Sample {
            up_us,
            down_us,
            answer_bytes,
            sent: bytes,
            packets: bytes.div_ceil(1400),
            lost: 0,
        }
    }

    /// So many rounds on a link of 8 Mbit/s both ways, a byte in a microsecond, round trip 20 ms.
    fn samples(rounds: usize) -> Samples {
        let mut samples = Samples::default();
        let exchange = Exchange {
            us: 20_000.0,
            sent: 100,
        };
        for round in 0..rounds {
            samples.exchanges.push(exchange);
            let late = if round == 0 { 100_000.0 } else { 0.0 };
            let small = sample(1_000, 21_000.0, 40, 0.0);
            let large = sample(101_000, 121_000.0 + late, 40, 0.0);
            let answer = sample(1_000, 21_000.0, 100_000, 100_800.0);
            samples.add(small, small, large, answer);
        }
        samples
    }

    #[test]
    fn rates_are_bytes_over_the_time_that_they_add() {
        let probe = samples(10).probe();
        let up = probe.up.unwrap();
        assert!((up.rate.p50_bps - 8e6).abs() < 1.0, "{up:?}");
        assert!((up.rate.p5_bps - 4e6).abs() < 1.0, "one of ten was slow");
        assert!(!up.at_least);
        let down = probe.down.unwrap().rate.p50_bps;
        assert!((down - 8e6).abs() < 1e3, "{down}");
        assert_eq!(probe.round_trip.p50_us, 20_000.0);
        assert_eq!(probe.loss, 0.0);
    }

    #[test]
    fn a_link_that_is_too_fast_to_tell_has_a_bound() {
        let mut samples = samples(5);
        samples.large.fill(sample(101_000, 21_010.0, 40, 0.0));
        let up = samples.up().unwrap();
        assert!(up.at_least && up.rate.p50_bps == 8e9, "{up:?}");
    }

    #[test]
    fn a_request_that_lost_packets_tells_nothing_of_the_rate() {
        let mut samples = samples(6);
        let slow = Sample {
            lost: 3,
            ..sample(101_000, 400_000.0, 40, 0.0)
        };
        samples.large[1..].fill(slow);
        samples.large[2] = sample(101_000, 121_000.0, 40, 0.0);
        let up = samples.up().unwrap().rate.p50_bps;
        assert!((4e6..8.1e6).contains(&up), "{up}");
        samples.large.fill(slow);
        assert!(
            samples.up().is_some(),
            "where all did, they are all there is"
        );
    }

    #[test]
    fn requests_of_one_size_are_compared_with_the_exchange() {
        let mut samples = samples(5);
        samples.small.clone_from(&samples.large);
        let up = samples.up().unwrap().rate.p50_bps;
        // The exchange's hundred bytes took the way in no time here.
        assert!((up - 8e6 * 100.9 / 101.0).abs() < 1e3, "{up}");
    }

    #[test]
    fn what_large_requests_lose_is_the_queues() {
        let mut samples = samples(200);
        samples.large.iter_mut().for_each(|large| large.lost = 7);
        assert_eq!(samples.loss(), 0.0);
        samples
            .small
            .iter_mut()
            .step_by(10)
            .for_each(|small| small.lost = 1);
        assert_eq!(samples.loss(), 20.0 / 400.0);
    }

    #[test]
    fn short_answers_tell_nothing_of_the_way_down() {
        let mut samples = samples(5);
        samples.answers.clone_from(&samples.small);
        assert_eq!(samples.down(), None);
        let probe = samples.probe();
        let link = probe.link("x", seamline_plan::Radio::default()).unwrap();
        assert_eq!(link.down, link.up);
        assert_eq!(link.problem(), None);
    }
}
