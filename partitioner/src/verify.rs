//! Head then tail against the whole model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use seamline_codec as codec;
use seamline_codec::CodecError;
use seamline_ort::{Optimization, Runtime, SessionOptions, StageChain, StageError};
use seamline_plan::{
    Bundle, BundleError, CodecSpec, Crossing, Cut, Fingerprint, Manifest, Side, Tensor,
};
use serde::Serialize;
use thiserror::Error;

use crate::compare::{Difference, compare};
use crate::model::{Model, ModelError};

/// A bundle that cannot be verified.
#[derive(Debug, Error)]
pub enum VerifyError {
    /// The bundle is broken.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A stage does not load or run.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The whole model does not run.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The bundle was cut from another model.
    #[error(
        "{} is not the model that this bundle was cut from: its BLAKE3 is {got}, the bundle says {expected}",
        model.display()
    )]
    OtherModel {
        /// The model's file.
        model: PathBuf,
        /// In the manifest.
        expected: Fingerprint,
        /// The file's.
        got: Fingerprint,
    },
    /// A value does not survive its codec.
    #[error("value `{name}`: {error}")]
    Codec {
        /// The value.
        name: String,
        /// Why.
        #[source]
        error: CodecError,
    },
    /// The halves do not give an output of the model.
    #[error("cut `{cut}`: neither half made `{name}`")]
    Missing {
        /// The cut.
        cut: String,
        /// The value.
        name: String,
    },
    /// No cut of that id.
    #[error("the bundle has no cut `{cut}`; there are {}", known.join(", "))]
    UnknownCut {
        /// As asked for.
        cut: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A codec that no value of the cuts allows: nothing would be tried.
    #[error("no value of these cuts allows the codec `{codec}`; they allow {}", known.join(", "))]
    UnknownCodec {
        /// As asked for.
        codec: String,
        /// What there is.
        known: Vec<&'static str>,
    },
}

/// How a bundle is verified.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// Graph rewriting in both halves and in the whole model. Off shows what cutting itself
    /// changes; the default, all, what a service would give.
    pub optimization: Optimization,
    /// Codec by name, for values that take it; the contract's first without it.
    pub codec: Option<String>,
    /// Only this cut; every cut without it.
    pub cut: Option<String>,
}

impl VerifyOptions {
    /// The codec that `crossing` is verified with.
    pub fn codec_of<'a>(&self, crossing: &'a Crossing) -> &'a CodecSpec {
        crossing.codec(self.codec.as_deref())
    }
}

/// Refuses a name that is the codec of no value, where any value crosses.
fn check_codec(cuts: &[&Cut], name: Option<&str>) -> Result<(), VerifyError> {
    let allowed = cuts
        .iter()
        .flat_map(|cut| &cut.crossing)
        .flat_map(|crossing| &crossing.codecs);
    let known: BTreeSet<&'static str> = allowed.map(CodecSpec::name).collect();
    match name {
        Some(name) if !known.is_empty() && !known.contains(name) => {
            Err(VerifyError::UnknownCodec {
                codec: name.to_owned(),
                known: known.into_iter().collect(),
            })
        }
        _ => Ok(()),
    }
}

/// An output's differences.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutputDifference {
    /// The output.
    pub name: String,
    /// The largest |difference|.
    pub max_abs: f64,
    /// The largest |difference| / max(1, |whole|).
    pub max_rel: f64,
}

/// One cut's differences.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CutDifference {
    /// The cut.
    pub id: String,
    /// Each output's, the largest over all inputs.
    pub outputs: Vec<OutputDifference>,
}

type Values = BTreeMap<String, Tensor>;

/// Both halves of a bundle, loaded to be verified.
pub struct Halves {
    manifest: Manifest,
    edge: StageChain,
    cloud: StageChain,
}

impl Halves {
    /// Loads both halves and verifies their files.
    ///
    /// # Errors
    /// [`VerifyError`].
    pub fn load(
        runtime: &Runtime,
        root: &Path,
        options: &VerifyOptions,
    ) -> Result<Halves, VerifyError> {
        let session = SessionOptions {
            optimization: options.optimization,
            ..SessionOptions::default()
        };
        let edge = Bundle::open(root, Side::Edge)?;
        let cloud = Bundle::open(root, Side::Cloud)?;
        Ok(Halves {
            manifest: edge.manifest().clone(),
            edge: StageChain::load(runtime, &edge, &session)?,
            cloud: StageChain::load(runtime, &cloud, &session)?,
        })
    }

