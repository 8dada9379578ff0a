//! What holds for every message: it comes back whole whatever the chunks, its frame has the
//! length that it states, and no bytes whatever make a reader panic, hang or allocate much.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and its numbers are small"
)]

use std::time::{Duration, Instant};

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use seamline_plan::Fingerprint;
use seamline_wire::*;

fn tensor() -> impl Strategy<Value = TensorHeader> {
    // Codec 3 has no fixed relation of shape and bytes, so that both vary.
    (
        prop::sample::select(vec![1u8, 2, 6, 7, 9, 10]),
        vec(0u64..9, 0..5),
        0u64..300,
    )
        .prop_map(|(dtype, shape, bytes)| TensorHeader {
            codec: 3,
            dtype,
            shape,
            bytes,
        })
}

fn trace() -> impl Strategy<Value = TraceContext> {
    (any::<u128>(), any::<u64>(), any::<u8>()).prop_map(|(trace_id, span_id, flags)| TraceContext {
        trace_id,
        span_id,
        flags,
    })
}

prop_compose! {
    fn request()(
        (id, contract, cut, priority) in any::<(u128, u32, u16, u8)>(),
        (deadline_us, session, session_step) in any::<(Option<u64>, Option<u64>, u64)>(),
        trace in prop::option::of(trace()),
        tensors in vec(tensor(), 0..6),
    ) -> RequestHeader {
        let session_step = session.map_or(0, |_| session_step);
        RequestHeader {
            id, contract, cut, priority, deadline_us, trace, session, session_step, tensors,
        }
    }
}

fn load() -> impl Strategy<Value = Load> {
    any::<(u32, u32, u32)>().prop_map(|(in_flight, capacity, queue_us)| Load {
        in_flight,
        capacity,
        queue_us,
    })
}

fn code() -> impl Strategy<Value = ErrorCode> {
    any::<u16>().prop_map(ErrorCode::from_u16)
}

prop_compose! {
    fn reply_ok()(
        id in any::<u128>(),
        (queue_us, decode_us, run_us, encode_us, batch_size) in any::<(u64, u64, u64, u64, u32)>(),
        load in load(),
        tensors in vec(tensor(), 0..6),
    ) -> ReplyOk {
        let timings = Timings { queue_us, decode_us, run_us, encode_us, batch_size };
        ReplyOk { id, timings, load, tensors }
    }
}

fn fingerprint() -> impl Strategy<Value = Fingerprint> {
    any::<[u8; 32]>().prop_map(Fingerprint)
}

fn payloads(tensors: &[TensorHeader]) -> Vec<Bytes> {
    let byte = |index: usize, at: u64| (index as u64 * 31 + at) as u8;
    let payload = |(index, tensor): (usize, &TensorHeader)| {
        (0..tensor.bytes)
            .map(|at| byte(index, at))
            .collect::<Vec<u8>>()
            .into()
    };
    tensors.iter().enumerate().map(payload).collect()
}

/// Reads `stream`, cut into chunks of the lengths `cuts`, to its end.
fn read<H: MessageHeader>(stream: &[u8], cuts: &[usize]) -> Result<(H, Vec<Bytes>), WireError> {
    let now = Instant::now();
    let mut reader = MessageReader::<H>::new(now, &Limits::default(), Deadlines::default());
    let mut assembled = None;
    let mut cuts = cuts.iter().copied().cycle();
    let mut rest = Bytes::copy_from_slice(stream);
    let mut ended = false;
    loop {
        match reader.poll(now)? {
            Some(ReadEvent::Header(header)) => {
                let assembler = Assembler::new(header.tensors());
                assembled = Some((header, assembler));
            }
            Some(ReadEvent::Payload { data, .. }) => {
                assert!(!data.is_empty());
                assembled.as_mut().unwrap().1.push(data);
            }
            Some(ReadEvent::End) => {
                let (header, assembler) = assembled.unwrap();
                return Ok((header, assembler.finish()));
            }
            None if !rest.is_empty() => {
                let length = cuts.next().unwrap_or(1).clamp(1, rest.len());
                reader.handle_data(rest.split_to(length));
            }
            None => {
                assert!(!ended, "the reader must end at the stream's end");
                reader.handle_end();
                ended = true;
            }
        }
    }
}

