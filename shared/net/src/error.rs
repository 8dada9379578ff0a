//! What can fail, in words for a person and kinds for a program.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use quinn::{ConnectionError, TransportErrorCode};
use seamline_wire::{ErrorCode, OpenRefusal, StartError, WireError, printable};
use thiserror::Error;

use crate::identity::IdentityError;
use crate::tls::{self, Refuser};

/// An address that cannot be listened on.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// Another program has the port.
    #[error(
        "UDP port {} on {} is in use by another program; stop it, or listen on another port (port 0 takes a free one)",
        addr.port(),
        addr.ip()
    )]
    InUse {
        /// Asked for.
        addr: SocketAddr,
    },
    /// No interface has the address.
    #[error("this machine has no address {}; listen on one of its own, or on 0.0.0.0 or [::] for all", addr.ip())]
    NotOurs {
        /// Asked for.
        addr: SocketAddr,
    },
    /// The operating system refused.
    #[error("cannot open UDP {addr}: {error}")]
    Io {
        /// Asked for.
        addr: SocketAddr,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The certificate or key cannot be used.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseReason {
    /// The protocol's code, where the connection was closed by it; `IdleTimeout` for silence.
    pub code: Option<ErrorCode>,
    /// For a person.
    pub text: String,
    /// Whether the peer ended it.
    pub by_peer: bool,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match self.code {
            Some(code) => write!(f, " [{code}]"),
            None => Ok(()),
        }
    }
}

/// A peer's reason, fit for a log or a terminal.
fn peer_text(reason: &[u8]) -> String {
    printable(String::from_utf8_lossy(reason).into_owned())
}

impl From<&ConnectionError> for CloseReason {
    fn from(error: &ConnectionError) -> CloseReason {
        let (code, text, by_peer) = match error {
            ConnectionError::ApplicationClosed(close) => {
                let code = error_code(close.error_code);
                let reason = peer_text(&close.reason);
                let text = if reason.is_empty() {
                    "the peer closed the connection".to_owned()
                } else {
                    format!("the peer closed the connection: {reason}")
                };
                (Some(code), text, true)
            }
            ConnectionError::TimedOut => (
                Some(ErrorCode::IdleTimeout),
                "the peer fell silent".to_owned(),
                false,
            ),
            ConnectionError::LocallyClosed => (
                Some(ErrorCode::Closed),
                "the connection was closed here".to_owned(),
                false,
            ),
            ConnectionError::Reset => (
                None,
                "the peer no longer knows the connection; it was probably restarted".to_owned(),
                true,
            ),
            ConnectionError::ConnectionClosed(close) => (
                tls::alert(close.error_code.into()).map(|_| ErrorCode::Unauthenticated),
                tls::explain(
                    close.error_code.into(),
                    &peer_text(&close.reason),
                    Refuser::Peer,
                ),
                true,
            ),
            ConnectionError::TransportError(error) => (
                tls::alert(error.code.into()).map(|_| ErrorCode::Unauthenticated),
                tls::explain(error.code.into(), &error.reason, Refuser::Us),
                false,
            ),
            other => (None, other.to_string(), false),
        };
        CloseReason {
            code,
            text,
            by_peer,
        }
    }
}

/// The code of a stream reset, stream stop or application close.
pub(crate) fn error_code(code: quinn::VarInt) -> ErrorCode {
    // The protocol's codes are 16 bits; a peer that sends more has no meaning for us.
    u16::try_from(code.into_inner()).map_or(ErrorCode::Other(u16::MAX), ErrorCode::from_u16)
}

/// As QUIC sends it.
pub(crate) fn varint(code: ErrorCode) -> quinn::VarInt {
    quinn::VarInt::from_u32(code.as_u16().into())
}

/// The class of a [`ConnectError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectErrorKind {
    /// This side's configuration: address, name, files.
    Configuration,
    /// Nothing answers there.
    Unreachable,
    /// The service does not accept this device.
    Unauthenticated,
    /// This device does not accept the service's certificate.
    ServerNotTrusted,
    /// No protocol version in common.
    VersionMismatch,
    /// The service refused for another reason, e.g. it drains.
    Refused,
    /// What answers does not speak the protocol.
    Protocol,
}

/// A connection that did not come about.
#[derive(Debug, Error)]
#[error("cannot connect to {addr}: {text}")]
pub struct ConnectError {
    addr: String,
    kind: ConnectErrorKind,
    code: Option<ErrorCode>,
    text: String,
}

impl ConnectError {
    pub(crate) fn new(
        addr: impl fmt::Display,
        kind: ConnectErrorKind,
        code: Option<ErrorCode>,
        text: impl fmt::Display,
    ) -> ConnectError {
        ConnectError {
            addr: addr.to_string(),
            kind,
            code,
            text: text.to_string(),
        }
    }

