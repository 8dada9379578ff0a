//! Requests over loopback: large ones, cancelled ones, drains, losses and hostile bytes.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and its numbers are small"
)]

mod common;

use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{
    CUT_DROP, CUT_ECHO, CUT_HOLD, HANDLE, Service, certificate, echo, raw, raw_client, request,
    short_deadlines,
};
use quinn::VarInt;
use seamline_net::wire::{
    ErrorCode, Limits, RequestHeader, TensorHeader, encode_frame, encode_request,
};
use seamline_net::{RequestError, RequestErrorKind};

/// What the service may send on a stream before it is read, in bytes: more than any answer here.
const WINDOW: u32 = 1 << 20;

/// No test needs as long as this; a hang fails instead of blocking the run.
const PATIENCE: Duration = Duration::from_secs(20);

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("the test hangs")
}

/// Waits for something that has no event of its own.
async fn until(mut condition: impl FnMut() -> bool) {
    within(async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn case_17_beyond_four_megabytes_both_ways() {
    let service = Service::start();
    let (client, contract) = service.connect().await;
    let (request, payloads) = request(contract, CUT_ECHO, &[5_000_000, 0, 3, 1 << 20]);
    let reply = within(client.request(request, payloads.clone()))
        .await
        .unwrap();
    assert_eq!(reply.payloads, payloads);
    assert_eq!(client.counts().answered, 1);
    assert_eq!(client.in_flight(), 0);
}

#[tokio::test]
async fn case_17_the_limit_is_stated_before_anything_is_sent() {
    let service = Service::with(certificate, |options| {
        options.limits.max_request_bytes = 1000
    });
    let (client, contract) = service.connect().await;
    let (large, payloads) = request(contract, CUT_ECHO, &[600, 600]);
    let error = client.request(large, payloads).await.unwrap_err();
    assert_eq!(error.kind(), RequestErrorKind::Invalid);
    assert!(
        error
            .to_string()
            .contains("1200 bytes; the limit is 1000 bytes"),
        "{error}"
    );
    let (small, payloads) = request(contract, CUT_ECHO, &[1000]);
    client.request(small, payloads).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_at_once_get_their_own_answers() {
    let service = Service::start();
    let (client, contract) = service.connect().await;
    let all = (0..100usize).map(|n| {
        let client = client.clone();
        tokio::spawn(async move {
            let (request, payloads) = request(contract, CUT_ECHO, &[n, 10 * n]);
            let id = request.id;
            let reply = client.request(request, payloads.clone()).await.unwrap();
            assert_eq!((reply.id, reply.payloads), (id, payloads));
        })
    });
    for task in all.collect::<Vec<_>>() {
        within(task).await.unwrap();
    }
    assert_eq!(client.counts().answered, 100);
}

#[tokio::test]
async fn dropping_the_future_frees_the_service() {
    let mut service = Service::start();
    let (client, contract) = service.connect().await;
    let server = service.welcomed.recv().await.unwrap();
    let (held, payloads) = request(contract, CUT_HOLD, &[100]);
    let task = tokio::spawn({
        let client = client.clone();
        async move { client.request(held, payloads).await }
    });
    let incoming = within(service.held.recv()).await.unwrap();
    assert_eq!(server.in_flight(), 1);
    task.abort();
    let code = within(incoming.responder.cancelled()).await;
    assert_eq!(code, Some(ErrorCode::Cancelled));
    let error = echo(incoming).await.unwrap_err();
    assert!(error.to_string().contains("cancelled"), "{error}");
    assert_eq!(server.in_flight(), 0);
    assert_eq!(server.counts().cancelled, 1);
    assert_eq!(client.in_flight(), 0);
    assert_eq!(client.counts().cancelled, 1);
}

#[tokio::test]
async fn cancelling_in_the_middle_of_sending_frees_the_service() {
    let mut service = Service::with(certificate, |options| {
        // A small window keeps the 50 MB on their way long after the header has arrived.
        options.transport.stream_window = 64 << 10;
    });
    let (client, contract) = service.connect().await;
    let server = service.welcomed.recv().await.unwrap();
    let (large, payloads) = request(contract, CUT_HOLD, &[50_000_000]);
    let task = tokio::spawn({
        let client = client.clone();
        async move { client.request(large, payloads).await }
    });
    until(|| server.in_flight() == 1).await;
    task.abort();
    until(|| server.in_flight() == 0).await;
    assert_eq!(server.counts().cancelled, 1);
}

#[tokio::test]
async fn a_deadline_passes_on_both_sides() {
    let mut service = Service::start();
    let (client, contract) = service.connect().await;
    let (mut held, payloads) = request(contract, CUT_HOLD, &[10]);
    held.deadline = Some(Instant::now() + Duration::from_millis(50));
    let (result, incoming) = tokio::join!(client.request(held, payloads), service.held.recv());
    assert_eq!(result.unwrap_err(), RequestError::DeadlineExceeded);
    let incoming = incoming.unwrap();
    assert!(incoming.header.deadline_us.unwrap() <= 50_000);
    let code = within(incoming.responder.cancelled()).await;
    assert_eq!(code, Some(ErrorCode::DeadlineExceeded));
}

#[tokio::test]
async fn a_request_dropped_by_the_service_is_an_error_at_once() {
    let service = Service::start();
    let (client, contract) = service.connect().await;
    let (request, payloads) = request(contract, CUT_DROP, &[10]);
    let error = within(client.request(request, payloads)).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Internal), "{error}");
}

#[tokio::test]
async fn case_28_a_drain_answers_what_it_accepted_and_refuses_the_rest() {
    let mut service = Service::start();
    let (client, contract) = service.connect().await;
    let server = service.welcomed.recv().await.unwrap();
    let (held, payloads) = request(contract, CUT_HOLD, &[300_000]);
    let task = tokio::spawn({
        let (client, payloads) = (client.clone(), payloads.clone());
        async move { client.request(held, payloads).await }
    });
    let incoming = within(service.held.recv()).await.unwrap();
    server.drain();
    within(client.draining()).await;
    let (new, new_payloads) = request(contract, CUT_ECHO, &[1]);
    let error = client.request(new, new_payloads).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Draining), "{error}");
    // The accepted one is answered in full, though the service closes right behind it.
    echo(incoming).await.unwrap();
    assert_eq!(within(task).await.unwrap().unwrap().payloads, payloads);
    let reason = within(client.wait_closed()).await;
    assert_eq!(reason.code, Some(ErrorCode::Draining));
    assert!(
        reason.by_peer && reason.to_string().contains("another replica"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_request_that_races_with_a_drain_gets_a_typed_refusal() {
    let mut service = Service::start();
    let (raw_client, _send, _recv) = hello(&service).await;
    let server = service.welcomed.recv().await.unwrap();
    // Something in flight keeps the connection open through the drain.
    let (_hold, _hold_recv) = send_raw(&raw_client, &header(1, CUT_HOLD, 1), b"x").await;
    let _held = within(service.held.recv()).await.unwrap();
    server.drain();
    let (_send, mut recv) = send_raw(&raw_client, &header(2, CUT_ECHO, 1), b"x").await;
    let reply = within(recv.read_to_end(10_000)).await.unwrap();
    assert!(
        String::from_utf8_lossy(&reply).contains("draining"),
        "{reply:?}"
    );
}

#[tokio::test]
async fn case_21_a_service_that_goes_away_is_an_error_at_once() {
    let mut service = Service::start();
    let (client, contract) = service.connect().await;
    let (held, payloads) = request(contract, CUT_HOLD, &[10]);
    let gone = async {
        let incoming = service.held.recv().await.unwrap();
        service
            .endpoint
            .close(ErrorCode::Internal, "the service crashed");
        incoming
    };
    let (result, _incoming) =
        within(async { tokio::join!(client.request(held, payloads), gone) }).await;
    let error = result.unwrap_err();
    assert_eq!(error.kind(), RequestErrorKind::ConnectionLost);
    assert!(error.to_string().contains("the service crashed"), "{error}");
    let (next, payloads) = request(contract, CUT_ECHO, &[10]);
    let error = client.request(next, payloads).await.unwrap_err();
    assert!(matches!(
        error.kind(),
        RequestErrorKind::NotStarted | RequestErrorKind::ConnectionLost
    ));
}

#[tokio::test]
async fn case_23_a_device_that_vanishes_frees_the_service() {
    let mut service = Service::start();
    let (client, contract) = service.connect().await;
    let server = service.welcomed.recv().await.unwrap();
    let (held, payloads) = request(contract, CUT_HOLD, &[10]);
    let task = tokio::spawn(async move {
        let _ = client.request(held, payloads).await;
    });
    let incoming = within(service.held.recv()).await.unwrap();
    // Its last handle goes with the task.
    task.abort();
    assert!(within(incoming.responder.cancelled()).await.is_some());
    drop(incoming);
    within(server.wait_closed()).await;
    until(|| server.in_flight() == 0).await;
}

#[tokio::test]
async fn an_answer_too_large_for_the_device_costs_only_the_request() {
    let service = Service::start();
    let mut options = service.options("camera");
    options.limits.max_reply_bytes = 100;
    let client = seamline_net::Client::connect(options).await.unwrap();
    let contract = client
        .open(common::fingerprint(), common::MODEL)
        .await
        .unwrap();
    let (large, payloads) = request(contract, CUT_ECHO, &[1000]);
    let error = client.request(large, payloads).await.unwrap_err();
    assert!(
        error.to_string().contains("the limit is 100 bytes"),
        "{error}"
    );
    let (small, payloads) = request(contract, CUT_ECHO, &[100]);
    client.request(small, payloads).await.unwrap();
}

#[tokio::test]
async fn a_slow_body_ends_its_stream_and_nothing_else() {
    let mut service = Service::with(certificate, |options| options.deadlines = short_deadlines());
    let (client, _send, _recv) = hello(&service).await;
    let server = service.welcomed.recv().await.unwrap();
    let (mut send, mut recv) = client.open_bi().await.unwrap();
    let header = header(1, CUT_ECHO, 100);
    send.write_all(&encode_frame("x", &header).unwrap())
        .await
        .unwrap();
    let reply = within(recv.read_to_end(10_000)).await.unwrap();
    assert!(
        String::from_utf8_lossy(&reply).contains("did not arrive within 200ms"),
        "{reply:?}"
    );
    assert_eq!(server.in_flight(), 0);
    let (_send, mut recv) = send_raw(&client, &self::header(2, CUT_ECHO, 1), b"x").await;
    assert!(!within(recv.read_to_end(10_000)).await.unwrap().is_empty());
}

/// What a hostile client sends, and the code and a part of the reason that it is closed with.
fn hostile() -> Vec<(&'static str, Vec<u8>, ErrorCode, &'static str)> {
    let frame = |header: &RequestHeader| encode_frame("x", header).unwrap().to_vec();
    let with = |tensor: TensorHeader| {
        frame(&RequestHeader {
            tensors: vec![tensor],
            ..header(1, CUT_ECHO, 0)
        })
    };
    let tensor = |dtype, shape: &[u64], bytes| {
        with(TensorHeader {
            codec: 3,
            dtype,
            shape: shape.to_vec(),
            bytes,
        })
    };
    let trailing = [frame(&header(1, CUT_ECHO, 1)), b"xy".to_vec()].concat();
    vec![
        (
            "noise",
            vec![0xff; 64],
            ErrorCode::LimitExceeded,
            "at most 65536",
        ),
        (
            "a frame of noise",
            [vec![8, 0, 0, 0], vec![0xff; 8]].concat(),
            ErrorCode::Malformed,
            "does not parse",
        ),
        (
            "a short header",
            vec![9, 0],
            ErrorCode::Malformed,
            "before the end of",
        ),
        (
            "an overflowing shape",
            tensor(1, &[u64::MAX, u64::MAX], 4),
            ErrorCode::InvalidTensor,
            "64 bits",
        ),
        (
            "an overflow hidden by a zero",
            tensor(1, &[0, u64::MAX, 2], 0),
            ErrorCode::InvalidTensor,
            "64 bits",
        ),
        (
            "an enormous payload",
            tensor(2, &[4], 1 << 62),
            ErrorCode::LimitExceeded,
            "the limit is 268435456 bytes",
        ),
        (
            "an enormous tensor from few bytes",
            tensor(2, &[1 << 40], 8),
            ErrorCode::LimitExceeded,
            "after decoding",
        ),
        (
            "no such dtype",
            tensor(99, &[1], 4),
            ErrorCode::InvalidTensor,
            "no dtype has code 99",
        ),
        (
            "too many dimensions",
            tensor(2, &[1; 30], 1),
            ErrorCode::LimitExceeded,
            "the rank of a tensor is 30",
        ),
        (
            "bytes behind the payload",
            trailing,
            ErrorCode::Malformed,
            "follow the 1 payload bytes",
        ),
        (
            "a short payload",
            frame(&header(1, CUT_ECHO, 9)),
            ErrorCode::Malformed,
            "9 bytes before the end",
        ),
    ]
}

#[tokio::test]
async fn case_14_hostile_bytes_close_with_code_and_reason_and_others_go_on() {
    let service = Service::start();
    let (bystander, contract) = service.connect().await;
    for (what, bytes, code, reason) in hostile() {
        let (client, _send, _recv) = hello(&service).await;
        let (mut send, _recv) = client.open_bi().await.unwrap();
        send.write_all(&bytes).await.unwrap();
        send.finish().unwrap();
        match within(client.closed()).await {
            quinn::ConnectionError::ApplicationClosed(close) => {
                let text = String::from_utf8_lossy(&close.reason).into_owned();
                assert_eq!(
                    close.error_code,
                    VarInt::from_u32(code.as_u16().into()),
                    "{what}: {text}"
                );
                assert!(text.contains(reason), "{what}: {text}");
            }
            other => panic!("{what}: {other}"),
        }
        let (request, payloads) = request(contract, CUT_ECHO, &[10]);
        within(bystander.request(request, payloads)).await.unwrap();
    }
}

#[tokio::test]
async fn case_14_a_peer_that_does_not_speak_the_protocol_is_told() {
    let mut service = Service::start();
    let client = raw_client::connect(&service, WINDOW).await.unwrap();
    let (mut send, _recv) = client.open_bi().await.unwrap();
    send.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    match within(client.closed()).await {
        quinn::ConnectionError::ApplicationClosed(close) => {
            assert_eq!(close.error_code, VarInt::from_u32(1));
            assert!(String::from_utf8_lossy(&close.reason).contains("SEAMLINE"));
        }
        other => panic!("{other}"),
    }
    assert!(service.refused.recv().await.is_some());
}

#[tokio::test]
async fn a_contract_that_was_not_opened_is_refused_by_name() {
    let service = Service::start();
    let (client, _contract) = service.connect().await;
    // A handle of another connection, as a careless client would mix up.
    let other = Service::start();
    let (_other_client, handle) = other.connect().await;
    assert_eq!(handle.as_u32(), HANDLE);
    let fresh = seamline_net::Client::connect(service.options("camera"))
        .await
        .unwrap();
    let (request, payloads) = request(handle, CUT_ECHO, &[1]);
    let error = fresh.request(request, payloads).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UnknownContract), "{error}");
    assert!(
        error.to_string().contains("contract 7 was not opened"),
        "{error}"
    );
    drop(client);
}

