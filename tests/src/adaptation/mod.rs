//! The device's re-choice of the cut on a link whose rate moves, in virtual time.
//!
//! The link is a fluid, not packets: payload leaves at the trace's rate of each moment, half a round
//! trip is added each way, and jitter, noise of compute and, once in a hundred requests, a stall as
//! a lost last packet makes it. Congestion control is not in it: what it does after a step is
//! measured end to end only (`tests/adaptation.rs`).

mod trace;

use std::time::{Duration, Instant};

use fastrand::Rng;
use seamline_edge::adapt::{Chooser, LinkEstimate, Outcome, PathSample, Transfer};
use seamline_plan::{
    COSTS_FORMAT, Costs, CutOption, Fingerprint, LinkModel, LinkState, Objective, Prices, Spread,
    TailTime,
};

pub use trace::Movement;
use trace::Trace;

/// The answer's direction is faster by this factor.
const DOWN: f64 = 2.0;

/// Round trip without load, and mean jitter, in seconds.
const ROUND_TRIP: (f64, f64) = (0.010, 0.000_7);

/// A frame comes this long after the last, or once the last is answered.
const PERIOD: f64 = 0.1;

/// A stall's chance, and its bounds in seconds.
const STALL: (f64, f64, f64) = (0.01, 0.1, 0.3);

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// How the rate moves.
    pub movement: Movement,
    /// The device is slower than the table's by this factor.
    pub slowdown: f64,
    /// Whether the device may answer alone.
    pub alone: bool,
}

impl Case {
    /// Each movement with a device of 80 ms for the whole model, one of 320 ms, and one that cannot
    /// run the whole.
    pub fn all() -> impl Iterator<Item = Case> {
        let devices = [(1.0, true), (4.0, true), (1.0, false)];
        Movement::ALL.into_iter().flat_map(move |movement| {
            devices.map(|(slowdown, alone)| Case {
                movement,
                slowdown,
                alone,
            })
        })
    }

    /// For tables.
    pub fn name(&self) -> String {
        let device = match (self.alone, 80.0 * self.slowdown) {
            (true, whole) => format!("{whole} ms alone"),
            (false, _) => "never alone".to_owned(),
        };
        format!("{}, {device}", self.movement.name())
    }

    /// A plan as plans are: the device alone, the compressed input, and four cuts.
    fn costs(&self) -> Costs {
        let mut costs = table();
        for option in &mut costs.options {
            option.head = option.head.scaled(self.slowdown);
            option.encode = option.encode.scaled(self.slowdown);
        }
        costs
            .options
            .retain(|option| self.alone || !option.is_local());
        costs
    }
}

fn table() -> Costs {
    let option = |cut: &str, head: f64, encode: f64, up_bytes: u64, decode: f64, tail: f64| {
        let ms = |ms: f64| Spread::exactly(ms * 1e3);
        let tail = TailTime {
            batch: 1,
            time: ms(tail),
        };
        let is_local = up_bytes == 0;
        CutOption {
            cut: cut.to_owned(),
            codec: (!is_local).then(|| "raw".to_owned()),
            head: ms(head),
            encode: ms(encode),
            up_bytes,
            decode: ms(decode),
            tail: if is_local { Vec::new() } else { vec![tail] },
            down_bytes: if is_local { 0 } else { 4 << 10 },
            overhead: if is_local { ms(0.0) } else { ms(0.3) },
        }
    };
    Costs {
        format: COSTS_FORMAT,
        contract: Fingerprint::of(b"adaptation"),
        objective: Objective::Latency,
        link: LinkModel::preset("wifi").expect("a preset"),
        prices: Prices::default(),
        executors: 1,
        options: vec![
            option("input", 0.0, 9.0, 45_000, 2.0, 16.0),
            option("s1", 5.0, 0.5, 400_000, 0.5, 15.0),
            option("s2", 10.0, 0.3, 100_000, 0.3, 14.0),
            option("s3", 20.0, 0.2, 30_000, 0.2, 12.0),
            option("s4", 45.0, 0.1, 8_000, 0.1, 8.0),
            option("output", 80.0, 0.0, 0, 0.0, 0.0),
        ],
    }
}

