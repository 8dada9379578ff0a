//! What a service allows.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::MAX_FRAME_BYTES;

/// What a service allows a client. The welcome states it, so that a client can refuse a request
/// itself; the service checks it before anything is allocated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Payload bytes of a request, all tensors together.
    ///
    /// Unit: bytes. Default: 256 MiB. Bound: none (64 bits). Cost: a connection may hold up to
    /// this much memory per request in flight, as it arrives. Raise it for video or long
    /// contexts; lower it on a small service.
    pub max_request_bytes: u64,
    /// Payload bytes of an answer, all tensors together; the client's own reader uses it too.
    ///
    /// Unit: bytes. Default: 256 MiB. Bound: none (64 bits). Cost: as above, on the client.
    pub max_reply_bytes: u64,
    /// Bytes of all tensors of a request after decoding.
    ///
    /// Unit: bytes. Default: 1 GiB. Bound: none. Cost: decoding allocates it; a codec can make a
    /// large tensor from few bytes, so that `max_request_bytes` alone would not bound memory.
    pub max_decoded_bytes: u64,
    /// Tensors in a request or an answer.
    ///
    /// Unit: count. Default: 64. Bound: 65,535. Cost: some 100 bytes each. Raise it for a cut
    /// through a net with many skip connections.
    pub max_tensors: u16,
    /// Dimensions of a tensor.
    ///
    /// Unit: count. Default: 8, ONNX models hardly pass 6. Bound: 255. Cost: 8 bytes each.
    pub max_rank: u8,
    /// Requests in flight on one connection, from their header's arrival to their answer.
    ///
    /// Unit: count. Default: 256. Bound: 2^31. Cost: their payloads in memory. A request beyond
    /// it is answered `Overloaded`.
    pub max_in_flight: u32,
    /// Length of a frame's body on any stream.
    ///
    /// Unit: bytes. Default and bound: 64 KiB. Cost: held per stream while a header is
    /// incomplete, as it arrives. Lower it where thousands of clients connect.
    pub max_header_bytes: u32,
    /// Contracts that one connection may open.
    ///
    /// Unit: count. Default: 64. Bound: none. Cost: 4 bytes each.
    pub max_contracts: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_request_bytes: 256 << 20,
            max_reply_bytes: 256 << 20,
            max_decoded_bytes: 1 << 30,
            max_tensors: 64,
            max_rank: 8,
            max_in_flight: 256,
            max_header_bytes: MAX_FRAME_BYTES,
            max_contracts: 64,
        }
    }
}

/// How long each phase may take. Local: not sent to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// From the connection's establishment to the end of hello and welcome.
    ///
    /// Default: 10 s. Cost of a long one: silent clients hold a connection each. Raise it on
    /// satellite links.
    pub handshake: Duration,
    /// From a stream's first sign of life to the end of its header.
    ///
    /// Default: 10 s. A header is one or two packets; a longer wait only helps slow-loris peers.
    pub header: Duration,
    /// From the end of the header to the last payload byte.
    ///
    /// Default: 60 s. Raise it where large requests cross slow links: 256 MiB at 10 Mbit/s take
    /// 215 s.
    pub body: Duration,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            handshake: Duration::from_secs(10),
            header: Duration::from_secs(10),
            body: Duration::from_secs(60),
        }
    }
}