#[tokio::test]
async fn more_in_flight_than_allowed_is_refused_here_and_there() {
    let mut service = Service::with(certificate, |options| options.limits.max_in_flight = 1);
    let (client, contract) = service.connect().await;
    let (held, payloads) = request(contract, CUT_HOLD, &[1]);
    let task = tokio::spawn({
        let client = client.clone();
        async move { client.request(held, payloads).await }
    });
    let incoming = within(service.held.recv()).await.unwrap();
    let (second, payloads) = request(contract, CUT_ECHO, &[1]);
    let error = client.request(second, payloads).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::Overloaded), "{error}");
    echo(incoming).await.unwrap();
    within(task).await.unwrap().unwrap();

    // A client that does not count is refused by the service, with a time to come back.
    let (raw, _send, _recv) = hello(&service).await;
    let (_a, _a_recv) = send_raw(&raw, &header(1, CUT_HOLD, 1), b"x").await;
    let _held = within(service.held.recv()).await.unwrap();
    let (_b, mut recv) = send_raw(&raw, &header(2, CUT_ECHO, 1), b"x").await;
    let reply = within(recv.read_to_end(10_000)).await.unwrap();
    assert!(
        String::from_utf8_lossy(&reply).contains("1 requests are in flight"),
        "{reply:?}"
    );
}

