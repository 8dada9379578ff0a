//! Two sessions joined by streams that deliver when the script says so.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use seamline_plan::Fingerprint;
use seamline_wire::*;

/// One step of a script.
#[derive(Clone, Debug)]
pub(crate) enum TestOp {
    /// The client opens the contract, or one that the service lacks.
    Open(bool),
    /// The client begins a request, of the contract or of one that was never opened.
    Send { size: u8, known: bool },
    /// Some bytes arrive, on the control stream or a request's, in the one direction or other.
    Deliver { pick: u8, bytes: u16 },
    /// The service answers one of the requests that it has whole.
    Answer(u8),
    /// The service fails one of them.
    Fail(u8),
    /// The client gives one up.
    Cancel(u8),
    /// The client begins another request under an id in flight.
    Resend(u8),
    /// A byte on its way to the service is damaged.
    Damage(u8),
    /// Milliseconds pass.
    Advance(u16),
    /// The service drains.
    Drain,
    /// The connection ends.
    Close,
}

const HANDLE: u32 = 7;
const LIMIT: u32 = 4;

fn held() -> Fingerprint {
    Fingerprint([1; 32])
}

fn limits() -> Limits {
    Limits {
        max_in_flight: LIMIT,
        max_contracts: 1000,
        ..Limits::default()
    }
}

/// Bytes on their way in one direction of a stream.
#[derive(Default)]
struct Pipe {
    bytes: BytesMut,
    ended: bool,
    end_seen: bool,
}

impl Pipe {
    fn send(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn take(&mut self, most: usize) -> Option<Bytes> {
        let length = most.min(self.bytes.len());
        (length != 0).then(|| self.bytes.split_to(length).freeze())
    }

    fn take_end(&mut self) -> bool {
        let now = self.ended && self.bytes.is_empty() && !self.end_seen;
        self.end_seen |= now;
        now
    }
}

/// A request's stream, with both ends' state.
struct Stream {
    id: u128,
    to_server: Pipe,
    to_client: Pipe,
    reader: RequestReader,
    reply: Option<ReplyReader>,
    /// The service has the whole request and owes an answer.
    running: bool,
    client_done: bool,
    server_done: bool,
}

pub(crate) struct World {
    now: Instant,
    client: ClientSession,
    server: ServerSession,
    control_up: Pipe,
    control_down: Pipe,
    streams: BTreeMap<u64, Stream>,
    next: u64,
    opens: VecDeque<()>,
    opened: bool,
    closed: bool,
    /// How each request that the client began ended, seen from the client.
    client_ends: BTreeMap<u128, Terminal>,
    /// Requests whose answer the service has sent.
    answered: BTreeMap<u128, u32>,
    damaged: bool,
}

impl World {
    /// Runs a script, then lets everything that is under way end, and checks the laws.
    pub(crate) fn run(script: &[TestOp]) -> SessionCounts {
        let mut world = World::new();
        for op in script {
            world.apply(op);
            world.check();
        }
        world.settle();
        world.check();
        world.check_ended();
        world.client.counts()
    }

    fn new() -> World {
        let now = Instant::now();
        let hello = Hello {
            agent: "edge".into(),
            token: None,
            features: 0,
        };
        let mut client = ClientHandshake::new(now, VERSIONS, &hello, Deadlines::default()).unwrap();
        let own = ServerHello {
            versions: VERSIONS,
            agent: "cloud".into(),
            features: 0,
            limits: limits(),
        };
        let mut server = ServerHandshake::new(now, own, Deadlines::default());
        let asked = server.handle_data(client.poll_transmit().unwrap()).unwrap();
        assert!(asked.is_some());
        server.welcome(Load::default()).unwrap();
        let welcomed = client.handle_data(server.poll_transmit().unwrap()).unwrap();
        let Some(ClientHandshakeEvent::Welcome(welcome)) = welcomed else {
            panic!()
        };
        World {
            now,
            client: ClientSession::new(&welcome),
            server: ServerSession::new(limits()),
            control_up: Pipe::default(),
            control_down: Pipe::default(),
            streams: BTreeMap::new(),
            next: 0,
            opens: VecDeque::new(),
            opened: false,
            closed: false,
            client_ends: BTreeMap::new(),
            answered: BTreeMap::new(),
            damaged: false,
        }
    }