fn request_stream(header: &RequestHeader) -> Vec<u8> {
    let payloads = payloads(&header.tensors);
    let frame = encode_request(header, &payloads, &Limits::default()).unwrap();
    let mut stream = frame.to_vec();
    payloads
        .iter()
        .for_each(|payload| stream.extend_from_slice(payload));
    stream
}

fn stated_length(frame: &[u8]) -> usize {
    FRAME_LENGTH_BYTES + u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize
}

proptest! {
    #[test]
    fn a_request_comes_back_whole(header in request(), cuts in vec(1usize..100, 1..20)) {
        let (got, got_payloads) = read::<RequestHeader>(&request_stream(&header), &cuts).unwrap();
        prop_assert_eq!(got_payloads, payloads(&header.tensors));
        prop_assert_eq!(got, header);
    }

    #[test]
    fn an_answer_comes_back_whole(reply in reply_ok(), cuts in vec(1usize..100, 1..20)) {
        let payloads = payloads(&reply.tensors);
        let frame = encode_reply(reply.clone(), &payloads, &Limits::default()).unwrap();
        prop_assert_eq!(stated_length(&frame), frame.len());
        let stream = [&[frame][..], &payloads].concat().concat();
        let (got, got_payloads) = read::<ReplyHeader>(&stream, &cuts).unwrap();
        prop_assert_eq!(got, ReplyHeader::Ok(reply));
        prop_assert_eq!(got_payloads, payloads);
    }

    #[test]
    fn an_error_comes_back_whole_or_cut(
        id in any::<u128>(),
        code in code(),
        message in "\\PC{0,900}",
        retry_after_ms in any::<Option<u32>>(),
    ) {
        let frame = encode_error(id, code, message.clone(), retry_after_ms).unwrap();
        let (got, _) = read::<ReplyHeader>(&frame, &[7]).unwrap();
        let message = truncate_text(message);
        prop_assert!(message.len() <= MAX_MESSAGE_BYTES);
        prop_assert_eq!(got, ReplyHeader::Error { id, code, message, retry_after_ms });
    }

    #[test]
    fn control_messages_come_back(
        fingerprint in fingerprint(),
        model in "\\PC{0,40}",
        contract in any::<u32>(),
        load in load(),
        known in vec(fingerprint(), 0..5),
    ) {
        let mut server = ServerSession::new(Limits::default());
        let mut client = client_session();
        client.open(fingerprint, &model).unwrap();
        client.open(fingerprint, &model).unwrap();
        while let Some(bytes) = client.poll_transmit() {
            prop_assert_eq!(stated_length(&bytes), bytes.len());
            server.handle_control(bytes).unwrap();
        }
        let open = ServerEvent::Open { fingerprint, model: model.clone() };
        prop_assert_eq!(server.poll_event(), Some(open.clone()));
        prop_assert_eq!(server.poll_event(), Some(open));
        let refusal = OpenRefusal::unknown(&model, fingerprint, known);
        server.answer_open(Ok(contract), load).unwrap();
        server.answer_open(Err(refusal.clone()), load).unwrap();
        server.send_load(load).unwrap();
        server.drain().unwrap();
        server.drain().unwrap();
        while let Some(bytes) = server.poll_transmit() {
            prop_assert_eq!(stated_length(&bytes), bytes.len());
            for byte in bytes {
                client.handle_control(Bytes::from(vec![byte])).unwrap();
            }
        }
        prop_assert_eq!(client.poll_event(), Some(ClientEvent::Open(Ok(contract))));
        prop_assert_eq!(client.poll_event(), Some(ClientEvent::Open(Err(refusal))));
        prop_assert_eq!(client.poll_event(), Some(ClientEvent::Load(load)));
        prop_assert_eq!(client.poll_event(), Some(ClientEvent::Draining));
        prop_assert_eq!(client.poll_event(), None);
    }

    /// Changed, cut or lengthened: an error or another valid message, never a panic; and never
    /// accepted with bytes missing or left over.
    #[test]
    fn damaged_requests_never_panic(
        header in request(),
        flips in vec((any::<prop::sample::Index>(), 1u8..), 0..4),
        keep in any::<prop::sample::Index>(),
        cut in any::<bool>(),
        extra in vec(any::<u8>(), 0..8),
        cuts in vec(1usize..100, 1..10),
    ) {
        let whole = request_stream(&header);
        let mut stream = whole.clone();
        for (at, mask) in &flips {
            let at = at.index(stream.len());
            stream[at] ^= mask;
        }
        if cut {
            stream.truncate(keep.index(stream.len()));
        }
        stream.extend_from_slice(&extra);
        let result = read::<RequestHeader>(&stream, &cuts);
        if flips.is_empty() && stream != whole {
            prop_assert!(result.is_err(), "a stream of another length was accepted");
        }
        let _ = read::<ReplyHeader>(&stream, &cuts);
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..300), cuts in vec(1usize..50, 1..9)) {
        let framed = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat();
        for bytes in [bytes.clone(), framed(&bytes)] {
            let _ = read::<RequestHeader>(&bytes, &cuts);
            let _ = read::<ReplyHeader>(&bytes, &cuts);
            let _ = ServerSession::new(Limits::default()).handle_control(bytes.clone().into());
            let _ = client_session().handle_control(bytes.clone().into());
            let hello = [&b"SEAMLINE\x01\x00\x01\x00"[..], &bytes].concat();
            for bytes in [bytes, hello] {
                let _ = server_handshake().handle_data(bytes.clone().into());
                let _ = client_handshake().handle_data(bytes.into());
            }
        }
    }

    #[test]
    fn versions_meet_at_the_newest_common_one(a in 0u16..6, b in 0u16..6, c in 0u16..6, d in 0u16..6) {
        let left = VersionRange { min: a.min(b), max: a.max(b) };
        let right = VersionRange { min: c.min(d), max: c.max(d) };
        let newest = (0..6)
            .rev()
            .find(|v| (left.min..=left.max).contains(v) && (right.min..=right.max).contains(v));
        prop_assert_eq!(left.common(right), newest);
        prop_assert_eq!(right.common(left), newest);
    }
}