fn header(id: u128, cut: u16, bytes: u64) -> RequestHeader {
    RequestHeader {
        id,
        contract: HANDLE,
        cut,
        tensors: vec![raw(bytes)],
        ..Default::default()
    }
}

async fn send_raw(
    client: &quinn::Connection,
    header: &RequestHeader,
    payload: &'static [u8],
) -> (quinn::SendStream, quinn::RecvStream) {
    let payload = Bytes::from_static(payload);
    let frame = encode_request(header, std::slice::from_ref(&payload), &Limits::default()).unwrap();
    let (mut send, recv) = client.open_bi().await.unwrap();
    send.write_all_chunks(&mut [frame, payload]).await.unwrap();
    send.finish().unwrap();
    (send, recv)
}

/// A client of the test's own that has said hello and opened the contract, byte by byte as
/// `PROTOCOL.md` says.
async fn hello(service: &Service) -> (quinn::Connection, quinn::SendStream, quinn::RecvStream) {
    let client = raw_client::connect(service, WINDOW).await.unwrap();
    let (mut send, mut recv) = client.open_bi().await.unwrap();
    let hello = [
        &b"SEAMLINE\x01\x00\x01\x00"[..],
        b"\x03\x00\x00\x00",
        b"\x00\x00\x00",
    ]
    .concat();
    send.write_all(&hello).await.unwrap();
    let mut open = vec![0u8];
    open.extend_from_slice(&common::fingerprint().0);
    open.push(11);
    open.extend_from_slice(b"orientation");
    send.write_all(&(open.len() as u32).to_le_bytes())
        .await
        .unwrap();
    send.write_all(&open).await.unwrap();
    let mut prefix = [0; 16];
    recv.read_exact(&mut prefix).await.unwrap();
    assert_eq!(prefix[..12], *b"SEAMLINE\x01\x00\x01\x00");
    let length = u32::from_le_bytes(prefix[12..].try_into().unwrap());
    let mut welcome = vec![0; length as usize];
    recv.read_exact(&mut welcome).await.unwrap();
    assert_eq!(welcome[0], 0, "welcome, not refused");
    // The contract's answer: tag 0, handle 7, load.
    let mut opened = [0; 6];
    recv.read_exact(&mut opened).await.unwrap();
    assert_eq!(opened[4..], [0, 7]);
    (client, send, recv)
}
