//! Sends the one answer of a request.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use quinn::{SendStream, WriteError};
use seamline_wire::{
    ErrorCode, ReplyOk, TensorHeader, Terminal, Timings, encode_error, encode_reply,
};
use tokio::time::timeout_at;

use super::connection::Shared;
use crate::error::{error_code, varint};
use crate::{CloseReason, ReplyError};

/// Sends the one answer of a request. Dropped without one, the client gets `Internal`.
pub struct Responder {
    shared: Arc<Shared>,
    /// `None` once the answer is on its way.
    send: Option<SendStream>,
    stream: u64,
    id: u128,
}

impl Responder {
    pub(super) fn new(shared: Arc<Shared>, send: SendStream, stream: u64, id: u128) -> Responder {
        Responder {
            shared,
            send: Some(send),
            stream,
            id,
        }
    }

    /// Its stream, for an end that is no answer. `None` once an answer is on its way.
    pub(super) fn into_parts(mut self) -> Option<(Arc<Shared>, u64, SendStream)> {
        let send = self.send.take()?;
        Some((Arc::clone(&self.shared), self.stream, send))
    }

    /// The request's id.
    pub fn id(&self) -> u128 {
        self.id
    }

    /// Answers with outputs; `payloads` has one a tensor. Returns when the answer is handed to
    /// QUIC, which is at once unless the client reads slowly.
    ///
    /// # Errors
    /// [`ReplyError`]. The request has ended in any case.
    pub async fn reply(
        mut self,
        timings: Timings,
        tensors: Vec<TensorHeader>,
        payloads: Vec<Bytes>,
    ) -> Result<(), ReplyError> {
        let header = ReplyOk {
            id: self.id,
            timings,
            load: self.shared.contracts.load(),
            tensors,
        };
        match encode_reply(header, &payloads, &self.shared.limits) {
            Ok(frame) => {
                let mut chunks = payloads;
                chunks.insert(0, frame);
                self.send(&mut chunks, Terminal::Answered).await
            }
            Err(error) => {
                // The client learns that it is the service's fault, and no more.
                let text = "the service made an answer that it may not send".to_owned();
                self.send_error(ErrorCode::Internal, text, None).await?;
                Err(ReplyError::Invalid(error))
            }
        }
    }

    /// Answers with an error. `message` goes to the client: nothing private in it.
    ///
    /// # Errors
    /// [`ReplyError`]. The request has ended in any case.
    pub async fn error(
        mut self,
        code: ErrorCode,
        message: impl Into<String>,
        retry_after_ms: Option<u32>,
    ) -> Result<(), ReplyError> {
        self.send_error(code, message.into(), retry_after_ms).await
    }

    /// Waits until the answer is no longer wanted or possible: gives the client's code, `Closed`
    /// where the connection ended, or `None` where the answer was delivered. Independent of the
    /// responder's life.
    pub fn cancelled(&self) -> impl Future<Output = Option<ErrorCode>> + Send + 'static {
        let stopped = self.send.as_ref().map(SendStream::stopped);
        async move {
            match stopped?.await {
                Ok(code) => code.map(error_code),
                Err(_) => Some(ErrorCode::Closed),
            }
        }
    }

    async fn send_error(
        &mut self,
        code: ErrorCode,
        message: String,
        retry_after_ms: Option<u32>,
    ) -> Result<(), ReplyError> {
        let frame =
            encode_error(self.id, code, message, retry_after_ms).map_err(ReplyError::Invalid)?;
        self.send(&mut [frame], Terminal::Failed(code)).await
    }

    async fn send(&mut self, chunks: &mut [Bytes], terminal: Terminal) -> Result<(), ReplyError> {
        let Some(send) = self.send.as_mut() else {
            return Ok(());
        };
        let allowed = self.shared.deadlines.body;
        let deadline = Instant::now() + allowed;
        let written = timeout_at(deadline.into(), send.write_all_chunks(chunks)).await;
        let (terminal, result) = match written {
            Ok(Ok(())) => {
                // Fails only where the client has stopped the stream meanwhile.
                let _ = send.finish();
                (terminal, Ok(()))
            }
            Ok(Err(WriteError::Stopped(code))) => {
                let code = error_code(code);
                let _ = send.reset(varint(code));
                (Terminal::Cancelled(code), Err(ReplyError::Cancelled(code)))
            }
            Ok(Err(WriteError::ConnectionLost(error))) => {
                let reason = CloseReason::from(&error);
                (Terminal::Lost, Err(ReplyError::Lost(reason)))
            }
            Ok(Err(_)) => {
                let code = ErrorCode::Closed;
                (Terminal::Cancelled(code), Err(ReplyError::Cancelled(code)))
            }
            Err(_) => {
                let code = ErrorCode::DeadlineExceeded;
                let _ = send.reset(varint(code));
                (Terminal::Failed(code), Err(ReplyError::Stalled(allowed)))
            }
        };
        if let Some(send) = self.send.take() {
            self.shared.delivering(send);
        }
        self.shared.end(self.stream, terminal);
        result
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(mut send) = self.send.take() {
            tracing::error!(id = %format_args!("{:032x}", self.id), "a request was dropped without an answer");
            let _ = send.reset(varint(ErrorCode::Internal));
            self.shared
                .end(self.stream, Terminal::Failed(ErrorCode::Internal));
        }
    }
}