/// What chance does to one request; the same whichever option answers it.
struct Luck {
    device: f64,
    service: f64,
    jitter: f64,
    stall: f64,
}

impl Luck {
    const NONE: Luck = Luck {
        device: 1.0,
        service: 1.0,
        jitter: 0.0,
        stall: 0.0,
    };

    fn draw(random: &mut Rng) -> Luck {
        let about = |random: &mut Rng| 1.0 + 0.1 * (random.f64() + random.f64() - 1.0);
        let (chance, least, most) = STALL;
        let stalls = random.f64() < chance;
        let stall = least + (most - least) * random.f64();
        Luck {
            device: about(random),
            service: about(random),
            jitter: -ROUND_TRIP.1 * (1.0 - random.f64()).ln(),
            stall: if stalls { stall } else { 0.0 },
        }
    }
}

/// An emulated request, times in seconds.
struct Run {
    total: f64,
    device: f64,
    service: f64,
    transfer: Transfer,
    /// Of sending alone.
    sending: f64,
}

fn run(trace: &Trace, start: f64, option: &CutOption, luck: &Luck) -> Run {
    let seconds = |spread: &Spread| spread.p50_us / 1e6;
    let device = (seconds(&option.head) + seconds(&option.encode)) * luck.device;
    let mut run = Run {
        total: device,
        device,
        service: 0.0,
        transfer: Transfer::default(),
        sending: 0.0,
    };
    if option.is_local() {
        return run;
    }
    let sent_at = start + device;
    let up = trace.sent(sent_at, on_wire(option.up_bytes), 1.0);
    let service = (seconds(&option.decode) + seconds(&option.tail(1.0))) * luck.service;
    let answered = up + ROUND_TRIP.0 + luck.jitter + luck.stall + service;
    let end = trace.sent(answered, on_wire(option.down_bytes), DOWN);
    run.total = end - start + seconds(&option.overhead);
    run.service = service;
    run.sending = up - sent_at;
    run.transfer = Transfer {
        up_bytes: option.up_bytes,
        other_bytes: 0,
        to_answer: Duration::from_secs_f64(answered - sent_at - service),
        down_bytes: option.down_bytes,
        receive: Duration::from_secs_f64(end - answered),
    };
    run
}

fn on_wire(bytes: u64) -> f64 {
    let byte_a_microsecond = LinkState {
        up_bps: 8e6,
        down_bps: 8e6,
        round_trip_us: 0.0,
        loss: 0.0,
    };
    byte_a_microsecond.send_us(bytes)
}

/// How a device fared that re-chose its cut.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fared {
    /// Requests.
    pub requests: u32,
    /// Mean latency, in milliseconds.
    pub ours: f64,
    /// The mean where each request takes the option that is best for it, as one can who knows the
    /// trace; with the same luck, and changing as often as it likes.
    pub oracle: f64,
    /// The best mean of one option that all requests take.
    pub fixed: f64,
    /// The worst.
    pub worst: f64,
    /// How often the cut changed.
    pub changes: u64,
    /// The least seconds between two changes.
    pub least_dwell: f64,
    /// Probes that were sent.
    pub probes: u32,
}

