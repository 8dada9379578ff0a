//! The client's side of a connection.

use std::collections::{HashSet, VecDeque};

use bytes::Bytes;
use seamline_plan::Fingerprint;
use thiserror::Error;

use super::{SessionCounts, Terminal};
use crate::frame::decode_body;
use crate::{
    ClientControl, ErrorCode, FrameReader, Limits, Load, MAX_FRAME_BYTES, OpenRefusal,
    ServerControl, Welcome, WireError, encode_frame,
};

/// What the service said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// The answer to the oldest [`ClientSession::open`] without one.
    Open(Result<u32, OpenRefusal>),
    /// How busy the service is, also in [`ClientSession::load`].
    Load(Load),
    /// The service takes nothing new; what is in flight will be answered.
    Draining,
}

/// A request that is not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StartError {
    /// As many as the service allows are in flight.
    #[error("{limit} requests are in flight on this connection, the service's limit")]
    InFlight {
        /// [`Limits::max_in_flight`].
        limit: u32,
    },
    /// The service drains.
    #[error("the service is draining; connect to another replica")]
    Draining,
    /// The connection is over.
    #[error("the connection is closed")]
    Closed,
    /// Ids must be unique among those in flight.
    #[error("a request of id {id:032x} is in flight already")]
    Duplicate {
        /// The id.
        id: u128,
    },
}

impl StartError {
    /// The protocol's code for it.
    pub fn code(&self) -> ErrorCode {
        match self {
            StartError::InFlight { .. } => ErrorCode::Overloaded,
            StartError::Draining => ErrorCode::Draining,
            StartError::Closed => ErrorCode::Closed,
            StartError::Duplicate { .. } => ErrorCode::DuplicateRequest,
        }
    }
}

/// The control stream and the requests in flight, seen from the client.
#[derive(Debug)]
pub struct ClientSession {
    limits: Limits,
    load: Load,
    control: FrameReader,
    transmits: VecDeque<Bytes>,
    events: VecDeque<ClientEvent>,
    opens: usize,
    in_flight: HashSet<u128>,
    counts: SessionCounts,
    draining: bool,
    closed: bool,
}

impl ClientSession {
    /// After `welcome`.
    pub fn new(welcome: &Welcome) -> ClientSession {
        ClientSession {
            limits: welcome.limits.clone(),
            load: welcome.load,
            control: FrameReader::new("the service's control message", MAX_FRAME_BYTES),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            opens: 0,
            in_flight: HashSet::new(),
            counts: SessionCounts::default(),
            draining: false,
            closed: false,
        }
    }

    /// Asks for a contract; the answer is a [`ClientEvent::Open`], in the order of the calls.
    ///
    /// # Errors
    /// [`WireError::FrameTooLong`] for a model name beyond 64 KiB.
    pub fn open(&mut self, fingerprint: Fingerprint, model: &str) -> Result<(), WireError> {
        let open = ClientControl::Open {
            fingerprint,
            model: model.to_owned(),
        };
        self.transmits.push_back(encode_frame("open", &open)?);
        self.opens += 1;
        Ok(())
    }

    /// The control stream's next bytes.
    ///
    /// # Errors
    /// [`WireError`]: close the connection with its code.
    pub fn handle_control(&mut self, mut chunk: Bytes) -> Result<(), WireError> {
        while let Some(body) = self.control.read(&mut chunk)? {
            let event = match decode_body("the service's control message", &body)? {
                ServerControl::Opened { contract, load } => {
                    self.load = load;
                    self.answer_open(Ok(contract))?
                }
                ServerControl::OpenRefused(refusal) => self.answer_open(Err(refusal.bounded()))?,
                ServerControl::Load(load) => {
                    self.load = load;
                    ClientEvent::Load(load)
                }
                ServerControl::Draining => {
                    self.draining = true;
                    ClientEvent::Draining
                }
            };
            self.events.push_back(event);
        }
        Ok(())
    }

    /// What the service said, oldest first.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Bytes to send on the control stream.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        self.transmits.pop_front()
    }

    /// Begins a request; end it by [`ClientSession::end`].
    ///
    /// # Errors
    /// [`StartError`]; nothing has begun then.
    pub fn start(&mut self, id: u128) -> Result<(), StartError> {
        if self.closed {
            return Err(StartError::Closed);
        }
        if self.draining {
            return Err(StartError::Draining);
        }
        let limit = self.limits.max_in_flight;
        if self.in_flight.len() as u64 >= u64::from(limit) {
            return Err(StartError::InFlight { limit });
        }
        if !self.in_flight.insert(id) {
            return Err(StartError::Duplicate { id });
        }
        self.counts.started += 1;
        Ok(())
    }

    /// A request ended. False if it had ended before, or never begun: nothing changes then.
    pub fn end(&mut self, id: u128, terminal: Terminal) -> bool {
        let first = self.in_flight.remove(&id);
        if first {
            self.counts.count(terminal);
        }
        first
    }

    /// The connection ended: whatever is in flight is lost. Returns the ids.
    pub fn handle_closed(&mut self) -> Vec<u128> {
        self.closed = true;
        self.transmits.clear();
        let ids: Vec<u128> = self.in_flight.drain().collect();
        ids.iter().for_each(|_| self.counts.count(Terminal::Lost));
        ids
    }

    /// An answer's statement of load.
    pub fn set_load(&mut self, load: Load) {
        self.load = load;
    }

    /// The service's last statement of load.
    pub fn load(&self) -> Load {
        self.load
    }

    /// What the service allows.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether the service drains.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// How requests ended so far.
    pub fn counts(&self) -> SessionCounts {
        self.counts
    }

    fn answer_open(&mut self, answer: Result<u32, OpenRefusal>) -> Result<ClientEvent, WireError> {
        self.opens = self.opens.checked_sub(1).ok_or(WireError::Unexpected {
            what: "answer to an open that was never sent",
        })?;
        Ok(ClientEvent::Open(answer))
    }
}
