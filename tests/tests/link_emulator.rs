//! The emulated link itself, in virtual time.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::prelude::*;
use seamline_tests::link::{
    Arrival, Departure, Link, LinkOptions, Loss, PipeOptions, PipeStats, Queue, Reorder,
};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// A link whose time is this struct's.
struct Virtual {
    link: Link,
    start: Instant,
    now: Instant,
}

impl Virtual {
    fn new(options: &LinkOptions) -> Virtual {
        let now = Instant::now();
        let link = Link::new(now, options);
        Virtual {
            link,
            start: now,
            now,
        }
    }

    /// Only up matters.
    fn up(pipe: PipeOptions) -> Virtual {
        Virtual::new(&LinkOptions {
            up: pipe,
            ..LinkOptions::perfect()
        })
    }

    fn after(mut self, time: Duration) -> Virtual {
        self.now = self.start + time;
        self
    }

    /// A packet of so many bytes that begins with `number`.
    fn send(&mut self, number: u32, bytes: usize) {
        let payload = packet(number, bytes);
        self.link
            .handle(self.now, Arrival::FromClient { client: 0, payload });
    }

    fn answer(&mut self, number: u32, mapping: u64) {
        let arrival = Arrival::FromService {
            client: 0,
            mapping,
            payload: packet(number, 100),
        };
        self.link.handle(self.now, arrival);
    }

    /// What is due next, and when since the start; the time goes on to it.
    fn next(&mut self) -> Option<(Duration, Departure)> {
        self.now = self.now.max(self.link.poll_timeout()?);
        let (at, departure) = self.link.poll_transmit(self.now)?;
        assert!(at <= self.now);
        Some((at - self.start, departure))
    }

    /// Numbers of all packets that come out, with their times since the start.
    fn drain(&mut self) -> Vec<(Duration, u32)> {
        let mut out = Vec::new();
        while self.link.poll_timeout().is_some() {
            if let Some((at, departure)) = self.next() {
                out.push((at, number(&departure)));
            }
        }
        out
    }

    fn stats(&self) -> PipeStats {
        self.link.stats().0
    }
}

fn packet(number: u32, bytes: usize) -> Bytes {
    let mut payload = vec![0; bytes];
    payload[..4].copy_from_slice(&number.to_le_bytes());
    payload.into()
}

fn number(departure: &Departure) -> u32 {
    let (Departure::ToService { payload, .. } | Departure::ToClient { payload, .. }) = departure;
    u32::from_le_bytes(payload[..4].try_into().unwrap())
}

fn numbers(out: &[(Duration, u32)]) -> Vec<u32> {
    out.iter().map(|&(_, number)| number).collect()
}

/// So much faster than the tests send that nothing waits, so that only the fault under test acts.
fn faulty(change: impl FnOnce(&mut PipeOptions)) -> PipeOptions {
    let mut pipe = PipeOptions::default();
    change(&mut pipe);
    pipe
}

/// Which of `count` packets come out.
fn survivors(pipe: PipeOptions, seed: u64, count: u32) -> Vec<u32> {
    let mut link = Virtual::new(&LinkOptions {
        seed,
        up: pipe,
        ..LinkOptions::perfect()
    });
    for number in 0..count {
        link.send(number, 100);
    }
    numbers(&link.drain())
}

#[test]
fn a_packet_takes_its_bits_over_the_rate_and_the_delay() {
    // 1180 bytes at 18.88 Mbit/s are 500 us exactly.
    let mut link = Virtual::new(&LinkOptions::wifi());
    for number in 0..100 {
        link.send(number, 1180);
    }
    for (place, (at, number)) in (0..).zip(link.drain()) {
        assert_eq!(number, place);
        assert_eq!(at, 10 * MS + 500 * US * (place + 1));
    }
    assert_eq!(link.stats().delivered, 100);
    assert_eq!(link.stats().delivered_bytes, 118_000);
}

#[test]
fn an_idle_transmitter_saves_nothing_up() {
    let mut link = Virtual::new(&LinkOptions::wifi()).after(700 * MS);
    link.send(0, 1180);
    link.send(1, 1180);
    let times: Vec<Duration> = link.drain().iter().map(|&(at, _)| at).collect();
    assert_eq!(times, [710 * MS + 500 * US, 711 * MS]);
}

