//! A client of the test's own, which need not keep the protocol.

use std::sync::Arc;

use quinn::{Connection, ConnectionError, TransportConfig, VarInt};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use seamline_net::wire::ALPN;

use super::Service;

/// A client of the test's own on whose streams the service may send `window` bytes before they
/// are read.
pub(crate) async fn connect(service: &Service, window: u32) -> Result<Connection, ConnectionError> {
    let dir = service.dir.path();
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(dir.join("ca.pem")).unwrap())
        .unwrap();
    let chain = vec![CertificateDer::from_pem_file(dir.join("camera.pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(dir.join("camera.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let mut config = quinn::ClientConfig::new(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(window));
    config.transport_config(Arc::new(transport));
    endpoint
        .connect_with(config, service.addr, "localhost")
        .unwrap()
        .await
}
