//! From a QUIC connection attempt to a welcomed client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::{Connection, ConnectionError, ReadError, RecvStream, SendStream};
use rustls_pki_types::CertificateDer;
use seamline_wire::{
    ErrorCode, Hello, ServerHandshake, ServerHandshakeEvent, ServerHello, WireError,
};
use tokio::time::timeout_at;

use super::quota::{Arriving, TooMany};
use super::{ClientAuth, ServerConnection, ServerOptions};
use crate::error::varint;
use crate::identity::PeerIdentity;
use crate::{AcceptError, CloseReason, Contracts};

/// The most that is read from the control stream at a time.
const CONTROL_CHUNK: usize = 16 << 10;

/// How long a refusal may take to reach the client before the connection closes over it.
const REFUSAL_DELIVERY: Duration = Duration::from_millis(500);

pub(super) async fn run(
    incoming: quinn::Incoming,
    config: quinn::ServerConfig,
    options: &ServerOptions,
    contracts: Arc<dyn Contracts>,
    place: Arriving,
) -> Result<ServerConnection, AcceptError> {
    let peer = incoming.remote_address();
    let lost = |error: &ConnectionError| AcceptError::Connection {
        peer,
        reason: CloseReason::from(error),
    };
    let own = ServerHello {
        versions: options.versions,
        agent: options.agent.clone(),
        features: options.features,
        limits: options.limits.clone(),
    };
    let mut machine = ServerHandshake::new(Instant::now(), own, options.deadlines);
    let deadline = Instant::now() + options.deadlines.handshake;
    let connecting = incoming
        .accept_with(Arc::new(config))
        .map_err(|error| lost(&error))?;
    let connection = match timeout_at(deadline.into(), connecting).await {
        Ok(connection) => connection.map_err(|error| lost(&error))?,
        Err(_) => return Err(timed_out(peer, &mut machine, deadline)),
    };
    let (mut send, mut recv) = match timeout_at(deadline.into(), connection.accept_bi()).await {
        Ok(streams) => streams.map_err(|error| lost(&error))?,
        Err(_) => {
            let error = timed_out(peer, &mut machine, deadline);
            connection.close(
                varint(ErrorCode::DeadlineExceeded),
                error.to_string().as_bytes(),
            );
            return Err(error);
        }
    };

    let hello = match read_hello(&mut machine, &mut recv, deadline).await {
        Ok(hello) => hello,
        Err(HelloError::Lost(error)) => return Err(lost(&error)),
        Err(HelloError::Wire(error)) => {
            let text = error.to_string();
            refuse(&mut machine, &connection, &mut send, error.code(), &text).await;
            return Err(AcceptError::Wire { peer, error });
        }
    };
    let identity = match identify(&options.client_auth, &connection, &hello) {
        Ok(identity) => identity,
        Err(reason) => {
            let code = ErrorCode::Unauthenticated;
            machine.refuse(code, reason);
            refuse(&mut machine, &connection, &mut send, code, reason).await;
            return Err(AcceptError::Unauthenticated {
                peer,
                reason: format!("{reason} (agent {:?})", hello.agent),
            });
        }
    };
    let place = match place.claim(identity) {
        Ok(place) => place,
        Err(TooMany { identity, limit }) => {
            let code = ErrorCode::Overloaded;
            let reason = format!(
                "{limit} connections of this device are open, the most that it may have; close one"
            );
            machine.refuse(code, &reason);
            refuse(&mut machine, &connection, &mut send, code, &reason).await;
            return Err(AcceptError::TooMany {
                peer,
                device: identity.name,
                limit,
            });
        }
    };
    machine
        .welcome(contracts.load())
        .map_err(|error| AcceptError::Wire { peer, error })?;
    if let Some(welcome) = machine.poll_transmit() {
        match timeout_at(deadline.into(), send.write_chunk(welcome)).await {
            Ok(Err(quinn::WriteError::ConnectionLost(error))) => return Err(lost(&error)),
            Ok(_) => {}
            Err(_) => {
                let error = WireError::Timeout {
                    what: "the client's window for the welcome",
                    allowed: options.deadlines.handshake,
                };
                connection.close(varint(error.code()), error.to_string().as_bytes());
                return Err(AcceptError::Wire { peer, error });
            }
        }
    }
    tracing::debug!(%peer, device = %place.identity(), agent = %hello.agent, "client welcomed");
    Ok(ServerConnection::start(
        connection,
        (send, recv),
        machine.into_rest(),
        options,
        hello.agent,
        contracts,
        place,
    ))
}

enum HelloError {
    Lost(ConnectionError),
    Wire(WireError),
}

async fn read_hello(
    machine: &mut ServerHandshake,
    recv: &mut RecvStream,
    deadline: Instant,
) -> Result<Hello, HelloError> {
    loop {
        let chunk = match timeout_at(deadline.into(), recv.read_chunk(CONTROL_CHUNK, true)).await {
            Ok(Ok(Some(chunk))) => chunk.bytes,
            Ok(Err(ReadError::ConnectionLost(error))) => return Err(HelloError::Lost(error)),
            Ok(Ok(None) | Err(_)) => {
                return Err(HelloError::Wire(WireError::Short {
                    what: "hello",
                    missing: "some bytes".to_owned(),
                }));
            }
            Err(_) => {
                machine
                    .handle_timeout(Instant::now().max(deadline))
                    .map_err(HelloError::Wire)?;
                continue;
            }
        };
        if let Some(ServerHandshakeEvent::Hello(hello)) =
            machine.handle_data(chunk).map_err(HelloError::Wire)?
        {
            return Ok(hello);
        }
    }
}

fn timed_out(peer: SocketAddr, machine: &mut ServerHandshake, deadline: Instant) -> AcceptError {
    let error = machine
        .handle_timeout(Instant::now().max(deadline))
        .err()
        .unwrap_or(WireError::Unexpected { what: "timeout" });
    AcceptError::Wire { peer, error }
}

fn identify(
    auth: &ClientAuth,
    connection: &Connection,
    hello: &Hello,
) -> Result<PeerIdentity, &'static str> {
    let certificate = connection
        .peer_identity()
        .and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok())
        .and_then(|chain| chain.first().map(PeerIdentity::of_certificate));
    if let Some(identity) = certificate {
        return Ok(identity);
    }
    let tokens = match auth {
        ClientAuth::Certificate(_) => return Err("this service needs a device certificate"),
        ClientAuth::Token(tokens) | ClientAuth::Either(_, tokens) => tokens,
    };
    match &hello.token {
        Some(token) => tokens
            .identify(token)
            .ok_or("the device's token is not known to this service; make one by `seamline-cloud identity`"),
        None if matches!(auth, ClientAuth::Token(_)) => Err("this service needs a device token"),
        None => Err("this service needs a device certificate or a device token"),
    }
}

/// Sends the refusal that `machine` holds and closes. The close repeats it, since the stream's
/// bytes may be overtaken.
async fn refuse(
    machine: &mut ServerHandshake,
    connection: &Connection,
    send: &mut SendStream,
    code: ErrorCode,
    reason: &str,
) {
    if let Some(frame) = machine.poll_transmit() {
        // Whatever goes wrong here, the close below still tells the client.
        let _ = tokio::time::timeout(REFUSAL_DELIVERY, async {
            if send.write_chunk(frame).await.is_ok() && send.finish().is_ok() {
                let _ = send.stopped().await;
            }
        })
        .await;
    }
    connection.close(varint(code), reason.as_bytes());
}
