//! From an address to a welcomed connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use quinn::{Connection, Endpoint, ReadError, RecvStream, SendStream, TokioRuntime};
use seamline_wire::{
    ClientHandshake, ClientHandshakeEvent, Deadlines, ErrorCode, Hello, Limits, VERSIONS,
    VersionRange, Welcome, WireError,
};
use tokio::time::timeout_at;

use super::ClientConnection;
use crate::error::varint;
use crate::identity::{ClientIdentity, Trust};
use crate::{BindError, ConnectError, ConnectErrorKind, TransportOptions, socket, tls};

/// The most that is read from the control stream at a time.
pub(super) const CONTROL_CHUNK: usize = 16 << 10;

/// The client's streams are its own to open; a service opens none.
const STREAMS_FOR_PEER: u32 = 0;

/// Which service, and as whom.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// The service's address.
    pub addr: SocketAddr,
    /// The name or IP address that its certificate must carry.
    pub server_name: String,
    /// What this device proves itself by.
    pub identity: ClientIdentity,
    /// Whose certificates are accepted.
    pub trust: Trust,
    /// QUIC's tuning.
    pub transport: TransportOptions,
    /// How long each phase may take; `header` and `body` hold for answers, from their first byte.
    pub deadlines: Deadlines,
    /// What answers this device takes: `max_reply_bytes`, `max_tensors`, … The service's limits
    /// for requests come in its welcome.
    pub limits: Limits,
    /// Program and version, in the hello.
    pub agent: String,
    /// Optional parts of the protocol that this client can use; none so far.
    pub features: u64,
    /// Protocol versions; all that this build speaks unless a test says otherwise.
    pub versions: VersionRange,
}

impl ClientOptions {
    /// The defaults.
    pub fn new(
        addr: SocketAddr,
        server_name: impl Into<String>,
        identity: ClientIdentity,
        trust: Trust,
    ) -> ClientOptions {
        ClientOptions {
            addr,
            server_name: server_name.into(),
            identity,
            trust,
            transport: TransportOptions::default(),
            deadlines: Deadlines::default(),
            limits: Limits::default(),
            agent: concat!("seamline/", env!("CARGO_PKG_VERSION")).to_owned(),
            features: 0,
            versions: VERSIONS,
        }
    }
}

/// Connects without keeping an endpoint in sight.
pub struct Client;

impl Client {
    /// Connects from a socket of its own. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(options: ClientOptions) -> Result<ClientConnection, ConnectError> {
        ClientEndpoint::bind(options.addr, &options.transport)
            .map_err(|error| {
                ConnectError::new(options.addr, ConnectErrorKind::Configuration, None, error)
            })?
            .connect(options)
            .await
    }
}

/// A socket that can hold connections to several services. Cloning gives another handle to it.
#[derive(Clone)]
pub struct ClientEndpoint {
    quic: Endpoint,
}