    /// Runs head, codec and tail of `cut` on `inputs`; returns every value that either half made.
    fn run(
        &mut self,
        cut: &Cut,
        inputs: &Values,
        options: &VerifyOptions,
    ) -> Result<Values, VerifyError> {
        let mut values = inputs.clone();
        self.edge.run(0..cut.stage, &mut values)?;
        let mut sent = Values::new();
        for crossing in &cut.crossing {
            let name = &crossing.spec.name;
            let tensor = values.get(name).ok_or_else(|| VerifyError::Missing {
                cut: cut.id.clone(),
                name: name.clone(),
            })?;
            let spec = options.codec_of(crossing);
            let passed = codec::encode_bytes(spec, tensor)
                .and_then(|bytes| codec::decode(spec, tensor.dtype(), tensor.shape(), &bytes))
                .map_err(|error| VerifyError::Codec {
                    name: name.clone(),
                    error,
                })?;
            sent.insert(name.clone(), passed);
        }
        // State that stays in the service does not cross.
        for state in &self.manifest.states {
            if let (false, Some(tensor)) =
                (sent.contains_key(&state.input), inputs.get(&state.input))
            {
                sent.insert(state.input.clone(), tensor.clone());
            }
        }
        self.cloud
            .run(cut.stage..self.manifest.stages.len(), &mut sent)?;
        values.append(&mut sent);
        Ok(values)
    }
}

/// Compares the bundle at `root` with the whole `model` on each of `inputs`, at every cut.
///
/// # Errors
/// [`VerifyError`].
pub fn verify<'a>(
    runtime: &Runtime,
    root: &Path,
    model: &Model,
    inputs: impl IntoIterator<Item = &'a Values>,
    options: &VerifyOptions,
) -> Result<Vec<CutDifference>, VerifyError> {
    let mut halves = Halves::load(runtime, root, options)?;
    let manifest = halves.manifest.clone();
    if manifest.model.graph_hash != model.hash {
        return Err(VerifyError::OtherModel {
            model: model.graph.source.clone().unwrap_or_default(),
            expected: manifest.model.graph_hash,
            got: model.hash,
        });
    }
    let cuts: Vec<&Cut> = manifest
        .cuts
        .iter()
        .filter(|cut| options.cut.as_ref().is_none_or(|id| *id == cut.id))
        .collect();
    if cuts.is_empty() {
        return Err(VerifyError::UnknownCut {
            cut: options.cut.clone().unwrap_or_default(),
            known: manifest.cuts.iter().map(|cut| cut.id.clone()).collect(),
        });
    }
    check_codec(&cuts, options.codec.as_deref())?;
    let names: Vec<String> = manifest
        .outputs
        .iter()
        .map(|spec| spec.name.clone())
        .collect();
    let mut whole_session = model.session(runtime, options.optimization)?;
    let mut worst = vec![vec![Difference::default(); names.len()]; cuts.len()];
    for inputs in inputs {
        let whole = model.run(&mut whole_session, inputs)?;
        for (cut, worst) in cuts.iter().zip(&mut worst) {
            let values = halves.run(cut, inputs, options)?;
            for ((name, whole), worst) in names.iter().zip(&whole).zip(worst) {
                let split = values.get(name).ok_or_else(|| VerifyError::Missing {
                    cut: cut.id.clone(),
                    name: name.clone(),
                })?;
                *worst = worst.max(compare(whole, split));
            }
        }
    }
    let differences = cuts.iter().zip(worst).map(|(cut, worst)| CutDifference {
        id: cut.id.clone(),
        outputs: names
            .iter()
            .zip(worst)
            .map(|(name, difference)| OutputDifference {
                name: name.clone(),
                max_abs: difference.max_abs,
                max_rel: difference.max_rel,
            })
            .collect(),
    });
    Ok(differences.collect())
}

/// How far the whole model is from itself at other optimisation levels: for each of its outputs
/// the largest difference between any two levels, over all `inputs`. What two halves, which the
/// runtime rewrites apart, may differ from the whole is measured by it.
///
/// # Errors
/// [`ModelError`] where the model does not load or run at some level.
pub fn spread<'a>(
    runtime: &Runtime,
    model: &Model,
    inputs: impl IntoIterator<Item = &'a Values>,
) -> Result<Vec<Difference>, ModelError> {
    let sessions = Optimization::ALL
        .iter()
        .map(|&level| model.session(runtime, level));
    let mut sessions: Vec<_> = sessions.collect::<Result<_, _>>()?;
    let mut worst = Vec::new();
    for inputs in inputs {
        let runs = sessions
            .iter_mut()
            .map(|session| model.run(session, inputs));
        let runs: Vec<Vec<Tensor>> = runs.collect::<Result<_, _>>()?;
        worst.resize(runs[0].len(), Difference::default());
        for (index, one) in runs.iter().enumerate() {
            for other in &runs[index + 1..] {
                for ((one, other), worst) in one.iter().zip(other).zip(&mut worst) {
                    *worst = worst.max(compare(one, other));
                }
            }
        }
    }
    Ok(worst)
}