fn client_session() -> ClientSession {
    ClientSession::new(&Welcome {
        version: 1,
        agent: String::new(),
        features: 0,
        limits: Limits::default(),
        load: Load::default(),
    })
}

fn server_handshake() -> ServerHandshake {
    let own = ServerHello {
        versions: VERSIONS,
        agent: "cloud".into(),
        features: 0,
        limits: Limits::default(),
    };
    ServerHandshake::new(Instant::now(), own, Deadlines::default())
}

fn client_handshake() -> ClientHandshake {
    let hello = Hello {
        agent: "edge".into(),
        token: None,
        features: 0,
    };
    ClientHandshake::new(Instant::now(), VERSIONS, &hello, Deadlines::default()).unwrap()
}

/// The header's frame, with tensors that no honest client sends.
fn hostile(tensors: Vec<TensorHeader>) -> WireError {
    let header = RequestHeader {
        tensors,
        ..RequestHeader::default()
    };
    let frame = encode_frame("a hostile header", &header).unwrap();
    read::<RequestHeader>(&frame, &[1000]).unwrap_err()
}

fn odd(codec: u8, dtype: u8, shape: &[u64], bytes: u64) -> TensorHeader {
    TensorHeader {
        codec,
        dtype,
        shape: shape.to_vec(),
        bytes,
    }
}

