//! The chooser in virtual time. How it fares on moving links is in `tests/tests/adaptation.rs`.

use std::time::{Duration, Instant};

use seamline_plan::{
    COSTS_FORMAT, Costs, CutOption, Fingerprint, LinkModel, LinkState, Objective, Prices, Spread,
    TailTime,
};

use super::*;

const MS: Duration = Duration::from_millis(1);

/// Cuts with 100 and 10 KB, and the device alone.
const LARGE: usize = 0;
const SMALL: usize = 1;
const ALONE: usize = 2;

fn option(cut: &str, head_ms: f64, up_bytes: u64) -> CutOption {
    let is_local = up_bytes == 0;
    let tail = TailTime {
        batch: 1,
        time: Spread::exactly(5e3),
    };
    CutOption {
        cut: cut.into(),
        codec: (!is_local).then(|| "raw".into()),
        head: Spread::exactly(head_ms * 1e3),
        encode: Spread::default(),
        up_bytes,
        decode: Spread::default(),
        tail: if is_local { Vec::new() } else { vec![tail] },
        down_bytes: if is_local { 0 } else { 40 },
        overhead: Spread::default(),
    }
}

fn costs(objective: Objective) -> Costs {
    Costs {
        format: COSTS_FORMAT,
        contract: Fingerprint::of(b"test"),
        objective,
        link: LinkModel::preset("wifi").unwrap(),
        prices: Prices::default(),
        executors: 1,
        options: vec![
            option("large", 5.0, 100_000),
            option("small", 50.0, 10_000),
            option("alone", 150.0, 0),
        ],
    }
}

/// A chooser, its estimate and a clock.
struct Device {
    now: Instant,
    costs: Costs,
    link: LinkEstimate,
    chooser: Chooser,
    probes: Vec<usize>,
    /// Of the service, in microseconds.
    queue_us: f64,
    slowdown_of_service: f64,
}

impl Device {
    fn new(objective: Objective) -> Device {
        let (now, costs) = (Instant::now(), costs(objective));
        Device {
            now,
            link: LinkEstimate::new(now, &costs.link),
            chooser: Chooser::new(&costs, |_| true).unwrap(),
            costs,
            probes: Vec::new(),
            queue_us: 0.0,
            slowdown_of_service: 1.0,
        }
    }

    /// A request on a link of so many Mbit/s, on a device slower than planned by `slowdown`; gives
    /// the option. Probes are answered at once.
    fn request_on(&mut self, mbps: f64, slowdown: f64) -> usize {
        let path = PathSample {
            round_trip: 22 * MS,
            min_round_trip: 20 * MS,
            ..PathSample::default()
        };
        self.link.learn_path(self.now, &path);
        let decision = self.chooser.choose(self.now, &self.link);
        if let Some(probe) = decision.probe {
            self.probes.push(probe);
            self.answer(probe, mbps, slowdown);
            self.chooser.probe_ended();
        }
        self.answer(decision.option, mbps, slowdown);
        self.now += 100 * MS;
        decision.option
    }

    fn request(&mut self, mbps: f64) -> usize {
        self.request_on(mbps, 1.0)
    }

    fn answer(&mut self, option: usize, mbps: f64, slowdown: f64) {
        let at = option;
        let option = &self.costs.options[option];
        let real = LinkState {
            up_bps: mbps * 1e6,
            down_bps: mbps * 1e6,
            round_trip_us: 20_000.0,
            loss: 0.0,
        };
        let mut outcome = Outcome {
            device_us: option.head.p50_us * slowdown,
            ..Outcome::default()
        };
        if !option.is_local() {
            let us = real.send_us(option.up_bytes) + real.round_trip_us / 2.0;
            let transfer = Transfer {
                up_bytes: option.up_bytes,
                to_answer: Duration::from_secs_f64(us / 1e6),
                down_bytes: option.down_bytes,
                ..Transfer::default()
            };
            self.link.learn_transfer(self.now, &transfer);
            outcome.service_us = 5e3 * self.slowdown_of_service;
            outcome.queue_us = self.queue_us;
            outcome.next_queue_us = self.queue_us;
            outcome.batch = 1.0;
            outcome.up_bytes = option.up_bytes;
            outcome.down_bytes = option.down_bytes;
        }
        self.chooser.answered(self.now, at, &outcome);
    }

    fn requests(&mut self, count: usize, mbps: f64) -> Vec<usize> {
        (0..count).map(|_| self.request(mbps)).collect()
    }
}

#[test]
fn each_rate_has_its_option() {
    for (mbps, best) in [(40.0, LARGE), (5.0, SMALL), (0.5, ALONE)] {
        let mut device = Device::new(Objective::Latency);
        device.requests(60, mbps);
        assert_eq!(device.request(mbps), best, "{mbps} Mbit/s");
        assert_eq!(device.chooser.current(), best);
    }
}

