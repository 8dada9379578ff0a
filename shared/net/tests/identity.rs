//! Who is let in, who is not, and what each side is told.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking, and its numbers are small"
)]

mod common;

use std::fs;
use std::path::Path;

use common::{MODEL, Service, certificate, either, fingerprint, identities, request};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use seamline_net::identity::{
    CertifiedKey, ClientIdentity, DeviceToken, IdentityError, Proof, ServerIdentity, Trust, create,
};
use seamline_net::wire::{ErrorCode, VersionRange};
use seamline_net::{BindError, Client, ConnectErrorKind, OpenError, ServerEndpoint, ServerOptions};

#[tokio::test]
async fn a_device_certificate_is_welcomed_by_name() {
    let mut service = Service::start();
    let (client, contract) = service.connect().await;
    let (request, payloads) = request(contract, 0, &[1024]);
    let reply = client.request(request, payloads.clone()).await.unwrap();
    assert_eq!(reply.payloads, payloads);
    assert_eq!(reply.load.capacity, 32);
    let server = service.welcomed.recv().await.unwrap();
    assert_eq!(server.identity().name, "camera");
    assert_eq!(server.identity().proof, Proof::Certificate);
}

#[tokio::test]
async fn a_token_is_welcomed_by_name() {
    let mut service = Service::with(either, |_| {});
    let client = Client::connect(service.options("sensor")).await.unwrap();
    client.open(fingerprint(), MODEL).await.unwrap();
    let server = service.welcomed.recv().await.unwrap();
    assert_eq!(server.identity().name, "sensor");
    assert_eq!(server.identity().proof, Proof::Token);
}

#[tokio::test]
async fn no_certificate_is_a_readable_refusal_on_both_sides() {
    let mut service = Service::start();
    let mut options = service.options("camera");
    options.identity = ClientIdentity::None;
    let error = service.refusal(options).await;
    assert_eq!(error.kind(), ConnectErrorKind::Unauthenticated, "{error}");
    assert!(
        error.to_string().contains("certificate is missing"),
        "{error}"
    );
    let logged = service.refused.recv().await.unwrap().to_string();
    assert!(logged.contains("certificate"), "{logged}");
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_refused() {
    let mut service = Service::start();
    let other = identities();
    let mut options = service.options("camera");
    options.identity = ClientIdentity::load(other.path(), "camera").unwrap();
    let error = service.refusal(options).await;
    assert_eq!(error.kind(), ConnectErrorKind::Unauthenticated, "{error}");
    assert!(service.refused.recv().await.is_some());
}

#[tokio::test]
async fn a_service_of_another_authority_is_not_trusted() {
    let service = Service::start();
    let other = identities();
    let mut options = service.options("camera");
    options.trust = Trust::load(other.path()).unwrap();
    let error = service.refusal(options).await;
    assert_eq!(error.kind(), ConnectErrorKind::ServerNotTrusted, "{error}");
    assert!(error.to_string().contains("authority"), "{error}");
}

#[tokio::test]
async fn a_service_of_another_name_is_not_trusted() {
    let service = Service::start();
    let mut options = service.options("camera");
    options.server_name = "elsewhere.example".into();
    let error = service.refusal(options).await;
    assert_eq!(error.kind(), ConnectErrorKind::ServerNotTrusted, "{error}");
}

#[tokio::test]
async fn an_expired_certificate_is_refused_as_expired() {
    let mut service = Service::start();
    let dir = service.dir.path();
    issue_expired(dir, "old");
    let mut options = service.options("camera");
    let chain = CertifiedKey::load(&dir.join("old.pem"), &dir.join("old.key")).unwrap();
    options.identity = ClientIdentity::Certificate(chain);
    let error = service.refusal(options).await;
    assert_eq!(error.kind(), ConnectErrorKind::Unauthenticated, "{error}");
    assert!(error.to_string().contains("has expired"), "{error}");
    let logged = service.refused.recv().await.unwrap().to_string();
    assert!(logged.contains("has expired"), "{logged}");
}

#[tokio::test]
async fn a_server_certificate_does_not_pass_for_a_device() {
    let service = Service::start();
    let dir = service.dir.path();
    let mut options = service.options("camera");
    let server = CertifiedKey::load(&dir.join("server.pem"), &dir.join("server.key")).unwrap();
    options.identity = ClientIdentity::Certificate(server);
    let error = service.refusal(options).await;
    assert_eq!(error.kind(), ConnectErrorKind::Unauthenticated, "{error}");
}

#[tokio::test]
async fn a_wrong_token_or_none_is_refused_with_a_reason() {
    let mut service = Service::with(either, |_| {});
    let mut options = service.options("sensor");
    options.identity = ClientIdentity::Token(DeviceToken::random().unwrap());
    let error = service.refusal(options.clone()).await;
    assert_eq!(error.kind(), ConnectErrorKind::Unauthenticated, "{error}");
    assert_eq!(error.code(), Some(ErrorCode::Unauthenticated));
    assert!(error.to_string().contains("token is not known"), "{error}");
    assert!(
        service
            .refused
            .recv()
            .await
            .unwrap()
            .to_string()
            .contains("token is not known")
    );

    options.identity = ClientIdentity::None;
    let error = service.refusal(options).await;
    assert!(
        error.to_string().contains("certificate or a device token"),
        "{error}"
    );
}

#[tokio::test]
async fn case_16_both_versions_are_in_the_error() {
    let mut service = Service::with(certificate, |options| {
        options.versions = VersionRange { min: 3, max: 4 };
    });
    let error = service.refusal(service.options("camera")).await;
    assert_eq!(error.kind(), ConnectErrorKind::VersionMismatch, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("version 1") && text.contains("versions 3 to 4"),
        "{text}"
    );
    let logged = service.refused.recv().await.unwrap().to_string();
    assert!(
        logged.contains("version 1") && logged.contains("versions 3 to 4"),
        "{logged}"
    );
}

#[tokio::test]
async fn case_16_both_fingerprints_are_in_the_error() {
    let service = Service::start();
    let client = Client::connect(service.options("camera")).await.unwrap();
    let other = seamline_plan::Fingerprint::of(b"another build");
    let error = client.open(other, MODEL).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&other.to_string()), "{text}");
    assert!(text.contains(&fingerprint().to_string()), "{text}");
    assert!(matches!(error, OpenError::Refused(refusal) if refusal.known == [fingerprint()]));
    // The connection is still good.
    client.open(fingerprint(), MODEL).await.unwrap();
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let service = Service::start();
    let dir = service.dir.path();
    let identity = ServerIdentity::load(dir).unwrap();
    let options = ServerOptions::new(service.addr, identity, certificate(dir));
    let error = ServerEndpoint::bind(options).err().unwrap();
    assert!(matches!(error, BindError::InUse { .. }), "{error}");
    assert!(
        error.to_string().contains(&service.addr.port().to_string()),
        "{error}"
    );
}

