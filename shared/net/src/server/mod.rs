//! The service's side: an endpoint, its connections, their requests.

mod connection;
mod endpoint;
mod handshake;
mod quota;
mod responder;
mod stream;

pub use connection::{ConnectionHandle, ServerConnection};
pub use endpoint::{PendingConnection, ServerEndpoint};
pub use responder::Responder;
pub use stream::{IncomingRequest, PendingRequest};

use std::net::SocketAddr;

use seamline_plan::Fingerprint;
use seamline_wire::{Deadlines, Limits, Load, OpenRefusal, VERSIONS, VersionRange};

use crate::TransportOptions;
use crate::identity::{ServerIdentity, TokenList, Trust};

/// What a device must show.
#[derive(Clone, Debug)]
pub enum ClientAuth {
    /// A certificate of one of these authorities.
    Certificate(Trust),
    /// One of these tokens.
    Token(TokenList),
    /// The one or the other. A certificate that does not verify is refused even with a token.
    Either(Trust, TokenList),
}

/// How a service listens.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where. Port 0 takes a free one; `[::]` takes IPv4 too.
    pub listen: SocketAddr,
    /// What the service proves itself by.
    pub identity: ServerIdentity,
    /// What a device must show.
    pub client_auth: ClientAuth,
    /// What clients may send. Stated in the welcome.
    pub limits: Limits,
    /// How long clients may take.
    pub deadlines: Deadlines,
    /// QUIC's tuning.
    pub transport: TransportOptions,
    /// Program and version, in the welcome.
    pub agent: String,
    /// Optional parts of the protocol that the service has; none so far.
    pub features: u64,
    /// Protocol versions; all that this build speaks unless a test says otherwise.
    pub versions: VersionRange,
    /// Connections at a time; more are refused.
    ///
    /// Unit: count. Default: 4096. Cost: some 100 KiB each when idle, more with data in flight.
    pub max_connections: usize,
    /// Connections at a time from one IP address (IPv6: one /64 network), handshakes included; more
    /// are refused.
    ///
    /// Unit: count. Default: 0, which is half of `max_connections`. Keeps one host, which needs no
    /// identity to begin handshakes, from taking every place. Lower it where devices do not share
    /// an address.
    pub max_connections_per_address: usize,
    /// Connections at a time of one device identity; more are refused, with a reason.
    ///
    /// Unit: count. Default: 0, which is half of `max_connections`. Lower it where each device has
    /// an identity of its own.
    pub max_connections_per_device: usize,
    /// Handshakes under way from which on a new client must first show that it can be reached at
    /// its address (QUIC's Retry).
    ///
    /// Unit: count. Default: 64. Cost: one more round trip for those who connect during a flood.
    pub validate_from: usize,
}

impl ServerOptions {
    /// The defaults.
    pub fn new(
        listen: SocketAddr,
        identity: ServerIdentity,
        client_auth: ClientAuth,
    ) -> ServerOptions {
        ServerOptions {
            listen,
            identity,
            client_auth,
            limits: Limits::default(),
            deadlines: Deadlines::default(),
            transport: TransportOptions::default(),
            agent: concat!("seamline/", env!("CARGO_PKG_VERSION")).to_owned(),
            features: 0,
            versions: VERSIONS,
            max_connections: 4096,
            max_connections_per_address: 0,
            max_connections_per_device: 0,
            validate_from: 64,
        }
    }
}

/// What a service holds; asked while clients connect, so it must answer at once.
pub trait Contracts: Send + Sync + 'static {
    /// The handle of the bundle with this fingerprint. The same bundle has the same handle
    /// whenever and by whomever it is opened.
    ///
    /// # Errors
    /// [`OpenRefusal`], e.g. [`OpenRefusal::unknown`] with the fingerprints of the model's other
    /// builds.
    fn open(&self, fingerprint: Fingerprint, model: &str) -> Result<u32, OpenRefusal>;

    /// How busy the service is. Called for every answer: keep it cheap.
    fn load(&self) -> Load;
}
