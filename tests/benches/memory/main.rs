//! Memory: idle connections, mixed shapes, a bundle on the device.
//!
//! `cargo bench -p seamline-tests --bench memory [-- --json] [--parts idle,shapes,edge]
//! [--connections N] [--requests N] [--models a,b]`
//!
//! - idle: resident memory of a service's process with N idle connections, one contract opened on
//!   each, over that without them, a connection.
//! - shapes: resident memory of a service's process after each tenth of N requests of as many
//!   shapes, drawn from a seed, over that after half of them.
//! - edge: resident memory that a bundle adds to a device's process that has run another one (head
//!   and tail there; loaded, and after three requests), over the bytes of its weights.

#![allow(missing_docs, reason = "a program, not a library")]
#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

mod edge;
#[path = "../harness/mod.rs"]
mod harness;
mod idle;
mod resident;
mod shapes;

use harness::report::Row;
use harness::service::serve_if_asked;

fn main() {
    if serve_if_asked() || edge::device_if_asked() {
        return;
    }
    let parts = harness::argument("--parts");
    let wanted = |part: &str| {
        let among = |parts: &String| parts.split(',').any(|other| other == part);
        parts.as_ref().is_none_or(among)
    };
    if wanted("idle") {
        idle::measure();
    }
    if wanted("shapes") {
        shapes::measure();
    }
    if wanted("edge") {
        edge::measure();
    }
}

/// Prints a ratio of bytes; `limit` is what it is promised to keep to.
fn report(case: String, ours: f64, peer: &str, peer_value: f64, limit: Option<f64>) {
    let ratio = ours / peer_value;
    if harness::has("--json") {
        Row {
            bench: "memory",
            case,
            ours,
            peer: peer.to_owned(),
            peer_value,
            unit: "bytes",
            ratio,
            limit,
            spread: 0.0,
        }
        .print();
        return;
    }
    let kib = |bytes: f64| bytes / 1024.0;
    let limit = limit.map_or_else(String::new, |limit| format!(", promise {limit:.2}"));
    println!(
        "{case:<44}{:>12.1} KiB   {peer} {:.1} KiB   ratio {ratio:.2}{limit}",
        kib(ours),
        kib(peer_value)
    );
}
