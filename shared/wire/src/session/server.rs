//! The service's side of a connection.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;
use seamline_plan::Fingerprint;
use thiserror::Error;

use super::{SessionCounts, Terminal};
use crate::frame::decode_body;
use crate::{
    ClientControl, ErrorCode, FrameReader, Limits, Load, OpenRefusal, RequestHeader, ServerControl,
    WireError, encode_frame,
};

/// What the client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// A contract: answer by [`ServerSession::answer_open`], in order.
    Open {
        /// The bundle's fingerprint.
        fingerprint: Fingerprint,
        /// The model's name.
        model: String,
    },
}

/// Why a request was not taken. Its text goes to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// The service drains.
    #[error("the service is draining; send the request to another replica")]
    Draining,
    /// The connection has its fill.
    #[error("{limit} requests are in flight on this connection, the limit; wait for an answer")]
    InFlight {
        /// [`Limits::max_in_flight`].
        limit: u32,
    },
    /// A handle that this connection did not open.
    #[error("contract {contract} was not opened on this connection; open its bundle first")]
    UnknownContract {
        /// The handle.
        contract: u32,
    },
    /// Ids must be unique among those in flight.
    #[error("a request of id {id:032x} is in flight already on this connection")]
    Duplicate {
        /// The id.
        id: u128,
    },
    /// The connection is over.
    #[error("the connection is closed")]
    Closed,
}

impl Refusal {
    /// The code that goes to the client.
    pub fn code(&self) -> ErrorCode {
        match self {
            Refusal::Draining => ErrorCode::Draining,
            Refusal::InFlight { .. } => ErrorCode::Overloaded,
            Refusal::UnknownContract { .. } => ErrorCode::UnknownContract,
            Refusal::Duplicate { .. } => ErrorCode::DuplicateRequest,
            Refusal::Closed => ErrorCode::Closed,
        }
    }
}

/// The control stream and the requests in flight, seen from the service.
///
/// `stream` is any number that is unique on the connection, e.g. QUIC's stream id. A stream is
/// known from [`begin`](Self::begin), when its header is there, to [`end`](Self::end).
#[derive(Debug)]
pub struct ServerSession {
    limits: Limits,
    control: FrameReader,
    transmits: VecDeque<Bytes>,
    events: VecDeque<ServerEvent>,
    opens: u32,
    contracts: HashSet<u32>,
    in_flight: HashMap<u64, u128>,
    ids: HashSet<u128>,
    counts: SessionCounts,
    draining: bool,
    closed: bool,
}

impl ServerSession {
    /// After the welcome that stated `limits`.
    pub fn new(limits: Limits) -> ServerSession {
        ServerSession {
            control: FrameReader::new("the client's control message", limits.max_header_bytes),
            limits,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
            opens: 0,
            contracts: HashSet::new(),
            in_flight: HashMap::new(),
            ids: HashSet::new(),
            counts: SessionCounts::default(),
            draining: false,
            closed: false,
        }
    }

    /// The control stream's next bytes.
    ///
    /// # Errors
    /// [`WireError`]: close the connection with its code.
    pub fn handle_control(&mut self, mut chunk: Bytes) -> Result<(), WireError> {
        while let Some(body) = self.control.read(&mut chunk)? {
            match decode_body("the client's control message", &body)? {
                ClientControl::Open { fingerprint, model } => {
                    self.opens = self.opens.saturating_add(1);
                    if self.opens > self.limits.max_contracts {
                        return Err(WireError::Limit {
                            what: "the number of contracts asked for",
                            got: self.opens.into(),
                            limit: self.limits.max_contracts.into(),
                            unit: "",
                        });
                    }
                    self.events
                        .push_back(ServerEvent::Open { fingerprint, model });
                }
            }
        }
        Ok(())
    }

    /// What the client asks, oldest first.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Answers the oldest [`ServerEvent::Open`] without an answer.
    ///
    /// # Errors
    /// None in practice: the frame is bounded.
    pub fn answer_open(
        &mut self,
        answer: Result<u32, OpenRefusal>,
        load: Load,
    ) -> Result<(), WireError> {
        let message = match answer {
            Ok(contract) => {
                self.contracts.insert(contract);
                ServerControl::Opened { contract, load }
            }
            Err(refusal) => ServerControl::OpenRefused(refusal.bounded()),
        };
        self.transmit(&message)
    }

    /// Tells the client how busy the service is.
    ///
    /// # Errors
    /// None in practice: the frame is bounded.
    pub fn send_load(&mut self, load: Load) -> Result<(), WireError> {
        self.transmit(&ServerControl::Load(load))
    }

    /// Takes nothing new from here on, and tells the client. Again has no effect.
    ///
    /// # Errors
    /// None in practice: the frame is bounded.
    pub fn drain(&mut self) -> Result<(), WireError> {
        if std::mem::replace(&mut self.draining, true) {
            return Ok(());
        }
        self.transmit(&ServerControl::Draining)
    }

    /// Bytes to send on the control stream.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        self.transmits.pop_front()
    }

    /// A request's header is there: takes it, or says why not. A refused one counts as begun and
    /// ended; send the refusal and read no more of its stream.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn begin(&mut self, stream: u64, header: &RequestHeader) -> Result<(), Refusal> {
        self.counts.started += 1;
        let refusal = self.refusal(header);
        if let Some(refusal) = refusal {
            self.counts.count(Terminal::Failed(refusal.code()));
            return Err(refusal);
        }
        self.in_flight.insert(stream, header.id);
        self.ids.insert(header.id);
        Ok(())
    }

    /// A request ended. False if it had ended before, or was never taken: nothing changes then.
    pub fn end(&mut self, stream: u64, terminal: Terminal) -> bool {
        let Some(id) = self.in_flight.remove(&stream) else {
            return false;
        };
        self.ids.remove(&id);
        self.counts.count(terminal);
        true
    }

    /// The connection ended: whatever is in flight is lost. Returns the streams.
    pub fn handle_closed(&mut self) -> Vec<u64> {
        self.closed = true;
        self.transmits.clear();
        self.ids.clear();
        let streams: Vec<u64> = self.in_flight.drain().map(|(stream, _)| stream).collect();
        streams
            .iter()
            .for_each(|_| self.counts.count(Terminal::Lost));
        streams
    }

    /// What the service allows.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether [`drain`](Self::drain) was called.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether the drain is complete: nothing is in flight.
    pub fn is_drained(&self) -> bool {
        self.draining && self.in_flight.is_empty()
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// How requests ended so far.
    pub fn counts(&self) -> SessionCounts {
        self.counts
    }

    fn refusal(&self, header: &RequestHeader) -> Option<Refusal> {
        let limit = self.limits.max_in_flight;
        if self.closed {
            Some(Refusal::Closed)
        } else if self.draining {
            Some(Refusal::Draining)
        } else if self.in_flight.len() as u64 >= u64::from(limit) {
            Some(Refusal::InFlight { limit })
        } else if !self.contracts.contains(&header.contract) {
            Some(Refusal::UnknownContract {
                contract: header.contract,
            })
        } else if self.ids.contains(&header.id) {
            Some(Refusal::Duplicate { id: header.id })
        } else {
            None
        }
    }

    fn transmit(&mut self, message: &ServerControl) -> Result<(), WireError> {
        if !self.closed {
            self.transmits
                .push_back(encode_frame("the service's control message", message)?);
        }
        Ok(())
    }
}
