//! The device's socket, and the way to a welcomed connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use quinn::{Connection, Endpoint, EndpointConfig, ReadError, RecvStream, SendStream, TokioRuntime};
use seamline_wire::{ClientHandshake, ClientHandshakeEvent, ErrorCode, Hello, Welcome, WireError};
use tokio::time::timeout_at;

use super::{ClientConnection, ClientOptions};
use crate::error::varint;
use crate::identity::ClientIdentity;
use crate::{BindError, ConnectError, ConnectErrorKind, socket, tls};

/// The most that is read from the control stream at a time.
const CONTROL_CHUNK: usize = 16 << 10;

/// A device's socket. Several connections may share it.
#[derive(Clone)]
pub struct ClientEndpoint {
    quic: Endpoint,
}

/// Connects with a socket of its own for each connection.
pub struct Client;

impl Client {
    /// Opens a socket and connects, as [`ClientEndpoint::connect`] does.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(options: ClientOptions) -> Result<ClientConnection, ConnectError> {
        let endpoint = ClientEndpoint::bind(options.addr, options.transport.socket_buffer)
            .map_err(|error| {
                ConnectError::new(options.addr, ConnectErrorKind::Configuration, None, error)
            })?;
        endpoint.connect(options).await
    }
}

impl ClientEndpoint {
    /// A socket that can reach `peer`, with kernel buffers of `buffer` bytes. Needs a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(peer: SocketAddr, buffer: usize) -> Result<ClientEndpoint, BindError> {
        let any: IpAddr = match peer {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let addr = SocketAddr::new(any, 0);
        let socket = socket::bind(addr, buffer)?;
        let quic = Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(TokioRuntime))
            .map_err(|error| BindError::Io { addr, error })?;
        Ok(ClientEndpoint { quic })
    }

    /// Connects, proves both sides to each other and exchanges hello and welcome.
    ///
    /// # Errors
    /// [`ConnectError`], whose kind tells an unreachable service from one that refuses.
    pub async fn connect(&self, options: ClientOptions) -> Result<ClientConnection, ConnectError> {
        let addr = options.addr;
        let configuration =
            |error: &dyn std::fmt::Display| configuration(addr, &error.to_string());
        let tls = tls::client_config(&options.identity, &options.trust)
            .map_err(|error| configuration(&error))?;
        let mut config = quinn::ClientConfig::new(tls);
        // The service opens no streams.
        config.transport_config(options.transport.to_quinn(addr, 0));
        let connecting = self
            .quic
            .connect_with(config, addr, &options.server_name)
            .map_err(|error| configuration(&error))?;
        let deadline = Instant::now() + options.deadlines.handshake;
        let connection = match timeout_at(deadline.into(), connecting).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(ConnectError::lost(addr, &error)),
            Err(_) => return Err(ConnectError::lost(addr, &quinn::ConnectionError::TimedOut)),
        };
        let shaken = shake_hands(&connection, &options, deadline).await;
        let (welcome, control, rest) = shaken.map_err(|failure| match failure {
            Failure::Refused(error) => error,
            Failure::Wire(error) => {
                connection.close(varint(error.code()), error.to_string().as_bytes());
                let kind = ConnectError::kind_of(Some(error.code()));
                ConnectError::new(addr, kind, Some(error.code()), error)
            }
            // A service that refuses closes the connection: its reason says more than the stream.
            Failure::Lost => {
                let reason = connection.close_reason();
                ConnectError::lost(addr, &reason.unwrap_or(quinn::ConnectionError::Reset))
            }
        })?;
        Ok(ClientConnection::start(self.quic.clone(), connection, control, rest, &welcome, &options))
    }
}

fn configuration(addr: SocketAddr, problem: &str) -> ConnectError {
    ConnectError::new(addr, ConnectErrorKind::Configuration, None, problem)
}

enum Failure {
    Refused(ConnectError),
    Wire(WireError),
    Lost,
}

type Shaken = (Welcome, (SendStream, RecvStream), Bytes);

async fn shake_hands(
    connection: &Connection,
    options: &ClientOptions,
    deadline: Instant,
) -> Result<Shaken, Failure> {
    let token = match &options.identity {
        ClientIdentity::Token(token) => Some(token.bytes().to_vec()),
        ClientIdentity::Certificate(_) | ClientIdentity::None => None,
    };
    let hello = Hello { agent: options.agent.clone(), token, features: options.features };
    let mut machine =
        ClientHandshake::new(Instant::now(), options.versions, &hello, options.deadlines)
            .map_err(Failure::Wire)?;
    let opened = timeout_at(deadline.into(), connection.open_bi()).await;
    let Ok(Ok((mut send, mut recv))) = opened else { return Err(Failure::Lost) };
    while let Some(bytes) = machine.poll_transmit() {
        send.write_chunk(bytes).await.map_err(|_| Failure::Lost)?;
    }
    loop {
        let until = machine.poll_timeout().unwrap_or(deadline);
        let chunk = match timeout_at(until.into(), recv.read_chunk(CONTROL_CHUNK, true)).await {
            Ok(Ok(Some(chunk))) => chunk.bytes,
            Ok(Ok(None) | Err(ReadError::Reset(_))) => {
                // Where the service closed over something, the reason is on its way.
                let _ = timeout_at(until.into(), connection.closed()).await;
                return Err(Failure::Lost);
            }
            Ok(Err(_)) => return Err(Failure::Lost),
            Err(_) => {
                machine.handle_timeout(Instant::now()).map_err(Failure::Wire)?;
                continue;
            }
        };
        match machine.handle_data(chunk).map_err(Failure::Wire)? {
            Some(ClientHandshakeEvent::Welcome(welcome)) => {
                return Ok((welcome, (send, recv), machine.into_rest()));
            }
            Some(ClientHandshakeEvent::Refused(refused)) => {
                connection.close(varint(ErrorCode::Closed), b"");
                let kind = ConnectError::kind_of(Some(refused.code));
                let error = ConnectError::new(options.addr, kind, Some(refused.code), refused);
                return Err(Failure::Refused(error));
            }
            None => {}
        }
    }
}
