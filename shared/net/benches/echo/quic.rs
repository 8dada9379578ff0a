//! An echo over a bare quinn stream, with the TLS, the windows and the socket buffers that
//! seamline-net uses, and quinn's own packet size.

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

/// What the peer accepts at most of one echo.
const MOST: usize = 1 << 30;

pub(crate) struct Echo {
    client: Connection,
    _endpoints: [Endpoint; 2],
}

impl Echo {
    pub(crate) async fn start(dir: &Path) -> Echo {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(certificate(dir, "ca")).unwrap();
        let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots.clone()),
            provider.clone(),
        );
        let mut server_tls = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![certificate(dir, "server")], key(dir, "server"))
            .unwrap();
        let mut client_tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate(dir, "device")], key(dir, "device"))
            .unwrap();
        server_tls.alpn_protocols = vec![b"echo".to_vec()];
        client_tls.alpn_protocols = vec![b"echo".to_vec()];

        let server_crypto = QuicServerConfig::try_from(server_tls).unwrap();
        let mut server_config = quinn::ServerConfig::with_crypto(Arc::new(server_crypto));
        server_config.transport_config(transport());
        let server = endpoint(Some(server_config));
        let addr = server.local_addr().unwrap();
        tokio::spawn(serve(server.clone()));

        let client_crypto = QuicClientConfig::try_from(client_tls).unwrap();
        let mut client_config = quinn::ClientConfig::new(Arc::new(client_crypto));
        client_config.transport_config(transport());
        let endpoint = endpoint(None);
        let connecting = endpoint
            .connect_with(client_config, addr, "localhost")
            .unwrap();
        let client = connecting.await.unwrap();
        Echo {
            client,
            _endpoints: [endpoint, server],
        }
    }

    pub(crate) async fn echo(&self, payload: Bytes) -> Bytes {
        let (mut send, mut recv) = self.client.open_bi().await.unwrap();
        send.write_chunk(payload).await.unwrap();
        send.finish().unwrap();
        recv.read_to_end(MOST).await.unwrap().into()
    }
}

async fn serve(endpoint: Endpoint) {
    let connection = endpoint.accept().await.unwrap().await.unwrap();
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        let bytes = recv.read_to_end(MOST).await.unwrap();
        send.write_chunk(bytes.into()).await.unwrap();
        send.finish().unwrap();
    }
}

fn certificate(dir: &Path, name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(dir.join(format!("{name}.pem"))).unwrap()
}

fn key(dir: &Path, name: &str) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_file(dir.join(format!("{name}.key"))).unwrap()
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

fn endpoint(config: Option<quinn::ServerConfig>) -> Endpoint {
    let addr: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
    let buffer = TransportOptions::default().socket_buffer;
    socket.set_recv_buffer_size(buffer).unwrap();
    socket.set_send_buffer_size(buffer).unwrap();
    socket.bind(&addr.into()).unwrap();
    let runtime = Arc::new(TokioRuntime);
    Endpoint::new(EndpointConfig::default(), config, socket.into(), runtime).unwrap()
}
