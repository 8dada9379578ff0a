//! Writing a measuring kit: heads and tails of the shortlist, the whole model, and inputs.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use seamline_graph::ExternalWeights;
use seamline_plan::{
    KIT_FILE, KIT_FORMAT, Kit, KitSeam, KitTensor, ProfiledModel, Tensor, WEIGHTS_FILE, WHOLE,
    write_atomic,
};
use thiserror::Error;

use super::places::Place;
use crate::cut::{self, CutError};
use crate::model::Model;

/// Weights below this many bytes stay in the model's own file.
const EXTERNAL_THRESHOLD: u64 = 1024;

/// A kit that cannot be written.
#[derive(Debug, Error)]
pub enum KitWriteError {
    /// The operating system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// A seam cannot be cut.
    #[error(transparent)]
    Cut(#[from] CutError),
}

/// Writes a kit of `model` into `folder`: whole, and cut at each of `places` that is a seam, with
/// `samples` to run them on. Weights are stored once. `kit.json` comes last, so that a kit which
/// was interrupted is none.
///
/// # Errors
/// [`KitWriteError`].
pub fn write_kit(
    model: &Model,
    places: &[&Place],
    samples: &[BTreeMap<String, Tensor>],
    folder: &Path,
) -> Result<Kit, KitWriteError> {
    let writer = Writer { folder };
    fs::create_dir_all(folder).map_err(|error| writer.io(folder.to_owned(), error))?;
    let mut weights = ExternalWeights::new(WEIGHTS_FILE, EXTERNAL_THRESHOLD);
    let mut named = model.graph.clone();
    for (index, node) in named.nodes.iter_mut().enumerate() {
        node.name = format!("n{index}");
    }
    writer.write("nodes.onnx", &named.encode_with_external(&mut weights))?;
    writer.write(
        "whole.onnx",
        &model.graph.encode_with_external(&mut weights),
    )?;
    let mut seams = Vec::new();
    for place in places {
        let (head, tail) = match &place.seam {
            None if place.crossing.is_empty() => continue,
            None => ("whole.onnx".to_owned(), "whole.onnx".to_owned()),
            Some(seam) => {
                let stages = cut::stages(model, std::slice::from_ref(seam))?.stages;
                let paths = ["head", "tail"].map(|side| format!("{side}-{}.onnx", place.id));
                for (stage, path) in stages.iter().zip(&paths) {
                    writer.write(path, &stage.graph.encode_with_external(&mut weights))?;
                }
                let [head, tail] = paths;
                (head, tail)
            }
        };
        seams.push(KitSeam {
            seam: if place.seam.is_some() {
                place.id.clone()
            } else {
                WHOLE.into()
            },
            head,
            tail,
            crossing: place.crossing.clone(),
        });
    }
    let mut sample_files = Vec::new();
    for (index, sample) in samples.iter().enumerate() {
        let mut tensors = Vec::new();
        for (position, (name, tensor)) in sample.iter().enumerate() {
            let file = format!("sample-{index}-{position}.bin");
            writer.write(&file, tensor.bytes())?;
            tensors.push(KitTensor {
                name: name.clone(),
                dtype: tensor.dtype(),
                shape: tensor.shape().to_vec(),
                file,
            });
        }
        sample_files.push(tensors);
    }
    if !weights.is_empty() {
        writer.stream(WEIGHTS_FILE, |mut out| weights.write_to(&mut out))?;
    }
    let kit = Kit {
        format: KIT_FORMAT,
        model: ProfiledModel {
            name: model.name.clone(),
            graph_hash: model.hash,
            shapes: model.reference.clone(),
        },
        nodes: "nodes.onnx".into(),
        seams,
        samples: sample_files,
    };
    writer.write(KIT_FILE, &kit.to_json())?;
    Ok(kit)
}

struct Writer<'f> {
    folder: &'f Path,
}

impl Writer<'_> {
    fn io(&self, path: PathBuf, error: std::io::Error) -> KitWriteError {
        KitWriteError::Io { path, error }
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<(), KitWriteError> {
        let path = self.folder.join(name);
        write_atomic(&path, content).map_err(|error| self.io(path, error))
    }

    fn stream(
        &self,
        name: &str,
        fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<(), KitWriteError> {
        let path = self.folder.join(name);
        let write = || {
            let mut out = BufWriter::new(fs::File::create(&path)?);
            fill(&mut out)?;
            out.flush()
        };
        write().map_err(|error| self.io(path.clone(), error))
    }
}
