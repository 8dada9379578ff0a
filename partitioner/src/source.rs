//! `source.json`: where a bundle's model came from, outside the contract. `verify` reads it.

use std::path::{Path, PathBuf};

use seamline_graph::preprocess::ImagePreprocess;
use seamline_plan::Bindings;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::model::{Model, ModelError};

/// The file's name in a bundle.
pub const SOURCE_FILE: &str = "source.json";

/// How to make the whole model again that a bundle was cut from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// The model's file.
    pub model: PathBuf,
    /// Sizes of symbols that were given.
    #[serde(default)]
    pub shapes: Bindings,
    /// Preprocessing that was put in front.
    #[serde(default)]
    pub image: Option<ImagePreprocess>,
}

/// A source that cannot be read.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The bundle does not say where it came from.
    #[error("{}: {problem}; give the model with --model", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// The model cannot be opened.
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl Source {
    /// Reads `source.json` of the bundle at `bundle`.
    ///
    /// # Errors
    /// [`SourceError::Missing`].
    pub fn read(bundle: &Path) -> Result<Source, SourceError> {
        let path = bundle.join(SOURCE_FILE);
        let missing = |problem: String| SourceError::Missing {
            path: path.clone(),
            problem,
        };
        let json = std::fs::read(&path).map_err(|error| missing(error.to_string()))?;
        serde_json::from_slice(&json).map_err(|error| missing(error.to_string()))
    }

    /// The file's content.
    pub fn to_json(&self) -> Vec<u8> {
        // Paths and numbers always have a JSON form, unless the path is not Unicode: then the
        // bundle is whole all the same, and `verify` asks for --model.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }

    /// Opens the whole model, preprocessing included.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn open(&self) -> Result<Model, ModelError> {
        Model::open(&self.model, &self.shapes, self.image.as_ref())
    }
}
