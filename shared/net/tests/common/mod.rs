//! A service on loopback that echoes, and the identities to reach it.

#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod raw_client;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use seamline_net::identity::{
    ClientIdentity, ServerIdentity, TOKENS_FILE, TokenList, Trust, create,
};
use seamline_net::wire::{Deadlines, Load, OpenRefusal, TensorHeader, Timings};
use seamline_net::{
    AcceptError, Client, ClientAuth, ClientConnection, ClientOptions, ConnectError,
    ConnectionHandle, ContractHandle, Contracts, IncomingRequest, Request, ServerEndpoint,
    ServerOptions,
};
use seamline_plan::Fingerprint;
use tempfile::TempDir;
use tokio::sync::mpsc;

pub(crate) const MODEL: &str = "orientation";
pub(crate) const HANDLE: u32 = 7;

/// What the contract cut 0 does: echo. At cut 1 the request is held until the test says so.
pub(crate) const CUT_ECHO: u16 = 0;
pub(crate) const CUT_HOLD: u16 = 1;
/// The request is dropped without an answer.
pub(crate) const CUT_DROP: u16 = 2;

pub(crate) fn fingerprint() -> Fingerprint {
    Fingerprint::of(b"the bundle of the tests")
}

pub(crate) struct OneBundle;

impl Contracts for OneBundle {
    fn open(&self, asked: Fingerprint, model: &str) -> Result<u32, OpenRefusal> {
        if asked == fingerprint() {
            return Ok(HANDLE);
        }
        let known = (model == MODEL).then(fingerprint);
        Err(OpenRefusal::unknown(model, asked, known))
    }

    fn load(&self) -> Load {
        Load {
            in_flight: 1,
            capacity: 32,
            queue_us: 5000,
        }
    }
}

pub(crate) struct Service {
    pub(crate) dir: TempDir,
    pub(crate) endpoint: ServerEndpoint,
    pub(crate) addr: SocketAddr,
    /// Each welcomed connection.
    pub(crate) welcomed: mpsc::UnboundedReceiver<ConnectionHandle>,
    /// Each failed handshake.
    pub(crate) refused: mpsc::UnboundedReceiver<AcceptError>,
    /// Requests at [`CUT_HOLD`].
    pub(crate) held: mpsc::UnboundedReceiver<IncomingRequest>,
}

pub(crate) fn identities() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    create::authority(dir.path(), "test-ca", 10).unwrap();
    let hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    create::server(dir.path(), &hosts, 10).unwrap();
    create::device(dir.path(), "camera", 10).unwrap();
    create::token(dir.path(), "sensor").unwrap();
    dir
}

pub(crate) fn either(dir: &Path) -> ClientAuth {
    let tokens = TokenList::load(&dir.join(TOKENS_FILE)).unwrap();
    ClientAuth::Either(Trust::load(dir).unwrap(), tokens)
}

pub(crate) fn certificate(dir: &Path) -> ClientAuth {
    ClientAuth::Certificate(Trust::load(dir).unwrap())
}

impl Service {
    pub(crate) fn start() -> Service {
        Service::with(certificate, |_| {})
    }

    pub(crate) fn with(
        auth: impl Fn(&Path) -> ClientAuth,
        change: impl FnOnce(&mut ServerOptions),
    ) -> Service {
        let dir = identities();
        let identity = ServerIdentity::load(dir.path()).unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let mut options = ServerOptions::new(listen, identity, auth(dir.path()));
        change(&mut options);
        let endpoint = ServerEndpoint::bind(options).unwrap();
        let addr = endpoint.local_addr().unwrap();
        let (welcomed, welcomed_rx) = mpsc::unbounded_channel();
        let (refused, refused_rx) = mpsc::unbounded_channel();
        let (held, held_rx) = mpsc::unbounded_channel();
        let accepting = endpoint.clone();
        tokio::spawn(async move {
            while let Some(pending) = accepting.accept().await {
                let (welcomed, refused, held) = (welcomed.clone(), refused.clone(), held.clone());
                tokio::spawn(async move {
                    match pending.handshake(Arc::new(OneBundle)).await {
                        Ok(mut connection) => {
                            let _ = welcomed.send(connection.handle());
                            while let Some(request) = connection.next_request().await {
                                let held = held.clone();
                                tokio::spawn(async move {
                                    if let Some(request) = request.receive().await {
                                        serve(request, &held).await;
                                    }
                                });
                            }
                        }
                        Err(error) => {
                            let _ = refused.send(error);
                        }
                    }
                });
            }
        });
        Service {
            dir,
            endpoint,
            addr,
            welcomed: welcomed_rx,
            refused: refused_rx,
            held: held_rx,
        }
    }

    /// A client of the service's own authority, named `name` in its folder.
    pub(crate) fn options(&self, name: &str) -> ClientOptions {
        let dir = self.dir.path();
        let identity = ClientIdentity::load(dir, name).unwrap();
        ClientOptions::new(self.addr, "localhost", identity, Trust::load(dir).unwrap())
    }

    pub(crate) async fn connect(&self) -> (ClientConnection, ContractHandle) {
        let connection = Client::connect(self.options("camera")).await.unwrap();
        let contract = connection.open(fingerprint(), MODEL).await.unwrap();
        (connection, contract)
    }

    /// Connects where that must fail; a TLS refusal of the device arrives only after connecting,
    /// so the error is the same from `connect` and from the hello.
    pub(crate) async fn refusal(&self, options: ClientOptions) -> ConnectError {
        match Client::connect(options).await {
            Ok(_) => panic!("the service took a client that it must refuse"),
            Err(error) => error,
        }
    }
}

async fn serve(request: IncomingRequest, held: &mpsc::UnboundedSender<IncomingRequest>) {
    match request.header.cut {
        CUT_HOLD => {
            let _ = held.send(request);
        }
        CUT_DROP => drop(request),
        _ => {
            // The client may be gone: that is what some tests are about.
            let _ = echo(request).await;
        }
    }
}

pub(crate) async fn echo(request: IncomingRequest) -> Result<(), seamline_net::ReplyError> {
    let timings = Timings {
        batch_size: 1,
        ..Timings::default()
    };
    let IncomingRequest {
        header,
        payloads,
        responder,
        ..
    } = request;
    responder.reply(timings, header.tensors, payloads).await
}

pub(crate) fn request(
    contract: ContractHandle,
    cut: u16,
    lengths: &[usize],
) -> (Request, Vec<Bytes>) {
    let tensors = lengths.iter().map(|&length| raw(length as u64)).collect();
    let payloads = lengths
        .iter()
        .map(|&length| {
            (0..length)
                .map(|i| (i % 251) as u8)
                .collect::<Vec<u8>>()
                .into()
        })
        .collect();
    (Request::new(contract, cut, tensors).unwrap(), payloads)
}

pub(crate) fn raw(bytes: u64) -> TensorHeader {
    TensorHeader {
        codec: 0,
        dtype: 2,
        shape: vec![bytes],
        bytes,
    }
}

pub(crate) fn short_deadlines() -> Deadlines {
    Deadlines {
        header: Duration::from_millis(100),
        body: Duration::from_millis(200),
        ..Deadlines::default()
    }
}
