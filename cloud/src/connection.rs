//! One device's connection: every request is checked, admitted, queued and answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use seamline_net::{IncomingRequest, PendingConnection, PendingRequest, Responder};
use seamline_wire::ErrorCode;
use tokio::sync::oneshot;

use crate::admission::{ConnectionId, Shed};
use crate::batcher::{RejectReason, Ticket};
use crate::contract::{CheckedRequest, Refusal};
use crate::executor::{Job, Waiting};
use crate::metrics::Outcome;
use crate::run::{Answer, Failure};
use crate::service::Shared;

/// Serves one connection until it ends.
pub(crate) async fn serve(shared: Arc<Shared>, pending: PendingConnection) {
    let mut connection = match pending.handshake(shared.clone()).await {
        Ok(connection) => connection,
        Err(error) => {
            tracing::warn!(%error, "device not welcomed");
            return;
        }
    };
    let id = shared.register(connection.handle());
    let peer = connection.remote_address();
    let device = connection.identity().name.clone();
    tracing::info!(connection = id, %peer, device, agent = connection.agent(), "device connected");
    while let Some(request) = connection.next_request().await {
        accept(&shared, id, request);
    }
    shared.unregister(id);
    tracing::info!(connection = id, device, "device gone");
}

/// What a request that cannot be queued is answered.
struct Refused {
    code: ErrorCode,
    message: String,
    retry_after: Option<Duration>,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused {
            code: refusal.code,
            message: refusal.message,
            retry_after: None,
        }
    }
}

impl From<Shed> for Refused {
    fn from(shed: Shed) -> Refused {
        let draining = matches!(shed.reason, crate::admission::ShedReason::Draining);
        let code = if draining {
            ErrorCode::Draining
        } else {
            ErrorCode::Overloaded
        };
        Refused {
            code,
            message: shed.to_string(),
            retry_after: shed.retry_after,
        }
    }
}

/// Checks and admits a request by its header, before its payload costs memory, and sees to the
/// rest in a task of its own.
fn accept(shared: &Arc<Shared>, connection: u64, request: PendingRequest) {
    let bytes = request.header.tensors.iter().fold(0u64, |sum, tensor| {
        // Both are held at once; few bytes can stand for a large tensor.
        let decoded = tensor.decoded_bytes().unwrap_or(u64::MAX);
        sum.saturating_add(tensor.bytes).saturating_add(decoded)
    });
    let admitted = check(shared, &request.header).and_then(|checked| {
        let permit = shared
            .admission
            .try_admit(ConnectionId(connection), bytes)?;
        Ok((checked, permit))
    });
    let shared = Arc::clone(shared);
    match admitted {
        Ok((checked, permit)) => {
            tokio::spawn(async move {
                serve_request(&shared, connection, request, checked).await;
                drop(permit);
            });
        }
        Err(refused) => {
            tokio::spawn(async move {
                answer_refusal(&shared, request.responder, refused).await;
            });
        }
    }
}

/// Receives the payload, queues the request and sends its answer.
async fn serve_request(
    shared: &Shared,
    connection: u64,
    request: PendingRequest,
    (index, checked): (usize, CheckedRequest),
) {
    let Some(request) = request.receive().await else {
        shared.metrics.request_done(Outcome::Cancelled);
        return;
    };
    let bytes = request
        .payloads
        .iter()
        .map(|payload| payload.len() as u64)
        .sum();
    shared.metrics.received(bytes);
    let IncomingRequest {
        header,
        payloads,
        deadline,
        received_at,
        responder,
        ..
    } = request;
    let queue = || -> Result<_, Refused> {
        let step = header.session.map(|session| {
            let cut = usize::from(header.cut);
            shared
                .sessions
                .step(connection, session, header.session_step, index, cut)
        });
        let (sender, answer) = oneshot::channel();
        let job = Job {
            request: checked,
            payloads,
            step: step.transpose()?,
            answer: sender,
        };
        let deadline = deadline.unwrap_or(received_at + shared.default_deadline);
        let waiting = Waiting {
            priority: header.priority,
            deadline: Some(deadline),
        };
        let ticket = shared
            .executors
            .push(job, waiting)
            .map_err(|rejected| reject(rejected.reason))?;
        Ok((ticket, answer))
    };
    match queue() {
        Ok((ticket, answer)) => finish(shared, responder, ticket, answer).await,
        Err(refused) => answer_refusal(shared, responder, refused).await,
    }
}

