//! QUIC endpoints and identities: a thin tokio driver of `seamline-wire`.
//!
//! A device calls [`Client::connect`], [`ClientConnection::open`] and
//! [`ClientConnection::request`]. A service binds a [`ServerEndpoint`], accepts connections,
//! shakes hands and takes requests by [`ServerConnection::next_request`]. Everything that the
//! protocol decides is decided by the state machines of `seamline-wire`; here is only what needs
//! a socket, a clock or a key.
//!
//! A request costs no task switch on the client (it runs in the caller's task) and none before
//! [`ServerConnection::next_request`] on the service (streams are read in the task that calls it).

#![forbid(unsafe_code)]

mod client;
mod error;
mod server;
mod socket;
mod tls;
mod transport;

pub mod identity;

pub use client::{
    Client, ClientConnection, ClientEndpoint, ClientOptions, ContractHandle, PathStats, Reply,
    Request, WireTimes, random_id,
};
pub use error::{
    AcceptError, BindError, CloseReason, ConnectError, ConnectErrorKind, OpenError, ReplyError,
    RequestError, RequestErrorKind,
};
pub use server::{
    ClientAuth, ConnectionHandle, Contracts, IncomingRequest, PendingConnection, PendingRequest,
    Responder, ServerConnection, ServerEndpoint, ServerOptions,
};
pub use transport::{Congestion, TransportOptions};

pub use seamline_wire as wire;
