//! A model with what is known of its values: dtypes, symbolic shapes, and sizes at a reference
//! binding; what inference cannot tell is learnt from a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use seamline_graph::infer::{InputDomain, Types, batch_symbol, domains, flops, infer};
use seamline_graph::preprocess::{ImagePreprocess, PreprocessError};
use seamline_graph::{AxisSizes, Graph, HazardError, NodeId, ReadError, ValueId};
use seamline_ort::{
    ModelSource, Optimization, RunError, Runtime, Session, SessionError, SessionOptions,
};
use seamline_plan::{Bindings, DType, Dim, Fingerprint, Tensor, TensorError};
use thiserror::Error;

use crate::probe::{ProbeInput, Prober};
use crate::reference::reference_bindings;

/// A model that cannot be opened or measured.
#[derive(Debug, Error)]
pub enum ModelError {
    /// Not a model that can be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// ONNX Runtime would hang on it.
    #[error(transparent)]
    Hazard(#[from] HazardError),
    /// The preprocessing does not fit the model.
    #[error(transparent)]
    Preprocess(#[from] PreprocessError),
    /// The operating system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// `--shape` names a symbol that no input has.
    #[error(
        "--shape {symbol}={size}: no input has a dimension `{symbol}`; there are {}",
        known.join(", ")
    )]
    UnknownSymbol {
        /// As given.
        symbol: String,
        /// As given.
        size: u64,
        /// The symbols that inputs have.
        known: Vec<String>,
    },
    /// An input that cannot be fed.
    #[error("input `{0}` is no dense tensor of a known type; Seamline cannot feed it")]
    Input(String),
    /// A probe could not be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// ONNX Runtime does not take the model.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A run of the whole model failed.
    #[error(
        "the model does not run: {error}; where inputs were random, sizes were {}: give \
         others by --shape NAME=N",
        format_bindings(reference)
    )]
    Run {
        /// Why.
        #[source]
        error: RunError,
        /// Sizes of the symbols.
        reference: Bindings,
    },
}

/// Operators that make sequences, maps or optionals, which no run can hand out as tensors.
const NON_TENSOR_MAKERS: &[&str] = &[
    "Optional",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SequenceMap",
    "SplitToSequence",
    "ZipMap",
];

/// `N=1, W=320`.
pub fn format_bindings(bindings: &Bindings) -> String {
    let sizes: Vec<String> = bindings
        .iter()
        .map(|(symbol, size)| format!("{symbol}={size}"))
        .collect();
    if sizes.is_empty() {
        "fixed".into()
    } else {
        sizes.join(", ")
    }
}

/// What is known of one value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValueFacts {
    /// Element type.
    pub dtype: Option<DType>,
    /// Shape with symbols.
    pub symbolic: Option<Vec<Dim>>,
    /// Shape at the reference binding.
    pub reference: Option<Vec<u64>>,
}

impl ValueFacts {
    /// Elements at the reference binding.
    pub fn elements(&self) -> Option<u64> {
        self.reference
            .as_ref()?
            .iter()
            .try_fold(1u64, |count, &dim| count.checked_mul(dim))
    }

    /// Bytes at the reference binding, as the model computes them.
    pub fn bytes(&self) -> Option<u64> {
        self.elements()?.checked_mul(self.dtype?.size() as u64)
    }
}

/// A model, ready to be inspected and cut.
pub struct Model {
    /// The graph, its preprocessing included, and what is the same in every run made constant.
    pub graph: Graph,
    /// The graph as read, its preprocessing included: what the halves are compared with.
    pub whole: Graph,
    /// The file's stem.
    pub name: String,
    /// BLAKE3 of the file.
    pub hash: Fingerprint,
    /// Sizes of the symbols where numbers are needed.
    pub reference: Bindings,
    /// The symbol of the batch, where there is one.
    pub batch_symbol: Option<String>,
    /// Floating-point operations of each node at the reference binding.
    pub flops: Vec<f64>,
    pub(crate) sizes: AxisSizes,
    facts: Vec<ValueFacts>,
    domains: BTreeMap<ValueId, InputDomain>,
}

