//! Bytes from a peer, in any chunks: to the service's readers, and to the client's. The first byte
//! chooses the reader, the second the length of the chunks.

#![no_main]

use std::time::Instant;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use seamline_fuzz::{Input, bounded, plant};
use seamline_plan::Fingerprint;
use seamline_wire::*;

fuzz_target!(
    init: plant(seeds()),
    |data: &[u8]| {
        let mut input = Input(data);
        let (reader, step) = (input.byte(), usize::from(input.byte()).max(1));
        let reserved = match reader % 6 {
            0 | 1 => PREALLOCATE_BYTES as usize,
            _ => 0,
        };
        let most = (8 << 10) + 128 * input.0.len() + reserved;
        bounded(most, || {
            let chunks = input.0.chunks(step).map(Bytes::copy_from_slice);
            match reader % 6 {
                0 => message::<RequestHeader>(chunks, |header| {
                    let frame = encode_frame("request", header).unwrap();
                    let again = decode::<RequestHeader>(frame);
                    assert_eq!(again.as_ref(), Some(header));
                }),
                1 => message::<ReplyHeader>(chunks, |header| {
                    let frame = encode_frame("answer", header).unwrap();
                    assert_eq!(decode::<ReplyHeader>(frame).as_ref(), Some(header));
                }),
                2 => service_handshake(chunks),
                3 => client_handshake(chunks),
                4 => service_control(chunks),
                _ => client_control(chunks),
            }
        });
    }
);

/// What every header that is accepted keeps.
fn check(tensors: &[TensorHeader], limits: &Limits) {
    assert!(tensors.len() <= usize::from(limits.max_tensors));
    let mut decoded = 0u64;
    for tensor in tensors {
        assert!(tensor.shape.len() <= usize::from(limits.max_rank));
        decoded += tensor.decoded_bytes().expect("checked");
    }
    assert!(decoded <= limits.max_decoded_bytes);
}

fn decode<H: MessageHeader>(frame: Bytes) -> Option<H> {
    let now = Instant::now();
    let mut reader = MessageReader::<H>::new(now, &Limits::default(), Deadlines::default());
    reader.handle_data(frame);
    match reader.poll(now) {
        Ok(Some(ReadEvent::Header(header))) => Some(header),
        _ => None,
    }
}

fn message<H: MessageHeader>(chunks: impl Iterator<Item = Bytes>, again: impl Fn(&H)) {
    let (now, limits) = (Instant::now(), Limits::default());
    let mut reader = MessageReader::<H>::new(now, &limits, Deadlines::default());
    let mut assembler = None;
    let mut lengths = Vec::new();
    for chunk in chunks.map(Some).chain([None]) {
        match chunk {
            Some(chunk) => reader.handle_data(chunk),
            None => reader.handle_end(),
        }
        loop {
            match reader.poll(now) {
                Ok(Some(ReadEvent::Header(header))) => {
                    check(header.tensors(), &limits);
                    again(&header);
                    lengths = header.tensors().iter().map(|tensor| tensor.bytes).collect();
                    assembler = Some(Assembler::new(header.tensors()));
                }
                Ok(Some(ReadEvent::Payload { data, tensor })) => {
                    assert!(!data.is_empty() && tensor < lengths.len());
                    assembler.as_mut().expect("after the header").push(data);
                }
                Ok(Some(ReadEvent::End)) => {
                    let payloads = assembler.take().expect("after the header").finish();
                    let got: Vec<u64> = payloads.iter().map(|bytes| bytes.len() as u64).collect();
                    assert_eq!(got, lengths);
                    return;
                }
                Ok(None) => break,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    return;
                }
            }
        }
    }
    panic!("the reader must end at the stream's end");
}

fn hello() -> ServerHandshake {
    let own = ServerHello {
        versions: VERSIONS,
        agent: "cloud".into(),
        features: 1,
        limits: Limits::default(),
    };
    ServerHandshake::new(Instant::now(), own, Deadlines::default())
}

fn service_handshake(chunks: impl Iterator<Item = Bytes>) {
    let mut machine = hello();
    for chunk in chunks {
        match machine.handle_data(chunk) {
            Ok(Some(ServerHandshakeEvent::Hello(hello))) => {
                assert!(!hello.agent.contains(char::is_control));
            }
            Ok(None) => {}
            Err(_) => {
                assert!(machine.poll_transmit().is_some(), "the client is told");
                return;
            }
        }
    }
    let _ = machine.welcome(Load::default());
}

