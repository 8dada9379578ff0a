//! ONNX Runtime linked into this program (cargo feature `download-ort`): nothing to find.

use std::path::{Path, PathBuf};

use seamline_assets::Store;
use thiserror::Error;

use crate::library::{Library, LibrarySource};

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
