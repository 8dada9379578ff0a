//! Cutting a model into a bundle.

use std::path::{Path, PathBuf};

use seamline_graph::ExternalWeights;
use seamline_graph::extract::Stages;
use seamline_graph::seams::Seam;
use seamline_ort::{Runtime, SessionError};
use seamline_plan::{
    BundleError, BundleWriter, CODEC_NAMES, CodecSpec, Fingerprint, Manifest, Side, StateSpec,
    TensorError, WEIGHTS_FILE,
};
use thiserror::Error;

use crate::batch::{self, BatchProof};
use crate::contract;
use crate::cut::{self, CutError};
use crate::model::{Model, ModelError};
use crate::source::{SOURCE_FILE, Source};

/// Weights below this many bytes stay in the stage's own file.
const EXTERNAL_THRESHOLD: u64 = 1024;

/// How a model is cut.
#[derive(Clone, Debug, Default)]
pub struct SplitOptions {
    /// Seams by id or by a value's name, in any order. The first one by depth is the default cut.
    pub at: Vec<String>,
    /// The device gets every stage too, so that it can run alone.
    pub edge_tail: bool,
    /// The service gets every stage too, so that a device may send the model's inputs.
    pub cloud_head: bool,
    /// The id of the cut that is used where nothing else decides. Default: the shallowest seam, or
    /// the input where there is none.
    pub default_cut: Option<String>,
    /// Codec to use first for values that take it, by name: `int8`, `jpeg85`.
    pub codec: Option<String>,
    /// Recurrent state.
    pub states: Vec<StateSpec>,
    /// Seed of the probe inputs.
    pub seed: u64,
}

/// A bundle that was made.
#[derive(Clone, Debug)]
pub struct SplitReport {
    /// Where it is.
    pub path: PathBuf,
    /// What both sides present.
    pub fingerprint: Fingerprint,
    /// The contract.
    pub manifest: Manifest,
    /// For each cut, whether and why requests may be joined.
    pub batching: Vec<BatchProof>,
    /// Bytes of each side's files.
    pub bytes: SideBytes,
}

/// Bytes of each side's files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideBytes {
    /// Of `edge/`.
    pub edge: u64,
    /// Of `cloud/`.
    pub cloud: u64,
}

/// A model that cannot be cut into a bundle.
#[derive(Debug, Error)]
pub enum SplitError {
    /// Nothing to cut at.
    #[error(
        "give a seam: --at with an id or a value's name (`seamline seams MODEL` lists them), or \
         --cloud-head to send the inputs as they are"
    )]
    NoSeam,
    /// The codec is none.
    #[error("there is no codec `{0}`; there are {CODEC_NAMES}")]
    Codec(String),
    /// A state that is no input or output.
    #[error("state: the model has no {what} `{name}`; there are {}", known.join(", "))]
    State {
        /// As given.
        name: String,
        /// `input` or `output`.
        what: &'static str,
        /// What there is.
        known: Vec<String>,
    },
    /// A value whose type or size nothing tells.
    #[error(
        "`{name}`: its element type or size is not known; a probe run that reaches it would tell"
    )]
    UnknownType {
        /// The value.
        name: String,
    },
    /// The cut cannot be made.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// The model cannot be measured.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The bundle cannot be written.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A stage does not load.
    #[error("a stage that was just made does not load: {0}")]
    Session(#[from] SessionError),
    /// A probe cannot be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// Cuts `model` at the seams of `options` into a bundle at `out`, and proves by two rows which
/// cuts may be batched. `model` must have been told what it could not infer ([`Model::learn`]).
///
/// # Errors
/// [`SplitError`]; nothing stands at `out` then that was not there before.
pub fn split(
    model: &Model,
    runtime: &Runtime,
    out: &Path,
    options: &SplitOptions,
    source: &Source,
) -> Result<SplitReport, SplitError> {
    if options.at.is_empty() && !options.cloud_head {
        return Err(SplitError::NoSeam);
    }
    if let Some(codec) = &options.codec
        && !CodecSpec::is_name(codec)
    {
        return Err(SplitError::Codec(codec.clone()));
    }
    let seams = cut::find_seams(model, &options.at)
        .map_err(CutError::from)?
        .chosen;
    split_at(model, runtime, out, &seams, options, source)
}

/// Cuts `model` at `seams`, by rising depth, into a bundle at `out`; [`SplitOptions::at`] is not
/// looked at.
///
/// # Errors
/// As [`split`].
pub fn split_at(
    model: &Model,
    runtime: &Runtime,
    out: &Path,
    seams: &[Seam],
    options: &SplitOptions,
    source: &Source,
) -> Result<SplitReport, SplitError> {
    let stages = cut::stages(model, seams)?;
    let mut manifest = contract::manifest(model, seams, &stages, options)?;
    let mut writer = BundleWriter::create(out)?;
    let bytes = SideBytes {
        edge: write_side(&mut writer, &stages, &manifest, Side::Edge)?,
        cloud: write_side(&mut writer, &stages, &manifest, Side::Cloud)?,
    };
    writer.add_outside_contract(SOURCE_FILE, &source.to_json())?;
    let batching = batch::prove(model, runtime, &writer, &mut manifest, options.seed)?;
    let fingerprint = writer.finish(manifest)?;
    let (manifest, _) = seamline_plan::Bundle::read_manifest(out)?;
    Ok(SplitReport {
        path: out.to_owned(),
        fingerprint,
        manifest,
        batching,
        bytes,
    })
}

/// Writes the stages that a side holds, their weights in one file. Returns the bytes written.
fn write_side(
    writer: &mut BundleWriter,
    stages: &Stages,
    manifest: &Manifest,
    side: Side,
) -> Result<u64, BundleError> {
    let mut weights = ExternalWeights::new(WEIGHTS_FILE, EXTERNAL_THRESHOLD);
    let mut total = 0;
    for (stage, entry) in stages.stages.iter().zip(&manifest.stages) {
        let path = match side {
            Side::Edge => &entry.edge,
            Side::Cloud => &entry.cloud,
        };
        let Some(path) = path else { continue };
        let content = stage.graph.encode_with_external(&mut weights);
        total += content.len() as u64;
        writer.add(path, &content)?;
    }
    if !weights.is_empty() {
        total += weights.byte_len();
        let path = format!("{}/{WEIGHTS_FILE}", side.folder());
        writer.add_with(&path, |mut out| weights.write_to(&mut out))?;
    }
    Ok(total)
}
