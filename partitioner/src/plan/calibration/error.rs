//! What can be wrong with a calibration folder.

use std::io;
use std::path::PathBuf;

use seamline_plan::{InputError, SpecMismatch, TensorError, TensorSpec};
use thiserror::Error;

use super::{MAX_BYTES, file_stem};
use crate::model::ModelError;

const FORMS: &str = "for a model of one input give .npy, .png, .jpg, .jpeg or .json files, for \
                     one of several a sub-folder a request with a file for each input, such as \
                     FOLDER/REQUEST/INPUT.npy";

/// A calibration folder that cannot be used.
#[derive(Debug, Error)]
pub enum CalibrationError {
    /// The operating system refused.
    #[error("{}: {error}; --calibration takes a folder of inputs", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// Nothing in it.
    #[error("{}: no inputs in this folder; {FORMS}", folder.display())]
    Empty {
        /// The folder.
        folder: PathBuf,
    },
    /// A file that is no input.
    #[error(transparent)]
    Input(#[from] InputError),
    /// An input of another dtype or shape.
    #[error("{}: input {mismatch}{hint}", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// Expected and got.
        #[source]
        mismatch: Box<SpecMismatch>,
        /// What may help.
        hint: &'static str,
    },
    /// An input that holds NaN: every answer to it would be NaN too.
    #[error(
        "{}: input `{input}` holds NaN, first at element {at} of {elements}; give numbers",
        path.display()
    )]
    NotANumber {
        /// The file.
        path: PathBuf,
        /// The input.
        input: String,
        /// The first, in row-major order.
        at: usize,
        /// How many there are in all.
        elements: usize,
    },
    /// A file where the model needs several.
    #[error(
        "{}: a file alone is no request of this model, which takes {takes}; give a sub-folder a \
         request with a file for each input, such as {example}",
        path.display()
    )]
    Lone {
        /// The file.
        path: PathBuf,
        /// The model's inputs.
        takes: String,
        /// A file that would do.
        example: String,
    },
    /// An input without a file.
    #[error("{}: no file for input {spec}; give {name}.npy, .json, .png or .jpg", folder.display())]
    Missing {
        /// The request's folder.
        folder: PathBuf,
        /// The input.
        spec: TensorSpec,
        /// Its file's stem.
        name: String,
    },
    /// A file of no input.
    #[error("{}: the model has no input of that name; it takes {takes}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The model's inputs.
        takes: String,
    },
    /// Two files for one input.
    #[error("{}: input `{input}` has a file already; remove one", path.display())]
    Twice {
        /// The second file.
        path: PathBuf,
        /// The input.
        input: String,
    },
    /// A state without a file, of a size that nothing tells.
    #[error(
        "{}: input {spec} has no file, and no other file of the request says how large `{dim}` is; \
         give {}.npy, or its size with --shape {dim}=N",
        path.display(),
        file_stem(&spec.name)
    )]
    Unbound {
        /// The request.
        path: PathBuf,
        /// The input.
        spec: TensorSpec,
        /// The dimension.
        dim: String,
    },
    /// Labels that cannot be read.
    #[error("{}: {problem}", path.display())]
    Labels {
        /// The file.
        path: PathBuf,
        /// What was expected and what came.
        problem: String,
    },
    /// A label for what is not there.
    #[error(
        "{}: a label for `{name}`, which is not in the folder; give the file or remove the label",
        path.display()
    )]
    LabelWithoutInput {
        /// The labels.
        path: PathBuf,
        /// As named there.
        name: String,
    },
    /// An input without a label, where others have one.
    #[error("{}: no label for `{name}`; label every input, or none", path.display())]
    Unlabelled {
        /// The labels.
        path: PathBuf,
        /// The file or sub-folder.
        name: String,
    },
    /// More than is held in memory.
    #[error(
        "{}: the inputs pass {} GiB after {read} of them; take fewer with --samples N",
        folder.display(),
        MAX_BYTES >> 30
    )]
    TooLarge {
        /// The folder.
        folder: PathBuf,
        /// Inputs that were read.
        read: usize,
    },
    /// An input of the model that cannot be fed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A state that cannot be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}
