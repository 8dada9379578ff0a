//! What the end-to-end benchmarks share: bundles of trained models, a service in a process of its
//! own, a bare QUIC exchange beside it, and how figures are summed up and printed.

#![allow(dead_code, reason = "each benchmark uses its own part of this module")]

pub(crate) mod bundles;
pub(crate) mod cpu;
pub(crate) mod exchange;
pub(crate) mod report;
pub(crate) mod service;

/// The value that follows `flag` on the command line.
pub(crate) fn argument(flag: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != flag);
    arguments.nth(1)
}

/// Whether `flag` is on the command line.
pub(crate) fn has(flag: &str) -> bool {
    std::env::args().any(|argument| argument == flag)
}