#[test]
fn directions_have_rates_of_their_own_and_clients_share_them() {
    let mut link = Virtual::new(&LinkOptions::wifi());
    for client in [0, 1] {
        let payload = packet(0, 1180);
        link.link
            .handle(link.now, Arrival::FromClient { client, payload });
    }
    link.answer(7, 0);
    let mut out = Vec::new();
    while let Some((at, departure)) = link.next() {
        out.push((at, departure));
    }
    // 100 bytes at 50 Mbit/s.
    assert_eq!(out[0].0, 10 * MS + 16 * US);
    assert!(matches!(out[0].1, Departure::ToClient { client: 0, .. }));
    for (which, at) in [(0, 500), (1, 1000)] {
        assert_eq!(out[which + 1].0, 10 * MS + at * US);
        let Departure::ToService { client, .. } = out[which + 1].1 else {
            panic!("{:?} should go to the service", out[which + 1]);
        };
        assert_eq!(client, which);
    }
}

#[test]
fn a_full_queue_drops_its_tail() {
    let slow = |queue| PipeOptions {
        rate: Some(800_000),
        queue,
        ..PipeOptions::default()
    };
    // 1000 bytes take 10 ms: the first is sent, and what waits is bounded.
    for (queue, room) in [
        (Queue::Bytes(3000), 3),
        (Queue::Bytes(3999), 3),
        (Queue::Time(30 * MS), 4),
        (Queue::Time(29 * MS), 3),
    ] {
        let mut link = Virtual::up(slow(queue));
        for number in 0..10 {
            link.send(number, 1000);
        }
        link.now += 10 * MS;
        link.send(10, 1000);
        let mut expected: Vec<u32> = (0..room).collect();
        expected.push(10);
        assert_eq!(numbers(&link.drain()), expected, "{queue:?}");
        assert_eq!(link.stats().queue_full, u64::from(10 - room), "{queue:?}");
    }
}

#[test]
fn what_is_larger_than_the_link_takes_vanishes() {
    let mut link = Virtual::up(PipeOptions::default());
    link.send(0, 1472);
    link.send(1, 1473);
    assert_eq!(numbers(&link.drain()), [0]);
    assert_eq!(link.stats().too_large, 1);
}

#[test]
fn losses_have_their_rate_and_repeat_with_their_seed() {
    const COUNT: u32 = 400_000;
    for loss in [Loss::Random(0.02), Loss::bursts(0.02, 5.0)] {
        let pipe = faulty(|pipe| pipe.loss = loss);
        let survivors = |seed| survivors(pipe.clone(), seed, COUNT);
        let first = survivors(1);
        assert_eq!(first, survivors(1), "{loss:?}");
        assert_ne!(first, survivors(2), "{loss:?}");
        let lost = 1.0 - first.len() as f64 / f64::from(COUNT);
        assert!((0.018..0.022).contains(&lost), "{loss:?} lost {lost}");
    }
}

#[test]
fn bursts_have_their_length() {
    let pipe = faulty(|pipe| pipe.loss = Loss::bursts(0.02, 5.0));
    let kept = survivors(pipe, 3, 200_000);
    let gaps: Vec<u32> = kept
        .windows(2)
        .map(|pair| pair[1] - pair[0] - 1)
        .filter(|&lost| lost > 0)
        .collect();
    let mean = f64::from(gaps.iter().sum::<u32>()) / gaps.len() as f64;
    assert!((4.6..5.4).contains(&mean), "bursts of {mean} packets");
}

#[test]
fn what_is_lost_has_used_the_transmitter() {
    let mut options = LinkOptions::wifi();
    options.up.loss = Loss::Random(0.5);
    let mut link = Virtual::new(&options);
    for number in 0..100 {
        link.send(number, 1180);
    }
    for (at, number) in link.drain() {
        assert_eq!(at, 10 * MS + 500 * US * (number + 1));
    }
    assert!(link.stats().lost > 20);
}

#[test]
fn one_fault_does_not_change_anothers_choices() {
    let alone = faulty(|pipe| pipe.loss = Loss::Random(0.1));
    let mut together = alone.clone();
    (together.jitter, together.duplicate) = (MS, 0.1);
    let mut together = survivors(together, 5, 1000);
    together.dedup();
    assert_eq!(survivors(alone, 5, 1000), together);
}

