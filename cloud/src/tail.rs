//! What finishes a request: stages over a batch of rows, with state that outlives the request.

use std::collections::BTreeMap;
use std::ops::Range;

use seamline_ort::{Runtime, SessionOptions, StageChain, StageError};
use seamline_plan::{Bundle, Manifest, StateSpec, Tensor, TensorError};
use thiserror::Error;

/// Values by name, each joined over the rows of a batch.
pub type Values = BTreeMap<String, Tensor>;

/// A tail that failed.
#[derive(Debug, Error)]
pub enum TailError {
    /// A stage failed.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// The batch cannot be put together or taken apart.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// The state has no size before the run.
    #[error("state `{0}` has a dimension that is not fixed, so its first value is not known")]
    State(String),
}

/// A recurrent net's state between two steps of one session: one tensor a state input.
#[derive(Debug, Default)]
pub struct StateSlot {
    values: BTreeMap<String, Tensor>,
}

impl StateSlot {
    /// Bytes that the slot holds.
    pub fn bytes(&self) -> usize {
        self.values
            .values()
            .map(|tensor| tensor.bytes().len())
            .sum()
    }
}

/// Runs stages. One executor thread owns it.
///
/// Every implementation gives the same answer for a row, whatever batch it is in, within the
/// tolerance that the bundle was verified with.
pub trait Tail: Send {
    /// Runs `stages` in order on `values`, which then also holds what they made. State inputs that
    /// `values` lacks come from `state` (zeros at first), and state outputs go back to it; without
    /// `state` they start from zeros and are dropped.
    ///
    /// # Errors
    /// [`TailError`]; `state` is then unchanged.
    fn run(
        &mut self,
        stages: Range<usize>,
        values: &mut Values,
        state: Option<&mut StateSlot>,
    ) -> Result<(), TailError>;
}

/// A tail on ONNX Runtime: the fallback for every operator, and the reference in tests.
pub struct OrtTail {
    chain: StageChain,
    states: Vec<StateInput>,
}

struct StateInput {
    spec: StateSpec,
    /// Zeros, which a session begins with; `None` where a dimension is not fixed.
    initial: Option<Tensor>,
}

impl OrtTail {
    /// Loads the stages of the service's half of `bundle`.
    ///
    /// # Errors
    /// [`TailError::Stage`].
    pub fn load(
        runtime: &Runtime,
        bundle: &Bundle,
        options: &SessionOptions,
    ) -> Result<OrtTail, TailError> {
        let states = bundle.manifest().states.iter().map(|spec| StateInput {
            initial: initial_state(bundle.manifest(), &spec.input),
            spec: spec.clone(),
        });
        Ok(OrtTail {
            states: states.collect(),
            chain: StageChain::load(runtime, bundle, options)?,
        })
    }
}

fn initial_state(manifest: &Manifest, input: &str) -> Option<Tensor> {
    let spec = manifest.inputs.iter().find(|spec| spec.name == input)?;
    let dims = spec
        .shape
        .iter()
        .map(|dim| usize::try_from(dim.fixed()?).ok());
    Tensor::zeros(spec.dtype, dims.collect::<Option<Vec<usize>>>()?).ok()
}

impl Tail for OrtTail {
    fn run(
        &mut self,
        stages: Range<usize>,
        values: &mut Values,
        state: Option<&mut StateSlot>,
    ) -> Result<(), TailError> {
        for StateInput { spec, initial } in &self.states {
            if values.contains_key(&spec.input) {
                continue;
            }
            let kept = state.as_ref().and_then(|slot| slot.values.get(&spec.input));
            let tensor = kept.or(initial.as_ref()).cloned();
            let tensor = tensor.ok_or_else(|| TailError::State(spec.input.clone()))?;
            values.insert(spec.input.clone(), tensor);
        }
        self.chain.run(stages, values)?;
        if let Some(slot) = state {
            for StateInput { spec, .. } in &self.states {
                if let Some(tensor) = values.get(&spec.output) {
                    slot.values.insert(spec.input.clone(), tensor.clone());
                }
            }
        }
        Ok(())
    }
}
