//! The device's side: an endpoint, a connection, requests.

mod connect;
mod connection;
mod request;

pub use connect::{Client, ClientEndpoint, ClientOptions};
pub use connection::{ClientConnection, ContractHandle, PathStats};
pub use request::{Reply, Request, WireTimes, random_id};