#[test]
fn seeds_can_begin_anew() {
    let mut link = Virtual::up(faulty(|pipe| pipe.loss = Loss::Random(0.3)));
    let mut round = || {
        link.link.reseed(9);
        for number in 0..200 {
            link.send(number, 100);
        }
        numbers(&link.drain())
    };
    assert_eq!(round(), round());
}

#[test]
fn jitter_is_bounded_and_keeps_the_order() {
    let mut link = Virtual::up(faulty(|pipe| (pipe.delay, pipe.jitter) = (10 * MS, 5 * MS)));
    for number in 0..1000 {
        link.send(number, 100);
        link.now += 100 * US;
    }
    let out = link.drain();
    let mut late = Duration::ZERO;
    for (place, &(at, number)) in (0..).zip(&out) {
        assert_eq!(number, place);
        let jitter = at - 100 * US * place - 10 * MS;
        assert!(jitter <= 5 * MS, "packet {number}: {jitter:?}");
        late = late.max(jitter);
    }
    assert!(late > 4 * MS, "{late:?} is no jitter of 5 ms");
}

#[test]
fn a_reordered_packet_is_overtaken_by_so_much() {
    let reorder = Reorder {
        chance: 0.1,
        by: 2 * MS,
    };
    let mut link = Virtual::up(faulty(|pipe| pipe.reorder = Some(reorder)));
    for number in 0..1000 {
        link.send(number, 100);
        link.now += MS;
    }
    let out = link.drain();
    let late: Vec<_> = out
        .iter()
        .filter(|&&(at, number)| at != MS * number)
        .collect();
    assert_eq!(late.len() as u64, link.stats().reordered);
    assert!((60..140).contains(&late.len()), "{} of 1000", late.len());
    assert!(late.iter().all(|&&(at, number)| at == MS * (number + 2)));
    assert!(!numbers(&out).is_sorted());
}

#[test]
fn a_duplicate_comes_right_behind() {
    let out = survivors(faulty(|pipe| pipe.duplicate = 0.2), 1, 1000);
    let mut unique = out.clone();
    unique.dedup();
    assert_eq!(unique, (0..1000).collect::<Vec<u32>>());
    let copies = out.len() - unique.len();
    assert!((150..250).contains(&copies), "{copies} of 1000");
}

#[test]
fn in_a_blackout_nothing_enters_and_nothing_arrives() {
    let options = LinkOptions {
        blackouts: vec![(20 * MS, 30 * MS)],
        ..LinkOptions::symmetric(faulty(|pipe| pipe.delay = 5 * MS))
    };
    let mut link = Virtual::new(&options);
    for number in 0..40 {
        link.send(number, 100);
        link.now += MS;
    }
    // Sent by 14 they arrive before 20; sent from 30 on they enter after.
    let expected: Vec<u32> = (0..15).chain(30..40).collect();
    assert_eq!(numbers(&link.drain()), expected);
    assert_eq!(link.stats().dark, 15);
}

#[test]
fn a_blackout_can_be_switched() {
    let mut link = Virtual::up(faulty(|pipe| pipe.delay = 5 * MS));
    for number in 0..40 {
        match number {
            20 => link.link.set_dark(link.now, true),
            30 => link.link.set_dark(link.now, false),
            _ => {}
        }
        link.send(number, 100);
        link.now += MS;
    }
    // Late polls do not matter: what counts is when a packet was due.
    let expected: Vec<u32> = (0..15).chain(30..40).collect();
    assert_eq!(numbers(&link.drain()), expected);
}

fn mapping(departure: Option<(Duration, Departure)>) -> u64 {
    match departure {
        Some((_, Departure::ToService { mapping, .. })) => mapping,
        other => panic!("{other:?} should go to the service"),
    }
}

#[test]
fn a_dropped_mapping_loses_answers_until_the_device_sends() {
    let mut link = Virtual::new(&LinkOptions::perfect());
    link.send(0, 100);
    let before = mapping(link.next());
    link.answer(1, before);
    assert_eq!(number(&link.next().unwrap().1), 1);
    link.link.rebind();
    link.answer(2, before);
    assert!(link.next().is_none(), "its port is gone");
    assert_eq!(link.link.stats().1.unmapped, 1);
    link.send(3, 100);
    let after = mapping(link.next());
    assert_ne!(before, after);
    link.answer(4, after);
    assert_eq!(number(&link.next().unwrap().1), 4);
}

