//! What can be wrong with an identity.

use std::io;
use std::path::{Path, PathBuf};

use rustls_pki_types::pem;
use thiserror::Error;

/// An identity that cannot be made, read or used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The file is not there.
    #[error(
        "{} does not exist; make identities by `seamline-cloud identity new DIR`, then give that folder or the files in it",
        path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The file holds something else.
    #[error(
        "{} does not hold {expected}: {problem}; make a new one by `seamline-cloud identity`",
        path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// There is one already, and it is not overwritten.
    #[error("{} exists; remove it, or choose another folder or name", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A device's or server's name that cannot be used.
    #[error("`{name}` cannot be used as a name: {problem}")]
    Name {
        /// Asked for.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// Certificates or key that TLS does not take.
    #[error("the certificate or key cannot be used: {problem}")]
    Unusable {
        /// Why.
        problem: String,
    },
}

impl IdentityError {
    pub(crate) fn pem(path: &Path, expected: &'static str, error: pem::Error) -> IdentityError {
        match error {
            pem::Error::Io(error) => IdentityError::io(path, error),
            pem::Error::NoItemsFound => IdentityError::Content {
                path: path.to_owned(),
                expected,
                problem: "it has no such PEM section".to_owned(),
            },
            error => IdentityError::Content {
                path: path.to_owned(),
                expected,
                problem: error.to_string(),
            },
        }
    }

    pub(crate) fn io(path: &Path, error: io::Error) -> IdentityError {
        let path = path.to_owned();
        match error.kind() {
            io::ErrorKind::NotFound => IdentityError::Missing { path },
            io::ErrorKind::AlreadyExists => IdentityError::Exists { path },
            _ => IdentityError::Io { path, error },
        }
    }
}