impl ClientEndpoint {
    /// A socket on a free port, of the address family of `peer`; of `transport`, what concerns the
    /// socket counts: its buffers and the largest packet. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(
        peer: SocketAddr,
        transport: &TransportOptions,
    ) -> Result<ClientEndpoint, BindError> {
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let addr = SocketAddr::new(any, 0);
        let socket = socket::bind(addr, transport.socket_buffer)?;
        let quic = Endpoint::new(
            transport.endpoint_config(),
            None,
            socket,
            Arc::new(TokioRuntime),
        )
        .map_err(|error| BindError::Io { addr, error })?;
        Ok(ClientEndpoint { quic })
    }

    /// Connects, proves itself, and is welcomed or not.
    ///
    /// # Errors
    /// [`ConnectError`], whose [`kind`](ConnectError::kind) tells a wrong certificate from a
    /// service that does not answer.
    pub async fn connect(&self, options: ClientOptions) -> Result<ClientConnection, ConnectError> {
        let deadline = Instant::now() + options.deadlines.handshake;
        match timeout_at(deadline.into(), self.handshake(&options, deadline)).await {
            Ok(result) => result,
            Err(_) => Err(ConnectError::lost(
                options.addr,
                &quinn::ConnectionError::TimedOut,
            )),
        }
    }

    /// Moves to a new socket, e.g. after the device changed network; connections go on.
    ///
    /// # Errors
    /// [`BindError`]; the old socket is kept.
    pub fn rebind(&self, local: SocketAddr, buffer: usize) -> Result<(), BindError> {
        let socket = socket::bind(local, buffer)?;
        self.quic
            .rebind(socket)
            .map_err(|error| BindError::Io { addr: local, error })
    }

    async fn handshake(
        &self,
        options: &ClientOptions,
        deadline: Instant,
    ) -> Result<ClientConnection, ConnectError> {
        let addr = options.addr;
        let configuration = |error: &dyn std::fmt::Display| {
            ConnectError::new(addr, ConnectErrorKind::Configuration, None, error)
        };
        let tls = tls::client_config(&options.identity, &options.trust)
            .map_err(|error| configuration(&error))?;
        let mut config = quinn::ClientConfig::new(tls);
        config.transport_config(options.transport.to_quinn(addr, STREAMS_FOR_PEER));
        let quic = self
            .quic
            .connect_with(config, addr, &options.server_name)
            .map_err(|error| configuration(&error))?
            .await
            .map_err(|error| ConnectError::lost(addr, &error))?;
        let (mut send, mut recv) = quic
            .open_bi()
            .await
            .map_err(|error| ConnectError::lost(addr, &error))?;
        match hello(options, &quic, &mut send, &mut recv, deadline).await {
            Ok((welcome, rest)) => ClientConnection::start(
                self.quic.clone(),
                quic,
                (send, recv),
                rest,
                welcome,
                options,
            )
            .map_err(|error| protocol(addr, &error)),
            Err(error) => {
                let code = error.code().unwrap_or(ErrorCode::Closed);
                quic.close(varint(code), error.to_string().as_bytes());
                Err(error)
            }
        }
    }
}

/// Says hello and waits for the answer; returns what came behind it.
async fn hello(
    options: &ClientOptions,
    quic: &Connection,
    send: &mut SendStream,
    recv: &mut RecvStream,
    deadline: Instant,
) -> Result<(Welcome, Bytes), ConnectError> {
    let addr = options.addr;
    let token = match &options.identity {
        ClientIdentity::Token(token) => Some(token.bytes().to_vec()),
        ClientIdentity::Certificate(_) | ClientIdentity::None => None,
    };
    let hello = Hello {
        agent: options.agent.clone(),
        token,
        features: options.features,
    };
    let now = Instant::now();
    let mut machine = ClientHandshake::new(now, options.versions, &hello, options.deadlines)
        .map_err(|error| protocol(addr, &error))?;
    while let Some(frame) = machine.poll_transmit() {
        if send.write_chunk(frame).await.is_err() {
            // Either the service stopped the stream and its answer says why, or reading fails too.
            break;
        }
    }
    loop {
        let read = timeout_at(deadline.into(), recv.read_chunk(CONTROL_CHUNK, true)).await;
        let chunk = match read {
            Ok(Ok(Some(chunk))) => chunk.bytes,
            Ok(Err(ReadError::ConnectionLost(error))) => {
                return Err(ConnectError::lost(addr, &error));
            }
            // The stream ended, but the close with its reason may be right behind.
            Ok(_) => return Err(ConnectError::lost(addr, &quic.closed().await)),
            Err(_) => {
                let late = machine.handle_timeout(Instant::now().max(deadline));
                late.map_err(|error| protocol(addr, &error))?;
                continue;
            }
        };
        match machine
            .handle_data(chunk)
            .map_err(|error| protocol(addr, &error))?
        {
            None => {}
            Some(ClientHandshakeEvent::Welcome(welcome)) => {
                return Ok((welcome, machine.into_rest()));
            }
            Some(ClientHandshakeEvent::Refused(refused)) => {
                let kind = ConnectError::kind_of(Some(refused.code));
                return Err(ConnectError::new(addr, kind, Some(refused.code), refused));
            }
        }
    }
}

fn protocol(addr: SocketAddr, error: &WireError) -> ConnectError {
    let kind = match error {
        WireError::Version { .. } => ConnectErrorKind::VersionMismatch,
        WireError::Timeout { .. } => ConnectErrorKind::Unreachable,
        _ => ConnectErrorKind::Protocol,
    };
    ConnectError::new(addr, kind, Some(error.code()), error)
}
