//! Peers that are slow, silent, greedy or deaf: each costs itself its stream or its connection,
//! within a stated time, and nobody else anything.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and its numbers are small"
)]

mod common;

use std::time::Duration;

use common::raw_client::connect;
use common::{CUT_ECHO, CUT_HOLD, HANDLE, MODEL, Service, certificate, fingerprint, raw};
use futures_util::FutureExt;
use quinn::{Connection, ConnectionError, RecvStream, SendStream, VarInt};
use seamline_net::wire::{ClientControl, ErrorCode, RequestHeader, encode_frame};
use seamline_net::{Client, ConnectErrorKind, ServerOptions};

/// No test needs as long as this; a hang fails instead of blocking the run.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the services of these tests allow for hello and header.
const SHORT: Duration = Duration::from_millis(200);

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("the test hangs")
}

fn short(options: &mut ServerOptions) {
    options.deadlines.handshake = SHORT;
    options.deadlines.header = SHORT;
    options.deadlines.body = SHORT;
}

const HELLO: &[u8] = b"SEAMLINE\x01\x00\x01\x00\x03\x00\x00\x00\x00\x00\x00";

fn open() -> Vec<u8> {
    let open = ClientControl::Open {
        fingerprint: fingerprint(),
        model: MODEL.into(),
    };
    encode_frame("open", &open).unwrap().to_vec()
}

/// Says hello and reads the welcome.
async fn hello(client: &Connection) -> (SendStream, RecvStream) {
    let (mut send, mut recv) = client.open_bi().await.unwrap();
    send.write_all(HELLO).await.unwrap();
    let mut prefix = [0; 16];
    recv.read_exact(&mut prefix).await.unwrap();
    let length = u32::from_le_bytes(prefix[12..].try_into().unwrap());
    let mut welcome = vec![0; length as usize];
    recv.read_exact(&mut welcome).await.unwrap();
    assert_eq!(welcome[0], 0, "welcome, not refused");
    (send, recv)
}

/// Says hello and opens the contract.
async fn opened(client: &Connection) -> (SendStream, RecvStream) {
    let (mut send, mut recv) = hello(client).await;
    send.write_all(&open()).await.unwrap();
    // Its length, the variant and the handle.
    let mut opened = [0; 6];
    recv.read_exact(&mut opened).await.unwrap();
    assert_eq!(opened[4..], [0, HANDLE as u8]);
    (send, recv)
}

fn header(contract: u32, cut: u16) -> Vec<u8> {
    let header = RequestHeader {
        id: 1,
        contract,
        cut,
        tensors: vec![raw(1)],
        ..RequestHeader::default()
    };
    encode_frame("request", &header).unwrap().to_vec()
}

/// The code and reason that the service closes `client` with.
async fn closed(client: &Connection) -> (u64, String) {
    match within(client.closed()).await {
        ConnectionError::ApplicationClosed(close) => (
            close.error_code.into_inner(),
            String::from_utf8_lossy(&close.reason).into_owned(),
        ),
        other => panic!("{other}"),
    }
}

fn number(code: ErrorCode) -> u64 {
    code.as_u16().into()
}

#[tokio::test]
async fn a_client_that_does_not_read_its_refusal_is_reset() {
    let service = Service::with(certificate, short);
    let client = connect(&service, 64).await.unwrap();
    let _control = hello(&client).await;
    // A contract that was not opened: the refusal has more bytes than the window.
    let (mut send, mut recv) = client.open_bi().await.unwrap();
    send.write_all(&header(99, CUT_ECHO)).await.unwrap();
    let code = within(recv.received_reset()).await.unwrap();
    let late = VarInt::from_u32(number(ErrorCode::DeadlineExceeded) as u32);
    assert_eq!(code, Some(late));
}

#[tokio::test]
async fn a_client_that_neither_sends_its_header_nor_reads_the_answer_is_reset() {
    let service = Service::with(certificate, short);
    let client = connect(&service, 32).await.unwrap();
    let _control = hello(&client).await;
    let (mut send, mut recv) = client.open_bi().await.unwrap();
    send.write_all(&[9]).await.unwrap();
    let code = within(recv.received_reset()).await.unwrap();
    let late = VarInt::from_u32(number(ErrorCode::DeadlineExceeded) as u32);
    assert_eq!(code, Some(late));
}

#[tokio::test]
async fn a_client_that_does_not_read_its_welcome_is_closed() {
    let mut service = Service::with(certificate, short);
    let client = connect(&service, 8).await.unwrap();
    let (mut send, _recv) = client.open_bi().await.unwrap();
    send.write_all(HELLO).await.unwrap();
    let (code, reason) = closed(&client).await;
    assert_eq!(code, number(ErrorCode::DeadlineExceeded), "{reason}");
    assert!(reason.contains("the welcome"), "{reason}");
    assert!(within(service.refused.recv()).await.is_some());
}

