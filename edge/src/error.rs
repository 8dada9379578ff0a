//! The SDK's error: a kind to act on, and a text that says what to do.

use std::error::Error as StdError;
use std::fmt;

use crate::device::Text;

/// What kind of thing failed. Whether to retry, go elsewhere or finish on the device is the
/// caller's policy; [`Error::is_retryable`] says where another try can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An input is missing, unknown, or of another dtype or shape.
    Input,
    /// The bundle cannot be used: missing, changed, or without the stages asked for.
    Bundle,
    /// ONNX Runtime is missing, or failed on this device.
    Runtime,
    /// The service cannot be reached.
    Connect,
    /// The service does not accept this device, or this device does not trust the service.
    Identity,
    /// The service does not hold this build of the bundle, or speaks another protocol version.
    Contract,
    /// The service has no room, or is stopping.
    Unavailable,
    /// The deadline passed.
    Deadline,
    /// The service failed on this request, or answered with something else than agreed.
    Service,
    /// The connection broke while the request was in flight.
    Disconnected,
    /// The client is closed, or the request was dropped for a newer one.
    Cancelled,
}

/// Why an operation of the SDK failed.
pub struct Error {
    kind: ErrorKind,
    source: Box<dyn StdError + Send + Sync>,
}

impl Error {
    pub(crate) fn new(
        kind: ErrorKind,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        Error {
            kind,
            source: source.into(),
        }
    }

    pub(crate) fn text(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error::new(kind, Text(text.into()))
    }

    pub(crate) fn input(text: String) -> Error {
        Error::text(ErrorKind::Input, text)
    }

    /// What kind of thing failed.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the service could not be asked, or did not answer in time: the device may answer
    /// alone.
    pub(crate) fn is_of_the_path(&self) -> bool {
        self.is_retryable() || self.kind == ErrorKind::Deadline
    }

    /// Whether the same request may succeed later, or on another replica.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Connect | ErrorKind::Unavailable | ErrorKind::Disconnected
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}: {})", self.kind, self.source)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        // The text of `source` is this error's own; the chain goes on behind it.
        self.source.source()
    }
}
