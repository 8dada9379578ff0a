//! Where ONNX Runtime's shared library is.

use std::path::{Path, PathBuf};

use seamline_assets::{AssetError, Store, runtime_pins};
use thiserror::Error;

use crate::library::{Library, LibrarySource};

/// No library.
#[derive(Debug, Error)]
pub enum LocateError {
    /// `ORT_DYLIB_PATH` points nowhere.
    #[error("ORT_DYLIB_PATH is {}, where there is no file; correct it, or unset it to have the library fetched", path.display())]
    NoSuchFile {
        /// What the variable says.
        path: PathBuf,
    },
    /// Neither registry carries a build for this machine.
    #[error(
        "no package carries ONNX Runtime for this platform; build it and set ORT_DYLIB_PATH to its shared library"
    )]
    NoBuild,
    /// Every way to fetch it failed.
    #[error(
        "ONNX Runtime's library is not here: ORT_DYLIB_PATH is not set, the cache {} is empty, and fetching failed ({}). Install Python with pip or Node.js with npm, or set ORT_DYLIB_PATH to libonnxruntime 1.22 or later",
        cache.display(),
        attempts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    NotFetched {
        /// The cache.
        cache: PathBuf,
        /// What each registry's client said.
        attempts: Vec<AssetError>,
    },
}

/// Finds the library: `override_path` (the value of `ORT_DYLIB_PATH`, read by `main`), then the
/// cache, then a registry.
///
/// # Errors
/// [`LocateError`], which says what to install or set.
pub fn locate(override_path: Option<&Path>, store: &Store) -> Result<Library, LocateError> {
    if let Some(path) = override_path {
        if !path.is_file() {
            return Err(LocateError::NoSuchFile {
                path: path.to_owned(),
            });
        }
        return Ok(Library {
            path: path.to_owned(),
            source: LibrarySource::Environment,
        });
    }
    let pins = runtime_pins();
    if pins.is_empty() {
        return Err(LocateError::NoBuild);
    }
    if let Some(path) = pins.iter().find_map(|pin| store.cached(pin)) {
        return Ok(Library {
            path,
            source: LibrarySource::Cache,
        });
    }
    let mut attempts = Vec::new();
    for pin in pins {
        match store.get(pin) {
            Ok(path) => {
                return Ok(Library {
                    path,
                    source: LibrarySource::Fetched,
                });
            }
            Err(error) => attempts.push(error),
        }
    }
    Err(LocateError::NotFetched {
        cache: store.root().to_owned(),
        attempts,
    })
}

/// Loads `library` into the process.
pub(crate) fn init(library: &Library) -> Result<ort::environment::EnvironmentBuilder, String> {
    ort::init_from(&library.path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_override_is_an_error_and_not_ignored() {
        let store = Store::new("/nonexistent");
        let error = locate(Some(Path::new("/nonexistent/libonnxruntime.so")), &store).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("ORT_DYLIB_PATH is /nonexistent"),
            "{error}"
        );
    }
}
