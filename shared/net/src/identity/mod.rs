//! Who is who: an authority, the service's certificate, devices' certificates and tokens.
//!
//! [`create`] makes them as files, this module loads them. A folder holds `ca.pem` and `ca.key`,
//! `server.pem` and `server.key`, and for a device NAME `NAME.pem` and `NAME.key`, or
//! `NAME.token`; `tokens` lists the hashes of all device tokens, for the service. A device needs
//! `ca.pem` and its own files; `ca.key` stays with whoever issues identities.

pub mod create;
mod error;
mod peer;
mod token;

pub use error::IdentityError;
pub use peer::{PeerIdentity, Proof};
pub use token::{DeviceToken, TokenList};

use std::path::Path;

use rustls::RootCertStore;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use seamline_plan::read_text;

/// File of the authority's certificate, which both sides trust.
pub const CA_FILE: &str = "ca.pem";
/// File of the authority's key, which issues certificates.
pub const CA_KEY_FILE: &str = "ca.key";
/// File of the service's certificate.
pub const SERVER_FILE: &str = "server.pem";
/// File of the service's key.
pub const SERVER_KEY_FILE: &str = "server.key";
/// File of the hashes of all device tokens.
pub const TOKENS_FILE: &str = "tokens";

/// A certificate chain and its key.
#[derive(Debug)]
pub struct CertifiedKey {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Clone for CertifiedKey {
    fn clone(&self) -> CertifiedKey {
        CertifiedKey {
            chain: self.chain.clone(),
            key: self.key.clone_key(),
        }
    }
}

impl CertifiedKey {
    /// Reads a PEM chain, the own certificate first, and a PEM key.
    ///
    /// # Errors
    /// [`IdentityError`], which names the file.
    pub fn load(chain: &Path, key: &Path) -> Result<CertifiedKey, IdentityError> {
        Ok(CertifiedKey {
            chain: load_certificates(chain)?,
            key: PrivateKeyDer::from_pem_slice(read_pem(key)?.as_bytes())
                .map_err(|error| IdentityError::pem(key, "a private key", error))?,
        })
    }
}

/// What a service proves itself by.
#[derive(Clone, Debug)]
pub struct ServerIdentity(pub CertifiedKey);

impl ServerIdentity {
    /// Reads `server.pem` and `server.key` in `dir`.
    ///
    /// # Errors
    /// [`IdentityError`], which names the file and says how to make one.
    pub fn load(dir: &Path) -> Result<ServerIdentity, IdentityError> {
        CertifiedKey::load(&dir.join(SERVER_FILE), &dir.join(SERVER_KEY_FILE)).map(ServerIdentity)
    }
}

/// What a device proves itself by.
#[derive(Clone, Debug)]
pub enum ClientIdentity {
    /// A certificate of the service's authority.
    Certificate(CertifiedKey),
    /// A token that the service knows the hash of. Sent only after the service has proved itself.
    Token(DeviceToken),
    /// Nothing; a service refuses it.
    None,
}

impl ClientIdentity {
    /// Reads `NAME.pem` and `NAME.key` in `dir`, or `NAME.token` where there is no certificate.
    ///
    /// # Errors
    /// [`IdentityError`], which names the file and says how to make one.
    pub fn load(dir: &Path, name: &str) -> Result<ClientIdentity, IdentityError> {
        let token = dir.join(format!("{name}.token"));
        let certificate = dir.join(format!("{name}.pem"));
        if !certificate.exists() && token.exists() {
            return DeviceToken::load(&token).map(ClientIdentity::Token);
        }
        CertifiedKey::load(&certificate, &dir.join(format!("{name}.key")))
            .map(ClientIdentity::Certificate)
    }
}

/// Authorities whose certificates are accepted.
#[derive(Clone, Debug)]
pub struct Trust {
    roots: Vec<CertificateDer<'static>>,
}

impl Trust {
    /// Reads a PEM file of one or more authorities.
    ///
    /// # Errors
    /// [`IdentityError`], which names the file and says how to make one.
    pub fn load_file(path: &Path) -> Result<Trust, IdentityError> {
        load_certificates(path).map(|roots| Trust { roots })
    }

    /// Reads `ca.pem` in `dir`.
    ///
    /// # Errors
    /// As [`Trust::load_file`].
    pub fn load(dir: &Path) -> Result<Trust, IdentityError> {
        Trust::load_file(&dir.join(CA_FILE))
    }

    pub(crate) fn roots(&self) -> Result<RootCertStore, IdentityError> {
        let mut store = RootCertStore::empty();
        for root in &self.roots {
            store
                .add(root.clone())
                .map_err(|error| IdentityError::Unusable {
                    problem: error.to_string(),
                })?;
        }
        Ok(store)
    }
}

fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, IdentityError> {
    let pem = |error| IdentityError::pem(path, "a certificate", error);
    let chain = CertificateDer::pem_slice_iter(read_pem(path)?.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(pem)?;
    if chain.is_empty() {
        return Err(pem(rustls_pki_types::pem::Error::NoItemsFound));
    }
    Ok(chain)
}

/// The most that is read of a PEM file.
const MAX_PEM_BYTES: u64 = 1 << 20;

fn read_pem(path: &Path) -> Result<String, IdentityError> {
    read_text(path, MAX_PEM_BYTES).map_err(|error| IdentityError::io(path, error))
}
