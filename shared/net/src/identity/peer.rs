//! Who a connection's other end is.

use std::fmt;

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A device that a service has accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PeerIdentity {
    /// The certificate's common name, or the name beside the token's hash.
    pub name: String,
    /// What proved it.
    pub proof: Proof,
}

/// What proved an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proof {
    /// A client certificate.
    Certificate,
    /// A token.
    Token,
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl PeerIdentity {
    /// Of a certificate that TLS has verified.
    pub(crate) fn of_certificate(certificate: &CertificateDer<'_>) -> PeerIdentity {
        // The chain is verified, so an unreadable name is an odd one, not a hostile one.
        let name = X509Certificate::from_der(certificate)
            .ok()
            .and_then(|(_, certificate)| {
                let name = certificate.subject().iter_common_name().next()?;
                name.as_str().ok().map(str::to_owned)
            })
            .unwrap_or_else(|| "(certificate without a common name)".to_owned());
        PeerIdentity {
            name,
            proof: Proof::Certificate,
        }
    }
}
