//! What the service counts. Names, help and units are the constants of [`names`]; labels are
//! enums and indices of this program, never a string that a client sent.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{
    EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, prometheus_text,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};

/// The `Content-Type` of [`Metrics::encode`]'s text.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// Name, help and unit of one metric. The exposed name is `name`, then the unit, then `_total` for
/// counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Name without unit.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// Unit, if it has one.
    pub unit: Option<Unit>,
}

const fn describe(name: &'static str, help: &'static str, unit: Option<Unit>) -> Description {
    Description { name, help, unit }
}

/// Every metric of the service.
pub mod names {
    use super::{Description, Unit, describe};

    /// Counter by `outcome`.
    pub const REQUESTS: Description =
        describe("seamline_requests", "Requests answered, by outcome", None);
    /// Counter.
    pub const BYTES_IN: Description = describe(
        "seamline_received",
        "Payload received from clients",
        Some(Unit::Bytes),
    );
    /// Counter.
    pub const BYTES_OUT: Description = describe(
        "seamline_sent",
        "Payload sent to clients",
        Some(Unit::Bytes),
    );
    /// Gauge.
    pub const CONNECTIONS: Description =
        describe("seamline_connections", "Open client connections", None);
    /// Gauge.
    pub const IN_FLIGHT: Description = describe(
        "seamline_in_flight_requests",
        "Requests admitted and not yet answered",
        None,
    );
    /// Gauge.
    pub const BYTES_HELD: Description = describe(
        "seamline_held",
        "Memory declared by the requests in flight",
        Some(Unit::Bytes),
    );
    /// Gauge.
    pub const QUEUE_LENGTH: Description = describe(
        "seamline_queue_length",
        "Requests waiting for an executor",
        None,
    );
    /// Gauge.
    pub const SESSIONS: Description =
        describe("seamline_sessions", "Sessions that hold state slots", None);
    /// Histogram.
    pub const BATCH_SIZE: Description = describe(
        "seamline_batch_rows",
        "Rows in each batch that was run",
        None,
    );
    /// Histogram.
    pub const QUEUE_TIME: Description = describe(
        "seamline_queue_time",
        "Time from queueing a request to the start of its batch",
        Some(Unit::Seconds),
    );
    /// Histogram.
    pub const DECODE_TIME: Description = describe(
        "seamline_decode_time",
        "Time to decode the values of a batch",
        Some(Unit::Seconds),
    );
    /// Histogram.
    pub const RUN_TIME: Description = describe(
        "seamline_run_time",
        "Time to run the tail on a batch",
        Some(Unit::Seconds),
    );
    /// Histogram.
    pub const ENCODE_TIME: Description = describe(
        "seamline_encode_time",
        "Time to encode the answers of a batch",
        Some(Unit::Seconds),
    );
    /// Gauge by `executor`.
    pub const HEARTBEAT_AGE: Description = describe(
        "seamline_executor_heartbeat_age",
        "Time since an executor last showed that it is alive",
        Some(Unit::Seconds),
    );

    /// All of them, in the order in which they are exposed.
    pub const ALL: [Description; 14] = [
        REQUESTS,
        BYTES_IN,
        BYTES_OUT,
        CONNECTIONS,
        IN_FLIGHT,
        BYTES_HELD,
        QUEUE_LENGTH,
        SESSIONS,
        BATCH_SIZE,
        QUEUE_TIME,
        DECODE_TIME,
        RUN_TIME,
        ENCODE_TIME,
        HEARTBEAT_AGE,
    ];
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Answered.
    Ok,
    /// The client sent something that is not a valid request.
    Invalid,
    /// The contract or cut is not served here.
    UnknownContract,
    /// The client did not prove who it is, or may not do this.
    Unauthorized,
    /// Larger than the limit on one request.
    TooLarge,
    /// Shed because a queue or another limit was full.
    Overloaded,
    /// Refused because the service is stopping.
    Draining,
    /// Its deadline passed before it was answered.
    DeadlineExceeded,
    /// The client took it back or went away.
    Cancelled,
    /// The service failed.
    Internal,
}

