//! Which packets are lost.

use fastrand::Rng;

/// How packets are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each packet with this chance, whatever happened to the others.
    Random(f64),
    /// In bursts (Gilbert's model): the link is good or bad, and loses only while bad.
    Bursty {
        /// The chance, at each packet, of going from good to bad.
        enter: f64,
        /// The chance, at each packet, of going from bad to good.
        leave: f64,
        /// The chance of a packet while the link is bad.
        lost: f64,
    },
}

impl Loss {
    /// Bursts of `length` packets on average that lose a share of `loss` of all packets.
    pub fn bursts(loss: f64, length: f64) -> Loss {
        let leave = 1.0 / length;
        Loss::Bursty {
            enter: leave * loss / (1.0 - loss),
            leave,
            lost: 1.0,
        }
    }
}

/// The model with its state.
#[derive(Debug)]
pub(super) struct LossState {
    model: Loss,
    rng: Rng,
    bad: bool,
}

impl LossState {
    pub(super) fn new(model: Loss, seed: u64) -> LossState {
        LossState {
            model,
            rng: Rng::with_seed(seed),
            bad: false,
        }
    }

    /// Whether the next packet is lost.
    pub(super) fn next(&mut self) -> bool {
        match self.model {
            Loss::None => false,
            Loss::Random(chance) => self.rng.f64() < chance,
            Loss::Bursty { enter, leave, lost } => {
                let change = if self.bad { leave } else { enter };
                self.bad ^= self.rng.f64() < change;
                // Drawn in either state, so that what follows does not depend on the state.
                let draw = self.rng.f64();
                self.bad && draw < lost
            }
        }
    }
}
