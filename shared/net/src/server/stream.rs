//! Reads one request from its stream: the header, then, once the service wants it, the payloads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::{ReadError, RecvStream, SendStream};
use seamline_wire::{
    Assembler, ErrorCode, ReadEvent, RequestHeader, RequestReader, Terminal, WireError,
    encode_error,
};
use tokio::time::{timeout, timeout_at};

use super::Responder;
use super::connection::Shared;
use crate::error::{error_code, varint};

/// The most that is taken from a stream at a time.
pub(crate) const CHUNK: usize = 1 << 20;

/// A request whose header is there and whose payloads are still to be received: the place to
/// refuse it before they cost memory. Dropped, the client gets `Internal`.
pub struct PendingRequest {
    /// As the client sent it, checked against the limits.
    pub header: RequestHeader,
    /// When the header was complete.
    pub header_at: Instant,
    /// When the client stops waiting, reckoned from the header's arrival.
    pub deadline: Option<Instant>,
    /// Sends a refusal.
    pub responder: Responder,
    reader: RequestReader,
    recv: RecvStream,
}

/// A complete request.
pub struct IncomingRequest {
    /// As the client sent it, checked against the limits.
    pub header: RequestHeader,
    /// One a tensor, in the header's order, each of the length that the header states.
    pub payloads: Vec<Bytes>,
    /// When the header was complete.
    pub header_at: Instant,
    /// When the last byte had come.
    pub received_at: Instant,
    /// When the client stops waiting, reckoned from the header's arrival.
    pub deadline: Option<Instant>,
    /// Sends the answer.
    pub responder: Responder,
}

impl PendingRequest {
    /// Receives the payloads. `None` where the client broke a rule, took too long, took the
    /// request back or went away: it has been told, and the request has ended.
    pub async fn receive(mut self) -> Option<IncomingRequest> {
        match read_payloads(&mut self.reader, &mut self.recv, &self.header).await {
            Ok(payloads) => Some(IncomingRequest {
                header: self.header,
                payloads,
                header_at: self.header_at,
                received_at: Instant::now(),
                deadline: self.deadline,
                responder: self.responder,
            }),
            Err(failure) => {
                let (shared, stream, send) = self.responder.into_parts()?;
                end(&shared, stream, self.header.id, failure, send, self.recv).await;
                None
            }
        }
    }
}

impl IncomingRequest {
    /// How long the payloads took to arrive behind their header.
    pub fn receive_time(&self) -> Duration {
        self.received_at - self.header_at
    }
}

enum ReadFailure {
    /// The client took it back.
    Cancelled(ErrorCode),
    Lost,
    Wire(WireError),
    /// Answered already.
    Refused,
}

/// Reads a request's header. `None` where there is none to work on; its client has been told.
pub(super) async fn read(
    shared: Arc<Shared>,
    mut send: SendStream,
    mut recv: RecvStream,
) -> Option<PendingRequest> {
    let stream: u64 = send.id().into();
    let mut reader = RequestReader::new(Instant::now(), &shared.limits, shared.deadlines);
    let header = match read_header(&shared, &mut reader, &mut send, &mut recv).await {
        Ok(header) => header,
        Err(failure) => {
            end(&shared, stream, 0, failure, send, recv).await;
            return None;
        }
    };
    let header_at = Instant::now();
    let deadline = header
        .deadline_us
        .and_then(|budget| header_at.checked_add(Duration::from_micros(budget)));
    Some(PendingRequest {
        responder: Responder::new(shared, send, stream, header.id),
        header,
        header_at,
        deadline,
        reader,
        recv,
    })
}

async fn read_header(
    shared: &Shared,
    reader: &mut RequestReader,
    send: &mut SendStream,
    recv: &mut RecvStream,
) -> Result<RequestHeader, ReadFailure> {
    let header = loop {
        if let Some(ReadEvent::Header(header)) = next(reader, recv).await? {
            break header;
        }
    };
    let begun = shared.session.lock().begin(send.id().into(), &header);
    let Err(refusal) = begun else {
        return Ok(header);
    };
    let retry_after = (refusal.code() == ErrorCode::Overloaded).then(|| {
        // At least a millisecond, so that nobody spins.
        (shared.contracts.load().queue_us / 1000).max(1)
    });
    let _ = recv.stop(varint(refusal.code()));
    if let Ok(frame) = encode_error(header.id, refusal.code(), refusal.to_string(), retry_after) {
        send_refusal(shared, send, frame).await;
    }
    Err(ReadFailure::Refused)
}

/// Sends a refusal, which is a packet or two: a client that does not take it within a header's
/// time gets a reset, so that it cannot hold the stream's task.
async fn send_refusal(shared: &Shared, send: &mut SendStream, frame: Bytes) {
    match timeout(shared.deadlines.header, send.write_chunk(frame)).await {
        // A client that is gone needs no refusal.
        Ok(_) => {
            let _ = send.finish();
        }
        Err(_) => {
            let _ = send.reset(varint(ErrorCode::DeadlineExceeded));
        }
    }
}

async fn read_payloads(
    reader: &mut RequestReader,
    recv: &mut RecvStream,
    header: &RequestHeader,
) -> Result<Vec<Bytes>, ReadFailure> {
    let mut assembler = Assembler::new(&header.tensors);
    loop {
        match next(reader, recv).await? {
            Some(ReadEvent::Payload { data, .. }) => assembler.push(data),
            Some(ReadEvent::End) => return Ok(assembler.finish()),
            Some(ReadEvent::Header(_)) | None => {}
        }
    }
}

/// The reader's next event, or `None` after more bytes went in.
async fn next(
    reader: &mut RequestReader,
    recv: &mut RecvStream,
) -> Result<Option<ReadEvent<RequestHeader>>, ReadFailure> {
    if let Some(event) = reader.poll(Instant::now()).map_err(ReadFailure::Wire)? {
        return Ok(Some(event));
    }
    let read = recv.read_chunk(CHUNK, true);
    let read = match reader.poll_timeout() {
        Some(deadline) => match timeout_at(deadline.into(), read).await {
            Ok(read) => read,
            // The reader itself finds that the time is over.
            Err(_) => return Ok(None),
        },
        None => read.await,
    };
    match read {
        Ok(Some(chunk)) => reader.handle_data(chunk.bytes),
        Ok(None) => reader.handle_end(),
        Err(ReadError::Reset(code)) => return Err(ReadFailure::Cancelled(error_code(code))),
        Err(_) => return Err(ReadFailure::Lost),
    }
    Ok(None)
}

async fn end(
    shared: &Shared,
    stream: u64,
    id: u128,
    failure: ReadFailure,
    mut send: SendStream,
    mut recv: RecvStream,
) {
    match failure {
        ReadFailure::Refused => shared.delivering(send),
        ReadFailure::Lost => shared.end(stream, Terminal::Lost),
        ReadFailure::Cancelled(code) => {
            let _ = send.reset(varint(code));
            shared.end(stream, Terminal::Cancelled(code));
        }
        ReadFailure::Wire(error) if error.is_breach() => {
            shared.end(stream, Terminal::Failed(error.code()));
            shared.breach(&error);
        }
        ReadFailure::Wire(error) => {
            let code = error.code();
            shared.end(stream, Terminal::Failed(code));
            let _ = recv.stop(varint(code));
            if let Ok(frame) = encode_error(id, code, error.to_string(), None) {
                send_refusal(shared, &mut send, frame).await;
            }
            shared.delivering(send);
        }
    }
}
