//! The tables of the configuration file.

use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::admission::AdmissionLimits;
use crate::batcher::BatchLimits;

/// Form of the log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// How a device proves who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuthMode {
    /// By a client certificate of the service's own CA.
    Certificates,
    /// By a token in its hello.
    Tokens,
    /// By either.
    Either,
}

/// Who the service is, and whom it serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdentityConfig {
    /// Folder made by `seamline-cloud identity new`: the server's certificate and key, the CA's
    /// certificate, and the list of tokens where tokens are accepted.
    ///
    /// Default `identity`.
    pub dir: PathBuf,
    /// What a device must show: `"certificates"`, `"tokens"` or `"either"`.
    ///
    /// Default `"certificates"`. Tokens suit devices that cannot keep a key of their own; a token
    /// that leaks is good for anyone until it is taken off the list.
    pub auth: AuthMode,
}

impl Default for IdentityConfig {
    fn default() -> IdentityConfig {
        IdentityConfig {
            dir: PathBuf::from("identity"),
            auth: AuthMode::Certificates,
        }
    }
}

/// Metrics and health, on an address and with a credential of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminConfig {
    /// Whether `/metrics`, `/healthz` and `/readyz` are served at all.
    ///
    /// Default true. Switch it off where nobody watches, as in a one-off demo.
    pub enabled: bool,
    /// TCP address of the admin plane.
    ///
    /// Default `127.0.0.1:7444`: only this machine. An address that others can reach needs
    /// `token_file`.
    pub listen: SocketAddr,
    /// File whose content, white space around it removed, is the bearer token that every admin
    /// request must carry: 16 to 1024 visible ASCII characters.
    ///
    /// Default none: `admin.token` in the identity folder, which `seamline-cloud identity new`
    /// makes. The service does not start without a token unless the admin plane is off.
    pub token_file: Option<PathBuf>,
    /// Whether `/healthz` and `/readyz` are answered without the token.
    ///
    /// Default false. Orchestrators that cannot send one need true; they then tell anyone who can
    /// reach the address whether the service is up.
    pub open_probes: bool,
}

impl Default for AdminConfig {
    fn default() -> AdminConfig {
        AdminConfig {
            enabled: true,
            listen: SocketAddr::from(([127, 0, 0, 1], 7444)),
            token_file: None,
            open_probes: false,
        }
    }
}

/// How requests are joined and queued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchingConfig {
    /// Most rows that are run together.
    ///
    /// Default 8; bounds 1 to 4096. Every size up to it that is warmed costs start-up time and
    /// memory for intermediate values. Raise it on a GPU; on a CPU small nets gain little above 4.
    pub max_batch_size: u32,
    /// Sizes in rows that the hardware runs best, each at most `max_batch_size`.
    ///
    /// Default none: whatever is waiting is run. Set them where measurements show steps, as with
    /// tensor cores.
    pub preferred_batch_sizes: Vec<u32>,
    /// Longest time in microseconds that a request waits for others while an executor is free.
    ///
    /// Default 0: a free executor never waits, and batches form only while all are busy. Bounds
    /// 0 to 10 000 000. Costs up to that much latency at low load; raise it only where larger
    /// batches are much cheaper a row.
    pub max_queue_delay_us: u64,
    /// Most requests that wait; the next one is refused as overloaded.
    ///
    /// Default 1024; bounds 1 to 65 536. A long queue turns overload into late answers instead of
    /// early refusals: keep it to what is run within the usual deadline.
    pub max_queue_len: u32,
    /// Deadline in milliseconds for requests that state none, counted from their arrival.
    ///
    /// Default 10 000; bounds 1 to 3 600 000.
    pub default_deadline_ms: u64,
}

impl Default for BatchingConfig {
    fn default() -> BatchingConfig {
        let limits = BatchLimits::default();
        BatchingConfig {
            max_batch_size: limits.max_batch_size,
            preferred_batch_sizes: limits.preferred_batch_sizes,
            max_queue_delay_us: 0,
            max_queue_len: limits.max_queue_len,
            default_deadline_ms: 10_000,
        }
    }
}

