//! A welcomed client: its control stream and its requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use parking_lot::Mutex;
use quinn::{Connection, RecvStream, SendStream};
use seamline_wire::{
    Deadlines, ErrorCode, Limits, ServerEvent, ServerSession, SessionCounts, Terminal, WireError,
};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::quota::Place;
use super::stream::{self, PendingRequest};
use super::{Contracts, ServerOptions};
use crate::CloseReason;
use crate::error::varint;
use crate::identity::PeerIdentity;

/// How long a drain waits for the client to acknowledge the last answers.
const DRAIN_DELIVERY: Duration = Duration::from_secs(5);

/// Finished answers that are remembered until acknowledged, before old ones are looked through.
const UNDELIVERED_BEFORE_PRUNE: usize = 32;

/// The most that is read from the control stream at a time.
const CONTROL_CHUNK: usize = 16 << 10;

/// What a connection's tasks and responders share.
pub(super) struct Shared {
    pub(super) quic: Connection,
    pub(super) session: Mutex<ServerSession>,
    pub(super) limits: Limits,
    pub(super) deadlines: Deadlines,
    pub(super) contracts: Arc<dyn Contracts>,
    identity: PeerIdentity,
    agent: String,
    /// Answers that were sent and may not have arrived; a drain waits for them.
    undelivered: Mutex<Vec<SendStream>>,
    /// The control stream has something to send.
    control: Notify,
    /// A drain began, or a request ended during one.
    drain: Notify,
}

impl Shared {
    /// Closes over a breach of the protocol.
    pub(super) fn breach(&self, error: &WireError) {
        let peer = self.quic.remote_address();
        tracing::warn!(%peer, device = %self.identity, %error, code = %error.code(), "connection closed: the client broke the protocol");
        self.close(error.code(), &error.to_string());
    }

    pub(super) fn close(&self, code: ErrorCode, reason: &str) {
        self.quic.close(varint(code), reason.as_bytes());
    }

    pub(super) fn end(&self, stream: u64, terminal: Terminal) {
        let mut session = self.session.lock();
        session.end(stream, terminal);
        if session.is_draining() {
            self.drain.notify_one();
        }
    }

    /// Remembers a finished answer.
    pub(super) fn delivering(&self, send: SendStream) {
        let mut undelivered = self.undelivered.lock();
        if undelivered.len() >= UNDELIVERED_BEFORE_PRUNE {
            use futures_util::FutureExt;
            undelivered.retain(|send| send.stopped().now_or_never().is_none());
        }
        undelivered.push(send);
    }

    fn is_drained(&self) -> bool {
        self.session.lock().is_drained()
    }

    async fn delivered(&self) {
        let undelivered = std::mem::take(&mut *self.undelivered.lock());
        let all = async {
            for send in undelivered {
                // A client that stopped reading, or is gone, needs nothing delivered.
                let _ = send.stopped().await;
            }
        };
        if timeout(DRAIN_DELIVERY, all).await.is_err() {
            tracing::warn!(peer = %self.quic.remote_address(), "drained, but the client did not acknowledge the last answers");
        }
    }
}

/// A welcomed client. Headers are read while [`next_request`](Self::next_request) is awaited.
pub struct ServerConnection {
    shared: Arc<Shared>,
    streams: FuturesUnordered<BoxFuture<'static, Option<PendingRequest>>>,
    _place: Place,
}

impl ServerConnection {
    pub(super) fn start(
        quic: Connection,
        control: (SendStream, RecvStream),
        rest: Bytes,
        options: &ServerOptions,
        agent: String,
        contracts: Arc<dyn Contracts>,
        place: Place,
    ) -> ServerConnection {
        let shared = Arc::new(Shared {
            quic,
            session: Mutex::new(ServerSession::new(options.limits.clone())),
            limits: options.limits.clone(),
            deadlines: options.deadlines,
            contracts,
            identity: place.identity().clone(),
            agent,
            undelivered: Mutex::new(Vec::new()),
            control: Notify::new(),
            drain: Notify::new(),
        });
        tokio::spawn(run_control(shared.clone(), control, rest));
        ServerConnection {
            shared,
            streams: FuturesUnordered::new(),
            _place: place,
        }
    }

    /// The next request whose header is there; `None` once the connection is over or a drain is
    /// complete. Its payloads come by [`PendingRequest::receive`], best in a task of its own.
    ///
    /// Cancel-safe: a dropped call loses nothing. Requests that break a rule are answered or
    /// closed over here and never returned.
    pub async fn next_request(&mut self) -> Option<PendingRequest> {
        loop {
            if self.shared.is_drained() && self.streams.is_empty() {
                self.shared.delivered().await;
                self.shared.close(
                    ErrorCode::Draining,
                    "the service is draining; connect to another replica",
                );
            }
            tokio::select! {
                biased;
                Some(request) = self.streams.next(), if !self.streams.is_empty() => {
                    if request.is_some() {
                        return request;
                    }
                }
                accepted = self.shared.quic.accept_bi() => match accepted {
                    Ok((send, recv)) => {
                        let read = stream::read(self.shared.clone(), send, recv);
                        self.streams.push(Box::pin(read));
                    }
                    Err(_) => {
                        self.shared.session.lock().handle_closed();
                        return None;
                    }
                },
                () = self.shared.drain.notified() => {}
            }
        }
    }