    fn apply(&mut self, op: &TestOp) {
        match *op {
            TestOp::Open(known) => {
                let fingerprint = if known { held() } else { Fingerprint([9; 32]) };
                self.client.open(fingerprint, "net").unwrap();
                self.opens.push_back(());
            }
            TestOp::Send { size, known } => self.send(self.next.into(), size, known),
            TestOp::Resend(pick) => {
                if let Some(stream) = self.pick(pick, |stream| !stream.client_done) {
                    let id = self.streams[&stream].id;
                    self.send(id, 1, true);
                }
            }
            TestOp::Deliver { pick, bytes } => self.deliver(pick, bytes.into()),
            TestOp::Answer(pick) => self.answer(pick, None),
            TestOp::Fail(pick) => self.answer(pick, Some(ErrorCode::Internal)),
            TestOp::Cancel(pick) => {
                if let Some(stream) = self.pick(pick, |stream| !stream.client_done) {
                    self.client_end(stream, Terminal::Cancelled(ErrorCode::Cancelled));
                    self.server_end(stream, Terminal::Cancelled(ErrorCode::Cancelled));
                }
            }
            TestOp::Damage(pick) => {
                if let Some(stream) = self.pick(pick, |s| !s.to_server.bytes.is_empty()) {
                    self.damaged = true;
                    self.streams.get_mut(&stream).unwrap().to_server.bytes[0] ^= 0x55;
                }
            }
            TestOp::Advance(ms) => {
                self.now += Duration::from_millis(ms.into());
                self.poll_readers();
            }
            TestOp::Drain => self.server.drain().unwrap(),
            TestOp::Close => self.close(),
        }
        self.pump_control();
    }

    fn send(&mut self, id: u128, size: u8, known: bool) {
        self.next += 1;
        if let Err(error) = self.client.start(id) {
            let expected = match error {
                StartError::Closed => self.closed,
                StartError::Draining => self.client.is_draining(),
                StartError::InFlight { .. } => self.client.in_flight() == LIMIT as usize,
                StartError::Duplicate { .. } => self.streams.values().any(|s| s.id == id),
            };
            assert!(expected, "{error}");
            return;
        }
        let bytes = u64::from(size) * 100;
        let header = RequestHeader {
            id,
            contract: if known { HANDLE } else { 99 },
            tensors: vec![TensorHeader {
                codec: 0,
                dtype: 2,
                shape: vec![bytes],
                bytes,
            }],
            ..RequestHeader::default()
        };
        let payload = Bytes::from(vec![size; usize::from(size) * 100]);
        let frame = encode_request(&header, std::slice::from_ref(&payload), &limits()).unwrap();
        let mut to_server = Pipe::default();
        to_server.send(&frame);
        to_server.send(&payload);
        to_server.ended = true;
        let stream = Stream {
            id,
            to_server,
            to_client: Pipe::default(),
            reader: RequestReader::new(self.now, &limits(), Deadlines::default()),
            reply: None,
            running: false,
            client_done: false,
            server_done: false,
        };
        self.streams.insert(self.next, stream);
    }

    fn deliver(&mut self, pick: u8, bytes: usize) {
        if self.closed {
            return;
        }
        // Two control directions, then two directions a stream.
        let choices = 2 + 2 * self.streams.len();
        match usize::from(pick) % choices {
            0 => {
                if let Some(chunk) = self.control_up.take(bytes) {
                    self.server.handle_control(chunk).unwrap();
                }
            }
            1 => {
                if let Some(chunk) = self.control_down.take(bytes) {
                    self.client.handle_control(chunk).unwrap();
                }
            }
            choice => {
                let stream = *self.streams.keys().nth((choice - 2) / 2).unwrap();
                if choice % 2 == 0 {
                    self.deliver_to_server(stream, bytes);
                } else {
                    self.deliver_to_client(stream, bytes);
                }
            }
        }
    }

    fn deliver_to_server(&mut self, key: u64, bytes: usize) {
        let stream = self.streams.get_mut(&key).unwrap();
        if stream.server_done || stream.running {
            return;
        }
        match stream.to_server.take(bytes) {
            Some(chunk) => stream.reader.handle_data(chunk),
            None if stream.to_server.take_end() => stream.reader.handle_end(),
            None => {}
        }
        self.poll_request(key);
    }