impl Outcome {
    /// Every outcome.
    pub const ALL: [Outcome; 10] = [
        Outcome::Ok,
        Outcome::Invalid,
        Outcome::UnknownContract,
        Outcome::Unauthorized,
        Outcome::TooLarge,
        Outcome::Overloaded,
        Outcome::Draining,
        Outcome::DeadlineExceeded,
        Outcome::Cancelled,
        Outcome::Internal,
    ];

    /// The value of the label `outcome`.
    pub const fn label(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Invalid => "invalid",
            Outcome::UnknownContract => "unknown_contract",
            Outcome::Unauthorized => "unauthorized",
            Outcome::TooLarge => "too_large",
            Outcome::Overloaded => "overloaded",
            Outcome::Draining => "draining",
            Outcome::DeadlineExceeded => "deadline_exceeded",
            Outcome::Cancelled => "cancelled",
            Outcome::Internal => "internal",
        }
    }
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.label().encode(encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExecutorLabel {
    executor: u32,
}

/// The counters themselves. Shared by reference; every method is cheap and takes `&self`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<OutcomeLabel, Counter>,
    heartbeat_age: Family<ExecutorLabel, Gauge<f64, AtomicU64>>,
    bytes_in: Counter,
    bytes_out: Counter,
    /// Open client connections.
    pub connections: Gauge,
    in_flight: Gauge,
    bytes_held: Gauge,
    queue_length: Gauge,
    /// Sessions that hold state slots.
    pub sessions: Gauge,
    batch_rows: Histogram,
    queue_time: Histogram,
    decode_time: Histogram,
    run_time: Histogram,
    encode_time: Histogram,
}

/// Upper bounds of time histograms, in seconds: 50 µs to 26 s, doubling.
fn time_buckets() -> Histogram {
    Histogram::new((0..20).map(|power| 5e-5 * f64::from(1u32 << power)))
}