#[test]
fn case_14_hostile_tensors_are_refused_at_the_header() {
    let max = u64::MAX;
    for (tensors, code) in [
        (vec![odd(3, 1, &[max, max], 1)], ErrorCode::InvalidTensor),
        (
            vec![odd(3, 1, &[max / 2, 3, 0], 0)],
            ErrorCode::InvalidTensor,
        ),
        (vec![odd(3, 11, &[max / 4], 1)], ErrorCode::InvalidTensor),
        (vec![odd(0, 1, &[2, 2], 15)], ErrorCode::InvalidTensor),
        (vec![odd(0, 1, &[0, 4], 16)], ErrorCode::InvalidTensor),
        (vec![odd(3, 0, &[1], 1)], ErrorCode::InvalidTensor),
        (vec![odd(3, 8, &[1], 1)], ErrorCode::InvalidTensor),
        (vec![odd(3, 2, &[1], max)], ErrorCode::LimitExceeded),
        (
            vec![odd(3, 2, &[1], max), odd(3, 2, &[1], 2)],
            ErrorCode::LimitExceeded,
        ),
        (
            vec![odd(3, 2, &[1], 200 << 20), odd(3, 2, &[1], 57 << 20)],
            ErrorCode::LimitExceeded,
        ),
        (vec![odd(3, 2, &[1 << 31], 1)], ErrorCode::LimitExceeded),
        (
            vec![odd(3, 2, &[1 << 62], 1), odd(3, 2, &[1 << 63], 1)],
            ErrorCode::LimitExceeded,
        ),
        (vec![odd(3, 2, &[1; 9], 1)], ErrorCode::LimitExceeded),
        (vec![odd(3, 2, &[], 1); 65], ErrorCode::LimitExceeded),
    ] {
        let error = hostile(tensors.clone());
        assert_eq!(error.code(), code, "{tensors:?}: {error}");
        assert!(error.is_breach());
    }
}

/// A count of tensors, or of dimensions, that the frame does not hold.
#[test]
fn case_14_a_count_beyond_the_frame_is_malformed() {
    let count = [0xff, 0xff, 0xff, 0xff, 0x0f];
    let tensors = [&[0u8; 8][..], &count].concat();
    let shape = [&[0u8; 8][..], &[1, 0, 1], &count].concat();
    for body in [tensors, shape] {
        let stream = [&(body.len() as u32).to_le_bytes()[..], &body].concat();
        let error = read::<RequestHeader>(&stream, &[1000]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Malformed, "{error}");
    }
}

#[test]
fn case_15_a_request_names_only_what_this_connection_opened() {
    const HANDLE: u32 = 7;
    let header = |id| RequestHeader {
        id,
        contract: HANDLE,
        ..RequestHeader::default()
    };
    let mut server = ServerSession::new(Limits::default());
    let unknown = Err(Refusal::UnknownContract { contract: HANDLE });
    assert_eq!(server.begin(1, &header(1)), unknown);
    let refusal = OpenRefusal::unknown("net", Fingerprint([1; 32]), []);
    server.answer_open(Err(refusal), Load::default()).unwrap();
    assert_eq!(server.begin(2, &header(2)), unknown);
    server.answer_open(Ok(HANDLE), Load::default()).unwrap();
    assert_eq!(server.begin(3, &header(3)), Ok(()));
}

#[test]
fn case_16_each_side_names_both_versions() {
    let newer = VersionRange { min: 2, max: 3 };
    let own = ServerHello {
        versions: newer,
        agent: "cloud".into(),
        features: 0,
        limits: Limits::default(),
    };
    let mut server = ServerHandshake::new(Instant::now(), own, Deadlines::default());
    let mut client = client_handshake();
    // Of the hello, the server can count on the prefix alone.
    let hello = client.poll_transmit().unwrap();
    let error = server.handle_data(hello.slice(..PREFIX_BYTES)).unwrap_err();
    let expected = "the client speaks version 1, the service speaks versions 2 to 3";
    assert!(error.to_string().contains(expected), "{error}");
    let answer = server.poll_transmit().unwrap();
    let error = client
        .handle_data(answer.slice(..PREFIX_BYTES))
        .unwrap_err();
    assert!(error.to_string().contains(expected), "{error}");
    assert_eq!(error.code(), ErrorCode::VersionMismatch);
}

