//! Why something ended.

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $value:literal,)*) => {
        /// Why a request, a stream or a connection ended. A `u16` on the wire, and also the code
        /// of a QUIC stream reset and of a QUIC application close. Append only.
        ///
        /// The code says what failed; whether to retry is the caller's policy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(from = "u16", into = "u16")]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[doc = $doc])+ $name,)*
            /// A code that a newer peer knows and this build does not.
            Other(u16),
        }

        impl ErrorCode {
            /// Every code that this build knows, in the order of their numbers.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$name,)*];

            /// The number on the wire.
            pub const fn as_u16(self) -> u16 {
                match self {
                    $(ErrorCode::$name => $value,)*
                    ErrorCode::Other(code) => code,
                }
            }

            /// The code of a number on the wire.
            pub const fn from_u16(code: u16) -> ErrorCode {
                match code {
                    $($value => ErrorCode::$name,)*
                    code => ErrorCode::Other(code),
                }
            }

            /// The name in logs and metric labels.
            pub const fn name(self) -> &'static str {
                match self {
                    $(ErrorCode::$name => stringify!($name),)*
                    ErrorCode::Other(_) => "Other",
                }
            }
        }
    };
}

codes! {
    /// An orderly end: nothing failed.
    Closed = 0,
    /// Bytes that are not the protocol: a frame that does not parse, trailing or missing bytes.
    /// Closes the connection.
    Malformed = 1,
    /// No protocol version in common. Closes the connection.
    VersionMismatch = 2,
    /// No certificate or token, or one that the service does not know. Closes the connection.
    Unauthenticated = 3,
    /// The service holds no bundle of this fingerprint, or the handle was not opened on this
    /// connection.
    UnknownContract = 4,
    /// A limit that the welcome stated was passed. Closes the connection where the client did it.
    LimitExceeded = 5,
    /// A tensor whose dtype, shape or length cannot be, or does not fit the contract.
    InvalidTensor = 6,
    /// The service has no room; try later or elsewhere.
    Overloaded = 7,
    /// The request's deadline, or the time allowed for sending it, passed.
    DeadlineExceeded = 8,
    /// The caller no longer wants the answer.
    Cancelled = 9,
    /// The service finishes what it accepted and takes nothing new.
    Draining = 10,
    /// A codec, a feature or a cut that this service does not have.
    Unsupported = 11,
    /// The contract is known but still loads or warms up.
    NotReady = 12,
    /// The service failed; its log says why.
    Internal = 13,
    /// The peer sent nothing for longer than agreed.
    IdleTimeout = 14,
    /// A request of this id is already in flight on this connection.
    DuplicateRequest = 15,
    /// The session's state slot is unknown or its step does not follow.
    UnknownSession = 16,
}

impl From<u16> for ErrorCode {
    fn from(code: u16) -> ErrorCode {
        ErrorCode::from_u16(code)
    }
}

impl From<ErrorCode> for u16 {
    fn from(code: ErrorCode) -> u16 {
        code.as_u16()
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name(), self.as_u16())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back() {
        for code in 0..=u16::MAX {
            assert_eq!(ErrorCode::from_u16(code).as_u16(), code);
        }
    }

    /// The numbers are the format: a change here breaks every deployed peer.
    #[test]
    fn numbers_are_dense_and_in_order() {
        for (number, code) in ErrorCode::ALL.iter().enumerate() {
            assert_eq!(usize::from(code.as_u16()), number, "{code}");
        }
        assert_eq!(ErrorCode::UnknownSession.as_u16(), 16);
        assert_eq!(ErrorCode::Draining.to_string(), "Draining (10)");
    }
}
