//! The service of Seamline: dynamic batching and tails.
//!
//! [`Service`] binds, loads, warms up, serves and drains; `seamline-cloud` is its command line.

#![forbid(unsafe_code)]

pub mod admin;
pub mod admission;
pub mod batcher;
pub mod config;
mod connection;
mod contract;
mod executor;
pub mod load;
pub mod metrics;
mod run;
mod service;
mod sessions;
mod tail;

pub use contract::{BatchKey, CheckedRequest, CheckedValue, Contract, Refusal};
pub use executor::{Executors, Job, Tails, Waiting};
pub use run::{Answer, Failure, Input, run_batch};
pub use seamline_net::identity;
pub use service::{ADMIN_TOKEN_FILE, Service, StartError};
pub use sessions::{Sessions, SharedSlot, Slot, Step};
pub use tail::{OrtTail, StateSlot, Tail, TailError, Values};
