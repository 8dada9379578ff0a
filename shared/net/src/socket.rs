//! UDP sockets with large buffers.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use crate::BindError;

/// A socket at `addr`; an IPv6 wildcard takes IPv4 too.
pub(crate) fn bind(addr: SocketAddr, buffer: usize) -> Result<UdpSocket, BindError> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))
        .map_err(|error| bind_error(addr, error))?;
    if addr.is_ipv6() {
        // Not every system allows both families on one socket; IPv6 alone still works there.
        if let Err(error) = socket.set_only_v6(false) {
            tracing::debug!(%error, "the socket takes IPv6 only");
        }
    }
    socket
        .bind(&addr.into())
        .map_err(|error| bind_error(addr, error))?;
    // The kernel may allow less; that costs throughput, not correctness.
    for result in [
        socket.set_recv_buffer_size(buffer),
        socket.set_send_buffer_size(buffer),
    ] {
        if let Err(error) = result {
            tracing::debug!(%error, buffer, "cannot set the socket's buffer");
        }
    }
    Ok(socket.into())
}

fn bind_error(addr: SocketAddr, error: io::Error) -> BindError {
    match error.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { addr },
        io::ErrorKind::AddrNotAvailable => BindError::NotOurs { addr },
        _ => BindError::Io { addr, error },
    }
}