fn client_hello() -> ClientHandshake {
    let hello = Hello {
        agent: "edge".into(),
        token: None,
        features: 0,
    };
    ClientHandshake::new(Instant::now(), VERSIONS, &hello, Deadlines::default()).unwrap()
}

fn client_handshake(chunks: impl Iterator<Item = Bytes>) {
    let mut machine = client_hello();
    for chunk in chunks {
        if !matches!(machine.handle_data(chunk), Ok(None)) {
            return;
        }
    }
}

fn service_control(chunks: impl Iterator<Item = Bytes>) {
    let mut session = ServerSession::new(Limits::default());
    for chunk in chunks {
        if session.handle_control(chunk).is_err() {
            return;
        }
        while let Some(ServerEvent::Open { fingerprint, model }) = session.poll_event() {
            assert!(!model.contains(char::is_control));
            let refusal = OpenRefusal::unknown(&model, fingerprint, [Fingerprint([1; 32])]);
            session.answer_open(Err(refusal), Load::default()).unwrap();
            while session.poll_transmit().is_some() {}
        }
    }
}

fn client_control(chunks: impl Iterator<Item = Bytes>) {
    let mut session = ClientSession::new(&welcome());
    for _ in 0..3 {
        session.open(Fingerprint([1; 32]), "net").unwrap();
    }
    for chunk in chunks {
        if session.handle_control(chunk).is_err() {
            return;
        }
        while session.poll_event().is_some() {}
    }
}

fn welcome() -> Welcome {
    Welcome {
        version: 1,
        agent: "cloud".into(),
        features: 0,
        limits: Limits::default(),
        load: Load::default(),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let tensor = TensorHeader {
        codec: 0,
        dtype: 1,
        shape: vec![1, 2],
        bytes: 8,
    };
    let payload = Bytes::from_static(&[0, 0, 128, 63, 0, 0, 0, 192]);
    let limits = Limits::default();
    let request = RequestHeader {
        id: 1 << 100,
        contract: 7,
        deadline_us: Some(250_000),
        trace: Some(TraceContext {
            trace_id: 0xabcd,
            span_id: 0x1234,
            flags: 1,
        }),
        session: Some(5),
        session_step: 9,
        tensors: vec![tensor.clone()],
        ..RequestHeader::default()
    };
    let reply = ReplyOk {
        id: 1,
        tensors: vec![tensor],
        ..ReplyOk::default()
    };
    let payloads = [payload.clone()];
    let request = encode_request(&request, &payloads, &limits).unwrap();
    let reply = encode_reply(reply, &payloads, &limits).unwrap();
    let error = encode_error(1, ErrorCode::Overloaded, "busy".into(), Some(20)).unwrap();
    let hello_frame = client_hello().poll_transmit().unwrap();
    let mut service = hello();
    service.handle_data(hello_frame.clone()).unwrap();
    service.welcome(Load::default()).unwrap();
    let answer = service.poll_transmit().unwrap();
    let fingerprint = Fingerprint([3; 32]);
    let model = "net".to_owned();
    let open = encode_frame("open", &ClientControl::Open { fingerprint, model }).unwrap();
    let refused = OpenRefusal::unknown("net", fingerprint, [fingerprint]);
    let says = [
        ServerControl::Opened {
            contract: 3,
            load: Load::default(),
        },
        ServerControl::OpenRefused(refused),
        ServerControl::Load(Load::default()),
        ServerControl::Draining,
    ]
    .map(|message| encode_frame("control", &message).unwrap());
    let streams = [
        (0, [request, payload.clone()].concat()),
        (1, [reply, payload].concat()),
        (1, error.to_vec()),
        (2, hello_frame.to_vec()),
        (3, answer.to_vec()),
        (4, open.to_vec()),
        (5, says.concat()),
    ];
    let steps = [1, 7, 255];
    streams
        .iter()
        .flat_map(|(reader, stream)| {
            steps.map(|step| [&[*reader, step], stream.as_slice()].concat())
        })
        .collect()
}
