//! Rates that move between 1 and 50 Mbit/s.

#![allow(
    clippy::cast_possible_truncation,
    reason = "slots of a trace are numbered by its few seconds"
)]

use fastrand::Rng;

/// Bounds of every trace, in bits per second.
const RATES: (f64, f64) = (1e6, 50e6);

/// Seconds of a trace's slot, in which the rate is constant.
const SLOT: f64 = 0.1;

/// How a rate moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// A random walk of the rate's logarithm, by a factor of about 1.35 a second, reflected at the
    /// bounds.
    Walk,
    /// Constant for 5 to 20 s, then any rate between the bounds (uniform in its logarithm).
    Steps,
    /// The walk, and a step every 20 s on average.
    Both,
    /// From one bound to the other in 8 to 24 s, even in the logarithm, and back at once; upwards
    /// or downwards by chance.
    Sawtooth,
    /// As a cellular radio has it: near, middle or far (35, 12, 3 Mbit/s) for 4 s on average, with
    /// fading about that by a fifth that changes within half a second, and every 15 s on average
    /// 0.3 s at the lower bound, as a handover makes them.
    Cellular,
}

impl Movement {
    /// All of them.
    pub const ALL: [Movement; 5] = [
        Movement::Walk,
        Movement::Steps,
        Movement::Both,
        Movement::Sawtooth,
        Movement::Cellular,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Movement::Walk => "walk",
            Movement::Steps => "steps",
            Movement::Both => "walk and steps",
            Movement::Sawtooth => "sawtooth",
            Movement::Cellular => "cellular",
        }
    }
}

/// Rates over time.
pub(super) struct Trace(Vec<f64>);

impl Trace {
    pub(super) fn new(movement: Movement, seed: u64, seconds: f64) -> Trace {
        let mut random = Rng::with_seed(seed);
        let slots = (seconds / SLOT) as usize;
        let (low, high) = (RATES.0.ln(), RATES.1.ln());
        let rates: Vec<f64> = match movement {
            Movement::Walk | Movement::Steps | Movement::Both => {
                wander(&mut random, movement).take(slots).collect()
            }
            Movement::Sawtooth => teeth(&mut random).take(slots).collect(),
            Movement::Cellular => cellular(&mut random).take(slots).collect(),
        };
        Trace(rates.iter().map(|it| it.clamp(low, high).exp()).collect())
    }

    fn rate(&self, at: f64) -> f64 {
        let slot = (at / SLOT) as usize;
        self.0.get(slot).or(self.0.last()).copied().unwrap_or(1e6)
    }

    /// When `bytes` on the wire are through that are sent from `at` on.
    pub(super) fn sent(&self, at: f64, bytes: f64, factor: f64) -> f64 {
        let (mut at, mut bits) = (at, bytes * 8.0);
        loop {
            let rate = self.rate(at) * factor;
            let end = ((at / SLOT).floor() + 1.0) * SLOT;
            // A rounding error must not stop the clock.
            let end = if end > at { end } else { at + SLOT };
            if bits <= (end - at) * rate {
                return at + bits / rate;
            }
            bits -= (end - at) * rate;
            at = end;
        }
    }
}

/// The logarithm of a rate anywhere between the bounds.
fn anywhere(random: &mut Rng) -> f64 {
    let (low, high) = (RATES.0.ln(), RATES.1.ln());
    low + (high - low) * random.f64()
}

/// Walk, steps, and both.
fn wander(random: &mut Rng, movement: Movement) -> impl Iterator<Item = f64> {
    let (low, high) = (RATES.0.ln(), RATES.1.ln());
    let mut rate = anywhere(random);
    let mut hold = 5.0 + 15.0 * random.f64();
    std::iter::from_fn(move || {
        if movement != Movement::Steps {
            // Uniform within ± a has the deviation a / √3: 0.3 a square root of a second.
            let most = 0.3 * (3.0 * SLOT).sqrt();
            rate += most * (2.0 * random.f64() - 1.0);
            rate = if rate > high { 2.0 * high - rate } else { rate };
            rate = if rate < low { 2.0 * low - rate } else { rate };
        }
        hold -= SLOT;
        let step = match movement {
            Movement::Steps => hold <= 0.0,
            Movement::Both => random.f64() < SLOT / 20.0,
            _ => false,
        };
        if step {
            rate = anywhere(random);
            hold = 5.0 + 15.0 * random.f64();
        }
        Some(rate)
    })
}

fn teeth(random: &mut Rng) -> impl Iterator<Item = f64> {
    let (low, high) = (RATES.0.ln(), RATES.1.ln());
    // Of the present tooth: how far it is, 0 to 1, its length in seconds, whether it rises.
    let (mut share, mut length, mut rises) = (random.f64(), 16.0, true);
    std::iter::from_fn(move || {
        share += SLOT / length;
        if share >= 1.0 {
            (share, length, rises) = (0.0, 8.0 + 16.0 * random.f64(), random.bool());
        }
        let height = if rises { share } else { 1.0 - share };
        Some(low + (high - low) * height)
    })
}

fn cellular(random: &mut Rng) -> impl Iterator<Item = f64> {
    const PLACES: [f64; 3] = [35e6, 12e6, 3e6];
    const FADING: f64 = 0.2;
    let keep = (-SLOT / 0.5_f64).exp();
    let (mut place, mut fading, mut handover) = (random.usize(0..3), 0.0, 0.0);
    std::iter::from_fn(move || {
        if random.f64() < SLOT / 4.0 {
            place = random.usize(0..3);
        }
        if random.f64() < SLOT / 15.0 {
            handover = 0.3;
        }
        // Uniform, with the deviation that keeps the fading's own.
        let most = FADING * (3.0 * (1.0 - keep * keep)).sqrt();
        fading = keep * fading + most * (2.0 * random.f64() - 1.0);
        handover -= SLOT;
        let away = handover > -SLOT / 2.0;
        Some(if away {
            RATES.0.ln()
        } else {
            PLACES[place].ln() + fading
        })
    })
}
