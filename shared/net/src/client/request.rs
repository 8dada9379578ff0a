//! One request, in its caller's task.

use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::{ReadError, RecvStream, SendStream, WriteError};
use seamline_wire::{
    Assembler, DEFAULT_PRIORITY, ErrorCode, Load, ReadEvent, ReplyHeader, ReplyReader,
    RequestHeader, TensorHeader, Terminal, Timings, TraceContext, WireError, encode_request,
};
use tokio::time::timeout_at;

use super::ContractHandle;
use super::connection::Shared;
use crate::error::{error_code, varint};
use crate::identity::{IdentityError, create};
use crate::{CloseReason, RequestError};

/// The most that is taken from a stream at a time.
const CHUNK: usize = 1 << 20;

/// A request to send.
#[derive(Clone, Debug)]
pub struct Request {
    /// Unique among those in flight; a retry on another replica keeps it. See [`random_id`].
    pub id: u128,
    /// From [`ClientConnection::open`](super::ClientConnection::open), of the same connection.
    pub contract: ContractHandle,
    /// Index of the cut in the contract's manifest.
    pub cut: u16,
    /// 0 is the most urgent, 255 the least.
    pub priority: u8,
    /// When the answer is no longer of use. The service is told how much time is left.
    pub deadline: Option<Instant>,
    /// For tracing across machines.
    pub trace: Option<TraceContext>,
    /// The state slot of a recurrent net, and the step within that session, from 0.
    pub session: Option<(u64, u64)>,
    /// The values that cross, in the cut's order.
    pub tensors: Vec<TensorHeader>,
}

impl Request {
    /// A request with a random id, of default priority, without deadline or session.
    ///
    /// # Errors
    /// [`IdentityError::Unusable`] where the system gives no randomness.
    pub fn new(
        contract: ContractHandle,
        cut: u16,
        tensors: Vec<TensorHeader>,
    ) -> Result<Request, IdentityError> {
        Ok(Request {
            id: random_id()?,
            contract,
            cut,
            priority: DEFAULT_PRIORITY,
            deadline: None,
            trace: None,
            session: None,
            tensors,
        })
    }
}

/// A random request id.
///
/// # Errors
/// [`IdentityError::Unusable`] where the system gives no randomness.
pub fn random_id() -> Result<u128, IdentityError> {
    let mut id = [0; 16];
    create::fill_random(&mut id)?;
    Ok(u128::from_ne_bytes(id))
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's.
    pub id: u128,
    /// Where the time went on the service.
    pub timings: Timings,
    /// How busy it is.
    pub load: Load,
    /// The outputs, in the cut's order of replies.
    pub tensors: Vec<TensorHeader>,
    /// Their bytes, one a tensor.
    pub payloads: Vec<Bytes>,
    /// Where the time went here.
    pub times: WireTimes,
}

/// Where a request's time went, seen from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireTimes {
    /// Until the last byte was handed to QUIC.
    pub send: Duration,
    /// From then until the answer's header: the way there, the service, the way back.
    pub wait: Duration,
    /// From the answer's header to its last byte.
    pub receive: Duration,
}

impl WireTimes {
    /// From the call to the answer's last byte.
    pub fn total(&self) -> Duration {
        self.send + self.wait + self.receive
    }
}

/// Ends the request in the session and tells the service, however the future ends.
struct InFlight<'a> {
    shared: &'a Shared,
    id: u128,
    streams: Option<(SendStream, RecvStream)>,
    /// What dropping means; set before every return.
    terminal: Terminal,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let code = match self.terminal {
            Terminal::Cancelled(code) => Some(code),
            Terminal::Answered | Terminal::Failed(_) | Terminal::Lost => None,
        };
        if let (Some(code), Some((send, recv))) = (code, &mut self.streams) {
            // Either fails where its direction is over already.
            let _ = send.reset(varint(code));
            let _ = recv.stop(varint(code));
        }
        self.shared.session.lock().end(self.id, self.terminal);
    }
}

pub(super) async fn run(
    shared: &Shared,
    request: Request,
    payloads: Vec<Bytes>,
) -> Result<Reply, RequestError> {
    let deadline = request.deadline;
    let id = request.id;
    shared
        .session
        .lock()
        .start(id)
        .map_err(RequestError::NotStarted)?;
    let mut in_flight = InFlight {
        shared,
        id,
        streams: None,
        terminal: Terminal::Cancelled(ErrorCode::Cancelled),
    };
    let exchange = exchange(shared, request, payloads, &mut in_flight);
    let result = match deadline {
        Some(deadline) => match timeout_at(deadline.into(), exchange).await {
            Ok(result) => result,
            Err(_) => Err(RequestError::DeadlineExceeded),
        },
        None => exchange.await,
    };
    in_flight.terminal = match &result {
        Ok(_) => Terminal::Answered,
        Err(RequestError::Refused { code, .. }) => Terminal::Failed(*code),
        Err(RequestError::Lost(_)) => Terminal::Lost,
        Err(error) => Terminal::Cancelled(error.code().unwrap_or(ErrorCode::Cancelled)),
    };
    result
}