impl BatchingConfig {
    /// The limits of the [`crate::batcher::Batcher`].
    pub fn limits(&self) -> BatchLimits {
        BatchLimits {
            max_batch_size: self.max_batch_size,
            preferred_batch_sizes: self.preferred_batch_sizes.clone(),
            max_queue_delay: Duration::from_micros(self.max_queue_delay_us),
            max_queue_len: self.max_queue_len,
        }
    }

    /// Deadline for requests that state none.
    pub fn default_deadline(&self) -> Duration {
        Duration::from_millis(self.default_deadline_ms)
    }
}

/// What runs the tails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExecutorsConfig {
    /// Batches that run at the same time.
    ///
    /// Default 1; bounds 1 to 256. More than one helps where a single run cannot use all cores;
    /// each needs memory for its intermediate values.
    pub instances: u32,
    /// Threads that all runs together may use inside operators; 0 takes one for each core.
    ///
    /// Default 0; bounds 0 to 1024. Lower it where other work shares the machine.
    pub intra_op_threads: u32,
    /// Silence in milliseconds after which an executor counts as stuck and `/healthz` fails.
    ///
    /// Default 30 000; bounds 100 to 3 600 000. Must exceed the longest run of a batch.
    pub stall_after_ms: u64,
}

impl Default for ExecutorsConfig {
    fn default() -> ExecutorsConfig {
        ExecutorsConfig {
            instances: 1,
            intra_op_threads: 0,
            stall_after_ms: 30_000,
        }
    }
}

impl ExecutorsConfig {
    /// Silence after which an executor counts as stuck.
    pub fn stall_after(&self) -> Duration {
        Duration::from_millis(self.stall_after_ms)
    }
}

/// What the service takes on at most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Largest request, in bytes of encoded payload.
    ///
    /// Default 67 108 864 (64 MiB); bounds 1 to 1 099 511 627 776 (1 TiB). Larger ones are refused
    /// before anything is allocated.
    pub max_request_bytes: u64,
    /// Memory that the requests in flight may hold together, in bytes.
    ///
    /// Default 1 073 741 824 (1 GiB); at least `max_request_bytes`, at most 1 TiB. Set it to what
    /// the machine has left beside weights and intermediate values.
    pub max_held_bytes: u64,
    /// The same for one connection.
    ///
    /// Default 0, which is half of `max_held_bytes`, but never less than twice
    /// `max_request_bytes`; else at least `max_request_bytes`. Keeps a device that sends slowly from
    /// holding what all share.
    pub max_held_bytes_per_connection: u64,
    /// Elements of a row of a value, where its dimensions are free, as a multiple of what they were
    /// when the bundle was made.
    ///
    /// Default 64; bounds 1 to 1 000 000. A tail's intermediate values grow with it: at 64 a text
    /// line may be 64 times as long as the one that the model was split with.
    pub max_over_reference: u32,
    /// Requests between admission and answer.
    ///
    /// Default 2048; bounds 1 to 1 000 000. Must leave room for the queue and the running batches;
    /// beyond it requests are refused with a time to come back.
    pub max_in_flight: u32,
    /// The same for one connection.
    ///
    /// Default 64; bounds 1 to `max_in_flight`. Keeps one device from taking the whole service.
    pub max_in_flight_per_connection: u32,
    /// Open connections.
    ///
    /// Default 4096; bounds 1 to 1 000 000. Each costs some tens of KiB, and up to
    /// `transport.connection_window_bytes` while it sends.
    pub max_connections: u32,
    /// The same from one IP address (IPv6: one /64 network), handshakes included.
    ///
    /// Default 0, which is half of `max_connections`; bounds 0 to `max_connections`. Lower it where
    /// devices do not share an address: whoever can send packets can begin handshakes.
    pub max_connections_per_address: u32,
    /// The same of one device identity (certificate name or token).
    ///
    /// Default 0, which is half of `max_connections`; bounds 0 to `max_connections`. Lower it where
    /// each device has an identity of its own.
    pub max_connections_per_device: u32,
    /// Sessions that hold state (recurrent state, KV cache) at the same time.
    ///
    /// Default 1024; bounds 0 to 1 000 000; 0 refuses stateful models. Each costs the bytes of its
    /// model's state.
    pub max_sessions: u32,
    /// The same for one connection.
    ///
    /// Default 256; bounds 0 to 1 000 000.
    pub max_sessions_per_connection: u32,
}