#[tokio::test]
async fn a_client_that_asks_and_does_not_read_is_closed() {
    let service = Service::with(certificate, short);
    let client = connect(&service, 100).await.unwrap();
    let (mut send, _recv) = hello(&client).await;
    send.write_all(&open().repeat(60)).await.unwrap();
    let (code, reason) = closed(&client).await;
    assert_eq!(code, number(ErrorCode::DeadlineExceeded), "{reason}");
    assert!(reason.contains("control stream"), "{reason}");
}

#[tokio::test]
async fn a_flood_of_opens_is_closed_at_the_limit() {
    let service = Service::with(certificate, |options| options.limits.max_contracts = 8);
    let client = connect(&service, 10_000).await.unwrap();
    let (mut send, _recv) = hello(&client).await;
    send.write_all(&open().repeat(9)).await.unwrap();
    let (code, reason) = closed(&client).await;
    assert_eq!(code, number(ErrorCode::LimitExceeded), "{reason}");
    assert!(reason.contains("is 9; the limit is 8"), "{reason}");
}

/// Slow loris: a byte now and then does not prolong the time for a header.
#[tokio::test]
async fn a_trickled_header_ends_at_its_deadline_and_other_streams_go_on() {
    let service = Service::with(certificate, short);
    let client = connect(&service, 10_000).await.unwrap();
    let _control = opened(&client).await;
    let (mut send, mut recv) = client.open_bi().await.unwrap();
    // A frame that would take a day at this rate.
    send.write_all(&60_000u32.to_le_bytes()).await.unwrap();
    let mut trickle = tokio::time::interval(SHORT / 10);
    let trickled = async {
        loop {
            trickle.tick().await;
            if send.write_all(&[0]).await.is_err() {
                return std::future::pending::<()>().await;
            }
        }
    };
    let answer = within(async {
        tokio::select! {
            answer = recv.read_to_end(10_000) => answer.unwrap(),
            () = trickled => unreachable!(),
        }
    })
    .await;
    let text = String::from_utf8_lossy(&answer).into_owned();
    assert!(text.contains("header did not arrive within"), "{text}");
    let (mut send, mut recv) = client.open_bi().await.unwrap();
    send.write_all(&header(HANDLE, CUT_ECHO)).await.unwrap();
    send.write_all(b"x").await.unwrap();
    send.finish().unwrap();
    let answer = within(recv.read_to_end(10_000)).await.unwrap();
    assert_eq!((answer[4], answer.last()), (0, Some(&b'x')));
}

#[tokio::test]
async fn a_trickled_hello_ends_at_the_handshakes_deadline() {
    let mut service = Service::with(certificate, short);
    let client = connect(&service, 10_000).await.unwrap();
    let (mut send, _recv) = client.open_bi().await.unwrap();
    send.write_all(&HELLO[..12]).await.unwrap();
    send.write_all(&60_000u32.to_le_bytes()).await.unwrap();
    let mut trickle = tokio::time::interval(SHORT / 10);
    let trickled = async {
        loop {
            trickle.tick().await;
            if send.write_all(&[0]).await.is_err() {
                return std::future::pending::<()>().await;
            }
        }
    };
    let (code, reason) = tokio::select! {
        closed = closed(&client) => closed,
        () = trickled => unreachable!(),
    };
    assert_eq!(code, number(ErrorCode::DeadlineExceeded), "{reason}");
    assert!(reason.contains("hello did not arrive within"), "{reason}");
    assert!(within(service.refused.recv()).await.is_some());
}

#[tokio::test]
async fn a_connection_that_says_nothing_ends_at_the_handshakes_deadline() {
    let mut service = Service::with(certificate, short);
    let client = connect(&service, 10_000).await.unwrap();
    let (code, reason) = closed(&client).await;
    assert_eq!(code, number(ErrorCode::DeadlineExceeded), "{reason}");
    assert!(within(service.refused.recv()).await.is_some());
}