async fn exchange(
    shared: &Shared,
    request: Request,
    payloads: Vec<Bytes>,
    in_flight: &mut InFlight<'_>,
) -> Result<Reply, RequestError> {
    let started = Instant::now();
    let streams = shared.quic.open_bi().await.map_err(|error| lost(&error))?;
    let (send, recv) = in_flight.streams.insert(streams);
    // The header is made only now: waiting for a stream has used up some of the budget.
    let mut chunks = encode(shared, request, payloads)?;
    match send.write_all_chunks(&mut chunks).await {
        Ok(()) => {
            // Fails only where the service has stopped the stream; its answer then says why.
            let _ = send.finish();
        }
        Err(WriteError::ConnectionLost(error)) => return Err(lost(&error)),
        Err(_) => {}
    }
    let sent = Instant::now();
    let (header, payloads, header_at) = read_reply(shared, recv).await?;
    match header {
        ReplyHeader::Ok(reply) if reply.id == in_flight.id => {
            shared.session.lock().set_load(reply.load);
            Ok(Reply {
                id: reply.id,
                timings: reply.timings,
                load: reply.load,
                tensors: reply.tensors,
                payloads,
                times: WireTimes {
                    send: sent - started,
                    wait: header_at - sent,
                    receive: header_at.elapsed(),
                },
            })
        }
        ReplyHeader::Ok(_) => {
            let error = WireError::Unexpected {
                what: "answer to another request",
            };
            shared.breach(&error);
            Err(RequestError::Protocol(error))
        }
        ReplyHeader::Error {
            code,
            message,
            retry_after_ms,
            ..
        } => Err(RequestError::Refused {
            code,
            message,
            retry_after_ms,
        }),
    }
}

fn encode(
    shared: &Shared,
    request: Request,
    payloads: Vec<Bytes>,
) -> Result<Vec<Bytes>, RequestError> {
    let left = request
        .deadline
        .map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let header = RequestHeader {
        id: request.id,
        contract: request.contract.0,
        cut: request.cut,
        priority: request.priority,
        deadline_us: left.map(|left| u64::try_from(left.as_micros()).unwrap_or(u64::MAX)),
        trace: request.trace,
        session: request.session.map(|(slot, _)| slot),
        session_step: request.session.map_or(0, |(_, step)| step),
        tensors: request.tensors,
    };
    let frame = encode_request(&header, &payloads, &shared.request_limits)
        .map_err(RequestError::Invalid)?;
    let mut chunks = Vec::with_capacity(1 + payloads.len());
    chunks.push(frame);
    chunks.extend(payloads);
    Ok(chunks)
}

/// Reads the answer; its header's deadline runs only from the first byte on, since how long the
/// service may take is the request's deadline, not the protocol's.
async fn read_reply(
    shared: &Shared,
    recv: &mut RecvStream,
) -> Result<(ReplyHeader, Vec<Bytes>, Instant), RequestError> {
    let first = read_chunk(recv).await?;
    let header_at = Instant::now();
    let mut reader = ReplyReader::new(header_at, &shared.reply_limits, shared.deadlines);
    match first {
        Some(bytes) => reader.handle_data(bytes),
        None => reader.handle_end(),
    }
    let mut answer = None;
    loop {
        match reader.poll(Instant::now()).map_err(|e| failed(shared, e))? {
            Some(ReadEvent::Header(header)) => {
                let assembler = Assembler::new(tensors(&header));
                answer = Some((header, assembler));
            }
            Some(ReadEvent::Payload { data, .. }) => {
                if let Some((_, assembler)) = &mut answer {
                    assembler.push(data);
                }
            }
            Some(ReadEvent::End) => {
                if let Some((header, assembler)) = answer {
                    return Ok((header, assembler.finish(), header_at));
                }
            }
            None => {
                let read = read_chunk(recv);
                let read = match reader.poll_timeout() {
                    Some(deadline) => match timeout_at(deadline.into(), read).await {
                        Ok(read) => read,
                        // The reader itself finds that the time is over.
                        Err(_) => continue,
                    },
                    None => read.await,
                };
                match read? {
                    Some(bytes) => reader.handle_data(bytes),
                    None => reader.handle_end(),
                }
            }
        }
    }
}

fn tensors(header: &ReplyHeader) -> &[TensorHeader] {
    match header {
        ReplyHeader::Ok(reply) => &reply.tensors,
        ReplyHeader::Error { .. } => &[],
    }
}

async fn read_chunk(recv: &mut RecvStream) -> Result<Option<Bytes>, RequestError> {
    match recv.read_chunk(CHUNK, true).await {
        Ok(chunk) => Ok(chunk.map(|chunk| chunk.bytes)),
        Err(ReadError::Reset(code)) => Err(RequestError::Refused {
            code: error_code(code),
            message: "the request's stream was reset without an answer".to_owned(),
            retry_after_ms: None,
        }),
        Err(ReadError::ConnectionLost(error)) => Err(lost(&error)),
        Err(error) => Err(RequestError::Lost(CloseReason {
            code: None,
            text: error.to_string(),
            by_peer: false,
        })),
    }
}

fn failed(shared: &Shared, error: WireError) -> RequestError {
    // An answer that is merely too large for this device costs the request, not the connection.
    if error.is_breach() && error.code() == ErrorCode::Malformed {
        shared.breach(&error);
    }
    RequestError::Protocol(error)
}

fn lost(error: &quinn::ConnectionError) -> RequestError {
    RequestError::Lost(CloseReason::from(error))
}
