//! An echo through seamline-net.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use seamline_net::identity::{ClientIdentity, ServerIdentity, Trust, create};
use seamline_net::wire::{Load, OpenRefusal, TensorHeader, Timings};
use seamline_net::{
    Client, ClientAuth, ClientConnection, ClientOptions, ContractHandle, Contracts,
    IncomingRequest, Request, ServerEndpoint, ServerOptions,
};
use seamline_plan::Fingerprint;
use tempfile::TempDir;

struct Any;

impl Contracts for Any {
    fn open(&self, _: Fingerprint, _: &str) -> Result<u32, OpenRefusal> {
        Ok(0)
    }

    fn load(&self) -> Load {
        Load::default()
    }
}

pub(crate) fn identities() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    create::authority(dir.path(), "bench", 1).unwrap();
    create::server(dir.path(), &["localhost".to_owned()], 1).unwrap();
    create::device(dir.path(), "device", 1).unwrap();
    dir
}

pub(crate) struct Echo {
    client: ClientConnection,
    contract: ContractHandle,
    _endpoint: ServerEndpoint,
}

impl Echo {
    pub(crate) async fn start(dir: &Path) -> Echo {
        let auth = ClientAuth::Certificate(Trust::load(dir).unwrap());
        let identity = ServerIdentity::load(dir).unwrap();
        let options = ServerOptions::new("127.0.0.1:0".parse().unwrap(), identity, auth);
        let endpoint = ServerEndpoint::bind(options).unwrap();
        let addr = endpoint.local_addr().unwrap();
        let accepting = endpoint.clone();
        tokio::spawn(async move {
            let pending = accepting.accept().await.unwrap();
            let mut connection = pending.handshake(Arc::new(Any)).await.unwrap();
            while let Some(request) = connection.next_request().await {
                let IncomingRequest {
                    header,
                    payloads,
                    responder,
                    ..
                } = request.receive().await.unwrap();
                let timings = Timings::default();
                responder
                    .reply(timings, header.tensors, payloads)
                    .await
                    .unwrap();
            }
        });
        let identity = ClientIdentity::load(dir, "device").unwrap();
        let options = ClientOptions::new(addr, "localhost", identity, Trust::load(dir).unwrap());
        let client = Client::connect(options).await.unwrap();
        let contract = client.open(Fingerprint([0; 32]), "bench").await.unwrap();
        Echo {
            client,
            contract,
            _endpoint: endpoint,
        }
    }

    pub(crate) async fn echo(&self, payload: Bytes) -> Bytes {
        let bytes = payload.len() as u64;
        let tensor = TensorHeader {
            codec: 0,
            dtype: 2,
            shape: vec![bytes],
            bytes,
        };
        let request = Request::new(self.contract, 0, vec![tensor]).unwrap();
        let mut reply = self.client.request(request, vec![payload]).await.unwrap();
        reply.payloads.pop().unwrap()
    }
}