impl Default for LimitsConfig {
    fn default() -> LimitsConfig {
        LimitsConfig {
            max_request_bytes: 64 << 20,
            max_held_bytes: 1 << 30,
            max_held_bytes_per_connection: 0,
            max_over_reference: 64,
            max_in_flight: 2048,
            max_in_flight_per_connection: 64,
            max_connections: 4096,
            max_connections_per_address: 0,
            max_connections_per_device: 0,
            max_sessions: 1024,
            max_sessions_per_connection: 256,
        }
    }
}

impl LimitsConfig {
    /// The limits of the [`crate::admission::Admission`].
    pub fn admission(&self) -> AdmissionLimits {
        AdmissionLimits {
            max_in_flight: self.max_in_flight,
            max_in_flight_per_connection: self.max_in_flight_per_connection,
            max_bytes: self.max_held_bytes,
            max_bytes_per_connection: self.held_per_connection(),
        }
    }

    fn held_per_connection(&self) -> u64 {
        match self.max_held_bytes_per_connection {
            // A raw request counts twice, as its payload and as its tensors.
            0 => (self.max_held_bytes / 2).max(self.max_request_bytes.saturating_mul(2)),
            bytes => bytes,
        }
    }
}

/// Congestion control algorithm for what the service sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Congestion {
    /// RFC 9438: the usual choice.
    Cubic,
    /// Model-based; holds its rate on links that lose packets at random.
    Bbr,
}

/// QUIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransportConfig {
    /// Congestion control: `"cubic"` or `"bbr"`.
    ///
    /// Default `"cubic"`. It governs the answers; requests follow the device's own setting.
    pub congestion: Congestion,
    /// Bytes that one request may have under way before the service has read them.
    ///
    /// Default 8 388 608 (8 MiB); bounds 16 384 to 1 073 741 824. A stream is no faster than this
    /// over the round-trip time (8 MiB at 60 ms: 1.1 Gbit/s).
    pub stream_window_bytes: u64,
    /// The same for all requests of a connection together.
    ///
    /// Default 33 554 432 (32 MiB); bounds `stream_window_bytes` to 4 294 967 296. A connection
    /// can hold this much memory.
    pub connection_window_bytes: u64,
    /// Bytes of answers that a connection buffers until the device acknowledges them.
    ///
    /// Default 8 388 608 (8 MiB); bounds 16 384 to 1 073 741 824.
    pub send_window_bytes: u64,
    /// Silence in milliseconds after which a connection is closed; devices send keep-alives more
    /// often.
    ///
    /// Default 30 000; bounds 1000 to 600 000. Longer keeps the memory of vanished devices.
    pub idle_timeout_ms: u64,
    /// Threads that the network runs on; 0 takes one for every four cores, at least one.
    ///
    /// Default 0; bounds 0 to 1024. Raise it where these threads are always busy; more than needed
    /// take cores from the executors and cost each request a hand-over between cores.
    pub threads: u32,
}

impl TransportConfig {
    /// Threads that the network runs on.
    pub fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        match self.threads {
            0 => cores.div_ceil(4),
            threads => threads as usize,
        }
    }
}

impl Default for TransportConfig {
    fn default() -> TransportConfig {
        TransportConfig {
            congestion: Congestion::Cubic,
            stream_window_bytes: 8 << 20,
            connection_window_bytes: 32 << 20,
            send_window_bytes: 8 << 20,
            idle_timeout_ms: 30_000,
            threads: 0,
        }
    }
}