    fn poll_request(&mut self, key: u64) {
        loop {
            let stream = self.streams.get_mut(&key).unwrap();
            if stream.server_done || stream.running {
                return;
            }
            match stream.reader.poll(self.now) {
                Ok(None) => return,
                Ok(Some(ReadEvent::Payload { data, .. })) => assert!(!data.is_empty()),
                Ok(Some(ReadEvent::End)) => stream.running = true,
                Ok(Some(ReadEvent::Header(header))) => {
                    if let Err(refusal) = self.server.begin(key, &header) {
                        self.reply_error(key, header.id, refusal.code(), &refusal.to_string());
                    }
                }
                Err(error) if error.is_breach() => {
                    assert!(self.damaged, "an honest client broke the protocol: {error}");
                    return self.close();
                }
                Err(error) => {
                    let id = stream.id;
                    self.server.end(key, Terminal::Failed(error.code()));
                    self.reply_error(key, id, error.code(), &error.to_string());
                }
            }
        }
    }

    fn reply_error(&mut self, key: u64, id: u128, code: ErrorCode, message: &str) {
        let frame = encode_error(id, code, message.to_owned(), None).unwrap();
        let stream = self.streams.get_mut(&key).unwrap();
        stream.to_client.send(&frame);
        stream.to_client.ended = true;
        stream.server_done = true;
    }

    fn answer(&mut self, pick: u8, error: Option<ErrorCode>) {
        let Some(key) = self.pick(pick, |stream| stream.running && !stream.server_done) else {
            return;
        };
        let id = self.streams[&key].id;
        *self.answered.entry(key.into()).or_default() += 1;
        match error {
            Some(code) => {
                assert!(self.server.end(key, Terminal::Failed(code)));
                self.reply_error(key, id, code, "failed");
            }
            None => {
                assert!(self.server.end(key, Terminal::Answered));
                let reply = ReplyOk {
                    id,
                    ..ReplyOk::default()
                };
                let frame = encode_reply(reply, &[], &limits()).unwrap();
                let stream = self.streams.get_mut(&key).unwrap();
                stream.to_client.send(&frame);
                stream.to_client.ended = true;
                stream.server_done = true;
            }
        }
        // The second end of one stream changes nothing.
        assert!(!self.server.end(key, Terminal::Answered));
    }

    fn deliver_to_client(&mut self, key: u64, bytes: usize) {
        let now = self.now;
        let stream = self.streams.get_mut(&key).unwrap();
        if stream.client_done {
            return;
        }
        let reader = stream
            .reply
            .get_or_insert_with(|| ReplyReader::new(now, &limits(), Deadlines::default()));
        match stream.to_client.take(bytes) {
            Some(chunk) => reader.handle_data(chunk),
            None if stream.to_client.take_end() => reader.handle_end(),
            None => return,
        }
        let mut terminal = None;
        loop {
            match reader.poll(now) {
                Ok(Some(ReadEvent::Header(ReplyHeader::Ok(_)))) => {
                    terminal = Some(Terminal::Answered);
                }
                Ok(Some(ReadEvent::Header(ReplyHeader::Error { code, .. }))) => {
                    terminal = Some(Terminal::Failed(code));
                }
                Ok(Some(ReadEvent::Payload { .. })) => panic!("the answers have no payload"),
                Ok(Some(ReadEvent::End)) => break,
                // The header may come now, the end later.
                Ok(None) => return self.remember(key, terminal),
                Err(WireError::Timeout { .. }) => {
                    let code = ErrorCode::DeadlineExceeded;
                    return self.client_end(key, Terminal::Cancelled(code));
                }
                Err(error) => panic!("the service broke the protocol: {error}"),
            }
        }
        let known = self.client_ends.get(&key.into()).copied();
        self.client_end(key, terminal.or(known).unwrap());
    }

    /// Keeps what the header said until the stream's end.
    fn remember(&mut self, key: u64, terminal: Option<Terminal>) {
        if let Some(terminal) = terminal {
            self.client_ends.insert(key.into(), terminal);
        }
    }

