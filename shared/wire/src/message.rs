//! Requests and answers: the header that opens each direction of a request stream.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::tensor::check_tensors;
use crate::{ErrorCode, Limits, Load, TensorHeader, WireError, bounded, encode_frame};

/// The longest text in an error or refusal, in bytes; longer ones are cut.
pub const MAX_MESSAGE_BYTES: usize = 2048;

/// The priority of a request whose caller has no wish.
pub const DEFAULT_PRIORITY: u8 = 128;

/// W3C trace context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceContext {
    /// The whole trace.
    pub trace_id: u128,
    /// The caller's span.
    pub span_id: u64,
    /// Bit 0: sampled.
    pub flags: u8,
}

/// Opens a request. Payloads of `tensors` follow, concatenated, then the stream's end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestHeader {
    /// Chosen by the client, at random; a retry elsewhere keeps it.
    pub id: u128,
    /// The contract's handle on this connection.
    pub contract: u32,
    /// Index of the cut in the contract's manifest.
    pub cut: u16,
    /// 0 is the most urgent, 255 the least; [`DEFAULT_PRIORITY`] where the caller has no wish.
    pub priority: u8,
    /// Time left for the answer when the request was sent, in microseconds. A span, not a point
    /// in time: the two clocks need not agree.
    pub deadline_us: Option<u64>,
    /// For tracing across machines.
    pub trace: Option<TraceContext>,
    /// The state slot of a recurrent net.
    pub session: Option<u64>,
    /// The step within that session, from 0.
    pub session_step: u64,
    /// The values that cross, in the cut's order.
    #[serde(deserialize_with = "bounded::vec")]
    pub tensors: Vec<TensorHeader>,
}

/// Where the time went on the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timings {
    /// From the last byte's arrival to the batch's start, in microseconds.
    pub queue_us: u64,
    /// Decoding, in microseconds.
    pub decode_us: u64,
    /// The tail, in microseconds.
    pub run_us: u64,
    /// Encoding the answer, in microseconds.
    pub encode_us: u64,
    /// Requests in the batch.
    pub batch_size: u32,
}

/// Opens an answer that succeeded. Payloads of `tensors` follow, then the stream's end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyOk {
    /// The request's.
    pub id: u128,
    /// Where the time went.
    pub timings: Timings,
    /// How busy the service is.
    pub load: Load,
    /// The outputs, in the cut's order of replies.
    #[serde(deserialize_with = "bounded::vec")]
    pub tensors: Vec<TensorHeader>,
}

/// Opens an answer. Append only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplyHeader {
    /// The outputs follow.
    Ok(ReplyOk),
    /// Nothing follows.
    Error {
        /// The request's; 0 where its header was never read.
        id: u128,
        /// What failed.
        code: ErrorCode,
        /// For a person, with nothing private in it.
        #[serde(deserialize_with = "bounded::text")]
        message: String,
        /// When a retry may succeed, in milliseconds, where the service can tell.
        retry_after_ms: Option<u32>,
    },
}

/// `text`, cut to [`MAX_MESSAGE_BYTES`] at a character's end.
pub fn truncate_text(mut text: String) -> String {
    if text.len() > MAX_MESSAGE_BYTES {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES - '…'.len_utf8()));
        text.push('…');
    }
    text
}

/// The frame of `header`, checked against `limits` and against the payloads that will follow, so
/// that a caller's mistake is found on its own side.
///
/// # Errors
/// [`WireError`] that states the limit, or the tensor whose payload has another length.
pub fn encode_request(
    header: &RequestHeader,
    payloads: &[Bytes],
    limits: &Limits,
) -> Result<Bytes, WireError> {
    header.check(limits)?;
    check_payloads(&header.tensors, payloads)?;
    encode_frame(RequestHeader::WHAT, header)
}

/// The frame of a successful answer, checked as [`encode_request`] does.
///
/// # Errors
/// As [`encode_request`].
pub fn encode_reply(
    reply: ReplyOk,
    payloads: &[Bytes],
    limits: &Limits,
) -> Result<Bytes, WireError> {
    let header = ReplyHeader::Ok(reply);
    header.check(limits)?;
    check_payloads(header.tensors(), payloads)?;
    encode_frame(ReplyHeader::WHAT, &header)
}

/// The frame of an error; a long `message` is cut.
///
/// # Errors
/// None in practice: the frame is far below the limit.
pub fn encode_error(
    id: u128,
    code: ErrorCode,
    message: String,
    retry_after_ms: Option<u32>,
) -> Result<Bytes, WireError> {
    encode_frame(
        ReplyHeader::WHAT,
        &ReplyHeader::Error {
            id,
            code,
            message: truncate_text(message),
            retry_after_ms,
        },
    )
}

fn check_payloads(tensors: &[TensorHeader], payloads: &[Bytes]) -> Result<(), WireError> {
    if tensors.len() != payloads.len() {
        return Err(WireError::PayloadCount {
            stated: tensors.len(),
            got: payloads.len(),
        });
    }
    for (index, (tensor, payload)) in tensors.iter().zip(payloads).enumerate() {
        let got = payload.len() as u64;
        if tensor.bytes != got {
            return Err(WireError::PayloadLength {
                index,
                stated: tensor.bytes,
                got,
            });
        }
    }
    Ok(())
}

/// A header that opens one direction of a request stream: [`RequestHeader`] or [`ReplyHeader`].
/// Sealed.
pub trait MessageHeader: serde::de::DeserializeOwned + private::Sealed {
    /// The header's name in errors.
    const WHAT: &'static str;
    /// The name of what follows it, in errors.
    const BODY: &'static str;

    /// The tensors whose payloads follow.
    fn tensors(&self) -> &[TensorHeader];

    /// Checks every tensor against `limits`, and that the fields fit each other.
    ///
    /// # Errors
    /// [`WireError::Limit`], [`WireError::Tensor`] or [`WireError::Unexpected`].
    fn check(&self, limits: &Limits) -> Result<(), WireError>;
}

mod private {
    pub trait Sealed {}
    impl Sealed for super::RequestHeader {}
    impl Sealed for super::ReplyHeader {}
}

impl MessageHeader for RequestHeader {
    const WHAT: &'static str = "the request's header";
    const BODY: &'static str = "the request's payload";

    fn tensors(&self) -> &[TensorHeader] {
        &self.tensors
    }

    fn check(&self, limits: &Limits) -> Result<(), WireError> {
        if self.session.is_none() && self.session_step != 0 {
            return Err(WireError::Unexpected {
                what: "step of a session without a session",
            });
        }
        check_tensors(&self.tensors, limits, Self::BODY, limits.max_request_bytes)
    }
}

impl MessageHeader for ReplyHeader {
    const WHAT: &'static str = "the answer's header";
    const BODY: &'static str = "the answer's payload";

    fn tensors(&self) -> &[TensorHeader] {
        match self {
            ReplyHeader::Ok(reply) => &reply.tensors,
            ReplyHeader::Error { .. } => &[],
        }
    }

    fn check(&self, limits: &Limits) -> Result<(), WireError> {
        check_tensors(self.tensors(), limits, Self::BODY, limits.max_reply_bytes)
    }
}