impl Model {
    /// Reads the model at `path`; `shapes` are the sizes of symbols that the user gave, `image` is
    /// preprocessing to be put in front.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn open(
        path: &Path,
        shapes: &Bindings,
        image: Option<&ImagePreprocess>,
    ) -> Result<Model, ModelError> {
        let mut graph = Graph::read(path)?;
        if let Some(image) = image {
            graph = image.apply(&graph)?;
        }
        let hash = seamline_plan::map_file(path)
            .map(|file| Fingerprint::of(file.bytes()))
            .map_err(|error| ModelError::Io {
                path: path.to_owned(),
                error,
            })?;
        let name = path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned());
        Model::new(graph, name.unwrap_or_default(), hash, shapes)
    }

    /// A model of `graph`.
    ///
    /// # Errors
    /// [`ModelError::UnknownSymbol`], and [`ModelError::Hazard`] for a graph that must not reach
    /// ONNX Runtime.
    pub fn new(
        whole: Graph,
        name: String,
        hash: Fingerprint,
        shapes: &Bindings,
    ) -> Result<Model, ModelError> {
        whole.check_hazards()?;
        let graph = whole.with_known_values()?;
        let batch = batch_symbol(&graph);
        let reference = reference_bindings(&graph, batch.as_deref(), shapes)?;
        let symbolic = infer(&graph, &Bindings::new());
        let concrete = infer(&graph, &reference);
        let facts = (0..graph.values.len()).filter_map(|index| u32::try_from(index).ok());
        let facts = facts
            .map(|index| facts_of(&symbolic, &concrete, ValueId(index)))
            .collect();
        Ok(Model {
            flops: flops(&graph, &concrete),
            domains: domains(&graph, &symbolic),
            sizes: AxisSizes::of(&graph),
            batch_symbol: batch,
            graph,
            whole,
            name,
            hash,
            reference,
            facts,
        })
    }

    /// What is known of `value`.
    pub fn facts(&self, value: ValueId) -> &ValueFacts {
        &self.facts[value.index()]
    }

    /// The values that an input can take.
    pub fn domain(&self, input: ValueId) -> Option<&InputDomain> {
        self.domains.get(&input)
    }

    /// The inputs, as a prober draws them, `rows` along the batch axis.
    ///
    /// # Errors
    /// [`ModelError::Input`] for one that is no dense tensor.
    pub fn probe_inputs(&self, rows: Option<u64>) -> Result<Vec<ProbeInput>, ModelError> {
        let batch = self.batch_symbol.as_deref();
        let inputs = self.graph.inputs.iter().map(|&id| {
            let name = &self.graph.value(id).name;
            let facts = self.facts(id);
            let unfit = || ModelError::Input(name.clone());
            let dtype = facts.dtype.ok_or_else(unfit)?;
            let mut shape = facts.reference.clone().ok_or_else(unfit)?;
            let symbolic = facts.symbolic.as_deref().unwrap_or_default();
            for (dim, symbol) in shape.iter_mut().zip(symbolic) {
                if let (Some(rows), Dim::Sym(symbol)) = (rows, symbol)
                    && batch == Some(symbol)
                {
                    *dim = rows;
                }
            }
            let shape: Result<Vec<usize>, _> = shape.into_iter().map(usize::try_from).collect();
            let domain = self
                .domains
                .get(&id)
                .cloned()
                .unwrap_or(InputDomain::Normal);
            Ok(ProbeInput {
                name: name.clone(),
                dtype,
                shape: shape.map_err(|_| unfit())?,
                domain,
            })
        });
        inputs.collect()
    }

    /// Values whose dtype or size only a run tells.
    pub fn unknown_values(&self) -> impl Iterator<Item = ValueId> + '_ {
        (0..self.graph.values.len())
            .filter_map(|index| u32::try_from(index).ok().map(ValueId))
            .filter(|&id| self.can_be_learnt(id))
    }

    /// Learns the dtypes and sizes that inference could not tell from a run of the whole model on
    /// random inputs. Does nothing where all are known. Returns how many values were learnt.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn learn(&mut self, runtime: &Runtime, seed: u64) -> Result<usize, ModelError> {
        let unknown: Vec<ValueId> = self.unknown_values().collect();
        if unknown.is_empty() {
            return Ok(0);
        }
        let inputs = Prober::new(seed).draw(&self.probe_inputs(None)?)?;
        let names: Vec<String> = unknown
            .iter()
            .map(|&id| self.graph.value(id).name.clone())
            .collect();
        let values = self.run_with_outputs(runtime, &names, &inputs)?;
        for (&id, tensor) in unknown.iter().zip(&values) {
            let facts = &mut self.facts[id.index()];
            facts.dtype = Some(tensor.dtype());
            facts.reference = Some(tensor.shape().iter().map(|&dim| dim as u64).collect());
            // One run tells sizes at one binding only: which symbol they follow stays unknown.
            let known = facts
                .symbolic
                .take()
                .filter(|dims| dims.len() == tensor.shape().len());
            facts.symbolic = Some(known.unwrap_or(vec![Dim::Unknown; tensor.shape().len()]));
        }
        Ok(unknown.len())
    }

    fn can_be_learnt(&self, id: ValueId) -> bool {
        let value = self.graph.value(id);
        let facts = self.facts(id);
        let made_by = |id: NodeId| self.graph.node(id).op_type.as_str();
        value
            .producer
            .is_some_and(|id| !NON_TENSOR_MAKERS.contains(&made_by(id)))
            && !self.graph.is_weight(id)
            && !value.is_declared_non_tensor()
            && (facts.dtype.is_none() || facts.reference.is_none())
    }

    /// Runs the whole model, its optimisations off, with `names` as its outputs.
    ///
    /// # Errors
    /// [`ModelError`].
    pub fn run_with_outputs(
        &self,
        runtime: &Runtime,
        names: &[String],
        inputs: &BTreeMap<String, Tensor>,
    ) -> Result<Vec<Tensor>, ModelError> {
        let mut session = self.session_with_outputs(runtime, names)?;
        self.run(&mut session, inputs)
    }

    /// A session of the whole model, its optimisations off, with `names` as its outputs.
    pub(crate) fn session_with_outputs(
        &self,
        runtime: &Runtime,
        names: &[String],
    ) -> Result<Session, ModelError> {
        let bytes = self.whole.encode_with_outputs(names);
        self.session_of(runtime, &bytes, Optimization::Off)
    }

    /// A session of the whole model.
    ///
    /// # Errors
    /// [`ModelError::Session`].
    pub fn session(
        &self,
        runtime: &Runtime,
        optimization: Optimization,
    ) -> Result<Session, ModelError> {
        let outputs = self.graph.outputs.iter();
        let names: Vec<String> = outputs
            .map(|&id| self.graph.value(id).name.clone())
            .collect();
        let bytes = self.whole.encode_with_outputs(&names);
        self.session_of(runtime, &bytes, optimization)
    }

    fn session_of(
        &self,
        runtime: &Runtime,
        bytes: &[u8],
        optimization: Optimization,
    ) -> Result<Session, ModelError> {
        let folder = self.whole.source.as_ref().and_then(|path| path.parent());
        let options = SessionOptions {
            optimization,
            ..SessionOptions::default()
        };
        Ok(runtime.session(ModelSource::Bytes { bytes, folder }, &options)?)
    }

    /// Runs a session of the whole model on named inputs.
    ///
    /// # Errors
    /// [`ModelError::Run`].
    pub fn run(
        &self,
        session: &mut Session,
        inputs: &BTreeMap<String, Tensor>,
    ) -> Result<Vec<Tensor>, ModelError> {
        let given: Vec<&Tensor> = session
            .inputs()
            .iter()
            .filter_map(|spec| inputs.get(&spec.name))
            .collect();
        session.run(&given).map_err(|error| ModelError::Run {
            error,
            reference: self.reference.clone(),
        })
    }
}

fn facts_of(symbolic: &Types, concrete: &Types, id: ValueId) -> ValueFacts {
    // Where the sizes of one binding are all that is known, they still tell the rank.
    let rank = || Some(vec![Dim::Unknown; concrete.shape(id)?.len()]);
    ValueFacts {
        dtype: symbolic.dtype(id).or_else(|| concrete.dtype(id)),
        symbolic: symbolic.shape(id).map(<[Dim]>::to_vec).or_else(rank),
        reference: concrete.fixed_shape(id),
    }
}