    fn client_end(&mut self, key: u64, terminal: Terminal) {
        let stream = self.streams.get_mut(&key).unwrap();
        assert!(!stream.client_done, "ended twice");
        stream.client_done = true;
        assert!(self.client.end(stream.id, terminal));
        assert!(!self.client.end(stream.id, terminal));
        self.client_ends.insert(key.into(), terminal);
    }

    /// A reset reaches the service.
    fn server_end(&mut self, key: u64, terminal: Terminal) {
        let stream = self.streams.get_mut(&key).unwrap();
        stream.server_done = true;
        stream.running = false;
        self.server.end(key, terminal);
    }

    fn poll_readers(&mut self) {
        let keys: Vec<u64> = self.streams.keys().copied().collect();
        for key in keys {
            if !self.closed {
                self.poll_request(key);
            }
        }
    }

    fn pump_control(&mut self) {
        while let Some(event) = self.server.poll_event() {
            let ServerEvent::Open { fingerprint, model } = event;
            let answer = if fingerprint == held() {
                self.opened = true;
                Ok(HANDLE)
            } else {
                Err(OpenRefusal::unknown(&model, fingerprint, [held()]))
            };
            self.server.answer_open(answer, Load::default()).unwrap();
        }
        while let Some(bytes) = self.client.poll_transmit() {
            self.control_up.send(&bytes);
        }
        while let Some(bytes) = self.server.poll_transmit() {
            self.control_down.send(&bytes);
        }
        while let Some(event) = self.client.poll_event() {
            if let ClientEvent::Open(_) = event {
                self.opens
                    .pop_front()
                    .expect("an answer without a question");
            }
        }
    }

    fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.client.handle_closed();
        self.server.handle_closed();
        for (key, stream) in &mut self.streams {
            if !stream.client_done {
                self.client_ends.insert((*key).into(), Terminal::Lost);
            }
            stream.client_done = true;
            stream.server_done = true;
            stream.running = false;
        }
    }

    /// Delivers and answers everything that is left.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let idle = self
                .streams
                .values()
                .all(|s| s.client_done && s.server_done)
                && self.opens.is_empty();
            if self.closed || idle {
                return;
            }
            for pick in 0..=u8::try_from(2 * self.streams.len() + 1).unwrap_or(u8::MAX) {
                self.deliver(pick, usize::MAX);
            }
            self.answer(0, None);
            self.pump_control();
            self.streams
                .retain(|_, s| !(s.client_done && s.server_done));
        }
        panic!("the world does not come to rest");
    }

    fn pick(&self, pick: u8, wanted: impl Fn(&Stream) -> bool) -> Option<u64> {
        let keys: Vec<u64> = self
            .streams
            .iter()
            .filter(|(_, s)| wanted(s))
            .map(|(key, _)| *key)
            .collect();
        (!keys.is_empty()).then(|| keys[usize::from(pick) % keys.len()])
    }

    /// What holds at every moment.
    fn check(&self) {
        let (client, server) = (self.client.counts(), self.server.counts());
        assert_eq!(
            client.started,
            client.ended() + self.client.in_flight() as u64
        );
        assert_eq!(
            server.started,
            server.ended() + self.server.in_flight() as u64
        );
        assert!(self.client.in_flight() <= LIMIT as usize);
        assert!(self.server.in_flight() <= LIMIT as usize);
        assert!(
            self.answered.values().all(|&times| times == 1),
            "answered twice"
        );
        if self.server.is_drained() {
            assert_eq!(self.server.in_flight(), 0);
        }
    }

    /// What holds at the end.
    fn check_ended(&self) {
        assert_eq!(self.client.in_flight(), 0, "a request was lost silently");
        assert_eq!(self.server.in_flight(), 0, "the service holds a request");
        let (client, server) = (self.client.counts(), self.server.counts());
        assert_eq!(
            client.ended(),
            self.client_ends.len() as u64,
            "each ends once, by one name"
        );
        if !self.closed {
            assert!(
                client.answered <= server.answered,
                "answers come from the service alone"
            );
        }
        if !self.opened {
            assert_eq!(server.answered, 0, "nothing runs without a contract");
        }
    }
}
