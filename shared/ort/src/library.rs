//! ONNX Runtime's library, however this program comes by it.

use std::path::PathBuf;

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

/// ONNX Runtime's shared library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    /// The file.
    pub path: PathBuf,
    /// How it was found.
    pub source: LibrarySource,
}
