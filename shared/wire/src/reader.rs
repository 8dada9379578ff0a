//! Reads one direction of a request stream: header, payload chunks, end.

use std::marker::PhantomData;
use std::time::Instant;

use bytes::Bytes;

use crate::frame::decode_body;
use crate::{Deadlines, FrameReader, Limits, MessageHeader, ReplyHeader, RequestHeader, WireError};

/// Reads a request.
pub type RequestReader = MessageReader<RequestHeader>;

/// Reads an answer.
pub type ReplyReader = MessageReader<ReplyHeader>;

/// What a reader found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadEvent<H> {
    /// The header, checked against the limits.
    Header(H),
    /// The next bytes of a tensor, as they came; never across two tensors, never empty.
    Payload {
        /// The tensor's place in the header.
        tensor: usize,
        /// The bytes.
        data: Bytes,
    },
    /// The message is complete.
    End,
}

#[derive(Debug)]
enum State {
    Header,
    /// `left` bytes of tensor `tensor` are still to come.
    Body {
        tensor: usize,
        left: u64,
    },
    /// Every payload is there; only the stream's end may follow.
    Ending,
    Done,
}

/// Reads a message whose header is `H`.
///
/// Give it a chunk by [`handle_data`](Self::handle_data) or the stream's end by
/// [`handle_end`](Self::handle_end), then [`poll`](Self::poll) until `None`; wake it at
/// [`poll_timeout`](Self::poll_timeout). An error ends it.
#[derive(Debug)]
pub struct MessageReader<H> {
    state: State,
    frame: FrameReader,
    limits: Limits,
    deadlines: Deadlines,
    deadline: Instant,
    input: Bytes,
    ended: bool,
    lengths: Vec<u64>,
    header: PhantomData<fn() -> H>,
}

impl<H: MessageHeader> MessageReader<H> {
    /// A reader whose header must be complete `deadlines.header` after `now`.
    pub fn new(now: Instant, limits: &Limits, deadlines: Deadlines) -> Self {
        MessageReader {
            state: State::Header,
            frame: FrameReader::new(H::WHAT, limits.max_header_bytes),
            limits: limits.clone(),
            deadlines,
            deadline: now + deadlines.header,
            input: Bytes::new(),
            ended: false,
            lengths: Vec::new(),
            header: PhantomData,
        }
    }

    /// The stream's next bytes. Poll until `None` first: what was not polled is copied.
    pub fn handle_data(&mut self, chunk: Bytes) {
        self.input = if self.input.is_empty() {
            chunk
        } else {
            Bytes::from([self.input.as_ref(), chunk.as_ref()].concat())
        };
    }

    /// The stream's orderly end.
    pub fn handle_end(&mut self) {
        self.ended = true;
    }

    /// What the bytes so far contain; `None` when more are needed, or after [`ReadEvent::End`].
    ///
    /// # Errors
    /// [`WireError`]; afterwards the reader gives nothing more.
    pub fn poll(&mut self, now: Instant) -> Result<Option<ReadEvent<H>>, WireError> {
        let event = self.advance(now);
        if event.is_err() {
            self.state = State::Done;
            self.input = Bytes::new();
        }
        event
    }

    /// When to poll at the latest, even if nothing came.
    pub fn poll_timeout(&self) -> Option<Instant> {
        (!matches!(self.state, State::Done)).then_some(self.deadline)
    }

    fn advance(&mut self, now: Instant) -> Result<Option<ReadEvent<H>>, WireError> {
        match self.state {
            State::Header => {
                if let Some(body) = self.frame.read(&mut self.input)? {
                    return self.header(now, &body).map(Some);
                }
                if self.ended {
                    return Err(WireError::Short {
                        what: H::WHAT,
                        missing: "some bytes".to_owned(),
                    });
                }
                self.wait(now, H::WHAT, self.deadlines.header)
            }
            State::Body { tensor, left } => {
                if !self.input.is_empty() {
                    return Ok(Some(self.payload(tensor, left)));
                }
                if self.ended {
                    let missing = sum(&self.lengths[tensor + 1..]).saturating_add(left);
                    return Err(WireError::Short {
                        what: H::BODY,
                        missing: format!("{missing} bytes"),
                    });
                }
                self.wait(now, H::BODY, self.deadlines.body)
            }
            State::Ending => {
                if !self.input.is_empty() {
                    return Err(WireError::Trailing {
                        expected: sum(&self.lengths),
                        got: self.input.len() as u64,
                    });
                }
                if self.ended {
                    self.state = State::Done;
                    return Ok(Some(ReadEvent::End));
                }
                self.wait(now, "the stream's end", self.deadlines.body)
            }
            State::Done => Ok(None),
        }
    }

    fn header(&mut self, now: Instant, body: &[u8]) -> Result<ReadEvent<H>, WireError> {
        let header: H = decode_body(H::WHAT, body)?;
        header.check(&self.limits)?;
        self.lengths = header.tensors().iter().map(|tensor| tensor.bytes).collect();
        self.deadline = now + self.deadlines.body;
        self.begin_tensor(0);
        Ok(ReadEvent::Header(header))
    }

    fn payload(&mut self, tensor: usize, left: u64) -> ReadEvent<H> {
        let take =
            usize::try_from(left).map_or(self.input.len(), |left| left.min(self.input.len()));
        let data = self.input.split_to(take);
        match left - take as u64 {
            0 => self.begin_tensor(tensor + 1),
            left => self.state = State::Body { tensor, left },
        }
        ReadEvent::Payload { tensor, data }
    }

    /// Goes to the first tensor from `from` on that has bytes.
    fn begin_tensor(&mut self, from: usize) {
        let next = (from..self.lengths.len()).find(|&tensor| self.lengths[tensor] != 0);
        self.state = match next {
            Some(tensor) => State::Body {
                tensor,
                left: self.lengths[tensor],
            },
            None => State::Ending,
        };
    }

    fn wait(
        &self,
        now: Instant,
        what: &'static str,
        allowed: std::time::Duration,
    ) -> Result<Option<ReadEvent<H>>, WireError> {
        if now < self.deadline {
            Ok(None)
        } else {
            Err(WireError::Timeout { what, allowed })
        }
    }
}

fn sum(lengths: &[u64]) -> u64 {
    lengths
        .iter()
        .fold(0, |sum: u64, &length| sum.saturating_add(length))
}