#[test]
fn a_drop_moves_the_cut_at_the_third_request_and_then_not_for_two_seconds() {
    let mut device = Device::new(Objective::Latency);
    assert_eq!(device.requests(20, 40.0), [LARGE; 20]);
    assert_eq!(device.requests(3, 5.0), [LARGE, LARGE, SMALL]);
    let changed = device.now - 100 * MS;
    let mut back = device.requests(60, 40.0).into_iter();
    let stayed = back.position(|option| option == LARGE).unwrap();
    let dwelt = device.now - 100 * MS * (60 - u32::try_from(stayed).unwrap()) - changed;
    assert!(
        dwelt >= MIN_DWELL && dwelt < MIN_DWELL + 200 * MS,
        "{dwelt:?}"
    );
    assert!(back.all(|option| option == LARGE));
}

#[test]
fn a_single_late_request_moves_nothing() {
    let mut device = Device::new(Objective::Latency);
    for round in 0..100 {
        let late = round % 10 == 7;
        assert_eq!(device.request(if late { 2.0 } else { 40.0 }), LARGE);
    }
    assert_eq!(device.chooser.changes(), 0);
}

#[test]
fn near_a_crossing_it_does_not_go_to_and_fro() {
    let mut device = Device::new(Objective::Latency);
    // Large and small cost the same at some 16.5 Mbit/s.
    for round in 0..600 {
        device.request(if round % 2 == 0 { 16.0 } else { 17.0 });
    }
    assert!(
        device.chooser.changes() <= 1,
        "{}",
        device.chooser.changes()
    );
}

#[test]
fn while_alone_it_looks_now_and_then_and_comes_back() {
    let mut device = Device::new(Objective::Latency);
    device.requests(60, 0.5);
    device.probes.clear();
    let before = device.now;
    assert_eq!(device.requests(200, 0.5), [ALONE; 200]);
    // 20 s: one request in ten, and no more than one a second.
    assert!(
        (18..=20).contains(&device.probes.len()),
        "{:?}",
        device.probes
    );
    assert!(device.now - before >= 20 * 1000 * MS);
    let back = device.requests(60, 40.0);
    let returned = back.iter().position(|&option| option == LARGE).unwrap();
    assert!(returned <= 22, "{back:?}");
}

#[test]
fn where_no_link_would_change_the_choice_nothing_is_probed() {
    let mut device = Device::new(Objective::Bytes);
    assert_eq!(device.requests(100, 40.0)[1..], [ALONE; 99]);
    assert!(device.probes.is_empty(), "{:?}", device.probes);
}

#[test]
fn a_service_that_fails_is_left_at_once_and_asked_again_ever_more_rarely() {
    let mut device = Device::new(Objective::Latency);
    device.requests(3, 40.0);
    let mut asked = Vec::new();
    for _ in 0..4 {
        device.chooser.failed(device.now);
        // Another that was in flight with it.
        device.chooser.failed(device.now);
        let failed_at = device.now;
        assert!(device.chooser.is_failing());
        while !device.chooser.wants_retry(device.now) {
            let decision = device.chooser.choose(device.now, &device.link);
            assert_eq!((decision.option, decision.probe), (ALONE, None));
            device.now += 100 * MS;
        }
        asked.push((device.now - failed_at).as_secs());
        // It is heard, but the probe fails again.
        device.chooser.heard();
        let decision = device.chooser.choose(device.now, &device.link);
        assert_eq!((decision.option, decision.probe), (ALONE, Some(LARGE)));
        device.chooser.probe_ended();
    }
    assert_eq!(asked, [1, 2, 4, 8]);
    assert_eq!(device.request(40.0), ALONE);
    assert!(!device.chooser.is_failing(), "the probe was answered");
    assert_eq!(device.request(40.0), LARGE);
}

#[test]
fn without_a_device_that_can_go_alone_a_failure_changes_nothing() {
    let mut device = Device::new(Objective::Latency);
    device.chooser = Chooser::new(&device.costs, |option| !option.is_local()).unwrap();
    device.chooser.failed(device.now);
    assert_eq!(device.request(40.0), LARGE);
    assert!(Chooser::new(&device.costs, |_| false).is_none());
}

#[test]
fn a_hot_device_is_learnt_and_the_correction_has_bounds() {
    let mut device = Device::new(Objective::Latency);
    // 9 Mbit/s is a clear case for the small cut, until heads take four times as long.
    for _ in 0..60 {
        device.request_on(9.0, 1.0);
    }
    assert_eq!(device.request_on(9.0, 1.0), SMALL);
    for _ in 0..100 {
        device.request_on(9.0, 4.0);
    }
    assert_eq!(device.request_on(9.0, 4.0), LARGE);
    for _ in 0..1000 {
        device.request_on(9.0, 1e6);
    }
    let expected = device.chooser.predict(ALONE, &device.link.state()).unwrap();
    assert!(expected <= 150 * MS * 8, "{expected:?}");
}

