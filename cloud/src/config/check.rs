//! Bounds of the configuration's fields. Each bound is also stated in the field's documentation.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::{Problem, ServeConfig};
use crate::batcher::MAX_QUEUE_LEN;

const HOUR_MS: u64 = 3_600_000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Collects what is wrong.
struct Checker(Vec<Problem>);

impl Checker {
    fn within(
        &mut self,
        field: &'static str,
        value: impl Into<u64>,
        bounds: RangeInclusive<u64>,
        unit: &str,
    ) {
        let value = value.into();
        if !bounds.contains(&value) {
            let expected = format!("{} to {} {unit}", bounds.start(), bounds.end());
            self.wrong(field, value, expected);
        }
    }

    fn wrong(&mut self, field: &'static str, value: impl Display, expected: impl Into<String>) {
        self.0.push(Problem {
            field,
            value: value.to_string(),
            expected: expected.into(),
        });
    }
}

/// Everything that is wrong with `config`.
pub(super) fn problems(config: &ServeConfig) -> Vec<Problem> {
    let mut checker = Checker(Vec::new());
    checker.within(
        "drain_timeout_ms",
        config.drain_timeout_ms,
        0..=HOUR_MS,
        "milliseconds",
    );
    if config.bundles.as_os_str().is_empty() {
        checker.wrong("bundles", "\"\"", "the folder that holds the bundles");
    }
    if config.identity.dir.as_os_str().is_empty() {
        checker.wrong(
            "identity.dir",
            "\"\"",
            "the folder made by `seamline-cloud identity new`",
        );
    }
    admin(config, &mut checker);
    batching(config, &mut checker);
    executors(config, &mut checker);
    limits(config, &mut checker);
    transport(config, &mut checker);
    checker.0
}

fn admin(config: &ServeConfig, checker: &mut Checker) {
    let admin = &config.admin;
    if !admin.enabled {
        return;
    }
    if admin.token_file.is_none() && !admin.listen.ip().is_loopback() {
        let expected = "a loopback address, or admin.token_file for one that others can reach";
        checker.wrong("admin.listen", admin.listen, expected);
    }
    if admin.listen == config.listen && admin.listen.port() != 0 {
        checker.wrong("admin.listen", admin.listen, "an address other than listen");
    }
}

fn batching(config: &ServeConfig, checker: &mut Checker) {
    let batching = &config.batching;
    checker.within(
        "batching.max_batch_size",
        batching.max_batch_size,
        1..=4096,
        "rows",
    );
    for size in &batching.preferred_batch_sizes {
        let most = u64::from(batching.max_batch_size);
        let unit = "rows (batching.max_batch_size)";
        checker.within("batching.preferred_batch_sizes", *size, 1..=most, unit);
    }
    let delay = batching.max_queue_delay_us;
    checker.within(
        "batching.max_queue_delay_us",
        delay,
        0..=10_000_000,
        "microseconds",
    );
    let most = u64::from(MAX_QUEUE_LEN);
    checker.within(
        "batching.max_queue_len",
        batching.max_queue_len,
        1..=most,
        "requests",
    );
    let deadline = batching.default_deadline_ms;
    checker.within(
        "batching.default_deadline_ms",
        deadline,
        1..=HOUR_MS,
        "milliseconds",
    );
}

fn executors(config: &ServeConfig, checker: &mut Checker) {
    let executors = &config.executors;
    checker.within(
        "executors.instances",
        executors.instances,
        1..=256,
        "executors",
    );
    checker.within(
        "executors.intra_op_threads",
        executors.intra_op_threads,
        0..=1024,
        "threads",
    );
    let stall = executors.stall_after_ms;
    checker.within(
        "executors.stall_after_ms",
        stall,
        100..=HOUR_MS,
        "milliseconds",
    );
}

fn limits(config: &ServeConfig, checker: &mut Checker) {
    checker.within(
        "limits.max_over_reference",
        config.limits.max_over_reference,
        1..=1_000_000,
        "times",
    );
    let limits = &config.limits;
    let request = limits.max_request_bytes;
    checker.within("limits.max_request_bytes", request, 1..=TIB, "bytes");
    if !(request..=TIB).contains(&limits.max_held_bytes) {
        let expected = format!("{request} (limits.max_request_bytes) to {TIB} bytes");
        checker.wrong("limits.max_held_bytes", limits.max_held_bytes, expected);
    }
    let connection = limits.max_held_bytes_per_connection;
    if connection != 0 && !(request..=TIB).contains(&connection) {
        let expected = format!("0, or {request} (limits.max_request_bytes) to {TIB} bytes");
        checker.wrong("limits.max_held_bytes_per_connection", connection, expected);
    }
    checker.within(
        "limits.max_in_flight",
        limits.max_in_flight,
        1..=1_000_000,
        "requests",
    );
    checker.within(
        "limits.max_in_flight_per_connection",
        limits.max_in_flight_per_connection,
        1..=u64::from(limits.max_in_flight.max(1)),
        "requests (limits.max_in_flight)",
    );
    checker.within(
        "limits.max_connections",
        limits.max_connections,
        1..=1_000_000,
        "connections",
    );
    let connections = u64::from(limits.max_connections);
    for (field, value) in [
        (
            "limits.max_connections_per_address",
            limits.max_connections_per_address,
        ),
        (
            "limits.max_connections_per_device",
            limits.max_connections_per_device,
        ),
    ] {
        let unit = "connections (limits.max_connections)";
        checker.within(field, value, 0..=connections, unit);
    }
    checker.within(
        "limits.max_sessions_per_connection",
        limits.max_sessions_per_connection,
        0..=1_000_000,
        "sessions",
    );
    checker.within(
        "limits.max_sessions",
        limits.max_sessions,
        0..=1_000_000,
        "sessions",
    );
}

fn transport(config: &ServeConfig, checker: &mut Checker) {
    let transport = &config.transport;
    let stream = transport.stream_window_bytes;
    checker.within(
        "transport.stream_window_bytes",
        stream,
        16_384..=1024 * MIB,
        "bytes",
    );
    let connection = transport.connection_window_bytes;
    if !(stream..=4 * GIB).contains(&connection) {
        let expected = format!(
            "{stream} (transport.stream_window_bytes) to {} bytes",
            4 * GIB
        );
        checker.wrong("transport.connection_window_bytes", connection, expected);
    }
    let send = transport.send_window_bytes;
    checker.within(
        "transport.send_window_bytes",
        send,
        16_384..=1024 * MIB,
        "bytes",
    );
    let idle = transport.idle_timeout_ms;
    checker.within(
        "transport.idle_timeout_ms",
        idle,
        1000..=600_000,
        "milliseconds",
    );
    checker.within("transport.threads", transport.threads, 0..=1024, "threads");
}
