//! The service of Seamline: dynamic batching and tails.

#![forbid(unsafe_code)]

pub mod admission;
pub mod batcher;