/// Upper bounds of batch sizes, in rows: 1 to 256, doubling.
fn row_buckets() -> Histogram {
    Histogram::new((0..9).map(|power| f64::from(1u32 << power)))
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// All metrics at zero, every outcome already present.
    pub fn new() -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::default(),
            requests: Family::default(),
            heartbeat_age: Family::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            connections: Gauge::default(),
            in_flight: Gauge::default(),
            bytes_held: Gauge::default(),
            queue_length: Gauge::default(),
            sessions: Gauge::default(),
            batch_rows: row_buckets(),
            queue_time: time_buckets(),
            decode_time: time_buckets(),
            run_time: time_buckets(),
            encode_time: time_buckets(),
        };
        metrics.register_all();
        for outcome in Outcome::ALL {
            let _zero = metrics.requests.get_or_create(&OutcomeLabel { outcome });
        }
        metrics
    }

    fn register_all(&mut self) {
        let registry = &mut self.registry;
        register(registry, names::REQUESTS, &self.requests);
        register(registry, names::BYTES_IN, &self.bytes_in);
        register(registry, names::BYTES_OUT, &self.bytes_out);
        register(registry, names::CONNECTIONS, &self.connections);
        register(registry, names::IN_FLIGHT, &self.in_flight);
        register(registry, names::BYTES_HELD, &self.bytes_held);
        register(registry, names::QUEUE_LENGTH, &self.queue_length);
        register(registry, names::SESSIONS, &self.sessions);
        register(registry, names::BATCH_SIZE, &self.batch_rows);
        register(registry, names::QUEUE_TIME, &self.queue_time);
        register(registry, names::DECODE_TIME, &self.decode_time);
        register(registry, names::RUN_TIME, &self.run_time);
        register(registry, names::ENCODE_TIME, &self.encode_time);
        register(registry, names::HEARTBEAT_AGE, &self.heartbeat_age);
    }

    /// Counts one request that was answered, or whose client went away.
    pub fn request_done(&self, outcome: Outcome) {
        self.requests.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Requests that ended so.
    pub fn requests(&self, outcome: Outcome) -> u64 {
        self.requests.get_or_create(&OutcomeLabel { outcome }).get()
    }

    /// Counts payload received, in bytes.
    pub fn received(&self, bytes: u64) {
        self.bytes_in.inc_by(bytes);
    }

    /// Counts payload sent, in bytes.
    pub fn sent(&self, bytes: u64) {
        self.bytes_out.inc_by(bytes);
    }

    /// Counts one request's time in the queue.
    pub fn queued(&self, time: Duration) {
        self.queue_time.observe(time.as_secs_f64());
    }

    /// Counts one batch: its rows, and its time in each step.
    pub fn batch_done(&self, rows: u32, decode: Duration, run: Duration, encode: Duration) {
        self.batch_rows.observe(f64::from(rows));
        self.decode_time.observe(decode.as_secs_f64());
        self.run_time.observe(run.as_secs_f64());
        self.encode_time.observe(encode.as_secs_f64());
    }

    /// States the present load: requests in flight, the bytes they hold, requests queued.
    pub fn set_load(&self, in_flight: u32, bytes_held: u64, queue_length: usize) {
        self.in_flight.set(i64::from(in_flight));
        self.bytes_held
            .set(i64::try_from(bytes_held).unwrap_or(i64::MAX));
        self.queue_length
            .set(i64::try_from(queue_length).unwrap_or(i64::MAX));
    }

    /// States how long ago an executor was last heard of.
    pub fn set_heartbeat_age(&self, executor: u32, age: Duration) {
        self.heartbeat_age
            .get_or_create(&ExecutorLabel { executor })
            .set(age.as_secs_f64());
    }

    /// All metrics in the Prometheus text format, version 0.0.4 (see [`CONTENT_TYPE`]).
    ///
    /// # Errors
    /// None in practice: writing to a `String` does not fail.
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

fn register(registry: &mut Registry, description: Description, metric: &(impl Metric + Clone)) {
    let Description { name, help, unit } = description;
    match unit {
        Some(unit) => registry.register_with_unit(name, help, unit, metric.clone()),
        None => registry.register(name, help, metric.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_described_metric_is_exposed_and_nothing_else() {
        let metrics = Metrics::new();
        metrics.set_heartbeat_age(0, Duration::from_millis(1500));
        let text = metrics.encode().unwrap();
        let mut exposed: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# HELP "))
            .collect();
        exposed.sort_unstable();
        let mut described: Vec<String> = names::ALL
            .iter()
            .map(|d| {
                let unit = d
                    .unit
                    .as_ref()
                    .map_or(String::new(), |u| format!("_{}", u.as_str()));
                let counter = [names::REQUESTS, names::BYTES_IN, names::BYTES_OUT].contains(d);
                format!(
                    "{}{unit}{} {}.",
                    d.name,
                    if counter { "_total" } else { "" },
                    d.help
                )
            })
            .collect();
        described.sort_unstable();
        assert_eq!(exposed, described, "{text}");
    }

    #[test]
    fn values_and_labels() {
        let metrics = Metrics::new();
        metrics.request_done(Outcome::DeadlineExceeded);
        metrics.request_done(Outcome::DeadlineExceeded);
        metrics.received(300);
        metrics.batch_done(4, Duration::ZERO, Duration::from_millis(3), Duration::ZERO);
        metrics.set_load(7, 1 << 20, 5);
        metrics.set_heartbeat_age(1, Duration::from_millis(1500));
        let text = metrics.encode().unwrap();
        for line in [
            "seamline_requests_total{outcome=\"deadline_exceeded\"} 2",
            "seamline_requests_total{outcome=\"ok\"} 0",
            "seamline_received_bytes_total 300",
            "seamline_batch_rows_bucket{le=\"2\"} 0",
            "seamline_batch_rows_bucket{le=\"4\"} 1",
            "seamline_in_flight_requests 7",
            "seamline_held_bytes 1048576",
            "seamline_queue_length 5",
            "seamline_executor_heartbeat_age_seconds{executor=\"1\"} 1.5",
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "no line {line:?} in\n{text}"
            );
        }
    }
}
