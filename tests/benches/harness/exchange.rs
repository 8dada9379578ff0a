//! The same bytes over a bare quinn stream, with the TLS, the windows and the socket buffers that
//! seamline-net uses, and quinn's own packet size: a new bidirectional stream for each exchange, so
//! many bytes there, so many back.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, Endpoint, EndpointConfig, TokioRuntime, TransportConfig, VarInt};
use rustls::RootCertStore;
use rustls::version::TLS13;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use seamline_net::TransportOptions;
use socket2::{Domain, Socket, Type};
use tokio::runtime::Runtime as Tokio;

/// What the peer accepts at most of one exchange, in bytes.
const MOST: usize = 1 << 30;
/// An exchange begins with the number of bytes that it wants back.
const LENGTH: usize = 8;

/// Answers on a port of its own until the endpoint is dropped.
pub(crate) fn serve(identity: &Path) -> (Endpoint, SocketAddr) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
        Arc::new(roots(identity)),
        provider.clone(),
    );
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![certificate(identity, "server")],
            key(identity, "server"),
        )
        .unwrap();
    tls.alpn_protocols = vec![b"exchange".to_vec()];
    let crypto = QuicServerConfig::try_from(tls).unwrap();
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(transport());
    let endpoint = bind(Some(config));
    let accepting = endpoint.clone();
    tokio::spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            tokio::spawn(async move { answer(incoming.await.unwrap()).await });
        }
    });
    let address = endpoint.local_addr().unwrap();
    (endpoint, address)
}

async fn answer(connection: Connection) {
    let zeros = Bytes::from(vec![0; 64 << 20]);
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        // Chunks as they come, as seamline-net takes them; never joined.
        let mut length = Vec::new();
        while let Some(chunk) = recv.read_chunk(usize::MAX, true).await.unwrap() {
            let missing = LENGTH.saturating_sub(length.len()).min(chunk.bytes.len());
            length.extend_from_slice(&chunk.bytes[..missing]);
        }
        let wanted = u64::from_le_bytes(length.try_into().unwrap());
        let wanted = usize::try_from(wanted).unwrap().min(zeros.len());
        send.write_chunk(zeros.slice(..wanted)).await.unwrap();
        send.finish().unwrap();
    }
}

/// A connection that blocks its caller, driven by one thread of its own as the blocking client is.
pub(crate) struct Exchange {
    connection: Connection,
    tokio: Tokio,
    _endpoint: Endpoint,
}

impl Exchange {
    pub(crate) fn connect(identity: &Path, address: SocketAddr) -> Exchange {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_root_certificates(roots(identity))
            .with_client_auth_cert(
                vec![certificate(identity, "device")],
                key(identity, "device"),
            )
            .unwrap();
        tls.alpn_protocols = vec![b"exchange".to_vec()];
        let crypto = QuicClientConfig::try_from(tls).unwrap();
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport());
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (endpoint, connection) = tokio.block_on(async {
            let endpoint = bind(None);
            let connection = endpoint
                .connect_with(config, address, "localhost")
                .unwrap()
                .await
                .unwrap();
            (endpoint, connection)
        });
        Exchange {
            connection,
            tokio,
            _endpoint: endpoint,
        }
    }

    /// Sends `there` and waits for `back` bytes.
    pub(crate) fn run(&self, there: &Bytes, back: u64) {
        self.tokio.block_on(async {
            let (mut send, mut recv) = self.connection.open_bi().await.unwrap();
            let length = Bytes::copy_from_slice(&back.to_le_bytes());
            send.write_all_chunks(&mut [length, there.clone()])
                .await
                .unwrap();
            send.finish().unwrap();
            let mut got = 0;
            while let Some(chunk) = recv.read_chunk(MOST, true).await.unwrap() {
                got += chunk.bytes.len() as u64;
            }
            assert_eq!(got, back);
        });
    }
}

fn roots(identity: &Path) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(certificate(identity, "ca")).unwrap();
    roots
}

fn certificate(identity: &Path, name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(identity.join(format!("{name}.pem"))).unwrap()
}

fn key(identity: &Path, name: &str) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_file(identity.join(format!("{name}.key"))).unwrap()
}

/// The same numbers as [`TransportOptions::default`].
fn transport() -> Arc<TransportConfig> {
    let ours = TransportOptions::default();
    let mut config = TransportConfig::default();
    config
        .stream_receive_window(VarInt::from_u64(ours.stream_window).unwrap())
        .receive_window(VarInt::from_u64(ours.connection_window).unwrap())
        .send_window(ours.send_window)
        .datagram_receive_buffer_size(None)
        .initial_rtt(ours.initial_rtt)
        .keep_alive_interval(ours.keep_alive);
    Arc::new(config)
}

fn bind(config: Option<quinn::ServerConfig>) -> Endpoint {
    let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    let buffer = TransportOptions::default().socket_buffer;
    socket.set_recv_buffer_size(buffer).unwrap();
    socket.set_send_buffer_size(buffer).unwrap();
    socket.bind(&address.into()).unwrap();
    let runtime = Arc::new(TokioRuntime);
    Endpoint::new(EndpointConfig::default(), config, socket.into(), runtime).unwrap()
}
