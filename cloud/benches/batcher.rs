//! How many requests a second one core takes through the batcher, in virtual time.
//!
//! `cargo bench -p seamline-cloud --bench batcher [-- --json]`. One decision is one request pushed
//! and then started, cancelled or expired. The peer does the least that any dynamic batcher can:
//! a hash map of FIFO queues, without priorities, deadlines, cancels, delays or limits. It is
//! measured in alternation with ours.

#![allow(missing_docs, reason = "a program, not a library")]

use std::collections::{HashMap, VecDeque};
use std::hint::black_box;
use std::time::{Duration, Instant};

use seamline_cloud::batcher::{BatchLimits, Batcher, Decision, Request, Taken, Ticket};

/// Requests in one round of a case.
const REQUESTS: u32 = 400_000;
/// Rounds of each side of a case.
const ROUNDS: usize = 7;
/// What the project promises, in decisions a second.
const PROMISE: f64 = 1e6;
/// Requests waiting while the case runs.
const BACKLOG: u32 = 256;

struct Case {
    name: &'static str,
    keys: u64,
    priorities: u8,
    /// Of 8 requests, this many have a deadline; one in four of these is too short to be met.
    with_deadline: u64,
    /// Of 8 requests, this many are cancelled while they wait.
    cancelled: u64,
    delay: Duration,
}

const CASES: [Case; 4] = [
    Case {
        name: "one key",
        keys: 1,
        priorities: 1,
        with_deadline: 0,
        cancelled: 0,
        delay: Duration::ZERO,
    },
    Case {
        name: "64 keys, 4 priorities, deadlines",
        keys: 64,
        priorities: 4,
        with_deadline: 4,
        cancelled: 0,
        delay: Duration::ZERO,
    },
    Case {
        name: "64 keys, 4 priorities, deadlines, queue delay",
        keys: 64,
        priorities: 4,
        with_deadline: 4,
        cancelled: 0,
        delay: Duration::from_micros(200),
    },
    Case {
        name: "64 keys, 4 priorities, deadlines, cancels",
        keys: 64,
        priorities: 4,
        with_deadline: 4,
        cancelled: 2,
        delay: Duration::ZERO,
    },
];

/// A key of the size of the real one: contract, cut, codecs and shapes by number.
type Key = (u64, u64, u64, u64);

fn key(number: u64) -> Key {
    (0x5ea_0000 + number / 16, number % 4, 3, 224 * (number % 16))
}

/// splitmix64: a fixed sequence, the same for both sides.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Seconds for one round of ours.
fn ours(case: &Case, start: Instant) -> f64 {
    let limits = BatchLimits {
        max_batch_size: 8,
        preferred_batch_sizes: Vec::new(),
        max_queue_delay: case.delay,
        max_queue_len: 4 * BACKLOG,
    };
    let mut batcher: Batcher<Key, u32> = Batcher::new(limits).unwrap_or_else(|e| panic!("{e}"));
    let mut random = Random(1);
    let mut now = start;
    let mut taken: Vec<Taken<u32>> = Vec::new();
    let mut cancels: VecDeque<Ticket> = VecDeque::new();
    let mut left = 0u32;
    let begin = Instant::now();
    for item in 0..REQUESTS {
        let bits = random.next();
        now += Duration::from_micros(1);
        let deadline = ((bits >> 32) % 8 < case.with_deadline).then(|| {
            let short = (bits >> 40).is_multiple_of(4);
            now + if short {
                Duration::from_micros(50)
            } else {
                Duration::from_millis(10)
            }
        });
        let priority = u8::try_from((bits >> 16) % u64::from(case.priorities)).unwrap_or(0);
        let request = Request {
            priority,
            deadline,
            ..Request::new(item)
        };
        let pushed = batcher.push(now, key(bits % case.keys), request);
        if let (Ok(ticket), true) = (pushed, (bits >> 48) % 8 < case.cancelled) {
            cancels.push_back(ticket);
        }
        if cancels.len() > 16
            && let Some(ticket) = cancels.pop_front()
        {
            left += u32::from(batcher.cancel(ticket).is_some());
        }
        while batcher.len() > BACKLOG as usize {
            batcher.take_expired(now, &mut taken);
            if !matches!(batcher.next(now, &mut taken), Decision::Run(_)) {
                break;
            }
        }
        left += u32::try_from(taken.len()).unwrap_or(0);
        black_box(&taken);
        taken.clear();
    }
    let seconds = begin.elapsed().as_secs_f64();
    batcher.take_all(&mut taken);
    let accounted = left + u32::try_from(taken.len()).unwrap_or(0);
    assert_eq!(accounted, REQUESTS, "requests were lost");
    seconds
}

/// Seconds for one round of the peer.
fn peer(case: &Case) -> f64 {
    let mut queues: HashMap<Key, VecDeque<u32>> = HashMap::new();
    let mut turn: VecDeque<Key> = VecDeque::new();
    let mut random = Random(1);
    let mut waiting = 0u32;
    let mut batch: Vec<u32> = Vec::new();
    let begin = Instant::now();
    for item in 0..REQUESTS {
        let key = key(random.next() % case.keys);
        let queue = queues.entry(key).or_default();
        if queue.is_empty() {
            turn.push_back(key);
        }
        queue.push_back(item);
        waiting += 1;
        while waiting > BACKLOG {
            let Some(key) = turn.pop_front() else { break };
            let Some(queue) = queues.get_mut(&key) else {
                break;
            };
            let count = queue.len().min(8);
            batch.extend(queue.drain(..count));
            if !queue.is_empty() {
                turn.push_back(key);
            }
            waiting -= u32::try_from(count).unwrap_or(0);
        }
        black_box(&batch);
        batch.clear();
    }
    begin.elapsed().as_secs_f64()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    let start = Instant::now();
    for case in &CASES {
        let mut our_rates = Vec::new();
        let mut peer_rates = Vec::new();
        for _ in 0..ROUNDS {
            our_rates.push(f64::from(REQUESTS) / ours(case, start));
            peer_rates.push(f64::from(REQUESTS) / peer(case));
        }
        let rate = median(&mut our_rates);
        let peer_rate = median(&mut peer_rates);
        let spread = (our_rates[ROUNDS - 1] - our_rates[0]) / rate;
        let row = serde_json::json!({
            "bench": "batcher", "case": case.name, "ours": rate.round(),
            "peer": "hash map of FIFO queues", "peer_value": peer_rate.round(),
            "unit": "decisions/s", "ratio": rate / peer_rate, "limit": null, "spread": spread,
        });
        if json {
            println!("{row}");
        } else {
            println!(
                "{:<46} {:>6.2} M decisions/s (peer {:>6.2}, promise {:.0}; spread {:.0} %)",
                case.name,
                rate / 1e6,
                peer_rate / 1e6,
                PROMISE / 1e6,
                spread * 100.0
            );
        }
    }
}
