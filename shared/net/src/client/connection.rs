//! A welcomed connection: its control stream and its shared state.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use quinn::{Connection, Endpoint, RecvStream, SendStream};
use seamline_plan::Fingerprint;
use seamline_wire::{
    ClientEvent, ClientSession, Deadlines, ErrorCode, Limits, Load, OpenRefusal, SessionCounts,
    Welcome, WireError,
};
use tokio::sync::{Notify, oneshot, watch};

use super::ClientOptions;
use super::connect::CONTROL_CHUNK;
use super::request::{self, Reply, Request};
use crate::error::varint;
use crate::{CloseReason, OpenError, RequestError};

/// A contract opened on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContractHandle(pub(super) u32);

impl ContractHandle {
    /// The number on the wire.
    pub fn as_u32(self) -> u32 {
        self.0
    }
}

/// What QUIC measured of a connection's path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathStats {
    /// The round trip, smoothed (RFC 9002).
    pub rtt: Duration,
    /// The least round trip.
    pub min_rtt: Duration,
    /// Packets that were sent.
    pub sent_packets: u64,
    /// Those of them that were lost.
    pub lost_packets: u64,
    /// Datagrams that came.
    pub received_datagrams: u64,
    /// Bytes of UDP payload that this side sent.
    pub sent_bytes: u64,
    /// Bytes of UDP payload that came.
    pub received_bytes: u64,
}

/// What a connection's handles and its control task share.
pub(super) struct Shared {
    pub(super) quic: Connection,
    endpoint: Endpoint,
    pub(super) session: Mutex<ClientSession>,
    /// What answers this device takes.
    pub(super) reply_limits: Limits,
    /// What requests the service takes.
    pub(super) request_limits: Limits,
    pub(super) deadlines: Deadlines,
    welcome: Welcome,
    opens: Mutex<VecDeque<oneshot::Sender<Result<u32, OpenRefusal>>>>,
    control: Notify,
    draining: watch::Sender<bool>,
}

impl Shared {
    pub(super) fn breach(&self, error: &WireError) {
        tracing::warn!(peer = %self.quic.remote_address(), %error, "connection closed: the service broke the protocol");
        self.quic
            .close(varint(error.code()), error.to_string().as_bytes());
    }
}

/// A connection to a service. Cloning gives another handle; it closes when the last is dropped.
#[derive(Clone)]
pub struct ClientConnection {
    shared: Arc<Shared>,
    /// Dropped with the last handle, which ends the control task and closes the connection.
    _alive: Arc<oneshot::Sender<()>>,
}

impl ClientConnection {
    pub(super) fn start(
        endpoint: Endpoint,
        quic: Connection,
        control: (SendStream, RecvStream),
        rest: Bytes,
        welcome: Welcome,
        options: &ClientOptions,
    ) -> Result<ClientConnection, WireError> {
        let mut session = ClientSession::new(&welcome);
        session.handle_control(rest)?;
        let shared = Arc::new(Shared {
            quic,
            endpoint,
            session: Mutex::new(session),
            reply_limits: options.limits.clone(),
            request_limits: welcome.limits.clone(),
            deadlines: options.deadlines,
            welcome,
            opens: Mutex::new(VecDeque::new()),
            control: Notify::new(),
            draining: watch::Sender::new(false),
        });
        let (alive, dropped) = oneshot::channel();
        tokio::spawn(run_control(shared.clone(), control, dropped));
        Ok(ClientConnection {
            shared,
            _alive: Arc::new(alive),
        })
    }

    /// Opens the contract of the bundle with this fingerprint. `model` lets the service name the
    /// builds of that model that it has, where it lacks this one.
    ///
    /// # Errors
    /// [`OpenError::Refused`], whose text has both sides' fingerprints; [`OpenError::Lost`].
    pub async fn open(
        &self,
        fingerprint: Fingerprint,
        model: &str,
    ) -> Result<ContractHandle, OpenError> {
        let (answer, answered) = oneshot::channel();
        {
            // Both under one lock: answers come in the order of the questions.
            let mut opens = self.shared.opens.lock();
            self.shared.session.lock().open(fingerprint, model)?;
            opens.push_back(answer);
        }
        self.shared.control.notify_one();
        match answered.await {
            Ok(answer) => answer.map(ContractHandle).map_err(OpenError::Refused),
            Err(_) => Err(OpenError::Lost(self.wait_closed().await)),
        }
    }

