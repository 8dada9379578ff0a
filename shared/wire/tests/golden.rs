//! The bytes of every frame. A change here breaks deployed peers: append, never edit.
//! `PROTOCOL.md` explains the request byte by byte.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and its numbers are small"
)]

use std::time::Instant;

use bytes::Bytes;
use seamline_plan::Fingerprint;
use seamline_wire::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn load() -> Load {
    Load {
        in_flight: 3,
        capacity: 64,
        queue_us: 1500,
    }
}

fn limits() -> Limits {
    Limits {
        max_request_bytes: 1 << 28,
        max_reply_bytes: 1 << 20,
        max_decoded_bytes: 1 << 30,
        max_tensors: 64,
        max_rank: 8,
        max_in_flight: 256,
        max_header_bytes: 1 << 16,
        max_contracts: 64,
    }
}

fn server(versions: VersionRange) -> ServerHandshake {
    let own = ServerHello {
        versions,
        agent: "cloud".into(),
        features: 1,
        limits: limits(),
    };
    ServerHandshake::new(Instant::now(), own, Deadlines::default())
}

fn hello_bytes(token: Option<Vec<u8>>) -> Bytes {
    let hello = Hello {
        agent: "edge".into(),
        token,
        features: 3,
    };
    ClientHandshake::new(Instant::now(), VERSIONS, &hello, Deadlines::default())
        .unwrap()
        .poll_transmit()
        .unwrap()
}

#[test]
fn hello() {
    let prefix = "5345414d4c494e45" /* SEAMLINE */
        .to_owned()
        + "0100"
        + "0100";
    assert_eq!(
        hex(&hello_bytes(None)),
        prefix.clone() + "07000000" + "0465646765" + "00" + "03"
    );
    assert_eq!(
        hex(&hello_bytes(Some(vec![0xaa, 0xbb]))),
        prefix + "0a000000" + "0465646765" + "0102aabb" + "03"
    );
}

#[test]
fn welcome_and_refusal() {
    let mut handshake = server(VERSIONS);
    handshake.handle_data(hello_bytes(None)).unwrap().unwrap();
    handshake.welcome(load()).unwrap();
    assert_eq!(
        hex(&handshake.poll_transmit().unwrap()),
        "5345414d4c494e4501000100".to_owned()
            + "22000000"
            + "00" // welcome
            + "01" // version
            + "05636c6f7564" // agent
            + "01" // features in common
            + "8080808001" // max_request_bytes
            + "808040" // max_reply_bytes
            + "8080808004" // max_decoded_bytes
            + "40" // max_tensors
            + "08" // max_rank
            + "8002" // max_in_flight
            + "808004" // max_header_bytes
            + "40" // max_contracts
            + "0340dc0b" // load
    );
    let mut handshake = server(VERSIONS);
    handshake.refuse(ErrorCode::Unauthenticated, "no");
    assert_eq!(
        hex(&handshake.poll_transmit().unwrap()),
        "5345414d4c494e4501000100".to_owned() + "05000000" + "01" + "03" + "026e6f"
    );
}

#[test]
fn control() {
    let fingerprint = Fingerprint([0x11; 32]);
    let open = ClientControl::Open {
        fingerprint,
        model: "net".into(),
    };
    let golden = |message: &ServerControl| hex(&encode_frame("control", message).unwrap());
    assert_eq!(
        hex(&encode_frame("control", &open).unwrap()),
        "25000000".to_owned() + "00" + &"11".repeat(32) + "036e6574"
    );
    let opened = ServerControl::Opened {
        contract: 300,
        load: load(),
    };
    assert_eq!(
        golden(&opened),
        "07000000".to_owned() + "00" + "ac02" + "0340dc0b"
    );
    let refused = ServerControl::OpenRefused(OpenRefusal {
        code: ErrorCode::UnknownContract,
        message: "no".into(),
        known: vec![fingerprint],
    });
    let expected = "26000000".to_owned() + "01" + "04" + "026e6f" + "01" + &"11".repeat(32);
    assert_eq!(golden(&refused), expected);
    assert_eq!(
        golden(&ServerControl::Load(load())),
        "05000000".to_owned() + "02" + "0340dc0b"
    );
    assert_eq!(
        golden(&ServerControl::Draining),
        "01000000".to_owned() + "03"
    );
}

fn tensor() -> TensorHeader {
    TensorHeader {
        codec: 0,
        dtype: 1,
        shape: vec![1, 2],
        bytes: 8,
    }
}

fn request() -> RequestHeader {
    RequestHeader {
        id: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        contract: 7,
        cut: 2,
        priority: 1,
        deadline_us: Some(250_000),
        trace: Some(TraceContext {
            trace_id: 0xabcd,
            span_id: 0x1234,
            flags: 1,
        }),
        session: Some(5),
        session_step: 9,
        tensors: vec![tensor()],
    }
}

#[test]
fn request_with_everything() {
    let payload = Bytes::from_static(&[0, 0, 128, 63, 0, 0, 0, 192]);
    let frame = encode_request(&request(), &[payload], &limits()).unwrap();
    assert_eq!(
        hex(&frame),
        "2a000000".to_owned()
            + "909eb8e8c0e1828589909cb0d080c1818202" // id
            + "07" // contract
            + "02" // cut
            + "01" // priority
            + "0190a10f" // deadline_us
            + "01cdd702b42401" // trace
            + "0105" // session
            + "09" // session_step
            + "01" // one tensor
            + "00" + "01" + "020102" + "08" // codec, dtype, shape, bytes
    );
}

#[test]
fn request_with_nothing() {
    let frame = encode_request(&RequestHeader::default(), &[], &limits()).unwrap();
    assert_eq!(
        hex(&frame),
        "09000000".to_owned() + "000000" + "00" + "000000" + "00" + "00"
    );
}

#[test]
fn answer() {
    let reply = ReplyOk {
        id: 1,
        timings: Timings {
            queue_us: 200,
            decode_us: 10,
            run_us: 3000,
            encode_us: 5,
            batch_size: 8,
        },
        load: load(),
        tensors: vec![tensor()],
    };
    let frame = encode_reply(reply, &[Bytes::from_static(&[0; 8])], &limits()).unwrap();
    assert_eq!(
        hex(&frame),
        "14000000".to_owned()
            + "00" // ok
            + "01" // id
            + "c801" + "0a" + "b817" + "05" + "08" // timings
            + "0340dc0b" // load
            + "01" + "00" + "01" + "020102" + "08" // one tensor
    );
}

#[test]
fn error() {
    let frame = encode_error(1, ErrorCode::Overloaded, "busy".into(), Some(20)).unwrap();
    assert_eq!(
        hex(&frame),
        "0a000000".to_owned() + "01" + "01" + "07" + "0462757379" + "0114"
    );
    let frame = encode_error(1, ErrorCode::Internal, "no".into(), None).unwrap();
    assert_eq!(
        hex(&frame),
        "07000000".to_owned() + "01" + "01" + "0d" + "026e6f" + "00"
    );
}
