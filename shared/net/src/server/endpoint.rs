//! Listens, and hands on connections that still have to shake hands.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, TokioRuntime};
use seamline_wire::ErrorCode;

use super::quota::{Arriving, Quotas};
use super::{ServerOptions, handshake};
use crate::error::varint;
use crate::{AcceptError, BindError, Contracts, ServerConnection, socket, tls};

pub(super) struct EndpointState {
    pub(super) options: ServerOptions,
    pub(super) tls: Arc<QuicServerConfig>,
    quotas: Quotas,
}

impl EndpointState {
    /// The configuration for one peer: its path decides the largest datagram.
    pub(super) fn config_for(&self, peer: SocketAddr) -> quinn::ServerConfig {
        let mut config = quinn::ServerConfig::with_crypto(self.tls.clone());
        // The control stream, the requests in flight, and as many again whose header is still on
        // the way or whose refusal is: the session, not QUIC, refuses, and says why.
        let streams = self
            .options
            .limits
            .max_in_flight
            .saturating_mul(2)
            .saturating_add(1);
        config.transport_config(self.options.transport.to_quinn(peer, streams));
        config
    }
}

/// A service's socket. Cloning gives another handle to it.
#[derive(Clone)]
pub struct ServerEndpoint {
    quic: Endpoint,
    state: Arc<EndpointState>,
}

impl ServerEndpoint {
    /// Listens. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`BindError`]: the port is in use, the address is not this machine's, the certificate or
    /// key cannot be used.
    pub fn bind(options: ServerOptions) -> Result<ServerEndpoint, BindError> {
        let listen = options.listen;
        let tls = tls::server_config(&options.identity, &options.client_auth)?;
        let socket = socket::bind(listen, options.transport.socket_buffer)?;
        let config = options.transport.endpoint_config();
        let quotas = Quotas::new(
            options.max_connections,
            options.max_connections_per_address,
            options.max_connections_per_device,
        );
        let state = Arc::new(EndpointState {
            options,
            tls,
            quotas,
        });
        let quic = Endpoint::new(
            config,
            Some(state.config_for(listen)),
            socket,
            Arc::new(TokioRuntime),
        )
        .map_err(|error| BindError::Io {
            addr: listen,
            error,
        })?;
        Ok(ServerEndpoint { quic, state })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The operating system's.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.quic.local_addr()
    }

    /// The next client; `None` once the endpoint is closed. Shake hands in a task of its own, so
    /// that a slow client does not keep others waiting.
    pub async fn accept(&self) -> Option<PendingConnection> {
        loop {
            let incoming = self.quic.accept().await?;
            let peer = incoming.remote_address();
            let limit = self.state.options.max_connections;
            if self.quic.open_connections() >= limit {
                tracing::warn!(%peer, limit, "connection refused: the limit of connections is reached");
                incoming.refuse();
                continue;
            }
            // Under a flood, whoever cannot be reached at its address costs no state.
            let quotas = &self.state.quotas;
            if quotas.arriving() >= self.state.options.validate_from
                && !incoming.remote_address_validated()
                && incoming.may_retry()
            {
                if let Err(error) = incoming.retry() {
                    tracing::debug!(%peer, %error, "address not validated");
                }
                continue;
            }
            let Some(place) = quotas.arrive(peer.ip()) else {
                let limit = quotas.per_address();
                tracing::warn!(%peer, limit, "connection refused: the limit of connections of one address is reached");
                incoming.refuse();
                continue;
            };
            return Some(PendingConnection {
                incoming,
                place,
                state: self.state.clone(),
            });
        }
    }

    /// Connections that are there.
    pub fn connections(&self) -> usize {
        self.quic.open_connections()
    }

    /// Closes every connection and the endpoint; [`accept`](Self::accept) then gives `None`.
    pub fn close(&self, code: ErrorCode, reason: &str) {
        self.quic.close(varint(code), reason.as_bytes());
    }

    /// Waits until every closed connection's peer has been told.
    pub async fn wait_idle(&self) {
        self.quic.wait_idle().await;
    }
}

/// A client that has not shaken hands yet.
pub struct PendingConnection {
    pub(super) incoming: quinn::Incoming,
    pub(super) place: Arriving,
    pub(super) state: Arc<EndpointState>,
}

impl PendingConnection {
    /// Where the client is.
    pub fn remote_address(&self) -> SocketAddr {
        self.incoming.remote_address()
    }

    /// Turns the client away at once, which spends nothing on it.
    pub fn refuse(self) {
        self.incoming.refuse();
    }

    /// Verifies the client, welcomes it, and answers what it opens by `contracts`.
    ///
    /// # Errors
    /// [`AcceptError`], for the log; the client has been told already.
    pub async fn handshake(
        self,
        contracts: Arc<dyn Contracts>,
    ) -> Result<ServerConnection, AcceptError> {
        let config = self.state.config_for(self.incoming.remote_address());
        let options = &self.state.options;
        handshake::run(self.incoming, config, options, contracts, self.place).await
    }
}
