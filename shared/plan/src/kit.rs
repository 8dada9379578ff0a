//! A measuring kit: a folder that the planner writes and that is copied to the machines concerned,
//! with the heads and tails of the seams on its shortlist and the inputs to measure them on.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::profile::ProfiledModel;
use crate::{Crossing, DType, Tensor, TensorError, map_file, read_text};

/// The kit format that this build writes and reads.
pub const KIT_FORMAT: u32 = 1;

/// The file that says what is in a kit.
pub const KIT_FILE: &str = "kit.json";

/// The most bytes of it.
const MAX_KIT_BYTES: u64 = 64 << 20;

/// What is in a kit. All paths are relative to its folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kit {
    /// [`KIT_FORMAT`].
    pub format: u32,
    /// The model.
    pub model: ProfiledModel,
    /// The whole model with every node named `n` and its index, for times by node.
    pub nodes: String,
    /// The seams to measure, the whole model among them ([`crate::WHOLE`]).
    pub seams: Vec<KitSeam>,
    /// Inputs of the model, one list for each sample.
    pub samples: Vec<Vec<KitTensor>>,
}

/// A head and a tail to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KitSeam {
    /// The seam's id, or [`crate::WHOLE`], whose head and tail are the whole model.
    pub seam: String,
    /// The head.
    pub head: String,
    /// The tail.
    pub tail: String,
    /// What crosses and its codecs; for the whole model, its inputs. Batch axes are candidates:
    /// where one is none, a tail is measured on one row.
    pub crossing: Vec<Crossing>,
}

/// A tensor in a file of its elements, little-endian, one after another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KitTensor {
    /// The input.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// The file.
    pub file: String,
}

/// A kit that cannot be used.
#[derive(Debug, Error)]
pub enum KitError {
    /// The operating system refused.
    #[error("{}: {error}; a kit is a folder that `seamline plan MODEL --kit FOLDER` writes", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// Not a kit, or one of another version.
    #[error("{}: {problem}; make it again with `seamline plan MODEL --kit FOLDER`", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What was expected and what came.
        problem: String,
    },
    /// A sample that is not what `kit.json` says.
    #[error("{}: {error}; copy the kit again", path.display())]
    Sample {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: TensorError,
    },
}

impl Kit {
    /// Reads the kit in `folder`.
    ///
    /// # Errors
    /// [`KitError`]: no kit, another format, or a path that leads out of it.
    pub fn read(folder: &Path) -> Result<Kit, KitError> {
        let path = folder.join(KIT_FILE);
        let text = read_text(&path, MAX_KIT_BYTES).map_err(|error| KitError::Io {
            path: path.clone(),
            error,
        })?;
        Kit::parse(&text).map_err(|problem| KitError::Content { path, problem })
    }

    fn parse(json: &str) -> Result<Kit, String> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let invalid = |error: serde_json::Error| format!("it is no kit: {error}");
        let Format { format } = serde_json::from_str(json).map_err(invalid)?;
        if format != KIT_FORMAT {
            return Err(format!(
                "it has format {format}; this build reads {KIT_FORMAT}"
            ));
        }
        let kit: Kit = serde_json::from_str(json).map_err(invalid)?;
        let seams = kit.seams.iter().flat_map(|seam| [&seam.head, &seam.tail]);
        let samples = kit.samples.iter().flatten().map(|tensor| &tensor.file);
        let leads_out = |path: &&String| {
            !Path::new(path)
                .components()
                .all(|part| matches!(part, Component::Normal(_)))
        };
        let outside = seams.chain(samples).chain([&kit.nodes]).find(leads_out);
        if let Some(path) = outside {
            return Err(format!("`{path}` leads out of the kit"));
        }
        Ok(kit)
    }

    /// The file's content.
    pub fn to_json(&self) -> Vec<u8> {
        // Plain data always has a JSON form.
        let mut json = serde_json::to_vec_pretty(self).unwrap_or_default();
        json.push(b'\n');
        json
    }
}

impl KitTensor {
    /// Reads the tensor of the kit in `folder`.
    ///
    /// # Errors
    /// [`KitError::Io`], [`KitError::Sample`].
    pub fn read(&self, folder: &Path) -> Result<Tensor, KitError> {
        let path = folder.join(&self.file);
        let file = map_file(&path).map_err(|error| KitError::Io {
            path: path.clone(),
            error,
        })?;
        Tensor::new(self.dtype, self.shape.clone(), file.bytes().clone())
            .map(Tensor::aligned)
            .map_err(|error| KitError::Sample { path, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bindings, Fingerprint, WHOLE};

    fn kit(file: &str) -> Kit {
        Kit {
            format: KIT_FORMAT,
            model: ProfiledModel {
                name: "m".into(),
                graph_hash: Fingerprint([2; 32]),
                shapes: Bindings::new(),
            },
            nodes: "nodes.onnx".into(),
            seams: vec![KitSeam {
                seam: WHOLE.into(),
                head: "whole.onnx".into(),
                tail: "whole.onnx".into(),
                crossing: Vec::new(),
            }],
            samples: vec![vec![KitTensor {
                name: "x".into(),
                dtype: DType::F32,
                shape: vec![2],
                file: file.into(),
            }]],
        }
    }

    #[test]
    fn a_kit_is_read_with_its_samples() {
        let folder = tempfile::tempdir().unwrap();
        let kit = kit("x.bin");
        std::fs::write(folder.path().join(KIT_FILE), kit.to_json()).unwrap();
        std::fs::write(folder.path().join("x.bin"), [0; 8]).unwrap();
        let read = Kit::read(folder.path()).unwrap();
        assert_eq!(read, kit);
        let tensor = read.samples[0][0].read(folder.path()).unwrap();
        assert_eq!(tensor.shape(), [2]);
        std::fs::write(folder.path().join("x.bin"), [0; 7]).unwrap();
        assert!(read.samples[0][0].read(folder.path()).is_err());
    }

    #[test]
    fn paths_stay_inside() {
        for path in ["../x", "/x", "a/../../x"] {
            let json = String::from_utf8(kit(path).to_json()).unwrap();
            let error = Kit::parse(&json).unwrap_err();
            assert!(error.contains("leads out"), "{error}");
        }
    }
}