    /// A handle for other tasks.
    pub fn handle(&self) -> ConnectionHandle {
        ConnectionHandle {
            shared: self.shared.clone(),
        }
    }

    /// Who the client is.
    pub fn identity(&self) -> &PeerIdentity {
        &self.shared.identity
    }

    /// The client's program and version, as it says.
    pub fn agent(&self) -> &str {
        &self.shared.agent
    }

    /// Where the client is now.
    pub fn remote_address(&self) -> SocketAddr {
        self.shared.quic.remote_address()
    }
}

/// A connection, for other tasks than the one that takes its requests.
#[derive(Clone)]
pub struct ConnectionHandle {
    shared: Arc<Shared>,
}

impl ConnectionHandle {
    /// Takes no new request: they are answered `Draining`. When those in flight are answered and
    /// their answers delivered, the connection closes and
    /// [`next_request`](ServerConnection::next_request), which must go on being awaited, gives
    /// `None`.
    pub fn drain(&self) {
        if let Err(error) = self.shared.session.lock().drain() {
            tracing::error!(%error, "cannot tell the client of the drain");
        }
        self.shared.control.notify_one();
        self.shared.drain.notify_one();
    }

    /// Tells the client how busy the service is, unasked.
    pub fn send_load(&self) {
        let load = self.shared.contracts.load();
        if let Err(error) = self.shared.session.lock().send_load(load) {
            tracing::error!(%error, "cannot tell the client of the load");
        }
        self.shared.control.notify_one();
    }

    /// Closes at once; what is in flight is lost.
    pub fn close(&self, code: ErrorCode, reason: &str) {
        self.shared.close(code, reason);
    }

    /// Who the client is.
    pub fn identity(&self) -> &PeerIdentity {
        &self.shared.identity
    }

    /// Waits for the connection's end.
    pub async fn wait_closed(&self) -> CloseReason {
        CloseReason::from(&self.shared.quic.closed().await)
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.shared.session.lock().in_flight()
    }

    /// How requests ended so far.
    pub fn counts(&self) -> SessionCounts {
        self.shared.session.lock().counts()
    }

    /// The path's round trip, as measured.
    pub fn rtt(&self) -> Duration {
        self.shared.quic.rtt()
    }
}

/// Answers what the client opens, and says load and drain.
async fn run_control(shared: Arc<Shared>, control: (SendStream, RecvStream), rest: Bytes) {
    let (mut send, mut recv) = control;
    let mut chunk = Some(rest);
    let mut reading = true;
    loop {
        if let Some(bytes) = chunk.take()
            && let Err(error) = handle_control(&shared, bytes)
        {
            shared.breach(&error);
            return;
        }
        loop {
            let transmit = shared.session.lock().poll_transmit();
            let Some(frame) = transmit else { break };
            match timeout(shared.deadlines.header, send.write_chunk(frame)).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return,
                Err(_) => {
                    // It asks, and does not read what it is told: nothing is kept for it.
                    let code = ErrorCode::DeadlineExceeded;
                    shared.close(code, "the client does not read the control stream");
                    return;
                }
            }
        }
        tokio::select! {
            read = recv.read_chunk(CONTROL_CHUNK, true), if reading => match read {
                Ok(Some(read)) => chunk = Some(read.bytes),
                // The client asks nothing more; it still hears of load and drain.
                Ok(None) => reading = false,
                Err(_) => return,
            },
            () = shared.control.notified() => {}
            _ = shared.quic.closed() => return,
        }
    }
}

fn handle_control(shared: &Shared, bytes: Bytes) -> Result<(), WireError> {
    shared.session.lock().handle_control(bytes)?;
    loop {
        // Not under the lock: `contracts` is the service's own code.
        let event = shared.session.lock().poll_event();
        let Some(ServerEvent::Open { fingerprint, model }) = event else {
            return Ok(());
        };
        let answer = shared.contracts.open(fingerprint, &model);
        if let Err(refusal) = &answer {
            tracing::info!(
                peer = %shared.quic.remote_address(),
                device = %shared.identity,
                code = %refusal.code,
                "contract refused: {}",
                refusal.message
            );
        }
        let load = shared.contracts.load();
        shared.session.lock().answer_open(answer, load)?;
    }
}