/// Requests one after another for `seconds` of virtual time.
pub fn simulate(case: &Case, seed: u64, seconds: f64) -> Fared {
    let trace = Trace::new(case.movement, seed, seconds + 60.0);
    let mut random = Rng::with_seed(seed ^ 0x5eed);
    let costs = case.costs();
    let zero = Instant::now();
    let at = |seconds: f64| zero + Duration::from_secs_f64(seconds);
    let mut link = LinkEstimate::new(zero, &costs.link);
    let mut chooser = Chooser::new(&costs, |_| true).expect("options");
    let mut fared = Fared {
        least_dwell: f64::INFINITY,
        ..Fared::default()
    };
    let mut fixed = vec![0.0; costs.options.len()];
    let mut packets = 0;
    let mut changed_at: Option<f64> = None;
    // A probe under way: its option, what it took, when it is answered.
    let mut probe: Option<(usize, Run, f64)> = None;
    let mut now = 0.0;
    while now < seconds {
        if let Some((option, run, end)) = probe.take_if(|probe| probe.2 <= now) {
            learn(&mut chooser, &mut link, &costs, option, &run, at(end));
            chooser.probe_ended();
        }
        let luck = Luck::draw(&mut random);
        link.learn_path(at(now), &path(&mut packets, 0.0));
        let before = chooser.changes();
        let decision = chooser.choose(at(now), &link);
        if chooser.changes() > before {
            let dwell = changed_at.map_or(f64::INFINITY, |at| now - at);
            fared.least_dwell = fared.least_dwell.min(dwell);
            changed_at = Some(now);
        }
        let taken = run(&trace, now, &costs.options[decision.option], &luck);
        let mut total = taken.total;
        if let Some(index) = decision.probe {
            fared.probes += 1;
            let option = &costs.options[index];
            // Encoded on the head's way, which waits for that.
            total += option.encode.p50_us / 1e6 * luck.device;
            let aside = run(&trace, now, option, &Luck::draw(&mut random));
            let end = now + aside.total;
            probe = Some((index, aside, end));
        }
        let all = costs.options.iter();
        let totals: Vec<f64> = all
            .map(|option| run(&trace, now, option, &luck).total)
            .collect();
        let ideal = |option: &CutOption| run(&trace, now, option, &Luck::NONE).total;
        let best = (0..totals.len())
            .min_by(|&a, &b| ideal(&costs.options[a]).total_cmp(&ideal(&costs.options[b])))
            .unwrap_or(0);
        fared.requests += 1;
        fared.ours += total * 1e3;
        fared.oracle += totals[best] * 1e3;
        fixed
            .iter_mut()
            .zip(&totals)
            .for_each(|(sum, total)| *sum += total * 1e3);
        let end = now + total;
        learn(
            &mut chooser,
            &mut link,
            &costs,
            decision.option,
            &taken,
            at(end),
        );
        if !costs.options[decision.option].is_local() {
            link.learn_path(at(end), &path(&mut packets, taken.sending));
        }
        now = end.max(now + PERIOD);
    }
    let requests = f64::from(fared.requests);
    fared.ours /= requests;
    fared.oracle /= requests;
    fared.fixed = fixed.iter().copied().fold(f64::INFINITY, f64::min) / requests;
    fared.worst = fixed.into_iter().fold(0.0, f64::max) / requests;
    fared.changes = chooser.changes();
    fared
}

fn learn(
    chooser: &mut Chooser,
    link: &mut LinkEstimate,
    costs: &Costs,
    option: usize,
    run: &Run,
    now: Instant,
) {
    if !costs.options[option].is_local() {
        link.learn_transfer(now, &run.transfer);
    }
    let outcome = Outcome {
        device_us: run.device * 1e6,
        service_us: run.service * 1e6,
        batch: 1.0,
        up_bytes: run.transfer.up_bytes,
        down_bytes: run.transfer.down_bytes,
        ..Outcome::default()
    };
    chooser.answered(now, option, &outcome);
}

/// What the transport would say: its smoothed round trip holds part of the transfer's own queue.
fn path(packets: &mut u64, sending: f64) -> PathSample {
    *packets += 10;
    let queue = (0.5 * sending).min(0.1);
    PathSample {
        round_trip: Duration::from_secs_f64(ROUND_TRIP.0 + queue),
        min_round_trip: Duration::from_secs_f64(ROUND_TRIP.0),
        sent_packets: *packets,
        lost_packets: 0,
    }
}
