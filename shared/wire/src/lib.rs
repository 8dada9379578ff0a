//! The Seamline protocol without IO: frames, limits, request and session state machines.
//!
//! Nothing here opens a socket, spawns a task or reads a clock: bytes and the time are passed in,
//! bytes, events and the next deadline are polled out. `seamline-net` drives these machines over
//! QUIC; the tests drive them in virtual time. The format itself is described in `PROTOCOL.md`.
//!
//! | what | where |
//! |---|---|
//! | length-prefixed frames | [`FrameReader`], [`encode_frame`] |
//! | hello and welcome | [`ClientHandshake`], [`ServerHandshake`] |
//! | contracts, load, drain, streams in flight | [`ClientSession`], [`ServerSession`] |
//! | one request or answer on its stream | [`RequestReader`], [`ReplyReader`], [`Assembler`] |

#![forbid(unsafe_code)]

mod assemble;
mod bounded;
mod code;
mod control;
mod error;
mod frame;
mod handshake;
mod limits;
mod message;
mod reader;
mod session;
mod tensor;

pub use assemble::{Assembler, PREALLOCATE_BYTES};
pub use bounded::printable;
pub use code::ErrorCode;
pub use control::{
    ClientControl, Hello, Load, OpenRefusal, PREFIX_BYTES, ServerControl, VersionRange, Welcome,
};
pub use error::WireError;
pub use frame::{FRAME_LENGTH_BYTES, FrameReader, MAX_FRAME_BYTES, encode_frame};
pub use handshake::{
    ClientHandshake, ClientHandshakeEvent, HandshakeRefused, ServerHandshake, ServerHandshakeEvent,
    ServerHello,
};
pub use limits::{Deadlines, Limits};
pub use message::{
    DEFAULT_PRIORITY, MAX_MESSAGE_BYTES, MessageHeader, ReplyHeader, ReplyOk, RequestHeader,
    Timings, TraceContext, encode_error, encode_reply, encode_request, truncate_text,
};
pub use reader::{MessageReader, ReadEvent, ReplyReader, RequestReader};
pub use session::{
    ClientEvent, ClientSession, Refusal, ServerEvent, ServerSession, SessionCounts, StartError,
    Terminal,
};
pub use tensor::TensorHeader;

/// The protocol's name in TLS's application-layer negotiation. It changes only when the prefix of
/// the hello does; everything else is negotiated by [`VersionRange`].
pub const ALPN: &[u8] = b"seamline/1";

/// The versions that this build speaks.
pub const VERSIONS: VersionRange = VersionRange { min: 1, max: 1 };