#[test]
fn mappings_can_be_dropped_by_the_clock() {
    let options = LinkOptions {
        rebind_every: Some(60 * MS),
        ..LinkOptions::perfect()
    };
    let mut link = Virtual::new(&options);
    let mut seen = Vec::new();
    for _ in 0..5 {
        link.send(0, 100);
        seen.push(mapping(link.next()));
        link.now += 30 * MS;
    }
    assert_eq!(seen, [0, 0, 1, 1, 2]);
}

#[derive(Clone, Debug)]
enum Op {
    Send(usize),
    Answer(usize, u64),
    Wait(u32),
    Take,
    Dark(bool),
    Rebind,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => (4usize..1600).prop_map(Op::Send),
        4 => ((4usize..1600), 0u64..3).prop_map(|(bytes, back)| Op::Answer(bytes, back)),
        4 => (0u32..20_000).prop_map(Op::Wait),
        4 => Just(Op::Take),
        1 => any::<bool>().prop_map(Op::Dark),
        1 => Just(Op::Rebind),
    ];
    proptest::collection::vec(op, 0..200)
}

fn pipes() -> impl Strategy<Value = PipeOptions> {
    let rate = prop_oneof![Just(None), (50_000u64..50_000_000).prop_map(Some)];
    let loss = prop_oneof![
        Just(Loss::None),
        Just(Loss::Random(0.2)),
        Just(Loss::bursts(0.2, 3.0))
    ];
    let queue = prop_oneof![
        (0u64..20_000).prop_map(Queue::Bytes),
        (0u32..200).prop_map(|ms| Queue::Time(ms * MS))
    ];
    (rate, loss, queue, 0u32..50, 0u32..20, any::<bool>()).prop_map(
        |(rate, loss, queue, delay, jitter, more)| PipeOptions {
            rate,
            delay: delay * MS,
            jitter: jitter * MS,
            loss,
            reorder: more.then_some(Reorder {
                chance: 0.2,
                by: 3 * MS,
            }),
            duplicate: if more { 0.2 } else { 0.0 },
            queue,
            mtu: 1472,
        },
    )
}

fn balance(stats: PipeStats) -> (u64, u64) {
    let ends = [
        stats.delivered,
        stats.lost,
        stats.queue_full,
        stats.too_large,
        stats.dark,
        stats.unmapped,
    ];
    (stats.offered + stats.duplicated, ends.iter().sum())
}

proptest! {
    /// Whatever happens, each packet has one end, times do not go back, and none leaves early.
    #[test]
    fn every_packet_has_one_end(ops in ops(), up in pipes(), down in pipes(), seed: u64) {
        let least = [up.delay, down.delay];
        let options = LinkOptions { seed, up, down, ..LinkOptions::perfect() };
        let mut link = Virtual::new(&options);
        let mut sent: Vec<Instant> = Vec::new();
        let mut last = Duration::ZERO;
        let mut rebinds = 0u64;
        let mut check = |link: &mut Virtual, sent: &[Instant]| {
            if let Some((at, departure)) = link.next() {
                assert!(at >= last);
                last = at;
                let which = usize::try_from(number(&departure)).unwrap();
                let least = least[usize::from(matches!(departure, Departure::ToClient { .. }))];
                assert!(link.start + at >= sent[which] + least);
            }
        };
        for op in ops {
            let number = u32::try_from(sent.len()).unwrap();
            match op {
                Op::Send(bytes) => {
                    link.send(number, bytes);
                    sent.push(link.now);
                }
                Op::Answer(bytes, back) => {
                    let payload = packet(number, bytes);
                    let mapping = rebinds.saturating_sub(back);
                    link.link.handle(link.now, Arrival::FromService { client: 0, mapping, payload });
                    sent.push(link.now);
                }
                Op::Wait(micros) => {
                    // No further than the next departure, so that times can be compared.
                    let to = link.now + micros * US;
                    link.now = link.link.poll_timeout().map_or(to, |at| to.min(at).max(link.now));
                }
                Op::Take => check(&mut link, &sent),
                Op::Dark(dark) => link.link.set_dark(link.now, dark),
                Op::Rebind => {
                    link.link.rebind();
                    rebinds += 1;
                }
            }
        }
        while link.link.poll_timeout().is_some() {
            check(&mut link, &sent);
        }
        let (up, down) = link.link.stats();
        for stats in [up, down] {
            let (came, ended) = balance(stats);
            prop_assert_eq!(came, ended, "{:?}", stats);
        }
    }
}
