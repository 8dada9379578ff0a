//! Every frame, damaged in every single place: bits flipped, bytes deleted, inserted and cut off.
//! Each is an error or another valid message, never a panic, and never makes a reader allocate out
//! of proportion to the bytes that came.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Instant;

use bytes::Bytes;
use seamline_plan::Fingerprint;
use seamline_wire::*;

thread_local! {
    /// Bytes that this thread asked for.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // The counter may be gone while a thread ends; then nobody counts.
        let _ = ASKED.try_with(|asked| asked.set(asked.get() + layout.size()));
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps `dealloc`'s contract, and `alloc` above is the system's.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Every allocation of reading a message together: some hundred bytes of texts and lists, and a
/// small multiple of what came.
fn allowed(bytes: usize) -> usize {
    4096 + 64 * bytes
}

/// A frame, and what reads it. Whether the reader took a whole message is what it returns.
struct Case {
    name: &'static str,
    stream: Bytes,
    read: fn(Bytes) -> bool,
}

fn load() -> Load {
    Load {
        in_flight: 3,
        capacity: 64,
        queue_us: 1500,
    }
}

fn tensor() -> TensorHeader {
    TensorHeader {
        codec: 0,
        dtype: 1,
        shape: vec![1, 2],
        bytes: 8,
    }
}

fn welcome() -> Welcome {
    Welcome {
        version: 1,
        agent: "cloud".into(),
        features: 0,
        limits: Limits::default(),
        load: load(),
    }
}

fn server_handshake() -> ServerHandshake {
    let own = ServerHello {
        versions: VERSIONS,
        agent: "cloud".into(),
        features: 1,
        limits: Limits::default(),
    };
    ServerHandshake::new(Instant::now(), own, Deadlines::default())
}

fn client_handshake(token: Option<Vec<u8>>) -> ClientHandshake {
    let hello = Hello {
        agent: "edge".into(),
        token,
        features: 3,
    };
    ClientHandshake::new(Instant::now(), VERSIONS, &hello, Deadlines::default()).unwrap()
}

fn read_hello(stream: Bytes) -> bool {
    matches!(server_handshake().handle_data(stream), Ok(Some(_)))
}

fn read_answer(stream: Bytes) -> bool {
    let mut client = client_handshake(None);
    client.poll_transmit().unwrap();
    matches!(client.handle_data(stream), Ok(Some(_)))
}

fn read_client_control(stream: Bytes) -> bool {
    let mut server = ServerSession::new(Limits::default());
    server.handle_control(stream).is_ok() && server.poll_event().is_some()
}

fn read_server_control(stream: Bytes) -> bool {
    let mut client = ClientSession::new(&welcome());
    client.open(Fingerprint([1; 32]), "net").unwrap();
    client.handle_control(stream).is_ok() && client.poll_event().is_some()
}

fn read_message<H: MessageHeader>(stream: Bytes) -> bool {
    let now = Instant::now();
    let mut reader = MessageReader::<H>::new(now, &Limits::default(), Deadlines::default());
    reader.handle_data(stream);
    reader.handle_end();
    let mut assembler = None;
    loop {
        match reader.poll(now) {
            Ok(Some(ReadEvent::Header(header))) => {
                assembler = Some(Assembler::new(header.tensors()));
            }
            Ok(Some(ReadEvent::Payload { data, .. })) => assembler.as_mut().unwrap().push(data),
            Ok(Some(ReadEvent::End)) => {
                assembler.take().unwrap().finish();
                return true;
            }
            Ok(None) | Err(_) => return false,
        }
    }
}

fn handshakes() -> Vec<Case> {
    let hello = |token| client_handshake(token).poll_transmit().unwrap();
    let mut taken = server_handshake();
    taken.handle_data(hello(None)).unwrap();
    taken.welcome(load()).unwrap();
    let mut refused = server_handshake();
    refused.refuse(ErrorCode::Unauthenticated, "no");
    let case = |name, stream, read| Case { name, stream, read };
    vec![
        case("hello", hello(None), read_hello),
        case("hello with a token", hello(Some(vec![7; 32])), read_hello),
        case("welcome", taken.poll_transmit().unwrap(), read_answer),
        case("refused", refused.poll_transmit().unwrap(), read_answer),
    ]
}

fn controls() -> Vec<Case> {
    let fingerprint = Fingerprint([0x11; 32]);
    let open = ClientControl::Open {
        fingerprint,
        model: "net".into(),
    };
    let server = |name, message: ServerControl| Case {
        name,
        stream: encode_frame("control", &message).unwrap(),
        read: read_server_control,
    };
    let contract = 300;
    vec![
        Case {
            name: "open",
            stream: encode_frame("control", &open).unwrap(),
            read: read_client_control,
        },
        server(
            "opened",
            ServerControl::Opened {
                contract,
                load: load(),
            },
        ),
        server(
            "open refused",
            ServerControl::OpenRefused(OpenRefusal {
                code: ErrorCode::UnknownContract,
                message: "no".into(),
                known: vec![fingerprint; 3],
            }),
        ),
        server("load", ServerControl::Load(load())),
        server("draining", ServerControl::Draining),
    ]
}

fn messages() -> Vec<Case> {
    let payload = Bytes::from_static(&[0, 0, 128, 63, 0, 0, 0, 192]);
    let limits = Limits::default();
    let request = RequestHeader {
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
    };
    let payloads = [payload.clone()];
    let request = encode_request(&request, &payloads, &limits).unwrap();
    let reply = ReplyOk {
        id: 1,
        timings: Timings::default(),
        load: load(),
        tensors: vec![tensor()],
    };
    let reply = encode_reply(reply, &payloads, &limits).unwrap();
    let error = encode_error(1, ErrorCode::Overloaded, "busy".into(), Some(20)).unwrap();
    let followed = |frame: Bytes| Bytes::from([frame, payload.clone()].concat());
    vec![
        Case {
            name: "request",
            stream: followed(request),
            read: read_message::<RequestHeader>,
        },
        Case {
            name: "answer",
            stream: followed(reply),
            read: read_message::<ReplyHeader>,
        },
        Case {
            name: "error",
            stream: error,
            read: read_message::<ReplyHeader>,
        },
    ]
}

/// Every single damage of `stream`.
fn damaged(stream: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let flipped = (0..stream.len()).flat_map(move |at| {
        (0..8).map(move |bit| {
            let mut bytes = stream.to_vec();
            bytes[at] ^= 1 << bit;
            bytes
        })
    });
    let set = (0..stream.len()).map(move |at| {
        let mut bytes = stream.to_vec();
        bytes[at] = 0xff;
        bytes
    });
    let deleted = (0..stream.len()).map(move |at| {
        let mut bytes = stream.to_vec();
        bytes.remove(at);
        bytes
    });
    let inserted = (0..=stream.len()).flat_map(move |at| {
        [0, 1, 0x7f, 0x80, 0xff].into_iter().map(move |byte| {
            let mut bytes = stream.to_vec();
            bytes.insert(at, byte);
            bytes
        })
    });
    let truncated = (0..stream.len()).map(move |keep| stream[..keep].to_vec());
    // Counts and lengths that claim as much as they can.
    let claimed = (0..stream.len()).map(move |at| {
        let claim = [0xff, 0xff, 0xff, 0xff, 0x0f];
        [&stream[..at], &claim, &stream[at + 1..]].concat()
    });
    flipped
        .chain(set)
        .chain(deleted)
        .chain(inserted)
        .chain(truncated)
        .chain(claimed)
}

#[test]
fn case_14_every_frame_survives_damage_in_every_place() {
    let cases = [handshakes(), controls(), messages()];
    for Case { name, stream, read } in cases.into_iter().flatten() {
        assert!(read(stream.clone()), "{name} as it was made");
        let mut count = 0;
        // The frame's length field counts its body; with it made right again, the body's own
        // fields are what is damaged.
        for bytes in damaged(&stream).flat_map(|bytes| [reframed(&stream, &bytes), Some(bytes)]) {
            let Some(bytes) = bytes else { continue };
            let length = bytes.len();
            let bytes = Bytes::from(bytes);
            let before = ASKED.get();
            read(bytes.clone());
            let asked = ASKED.get() - before;
            assert!(
                asked <= allowed(length),
                "{name}: {length} bytes made it allocate {asked}: {bytes:?}"
            );
            count += 1;
        }
        for keep in 0..stream.len() {
            assert!(!read(stream.slice(..keep)), "{name} cut to {keep} bytes");
        }
        assert!(count > 100, "{name}");
    }
}

/// `bytes` with the length that its frame now has, where the damage is behind the length field.
fn reframed(stream: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    let start = if stream.starts_with(b"SEAMLINE") {
        PREFIX_BYTES
    } else {
        0
    };
    let body = start + FRAME_LENGTH_BYTES;
    if bytes.len() < body || bytes[..body] != stream[..body] {
        return None;
    }
    let stated = u32::from_le_bytes(stream[start..body].try_into().ok()?);
    let changed = bytes.len().abs_diff(stream.len());
    let length = if bytes.len() < stream.len() {
        stated.checked_sub(u32::try_from(changed).ok()?)?
    } else {
        stated + u32::try_from(changed).ok()?
    };
    let mut framed = bytes.to_vec();
    framed[start..body].copy_from_slice(&length.to_le_bytes());
    Some(framed)
}

/// What a peer says of itself ends up in logs and on terminals.
#[test]
fn a_peers_texts_hold_no_control_characters_and_end() {
    let forged = "x\r\n2026-01-01 ERROR forged\u{1b}[2J\u{7f}\u{9b}";
    let hello = Hello {
        agent: forged.into(),
        token: None,
        features: 0,
    };
    let mut client =
        ClientHandshake::new(Instant::now(), VERSIONS, &hello, Deadlines::default()).unwrap();
    let event = server_handshake().handle_data(client.poll_transmit().unwrap());
    let Ok(Some(ServerHandshakeEvent::Hello(hello))) = event else {
        panic!("{event:?}")
    };
    assert!(!hello.agent.contains(char::is_control), "{:?}", hello.agent);
    assert!(hello.agent.contains("ERROR forged"));

    let mut server = ServerSession::new(Limits::default());
    let mut session = ClientSession::new(&welcome());
    let name = format!("{forged}{}", "y".repeat(60_000));
    session.open(Fingerprint([1; 32]), &name).unwrap();
    server
        .handle_control(session.poll_transmit().unwrap())
        .unwrap();
    let Some(ServerEvent::Open { fingerprint, model }) = server.poll_event() else {
        panic!("an open came")
    };
    let refusal = OpenRefusal::unknown(&model, fingerprint, [Fingerprint([2; 32])]);
    assert!(!refusal.message.contains(char::is_control));
    assert!(refusal.message.len() < 1000, "{}", refusal.message.len());
    assert!(refusal.message.contains(&Fingerprint([2; 32]).to_string()));
}

#[test]
fn a_step_without_a_session_is_refused() {
    let header = RequestHeader {
        session_step: 3,
        ..RequestHeader::default()
    };
    let frame = encode_frame("request", &header).unwrap();
    let now = Instant::now();
    let mut reader = RequestReader::new(now, &Limits::default(), Deadlines::default());
    reader.handle_data(frame);
    let error = reader.poll(now).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Malformed);
    assert!(error.to_string().contains("without a session"), "{error}");
}

/// Chunks that a driver hands on without polling in between are not lost.
#[test]
fn chunks_that_were_not_polled_are_kept() {
    let header = RequestHeader::default();
    let frame = encode_frame("request", &header).unwrap();
    let now = Instant::now();
    let mut reader = RequestReader::new(now, &Limits::default(), Deadlines::default());
    for byte in frame {
        reader.handle_data(Bytes::copy_from_slice(&[byte]));
    }
    assert_eq!(reader.poll(now).unwrap(), Some(ReadEvent::Header(header)));
}
