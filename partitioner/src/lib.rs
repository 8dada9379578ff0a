//! Plans and cuts models.

#![forbid(unsafe_code)]

mod model;
mod probe;

pub use model::{Model, ModelError, ValueFacts, format_bindings};
pub use probe::{ProbeInput, Prober};