fn check(
    shared: &Shared,
    header: &seamline_wire::RequestHeader,
) -> Result<(usize, CheckedRequest), Refused> {
    let index = header.contract as usize;
    let contract = shared.contracts.get(index).ok_or_else(|| Refused {
        code: ErrorCode::UnknownContract,
        message: format!("contract {index} was not opened on this connection"),
        retry_after: None,
    })?;
    Ok((index, contract.check(index, header)?))
}

fn reject(reason: RejectReason) -> Refused {
    let code = match reason {
        RejectReason::QueueFull { .. } => ErrorCode::Overloaded,
        RejectReason::Rows { .. } => ErrorCode::InvalidTensor,
        RejectReason::DeadlinePassed => ErrorCode::DeadlineExceeded,
    };
    Refused {
        code,
        message: reason.to_string(),
        retry_after: None,
    }
}

async fn finish(
    shared: &Shared,
    responder: Responder,
    ticket: Ticket,
    answer: oneshot::Receiver<Result<Answer, Failure>>,
) {
    let cancelled = responder.cancelled();
    let result = tokio::select! {
        biased;
        result = answer => result,
        _ = cancelled => {
            shared.executors.cancel(ticket);
            shared.metrics.request_done(Outcome::Cancelled);
            // Nobody reads it any more; it ends the stream as cancelled, not as failed.
            let _ = responder.error(ErrorCode::Cancelled, "taken back by the device", None).await;
            return;
        }
    };
    match result {
        Ok(Ok(answer)) => reply(shared, responder, answer).await,
        Ok(Err(failure)) => {
            let refused = Refused {
                code: failure.code,
                message: failure.message,
                retry_after: None,
            };
            answer_refusal(shared, responder, refused).await;
        }
        // The executor is gone without an answer: only at the end of the process.
        Err(_) => {
            let message = "the service is stopping; ask another one".to_owned();
            let refused = Refused {
                code: ErrorCode::Draining,
                message,
                retry_after: None,
            };
            answer_refusal(shared, responder, refused).await;
        }
    }
}

async fn reply(shared: &Shared, responder: Responder, answer: Answer) {
    let started = Instant::now();
    let (tensors, payloads): (Vec<_>, Vec<_>) = answer.outputs.into_iter().unzip();
    let bytes = payloads.iter().map(|payload| payload.len() as u64).sum();
    match responder.reply(answer.timings, tensors, payloads).await {
        Ok(()) => {
            shared.metrics.sent(bytes);
            shared.metrics.request_done(Outcome::Ok);
        }
        Err(error) => {
            tracing::debug!(%error, time = ?started.elapsed(), "answer not delivered");
            shared.metrics.request_done(Outcome::Cancelled);
        }
    }
}

async fn answer_refusal(shared: &Shared, responder: Responder, refused: Refused) {
    let Refused {
        code,
        message,
        retry_after,
    } = refused;
    tracing::debug!(%code, message, "request refused");
    shared.metrics.request_done(outcome(code));
    let retry_after_ms =
        retry_after.map(|time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX));
    if let Err(error) = responder.error(code, message, retry_after_ms).await {
        tracing::debug!(%error, "refusal not delivered");
    }
}

fn outcome(code: ErrorCode) -> Outcome {
    match code {
        ErrorCode::UnknownContract | ErrorCode::NotReady | ErrorCode::Unsupported => {
            Outcome::UnknownContract
        }
        ErrorCode::LimitExceeded => Outcome::TooLarge,
        ErrorCode::Overloaded => Outcome::Overloaded,
        ErrorCode::Draining => Outcome::Draining,
        ErrorCode::DeadlineExceeded => Outcome::DeadlineExceeded,
        ErrorCode::Cancelled => Outcome::Cancelled,
        ErrorCode::Internal => Outcome::Internal,
        _ => Outcome::Invalid,
    }
}
