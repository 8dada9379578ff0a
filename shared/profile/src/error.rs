//! A machine that cannot be measured.

use std::path::PathBuf;

use seamline_ort::{ProfileError, RunError, SessionError};
use seamline_plan::{KitError, TensorError};
use thiserror::Error;

/// A measurement that ended early. What was measured is kept, but for [`MeasureError::Kit`] and
/// [`MeasureError::Options`], which come before any.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// No kit, one of another version, or a sample that is not what it says.
    #[error(transparent)]
    Kit(#[from] KitError),
    /// Something that the kit lacks.
    #[error("{}: {problem}; make it again with `seamline plan MODEL --kit FOLDER`", kit.display())]
    Content {
        /// The kit.
        kit: PathBuf,
        /// What was expected and what is there.
        problem: String,
    },
    /// What was asked for is nothing.
    #[error("{0}")]
    Options(String),
    /// A model does not load.
    #[error("{part}: {error}")]
    Session {
        /// Which head or tail.
        part: String,
        /// Why.
        #[source]
        error: SessionError,
    },
    /// A model does not run on the kit's samples.
    #[error("{part} does not run on the kit's samples: {error}")]
    Run {
        /// Which head or tail.
        part: String,
        /// Why.
        #[source]
        error: RunError,
    },
    /// ONNX Runtime's own profile cannot be had.
    #[error("{part}: {error}")]
    Profile {
        /// Which head or tail.
        part: String,
        /// Why.
        #[source]
        error: ProfileError,
    },
    /// A value that the default codec does not take.
    #[error("{part}: `{value}` as {codec}: {problem}")]
    Codec {
        /// Which head.
        part: String,
        /// The value.
        value: String,
        /// The codec.
        codec: String,
        /// Why.
        problem: String,
    },
    /// Rows that cannot be joined.
    #[error("{part}: {error}")]
    Tensor {
        /// Which tail.
        part: String,
        /// Why.
        #[source]
        error: TensorError,
    },
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The caller said so.
    #[error(
        "stopped after {done} of {total} steps, which are kept in {}; the same command goes on from \
         there",
        partial.display()
    )]
    Stopped {
        /// Steps that are done.
        done: usize,
        /// All of them.
        total: usize,
        /// Where they are.
        partial: PathBuf,
    },
}