#[tokio::test]
async fn ipv6_works_where_the_machine_has_it() {
    let dir = identities();
    let identity = ServerIdentity::load(dir.path()).unwrap();
    let options = ServerOptions::new(
        "[::1]:0".parse().unwrap(),
        identity,
        certificate(dir.path()),
    );
    let endpoint = match ServerEndpoint::bind(options) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            eprintln!("SKIPPED ipv6_works_where_the_machine_has_it: {error}");
            return;
        }
    };
    let addr = endpoint.local_addr().unwrap();
    tokio::spawn(async move {
        let pending = endpoint.accept().await.unwrap();
        let mut connection = pending
            .handshake(std::sync::Arc::new(common::OneBundle))
            .await
            .unwrap();
        while connection.next_request().await.is_some() {}
    });
    let identity = ClientIdentity::load(dir.path(), "camera").unwrap();
    let trust = Trust::load(dir.path()).unwrap();
    let options = seamline_net::ClientOptions::new(addr, "::1", identity, trust);
    Client::connect(options).await.unwrap();
}

#[test]
fn files_are_private_and_never_overwritten() {
    let dir = identities();
    #[cfg(unix)]
    for secret in ["ca.key", "server.key", "camera.key", "sensor.token"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(dir.path().join(secret))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{secret}");
    }
    let before = fs::read(dir.path().join("camera.key")).unwrap();
    let error = create::device(dir.path(), "camera", 10).unwrap_err();
    assert!(matches!(error, IdentityError::Exists { .. }), "{error}");
    assert_eq!(fs::read(dir.path().join("camera.key")).unwrap(), before);
    for bad in ["", "../x", "a b", ".hidden", "ca", "server", "tokens"] {
        let error = create::device(dir.path(), bad, 10).unwrap_err();
        assert!(
            matches!(error, IdentityError::Name { .. }),
            "{bad}: {error}"
        );
    }
}

#[test]
fn a_missing_or_wrong_file_is_named_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let error = ServerIdentity::load(dir.path()).unwrap_err().to_string();
    assert!(error.contains("server.pem does not exist"), "{error}");
    assert!(error.contains("seamline-cloud identity new"), "{error}");
    fs::write(dir.path().join("server.pem"), "not pem").unwrap();
    let error = ServerIdentity::load(dir.path()).unwrap_err().to_string();
    assert!(
        error.contains("server.pem does not hold a certificate"),
        "{error}"
    );
    let error = create::server(dir.path(), &["bad host!".to_owned()], 1)
        .unwrap_err()
        .to_string();
    assert!(error.contains("`bad host!`"), "{error}");
}

fn issue_expired(dir: &Path, name: &str) {
    let key = KeyPair::from_pem(&fs::read_to_string(dir.join("ca.key")).unwrap()).unwrap();
    let ca = fs::read_to_string(dir.join("ca.pem")).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&ca, key).unwrap();
    let mut params = CertificateParams::default();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2020, 2, 1);
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
    fs::write(dir.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}
