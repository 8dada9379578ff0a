//! The service of Seamline: dynamic batching and tails.

#![forbid(unsafe_code)]

pub mod admin;
pub mod admission;
pub mod batcher;
pub mod config;
pub mod metrics;
