//! How the device re-chooses the cut while it runs: what the link is like ([`LinkEstimate`]), and
//! which of the plan's options is best on it ([`Chooser`]). Both are told the time and touch no
//! socket. [`Client`](crate::Client) drives them; programs need them only for work of their own
//! with `costs.json`.

mod chooser;
mod correction;
mod filter;
mod link;
mod uploads;

#[cfg(test)]
mod tests;

pub use chooser::{Chooser, Decision, MIN_DWELL, MIN_GAIN, PROBE_EVERY};
pub use correction::Outcome;
pub use link::{LinkEstimate, PathSample, Transfer};
pub(crate) use uploads::Uploads;