    /// Sends a request, `payloads` one a tensor and without a copy, and waits for its answer, in
    /// the caller's task. Dropping the future
    /// cancels the request: the service is told, and frees what it holds.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn request(
        &self,
        request: Request,
        payloads: Vec<Bytes>,
    ) -> Result<Reply, RequestError> {
        request::run(&self.shared, request, payloads).await
    }

    /// What the service said of itself.
    pub fn welcome(&self) -> &Welcome {
        &self.shared.welcome
    }

    /// What the service allows.
    pub fn limits(&self) -> &Limits {
        &self.shared.request_limits
    }

    /// How busy the service was when it last said so.
    pub fn load(&self) -> Load {
        self.shared.session.lock().load()
    }

    /// Whether the service takes nothing new.
    pub fn is_draining(&self) -> bool {
        *self.shared.draining.borrow()
    }

    /// Waits until the service drains; at once where it does already. Also ends when the
    /// connection does.
    pub async fn draining(&self) {
        let mut draining = self.shared.draining.subscribe();
        tokio::select! {
            // The sender lives as long as this handle, so this does not fail.
            _ = draining.wait_for(|draining| *draining) => {}
            _ = self.shared.quic.closed() => {}
        }
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

    /// What QUIC measured of the path so far.
    pub fn path(&self) -> PathStats {
        let stats = self.shared.quic.stats();
        PathStats {
            rtt: stats.path.rtt,
            min_rtt: stats.path.min_rtt,
            sent_packets: stats.path.sent_packets,
            lost_packets: stats.path.lost_packets,
            received_datagrams: stats.udp_rx.datagrams,
            sent_bytes: stats.udp_tx.bytes,
            received_bytes: stats.udp_rx.bytes,
        }
    }

    /// Where the service is.
    pub fn remote_address(&self) -> SocketAddr {
        self.shared.quic.remote_address()
    }

    /// Closes at once; requests in flight fail.
    pub fn close(&self, code: ErrorCode, reason: &str) {
        self.shared.quic.close(varint(code), reason.as_bytes());
    }

    /// Waits until every peer of this connection's socket knows that its connection is closed, for
    /// some round trips. A runtime that ends before that leaves them to find out by their idle
    /// timeout.
    pub async fn wait_idle(&self) {
        self.shared.endpoint.wait_idle().await;
    }

    /// Why the connection ended, where it has.
    pub fn closed_reason(&self) -> Option<CloseReason> {
        self.shared
            .quic
            .close_reason()
            .as_ref()
            .map(CloseReason::from)
    }

    /// Whether both are handles to one connection.
    pub fn is_same(&self, other: &ClientConnection) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Waits for the connection's end.
    pub async fn wait_closed(&self) -> CloseReason {
        CloseReason::from(&self.shared.quic.closed().await)
    }
}

async fn run_control(
    shared: Arc<Shared>,
    control: (SendStream, RecvStream),
    dropped: oneshot::Receiver<()>,
) {
    tokio::select! {
        result = drive_control(&shared, control) => {
            if let Err(error) = result {
                shared.breach(&error);
            }
            // A service that ends the control stream is about to close.
            shared.quic.closed().await;
        }
        _ = shared.quic.closed() => {}
        _ = dropped => shared.quic.close(varint(ErrorCode::Closed), b"the client is done"),
    }
    shared.session.lock().handle_closed();
    // Whoever waits for an answer to an open hears that the connection is over.
    shared.opens.lock().clear();
}

async fn drive_control(
    shared: &Shared,
    (mut send, mut recv): (SendStream, RecvStream),
) -> Result<(), WireError> {
    loop {
        dispatch(shared);
        loop {
            let transmit = shared.session.lock().poll_transmit();
            let Some(frame) = transmit else { break };
            if send.write_chunk(frame).await.is_err() {
                return Ok(());
            }
        }
        tokio::select! {
            read = recv.read_chunk(CONTROL_CHUNK, true) => match read {
                Ok(Some(chunk)) => shared.session.lock().handle_control(chunk.bytes)?,
                Ok(None) | Err(_) => return Ok(()),
            },
            () = shared.control.notified() => {}
        }
    }
}

/// Hands on what the service said.
fn dispatch(shared: &Shared) {
    loop {
        let event = shared.session.lock().poll_event();
        match event {
            None => return,
            Some(ClientEvent::Open(answer)) => {
                if let Some(waiting) = shared.opens.lock().pop_front() {
                    // Fails where the caller gave up waiting.
                    let _ = waiting.send(answer);
                }
            }
            Some(ClientEvent::Load(_)) => {}
            Some(ClientEvent::Draining) => {
                shared.draining.send_replace(true);
            }
        }
    }
}
