//! ONNX Runtime linked into this program (cargo feature `download-ort`): nothing to find.

use std::path::{Path, PathBuf};

use seamline_assets::Store;
use thiserror::Error;

/// How the library was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LibrarySource {
    /// `ORT_DYLIB_PATH` names it.
    Environment,
    /// Fetched earlier.
    Cache,
    /// Fetched now, through pip or npm.
    Fetched,
    /// Linked into this program when it was built.
    Linked,
}

/// ONNX Runtime's library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// Empty: the library is part of the program.
    pub path: PathBuf,
    /// [`LibrarySource::Linked`].
    pub source: LibrarySource,
}

/// No library: cannot happen in this build.
#[derive(Debug, Error)]
pub enum LocateError {}

/// The library that this program was linked with; both arguments are without effect.
///
/// # Errors
/// None in this build.
pub fn locate(_override_path: Option<&Path>, _store: &Store) -> Result<Library, LocateError> {
    Ok(Library {
        path: PathBuf::new(),
        source: LibrarySource::Linked,
    })
}

pub(crate) fn init(_library: &Library) -> Result<ort::environment::EnvironmentBuilder, String> {
    Ok(ort::init())
}
