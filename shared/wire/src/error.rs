//! What can be wrong with bytes that came from a peer, or with a message about to be sent.

use std::time::Duration;

use thiserror::Error;

use crate::{ErrorCode, VersionRange};

/// A violation of the protocol. The text is fit for the peer: it holds nothing private.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WireError {
    /// A frame longer than the reader takes.
    #[error("{what} of {got} bytes; at most {limit} are allowed")]
    FrameTooLong {
        /// Which frame.
        what: &'static str,
        /// Bytes that the length field says.
        got: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// A frame body that does not parse, or is not fully used by its fields.
    #[error("{what} does not parse: {problem}")]
    Malformed {
        /// Which frame.
        what: &'static str,
        /// Why.
        problem: String,
    },
    /// The stream ended too early.
    #[error("the stream ended {missing} before the end of {what}")]
    Short {
        /// What was being read.
        what: &'static str,
        /// How much is missing.
        missing: String,
    },
    /// Bytes behind the last payload.
    #[error("{got} or more bytes follow the {expected} payload bytes that the header states")]
    Trailing {
        /// Payload bytes stated.
        expected: u64,
        /// Bytes seen behind them.
        got: u64,
    },
    /// A stated limit is passed.
    #[error("{what} is {got}{unit}; the limit is {limit}{unit}")]
    Limit {
        /// What is limited.
        what: &'static str,
        /// What came.
        got: u64,
        /// What is allowed.
        limit: u64,
        /// With a leading space, or empty for a count.
        unit: &'static str,
    },
    /// A tensor header that cannot be.
    #[error("tensor {index}: {problem}")]
    Tensor {
        /// Its place in the message.
        index: usize,
        /// Why it cannot be.
        problem: String,
    },
    /// The payloads that the sender gives differ from its header.
    #[error("tensor {index} states {stated} bytes; its payload has {got}")]
    PayloadLength {
        /// Its place in the message.
        index: usize,
        /// In the header.
        stated: u64,
        /// Given.
        got: u64,
    },
    /// More or fewer payloads than tensors.
    #[error("the header has {stated} tensors; {got} payloads were given")]
    PayloadCount {
        /// In the header.
        stated: usize,
        /// Given.
        got: usize,
    },
    /// The peer does not begin with the protocol's magic bytes.
    #[error(
        "the peer does not speak Seamline: its first bytes are not the magic `SEAMLINE`; check the address and port"
    )]
    Magic,
    /// No version in common.
    #[error(
        "no protocol version in common: the client speaks {client}, the service speaks {server}; update the older one"
    )]
    Version {
        /// The client's.
        client: VersionRange,
        /// The service's.
        server: VersionRange,
    },
    /// The peer took too long.
    #[error("{what} did not arrive within {allowed:?}")]
    Timeout {
        /// What was waited for.
        what: &'static str,
        /// How long.
        allowed: Duration,
    },
    /// Something that the present state does not allow.
    #[error("unexpected {what}")]
    Unexpected {
        /// What came.
        what: &'static str,
    },
}

impl WireError {
    /// The code that goes to the peer.
    pub fn code(&self) -> ErrorCode {
        match self {
            WireError::FrameTooLong { .. } | WireError::Limit { .. } => ErrorCode::LimitExceeded,
            WireError::Tensor { .. } => ErrorCode::InvalidTensor,
            WireError::Version { .. } => ErrorCode::VersionMismatch,
            WireError::Timeout { .. } => ErrorCode::DeadlineExceeded,
            WireError::Malformed { .. }
            | WireError::Short { .. }
            | WireError::Trailing { .. }
            | WireError::PayloadLength { .. }
            | WireError::PayloadCount { .. }
            | WireError::Magic
            | WireError::Unexpected { .. } => ErrorCode::Malformed,
        }
    }

    /// Whether the peer broke the protocol, so that the connection cannot be trusted further. A
    /// slow peer is not a hostile one: [`WireError::Timeout`] ends only its stream.
    pub fn is_breach(&self) -> bool {
        !matches!(self, WireError::Timeout { .. })
    }
}