#[test]
fn case_16_a_refused_contract_names_both_fingerprints() {
    let (asked, held) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
    let refusal = OpenRefusal::unknown("net", asked, std::iter::repeat_n(held, 1000));
    assert_eq!(refusal.known.len(), OpenRefusal::MAX_KNOWN);
    let mut server = ServerSession::new(Limits::default());
    let mut client = client_session();
    client.open(asked, "net").unwrap();
    server
        .handle_control(client.poll_transmit().unwrap())
        .unwrap();
    server.answer_open(Err(refusal), Load::default()).unwrap();
    client
        .handle_control(server.poll_transmit().unwrap())
        .unwrap();
    let Some(ClientEvent::Open(Err(refusal))) = client.poll_event() else {
        panic!()
    };
    assert!(
        refusal.message.contains(&asked.to_string()),
        "{}",
        refusal.message
    );
    assert!(
        refusal.message.contains(&held.to_string()),
        "{}",
        refusal.message
    );
}

/// 5 GiB declared, more than 32 bits count, and its length carried in 64 bits; the limit is in the error.
#[test]
fn case_17_lengths_have_64_bits_and_the_limit_is_stated() {
    let bytes = 5u64 << 30;
    let header = RequestHeader {
        tensors: vec![odd(0, 2, &[bytes], bytes)],
        ..RequestHeader::default()
    };
    let frame = encode_frame("request", &header).unwrap();
    let error = read::<RequestHeader>(&frame, &[1000]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the request's payload is 5368709120 bytes; the limit is 268435456 bytes"
    );

    let limits = Limits {
        max_request_bytes: 1 << 40,
        max_decoded_bytes: 1 << 40,
        ..Limits::default()
    };
    let now = Instant::now();
    let mut reader = RequestReader::new(now, &limits, Deadlines::default());
    reader.handle_data(frame);
    assert_eq!(reader.poll(now).unwrap(), Some(ReadEvent::Header(header)));
    let chunk = Bytes::from(vec![0; 1 << 20]);
    let mut got = 0u64;
    for _ in 0..(bytes >> 20) {
        assert_eq!(reader.poll(now).unwrap(), None);
        reader.handle_data(chunk.clone());
        match reader.poll(now).unwrap() {
            Some(ReadEvent::Payload { tensor: 0, data }) => got += data.len() as u64,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(got, bytes);
    reader.handle_end();
    assert_eq!(reader.poll(now).unwrap(), Some(ReadEvent::End));
}

#[test]
fn header_and_body_have_deadlines_of_their_own() {
    let start = Instant::now();
    let deadlines = Deadlines {
        header: Duration::from_secs(1),
        body: Duration::from_secs(5),
        ..Deadlines::default()
    };
    let mut reader = RequestReader::new(start, &Limits::default(), deadlines);
    assert_eq!(reader.poll_timeout(), Some(start + deadlines.header));
    let frame = encode_frame(
        "request",
        &RequestHeader {
            tensors: vec![odd(0, 2, &[9], 9)],
            ..RequestHeader::default()
        },
    )
    .unwrap();
    reader.handle_data(frame);
    let at = start + Duration::from_millis(900);
    assert!(matches!(reader.poll(at), Ok(Some(ReadEvent::Header(_)))));
    assert_eq!(reader.poll_timeout(), Some(at + deadlines.body));
    assert_eq!(reader.poll(at + Duration::from_secs(4)), Ok(None));
    let error = reader.poll(at + deadlines.body).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the request's payload did not arrive within 5s"
    );
    assert!(!error.is_breach());
    assert_eq!(reader.poll_timeout(), None);

    let mut reader = RequestReader::new(start, &Limits::default(), deadlines);
    assert!(reader.poll(start + deadlines.header).is_err());
}
