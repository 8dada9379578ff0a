//! The service's side of the handshake.

use std::time::Instant;

use bytes::Bytes;

use super::PrefixedFrame;
use crate::control::{HelloAnswer, decode_hello, encode_answer};
use crate::{
    Deadlines, ErrorCode, Hello, Limits, Load, VersionRange, Welcome, WireError, truncate_text,
};

/// What a service says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHello {
    /// Versions it speaks.
    pub versions: VersionRange,
    /// Program and version.
    pub agent: String,
    /// Optional parts of the protocol that it has.
    pub features: u64,
    /// What it allows.
    pub limits: Limits,
}

/// What a service must decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerHandshakeEvent {
    /// A client that speaks a common version asks to be taken: check its identity, then call
    /// [`ServerHandshake::welcome`] or [`ServerHandshake::refuse`].
    Hello(Hello),
}

#[derive(Debug)]
enum State {
    WaitHello,
    Deciding { version: u16, features: u64 },
    Done,
}

/// Reads hello, sends welcome or refusal.
#[derive(Debug)]
pub struct ServerHandshake {
    own: ServerHello,
    state: State,
    hello: PrefixedFrame,
    transmit: Option<Bytes>,
    rest: Bytes,
    deadline: Instant,
    deadlines: Deadlines,
}

impl ServerHandshake {
    /// Waits for a hello from `now` on.
    pub fn new(now: Instant, own: ServerHello, deadlines: Deadlines) -> ServerHandshake {
        ServerHandshake {
            own,
            state: State::WaitHello,
            hello: PrefixedFrame::new("hello"),
            transmit: None,
            rest: Bytes::new(),
            deadline: now + deadlines.handshake,
            deadlines,
        }
    }

    /// The control stream's next bytes.
    ///
    /// # Errors
    /// [`WireError`]. A refusal for the client is then in [`poll_transmit`](Self::poll_transmit):
    /// send it, then close with the error's code and text.
    pub fn handle_data(
        &mut self,
        mut chunk: Bytes,
    ) -> Result<Option<ServerHandshakeEvent>, WireError> {
        if !matches!(self.state, State::WaitHello) {
            // A client may ask for its contracts without waiting for the welcome; one frame's
            // worth is plenty.
            if self.rest.len() + chunk.len() > crate::MAX_FRAME_BYTES as usize {
                return self.fail(WireError::Unexpected {
                    what: "bytes before the welcome",
                });
            }
            self.rest = Bytes::from([self.rest.as_ref(), chunk.as_ref()].concat());
            return Ok(None);
        }
        match self.read(&mut chunk) {
            Ok(Some((version, hello))) => {
                let features = hello.features & self.own.features;
                self.state = State::Deciding { version, features };
                self.rest = chunk;
                Ok(Some(ServerHandshakeEvent::Hello(hello)))
            }
            Ok(None) => Ok(None),
            Err(error) => self.fail(error),
        }
    }

    /// Takes the client. Returns the welcome that [`poll_transmit`](Self::poll_transmit) gives.
    ///
    /// # Errors
    /// [`WireError::Unexpected`] unless a hello waits for a decision.
    pub fn welcome(&mut self, load: Load) -> Result<Welcome, WireError> {
        let State::Deciding { version, features } = self.state else {
            return Err(WireError::Unexpected {
                what: "welcome without a hello",
            });
        };
        let welcome = Welcome {
            version,
            agent: self.own.agent.clone(),
            features,
            limits: self.own.limits.clone(),
            load,
        };
        self.transmit = Some(encode_answer(
            self.own.versions,
            &HelloAnswer::Welcome(welcome.clone()),
        )?);
        self.state = State::Done;
        Ok(welcome)
    }

    /// Turns the client away; the refusal is then in [`poll_transmit`](Self::poll_transmit).
    pub fn refuse(&mut self, code: ErrorCode, reason: &str) {
        let reason = truncate_text(reason.to_owned());
        self.transmit =
            encode_answer(self.own.versions, &HelloAnswer::Refused { code, reason }).ok();
        self.state = State::Done;
    }

    /// Bytes to send.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        self.transmit.take()
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        (!matches!(self.state, State::Done)).then_some(self.deadline)
    }

    /// Reports a handshake that took too long; a refusal is then to be sent.
    ///
    /// # Errors
    /// [`WireError::Timeout`] once the time is over.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), WireError> {
        if matches!(self.state, State::Done) || now < self.deadline {
            return Ok(());
        }
        self.fail(WireError::Timeout {
            what: "hello",
            allowed: self.deadlines.handshake,
        })
    }

    /// What came behind the hello.
    pub fn into_rest(self) -> Bytes {
        self.rest
    }

    fn read(&mut self, chunk: &mut Bytes) -> Result<Option<(u16, Hello)>, WireError> {
        self.hello.read_prefix(chunk)?;
        let Some(client) = self.hello.versions else {
            return Ok(None);
        };
        // Decided on the prefix alone: the frame of an unknown version cannot be read.
        let version = client.common(self.own.versions).ok_or(WireError::Version {
            client,
            server: self.own.versions,
        })?;
        match self.hello.frame.read(chunk)? {
            Some(body) => Ok(Some((version, decode_hello(&body)?))),
            None => Ok(None),
        }
    }

    fn fail<T>(&mut self, error: WireError) -> Result<T, WireError> {
        self.refuse(error.code(), &error.to_string());
        Err(error)
    }
}
