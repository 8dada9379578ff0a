//! TLS 1.3 with an explicit provider, and what its alerts mean.

use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use seamline_wire::ALPN;

use crate::identity::{CertifiedKey, ClientIdentity, IdentityError, ServerIdentity, Trust};
use crate::server::ClientAuth;

pub(crate) const NO_APPLICATION_PROTOCOL: u8 = 120;

/// ring, whatever provider the process has installed as its default.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(crate) fn client_config(
    identity: &ClientIdentity,
    trust: &Trust,
) -> Result<Arc<QuicClientConfig>, IdentityError> {
    let builder = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?
        .with_root_certificates(trust.roots()?);
    let mut config = match identity {
        ClientIdentity::Certificate(CertifiedKey { chain, key }) => builder
            .with_client_auth_cert(chain.clone(), key.clone_key())
            .map_err(unusable)?,
        ClientIdentity::Token(_) | ClientIdentity::None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    // No 0-RTT: its bytes can be replayed by whoever records them.
    config.enable_early_data = false;
    QuicClientConfig::try_from(config)
        .map(Arc::new)
        .map_err(unusable)
}

pub(crate) fn server_config(
    identity: &ServerIdentity,
    auth: &ClientAuth,
) -> Result<Arc<QuicServerConfig>, IdentityError> {
    let builder = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])
        .map_err(unusable)?;
    let verifier = |trust: &Trust, optional: bool| {
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(trust.roots()?), provider());
        let verifier = if optional {
            verifier.allow_unauthenticated()
        } else {
            verifier
        };
        verifier.build().map_err(unusable)
    };
    let builder = match auth {
        ClientAuth::Certificate(trust) => {
            builder.with_client_cert_verifier(verifier(trust, false)?)
        }
        ClientAuth::Either(trust, _) => builder.with_client_cert_verifier(verifier(trust, true)?),
        ClientAuth::Token(_) => builder.with_no_client_auth(),
    };
    let CertifiedKey { chain, key } = &identity.0;
    let mut config = builder
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(unusable)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.max_early_data_size = 0;
    QuicServerConfig::try_from(config)
        .map(Arc::new)
        .map_err(unusable)
}

fn unusable(error: impl std::fmt::Display) -> IdentityError {
    IdentityError::Unusable {
        problem: error.to_string(),
    }
}

/// Who found fault.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refuser {
    Us,
    Peer,
}

/// The TLS alert in a QUIC transport error code (RFC 9001, section 4.8).
pub(crate) fn alert(code: u64) -> Option<u8> {
    code.checked_sub(0x100)
        .and_then(|alert| u8::try_from(alert).ok())
}

/// A QUIC transport error in words.
pub(crate) fn explain(code: u64, reason: &str, refuser: Refuser) -> String {
    let Some(alert) = alert(code) else {
        return format!("QUIC error {code:#x}: {reason}");
    };
    let (subject, whose) = match refuser {
        Refuser::Us => ("this side refused", "the peer's"),
        Refuser::Peer => ("the peer refused", "this side's"),
    };
    // RFC 8446, section 6.2.
    let meaning = match alert {
        42 => format!(
            "{whose} certificate is damaged, or is for another name than the one connected to; \
             the names are chosen by `seamline-cloud identity new --host`, and --server-name \
             asks for one of them"
        ),
        43 => format!("{whose} certificate is not meant for this use"),
        44 => format!("{whose} certificate was revoked"),
        45 => format!(
            "{whose} certificate has expired, or its clock or ours is wrong; issue a new one by `seamline-cloud identity`"
        ),
        46 => format!("{whose} certificate is not valid, or is for another name"),
        48 => format!(
            "{whose} certificate is of an authority that is not trusted; use certificates of the same `seamline-cloud identity`"
        ),
        49 => format!("{whose} certificate does not give access"),
        51 => format!(
            "{whose} signature does not verify: certificate and key do not belong together, or another authority of the same name issued it"
        ),
        70 => "no TLS version in common; Seamline needs TLS 1.3".to_owned(),
        116 => format!("{whose} certificate is missing; give a device certificate and its key"),
        NO_APPLICATION_PROTOCOL => {
            "it does not speak `seamline/1`: another service, or a version too old or too new"
                .to_owned()
        }
        _ => format!("TLS alert {alert}"),
    };
    if reason.is_empty() {
        format!("{subject} the TLS handshake: {meaning}")
    } else {
        format!("{subject} the TLS handshake: {meaning} ({reason})")
    }
}
