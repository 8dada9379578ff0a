//! The client's side of the handshake.

use std::time::Instant;

use bytes::Bytes;
use thiserror::Error;

use super::PrefixedFrame;
use crate::control::{HelloAnswer, decode_answer, encode_hello};
use crate::{Deadlines, ErrorCode, Hello, VersionRange, Welcome, WireError, truncate_text};

/// How a client's handshake ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientHandshakeEvent {
    /// The service takes the client.
    Welcome(Welcome),
    /// It does not.
    Refused(HandshakeRefused),
}

/// The service's refusal.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the service refused the connection: {reason} [{code}]")]
pub struct HandshakeRefused {
    /// Why.
    pub code: ErrorCode,
    /// For a person.
    pub reason: String,
}

/// Sends hello, reads the answer. Bytes behind the answer are the control stream's: take them by
/// [`ClientHandshake::into_rest`].
#[derive(Debug)]
pub struct ClientHandshake {
    versions: VersionRange,
    transmit: Option<Bytes>,
    answer: PrefixedFrame,
    rest: Bytes,
    deadline: Instant,
    deadlines: Deadlines,
    done: bool,
}

impl ClientHandshake {
    /// Begins; [`poll_transmit`](Self::poll_transmit) then gives the hello.
    ///
    /// # Errors
    /// [`WireError::FrameTooLong`] for an agent or token beyond 64 KiB.
    pub fn new(
        now: Instant,
        versions: VersionRange,
        hello: &Hello,
        deadlines: Deadlines,
    ) -> Result<ClientHandshake, WireError> {
        Ok(ClientHandshake {
            versions,
            transmit: Some(encode_hello(versions, hello)?),
            answer: PrefixedFrame::new("the answer to hello"),
            rest: Bytes::new(),
            deadline: now + deadlines.handshake,
            deadlines,
            done: false,
        })
    }

    /// Bytes to send.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        self.transmit.take()
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        (!self.done).then_some(self.deadline)
    }

    /// The control stream's next bytes.
    ///
    /// # Errors
    /// [`WireError`], e.g. a peer that does not speak Seamline or no version in common.
    pub fn handle_data(
        &mut self,
        mut chunk: Bytes,
    ) -> Result<Option<ClientHandshakeEvent>, WireError> {
        if self.done {
            return Err(WireError::Unexpected {
                what: "bytes after the handshake",
            });
        }
        self.answer.read_prefix(&mut chunk)?;
        let Some(server) = self.answer.versions else {
            return Ok(None);
        };
        // A service without a version in common closes with its own text; what its frame looks
        // like is unknown, so it is not read.
        if self.versions.common(server).is_none() {
            self.done = true;
            return Err(WireError::Version {
                client: self.versions,
                server,
            });
        }
        let Some(body) = self.answer.frame.read(&mut chunk)? else {
            return Ok(None);
        };
        self.done = true;
        self.rest = chunk;
        match decode_answer(&body)? {
            HelloAnswer::Welcome(welcome) => {
                self.check_version(server, &welcome)?;
                Ok(Some(ClientHandshakeEvent::Welcome(welcome)))
            }
            HelloAnswer::Refused { code, reason } => {
                let reason = truncate_text(reason);
                Ok(Some(ClientHandshakeEvent::Refused(HandshakeRefused {
                    code,
                    reason,
                })))
            }
        }
    }

    /// Reports a handshake that took too long.
    ///
    /// # Errors
    /// [`WireError::Timeout`] once the time is over.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), WireError> {
        if self.done || now < self.deadline {
            return Ok(());
        }
        self.done = true;
        Err(WireError::Timeout {
            what: "the service's answer to hello",
            allowed: self.deadlines.handshake,
        })
    }

    /// What came behind the answer.
    pub fn into_rest(self) -> Bytes {
        self.rest
    }

    fn check_version(&self, server: VersionRange, welcome: &Welcome) -> Result<(), WireError> {
        let version = VersionRange {
            min: welcome.version,
            max: welcome.version,
        };
        if self.versions.common(version).is_some() && server.common(version).is_some() {
            return Ok(());
        }
        Err(WireError::Version {
            client: self.versions,
            server: version,
        })
    }
}