/// Streams beyond twice the requests in flight are not granted; those granted are answered.
#[tokio::test]
async fn a_flood_of_streams_waits_at_the_limit() {
    let mut service = Service::with(certificate, |options| options.limits.max_in_flight = 2);
    let client = connect(&service, 10_000).await.unwrap();
    let _control = opened(&client).await;
    let (mut streams, mut held) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        streams.push(client.open_bi().now_or_never().expect("granted").unwrap());
    }
    assert!(client.open_bi().now_or_never().is_none(), "a sixth stream");
    for (index, (send, _)) in streams.iter_mut().enumerate() {
        let header = RequestHeader {
            id: index as u128,
            contract: HANDLE,
            cut: CUT_HOLD,
            tensors: vec![raw(1)],
            ..RequestHeader::default()
        };
        send.write_all(&encode_frame("request", &header).unwrap())
            .await
            .unwrap();
        send.write_all(b"x").await.unwrap();
        let _ = send.finish();
        if index < 2 {
            // Taken before the next one comes, so that it is known which ones are refused.
            held.push(within(service.held.recv()).await.unwrap());
        }
    }
    for (_, recv) in &mut streams[2..] {
        let answer = within(recv.read_to_end(10_000)).await.unwrap();
        let text = String::from_utf8_lossy(&answer).into_owned();
        assert!(text.contains("2 requests are in flight"), "{text}");
    }
    // Their places are free again.
    within(client.open_bi()).await.unwrap();
}

#[tokio::test]
async fn a_silent_connection_is_lost_after_the_idle_timeout() {
    let mut service = Service::with(certificate, |options| {
        options.transport.idle_timeout = SHORT;
        options.transport.keep_alive = None;
    });
    let client = connect(&service, 10_000).await.unwrap();
    let _control = hello(&client).await;
    let server = within(service.welcomed.recv()).await.unwrap();
    let reason = within(server.wait_closed()).await;
    assert!(!reason.by_peer, "{reason}");
    assert!(matches!(
        within(client.closed()).await,
        ConnectionError::TimedOut
    ));
}

#[tokio::test]
async fn one_address_has_its_share_of_connections() {
    let service = Service::with(certificate, |options| {
        options.max_connections_per_address = 2
    });
    let first = connect(&service, 10_000).await.unwrap();
    let second = connect(&service, 10_000).await.unwrap();
    let _controls = (hello(&first).await, hello(&second).await);
    let refused = connect(&service, 10_000).await.unwrap_err();
    assert!(refused.to_string().contains("refuse"), "{refused}");
    first.close(VarInt::from_u32(0), b"");
    let again = within(async {
        loop {
            if let Ok(client) = connect(&service, 10_000).await {
                return client;
            }
        }
    });
    hello(&again.await).await;
}

#[tokio::test]
async fn all_together_have_their_limit() {
    let service = Service::with(certificate, |options| options.max_connections = 1);
    let first = connect(&service, 10_000).await.unwrap();
    let _control = hello(&first).await;
    let refused = connect(&service, 10_000).await.unwrap_err();
    assert!(refused.to_string().contains("refuse"), "{refused}");
}

#[tokio::test]
async fn one_device_has_its_share_of_connections_and_is_told() {
    let mut service = Service::with(certificate, |options| {
        options.max_connections_per_device = 1
    });
    let (first, _contract) = service.connect().await;
    let error = service.refusal(service.options("camera")).await;
    assert_eq!(error.code(), Some(ErrorCode::Overloaded), "{error}");
    let text = error.to_string();
    assert!(text.contains("1 connections of this device"), "{text}");
    let logged = within(service.refused.recv()).await.unwrap().to_string();
    assert!(logged.contains("camera"), "{logged}");
    drop(first);
    within(async {
        while let Err(error) = Client::connect(service.options("camera")).await {
            assert_eq!(error.code(), Some(ErrorCode::Overloaded), "{error}");
        }
    })
    .await;
    assert_ne!(error.kind(), ConnectErrorKind::Unauthenticated);
}

/// During a flood a client has to show that it can be reached where it says that it is.
#[tokio::test]
async fn an_address_can_be_validated_first() {
    let service = Service::with(certificate, |options| options.validate_from = 0);
    let (client, contract) = service.connect().await;
    let (request, payloads) = common::request(contract, CUT_ECHO, &[10]);
    within(client.request(request, payloads)).await.unwrap();
}

/// The reason of a close is a text like others.
#[tokio::test]
async fn a_clients_last_words_forge_no_line_of_a_log() {
    let mut service = Service::start();
    let client = connect(&service, 10_000).await.unwrap();
    let _control = hello(&client).await;
    let server = within(service.welcomed.recv()).await.unwrap();
    client.close(VarInt::from_u32(0), b"bye\nERROR forged\x1b[2J");
    let reason = within(server.wait_closed()).await.to_string();
    assert!(reason.contains("ERROR forged"), "{reason}");
    assert!(!reason.contains(char::is_control), "{reason:?}");
}