    pub(crate) fn lost(addr: SocketAddr, error: &ConnectionError) -> ConnectError {
        use ConnectErrorKind as Kind;
        let reason = CloseReason::from(error);
        let kind = match error {
            ConnectionError::TimedOut => {
                let text = "no answer over UDP; check that the service runs there, the port, and that no firewall blocks UDP";
                return Self::new(addr, Kind::Unreachable, reason.code, text);
            }
            ConnectionError::ApplicationClosed(_) => Self::kind_of(reason.code),
            ConnectionError::ConnectionClosed(close)
                if close.error_code == TransportErrorCode::CONNECTION_REFUSED =>
            {
                let text = "the service takes no connection now: it is starting or stopping, or has its fill; try later or another one";
                return Self::new(addr, Kind::Refused, reason.code, text);
            }
            ConnectionError::ConnectionClosed(close) => match tls::alert(close.error_code.into()) {
                Some(tls::NO_APPLICATION_PROTOCOL) | None => Kind::Protocol,
                Some(_) => Kind::Unauthenticated,
            },
            ConnectionError::TransportError(error) => match tls::alert(error.code.into()) {
                Some(tls::NO_APPLICATION_PROTOCOL) | None => Kind::Protocol,
                Some(_) => Kind::ServerNotTrusted,
            },
            ConnectionError::VersionMismatch => Kind::Protocol,
            _ => Kind::Unreachable,
        };
        Self::new(addr, kind, reason.code, reason)
    }

    pub(crate) fn kind_of(code: Option<ErrorCode>) -> ConnectErrorKind {
        match code {
            Some(ErrorCode::Unauthenticated) => ConnectErrorKind::Unauthenticated,
            Some(ErrorCode::VersionMismatch) => ConnectErrorKind::VersionMismatch,
            Some(ErrorCode::Malformed) => ConnectErrorKind::Protocol,
            _ => ConnectErrorKind::Refused,
        }
    }

    /// The class.
    pub fn kind(&self) -> ConnectErrorKind {
        self.kind
    }

    /// The protocol's code, where there is one.
    pub fn code(&self) -> Option<ErrorCode> {
        self.code
    }
}

/// A connection that a service did not take.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// TLS or QUIC failed, or the client went away.
    #[error("{peer}: {reason}")]
    Connection {
        /// Who.
        peer: SocketAddr,
        /// Why.
        reason: CloseReason,
    },
    /// The client broke the protocol, or took too long.
    #[error("{peer}: {error}")]
    Wire {
        /// Who.
        peer: SocketAddr,
        /// How.
        error: WireError,
    },
    /// No identity, or one that is not known here.
    #[error("{peer}: {reason}")]
    Unauthenticated {
        /// Who.
        peer: SocketAddr,
        /// What is wrong with it.
        reason: String,
    },
    /// The device has as many connections as it may.
    #[error("{peer}: {limit} connections of {device} are open, the limit of one device")]
    TooMany {
        /// Who.
        peer: SocketAddr,
        /// The device's name.
        device: String,
        /// How many it may have.
        limit: usize,
    },
}

/// A contract that was not opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The service refused.
    #[error("{} [{}]", .0.message, .0.code)]
    Refused(OpenRefusal),
    /// The model's name cannot be sent.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The connection ended first.
    #[error("the connection ended before the contract was opened: {0}")]
    Lost(CloseReason),
}

/// The class of a [`RequestError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestErrorKind {
    /// Never sent: the request itself is at fault.
    Invalid,
    /// Never sent: the connection takes no request now (limit in flight, drain, closed).
    NotStarted,
    /// The service answered with an error.
    Refused,
    /// The deadline passed; the service was told to stop.
    DeadlineExceeded,
    /// The connection ended first. Whether the tail ran is unknown.
    ConnectionLost,
    /// The answer broke the protocol.
    Protocol,
}

/// A request without an answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// Never sent: it breaks a limit, or header and payloads differ.
    #[error("the request was not sent: {0}")]
    Invalid(WireError),
    /// Never sent.
    #[error("the request was not sent: {0}")]
    NotStarted(StartError),
    /// The service answered with an error.
    #[error("the service answered: {message} [{code}]")]
    Refused {
        /// What failed.
        code: ErrorCode,
        /// For a person.
        message: String,
        /// When a retry may succeed, in milliseconds.
        retry_after_ms: Option<u32>,
    },
    /// The deadline passed.
    #[error("no answer within the request's deadline")]
    DeadlineExceeded,
    /// The connection ended first.
    #[error("the connection ended before the answer: {0}")]
    Lost(CloseReason),
    /// The answer broke the protocol.
    #[error("the answer is not valid: {0}")]
    Protocol(WireError),
}

impl RequestError {
    /// The class.
    pub fn kind(&self) -> RequestErrorKind {
        match self {
            RequestError::Invalid(_) => RequestErrorKind::Invalid,
            RequestError::NotStarted(_) => RequestErrorKind::NotStarted,
            RequestError::Refused { .. } => RequestErrorKind::Refused,
            RequestError::DeadlineExceeded => RequestErrorKind::DeadlineExceeded,
            RequestError::Lost(_) => RequestErrorKind::ConnectionLost,
            RequestError::Protocol(_) => RequestErrorKind::Protocol,
        }
    }

    /// The protocol's code, where there is one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            RequestError::Invalid(error) | RequestError::Protocol(error) => Some(error.code()),
            RequestError::NotStarted(error) => Some(error.code()),
            RequestError::Refused { code, .. } => Some(*code),
            RequestError::DeadlineExceeded => Some(ErrorCode::DeadlineExceeded),
            RequestError::Lost(reason) => reason.code,
        }
    }
}

/// An answer that did not go out.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The client no longer wants it.
    #[error("the client cancelled the request [{0}]")]
    Cancelled(ErrorCode),
    /// The client does not read it.
    #[error("the client did not read the answer within {0:?}")]
    Stalled(std::time::Duration),
    /// The connection ended first.
    #[error("the connection ended before the answer: {0}")]
    Lost(CloseReason),
    /// The answer breaks a limit, or header and payloads differ; the client got an error instead.
    #[error("the answer was not sent: {0}")]
    Invalid(WireError),
}