#[test]
fn a_busy_service_is_left_and_found_again_when_it_is_idle() {
    let mut device = Device::new(Objective::Latency);
    assert_eq!(device.requests(20, 40.0), [LARGE; 20]);
    device.queue_us = 4e5;
    let left = device.requests(30, 40.0);
    let left = left.iter().position(|&option| option == ALONE).unwrap();
    assert!(left <= 4, "after {left} requests");
    assert_eq!(device.requests(200, 40.0), [ALONE; 200]);
    device.queue_us = 0.0;
    // Two or three probes.
    let back = device.requests(60, 40.0);
    let back = back.iter().position(|&option| option == LARGE).unwrap();
    assert!(back <= 32, "after {back} requests");
}

#[test]
fn a_service_that_was_slow_is_found_again_when_it_is_fast() {
    let mut device = Device::new(Objective::Latency);
    device.costs.options[LARGE].tail[0].time = Spread::exactly(5e4);
    device.costs.options[SMALL].tail[0].time = Spread::exactly(5e4);
    device.chooser = Chooser::new(&device.costs, |_| true).unwrap();
    device.slowdown_of_service = 40.0;
    device.requests(100, 40.0);
    assert_eq!(device.requests(100, 40.0), [ALONE; 100]);
    device.slowdown_of_service = 10.0;
    device.requests(600, 40.0);
    assert_eq!(device.request(40.0), LARGE);
}

#[test]
fn of_options_that_cost_the_same_the_first_stays() {
    let mut device = Device::new(Objective::Latency);
    let twin = device.costs.options[LARGE].clone();
    device.costs.options = vec![twin.clone(), twin];
    device.chooser = Chooser::new(&device.costs, |_| true).unwrap();
    for round in 0..600 {
        // Nor does what is learnt of the one that is used speak for the other.
        device.queue_us = if round % 3 == 0 { 2e4 } else { 0.0 };
        device.request(if round % 7 < 3 { 3.0 } else { 40.0 });
    }
    assert_eq!((device.chooser.current(), device.chooser.changes()), (0, 0));
}

#[test]
fn an_option_without_a_price_is_left_out() {
    for wrong in [f64::NAN, -f64::NAN, f64::INFINITY, -1e9] {
        let mut device = Device::new(Objective::Latency);
        device.costs.options[LARGE].head.p50_us = wrong;
        device.chooser = Chooser::new(&device.costs, |_| true).unwrap();
        let taken = device.requests(60, 40.0);
        assert!(!taken.contains(&LARGE), "{wrong}: {taken:?}");
        assert!(
            device
                .chooser
                .predict(LARGE, &device.link.state())
                .is_none()
        );
        device.costs.options.truncate(1);
        assert!(Chooser::new(&device.costs, |_| true).is_none());
    }
}

#[test]
fn what_is_learnt_goes_into_the_costs_and_nothing_else_does() {
    let mut device = Device::new(Objective::Latency);
    device.chooser = Chooser::new(&device.costs, |option| option.cut != "small").unwrap();
    assert_eq!(device.chooser.learned_costs(), device.costs);
    for _ in 0..400 {
        device.request_on(40.0, 2.0);
    }
    let learned = device.chooser.learned_costs();
    let head = |option: usize| learned.options[option].head.p50_us;
    // Measured itself; by what all have in common; not usable here, but on the same device.
    assert!((head(LARGE) / 10e3 - 1.0).abs() < 0.05, "{learned:?}");
    for (other, planned) in [(ALONE, 150e3), (SMALL, 50e3)] {
        let factor = head(other) / planned;
        assert!((1.2..=2.0).contains(&factor), "{other}: {factor}");
    }
    let Costs { options, .. } = &device.costs;
    let same = |(a, b): (&CutOption, &CutOption)| a.cut == b.cut && a.up_bytes == b.up_bytes;
    assert!(learned.options.iter().zip(options).all(same));
    let planned = Costs {
        options: options.clone(),
        ..learned
    };
    assert_eq!(planned, device.costs);
}

#[test]
fn whatever_happens_it_changes_once_in_two_seconds_or_leaves_a_failing_service() {
    for seed in 1..=40u64 {
        let mut random = seed;
        let mut next = |of: u64| -> usize {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from((random >> 33) % of).unwrap()
        };
        let mut device = Device::new(Objective::Latency);
        let (mut current, mut changed): (usize, Option<Instant>) = (LARGE, None);
        for _ in 0..2000 {
            match next(20) {
                0 => device.chooser.failed(device.now),
                1 => device.chooser.heard(),
                2 => device.queue_us = [0.0, 1e4, 5e5][next(3)],
                3 => device.now += u32::try_from(next(5000)).unwrap() * MS,
                _ => {}
            }
            let (asked, was_failing) = (device.now, device.chooser.is_failing());
            let rate = [0.5, 5.0, 12.0, 40.0][next(4)];
            let option = device.request_on(rate, [1.0, 3.0][next(2)]);
            if option != current {
                let dwelt = changed.is_none_or(|at| asked - at >= MIN_DWELL);
                assert!(
                    dwelt || (was_failing && option == ALONE),
                    "seed {seed}: from {current} to {option}"
                );
                (current, changed) = (option, Some(asked));
            }
        }
        assert!(device.chooser.changes() > 20, "seed {seed}: a dull script");
    }
}
