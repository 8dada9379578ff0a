//! The gate in front of everything that costs memory or time: a request is admitted before its
//! payload is read, holds a [`Permit`] until its answer is sent, and gives everything back when
//! the permit drops, however the request ends.

mod rate;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use rate::DrainRate;

/// Identifies a connection for as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// What the service takes on at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Requests between admission and answer, over all connections.
    pub max_in_flight: u32,
    /// The same for one connection.
    pub max_in_flight_per_connection: u32,
    /// Bytes declared by admitted requests, over all connections.
    pub max_bytes: u64,
    /// The same for one connection.
    pub max_bytes_per_connection: u64,
}

impl AdmissionLimits {
    /// Whether a request of `bytes` fits where nothing else is held.
    fn check_alone(&self, bytes: u64) -> Result<(), ShedReason> {
        let limit = self.max_bytes.min(self.max_bytes_per_connection);
        if bytes > limit {
            return Err(ShedReason::TooLarge { bytes, limit });
        }
        Ok(())
    }
}

/// Why a request was not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ShedReason {
    /// The service is stopping; another replica is to be asked.
    #[error("the service is draining")]
    Draining,
    /// The request alone is larger than all that may be held: it can never be admitted.
    #[error("{bytes} bytes exceed the {limit} bytes that the service holds for one request")]
    TooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// Too many requests in flight.
    #[error("{limit} requests are in flight, the most that the service takes")]
    InFlight {
        /// `max_in_flight`, in requests.
        limit: u32,
    },
    /// Too many requests in flight on this connection.
    #[error("{limit} requests are in flight on this connection, the most that it may have")]
    InFlightOnConnection {
        /// `max_in_flight_per_connection`, in requests.
        limit: u32,
    },
    /// Too many bytes held by this connection.
    #[error("holding {bytes} more bytes would exceed the {limit} bytes for one connection")]
    BytesOnConnection {
        /// Bytes asked for.
        bytes: u64,
        /// `max_bytes_per_connection`.
        limit: u64,
    },
    /// Too many bytes held.
    #[error("holding {bytes} more bytes would exceed the {limit} bytes for all requests")]
    Bytes {
        /// Bytes asked for.
        bytes: u64,
        /// `max_bytes`.
        limit: u64,
    },
}

/// A refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Shed {
    /// Why.
    #[source]
    pub reason: ShedReason,
    /// When asking again here makes sense; `None` means never.
    pub retry_after: Option<Duration>,
}

type Clock = Box<dyn Fn() -> Instant + Send + Sync>;

/// The gate. Clones are handles to the same gate.
#[derive(Clone)]
pub struct Admission {
    inner: Arc<Inner>,
}

struct Inner {
    limits: AdmissionLimits,
    clock: Clock,
    state: Mutex<State>,
    /// Wakes [`Admission::drained`].
    released: Notify,
}

struct State {
    in_flight: u32,
    bytes: u64,
    by_connection: HashMap<ConnectionId, Held>,
    draining: bool,
    rate: DrainRate,
}

/// What one connection holds.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    requests: u32,
    bytes: u64,
}

/// The right to be in flight with some bytes; dropping it gives both back.
pub struct Permit {
    inner: Arc<Inner>,
    connection: ConnectionId,
    bytes: u64,
}

impl Admission {
    /// An open gate with nothing in flight.
    pub fn new(limits: AdmissionLimits) -> Admission {
        Admission::with_clock(limits, Instant::now)
    }

    /// The same with a clock of the caller, for tests in virtual time.
    pub fn with_clock(
        limits: AdmissionLimits,
        clock: impl Fn() -> Instant + Send + Sync + 'static,
    ) -> Admission {
        let state = State {
            in_flight: 0,
            bytes: 0,
            by_connection: HashMap::new(),
            draining: false,
            rate: DrainRate::new(),
        };
        Admission {
            inner: Arc::new(Inner {
                limits,
                clock: Box::new(clock),
                state: Mutex::new(state),
                released: Notify::new(),
            }),
        }
    }

    /// The limits in force.
    pub fn limits(&self) -> AdmissionLimits {
        self.inner.limits
    }

    /// Admits a request that declares `bytes` of memory (payload, and what decoding it takes).
    ///
    /// # Errors
    /// [`Shed`] when a limit would be exceeded or the service drains; nothing is held then.
    pub fn try_admit(&self, connection: ConnectionId, bytes: u64) -> Result<Permit, Shed> {
        let now = (self.inner.clock)();
        let mut state = self.inner.state.lock();
        if let Err(reason) = state.check(&self.inner.limits, connection, bytes) {
            return Err(state.shed(now, reason));
        }
        state.in_flight += 1;
        state.bytes += bytes;
        let held = state.by_connection.entry(connection).or_default();
        held.requests += 1;
        held.bytes += bytes;
        Ok(Permit {
            inner: Arc::clone(&self.inner),
            connection,
            bytes,
        })
    }

    /// Refuses all requests from now on; those admitted keep their permits.
    pub fn start_drain(&self) {
        self.inner.state.lock().draining = true;
        self.inner.released.notify_waiters();
    }

    /// Whether [`Admission::start_drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.inner.state.lock().draining
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.inner.state.lock().in_flight
    }

    /// Requests in flight on one connection.
    pub fn in_flight_on(&self, connection: ConnectionId) -> u32 {
        self.inner.state.lock().held_by(connection).requests
    }

    /// Bytes held by requests in flight.
    pub fn bytes_held(&self) -> u64 {
        self.inner.state.lock().bytes
    }

    /// Completes once the gate is draining and the last permit is back.
    pub async fn drained(&self) {
        loop {
            let mut released = std::pin::pin!(self.inner.released.notified());
            // Registered before the check, so that a release in between is not missed.
            released.as_mut().enable();
            {
                let state = self.inner.state.lock();
                if state.draining && state.in_flight == 0 {
                    return;
                }
            }
            released.await;
        }
    }
}

impl State {
    fn check(
        &self,
        limits: &AdmissionLimits,
        connection: ConnectionId,
        bytes: u64,
    ) -> Result<(), ShedReason> {
        if self.draining {
            return Err(ShedReason::Draining);
        }
        limits.check_alone(bytes)?;
        let held = self.held_by(connection);
        if held.requests >= limits.max_in_flight_per_connection {
            let limit = limits.max_in_flight_per_connection;
            return Err(ShedReason::InFlightOnConnection { limit });
        }
        if self.in_flight >= limits.max_in_flight {
            return Err(ShedReason::InFlight {
                limit: limits.max_in_flight,
            });
        }
        self.check_bytes(limits, held.bytes, bytes)
    }

    /// Whether `more` bytes fit beside what all hold, and beside the `held` of one connection.
    fn check_bytes(
        &self,
        limits: &AdmissionLimits,
        held: u64,
        more: u64,
    ) -> Result<(), ShedReason> {
        let bytes = more;
        let limit = limits.max_bytes_per_connection;
        if bytes > limit.saturating_sub(held) {
            return Err(ShedReason::BytesOnConnection { bytes, limit });
        }
        let limit = limits.max_bytes;
        if bytes > limit.saturating_sub(self.bytes) {
            return Err(ShedReason::Bytes { bytes, limit });
        }
        Ok(())
    }

    fn held_by(&self, connection: ConnectionId) -> Held {
        self.by_connection
            .get(&connection)
            .copied()
            .unwrap_or_default()
    }

    fn shed(&self, now: Instant, reason: ShedReason) -> Shed {
        let retry_after = match reason {
            ShedReason::Draining | ShedReason::TooLarge { .. } => None,
            ShedReason::InFlight { .. }
            | ShedReason::InFlightOnConnection { .. }
            | ShedReason::BytesOnConnection { .. }
            | ShedReason::Bytes { .. } => Some(self.rate.time_to_drain(now, self.in_flight)),
        };
        Shed {
            reason,
            retry_after,
        }
    }
}

impl Permit {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The connection it was given to.
    pub fn connection(&self) -> ConnectionId {
        self.connection
    }

    /// Changes the bytes held, as more becomes known about the request (decoded sizes) or parts of
    /// it are freed. Less always succeeds, while draining too.
    ///
    /// # Errors
    /// [`Shed`] when the limit would be exceeded; the permit is as before.
    pub fn resize(&mut self, bytes: u64) -> Result<(), Shed> {
        let now = (self.inner.clock)();
        let limits = &self.inner.limits;
        let mut state = self.inner.state.lock();
        if let Some(more) = bytes.checked_sub(self.bytes) {
            let held = state.held_by(self.connection).bytes;
            let fits = limits
                .check_alone(bytes)
                .and_then(|()| state.check_bytes(limits, held, more));
            if let Err(reason) = fits {
                return Err(state.shed(now, reason));
            }
        }
        state.bytes = state.bytes - self.bytes + bytes;
        if let Some(held) = state.by_connection.get_mut(&self.connection) {
            held.bytes = held.bytes - self.bytes + bytes;
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let now = (self.inner.clock)();
        let mut state = self.inner.state.lock();
        state.in_flight -= 1;
        state.bytes -= self.bytes;
        if let Some(held) = state.by_connection.get_mut(&self.connection) {
            held.requests -= 1;
            held.bytes -= self.bytes;
            if held.requests == 0 {
                state.by_connection.remove(&self.connection);
            }
        }
        state.rate.record(now);
        let drained = state.draining && state.in_flight == 0;
        drop(state);
        if drained {
            self.inner.released.notify_waiters();
        }
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.inner.state.lock();
        f.debug_struct("Admission")
            .field("limits", &self.inner.limits)
            .field("in_flight", &state.in_flight)
            .field("bytes", &state.bytes)
            .field("draining", &state.draining)
            .finish()
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit")
            .field("connection", &self.connection)
            .field("bytes", &self.bytes)
            .finish()
    }
}
