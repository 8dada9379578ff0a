//! Inputs of `seamline verify`: from files, or drawn at random.

use std::collections::BTreeMap;

use seamline_partitioner::{Model, Prober};
use seamline_plan::{Manifest, Tensor, TensorSpec, read_requests};

pub(crate) type Values = BTreeMap<String, Tensor>;

/// `count` requests that the model can take.
pub(crate) fn draw(model: &Model, count: u64, seed: u64) -> anyhow::Result<Vec<Values>> {
    let inputs = model.probe_inputs(None)?;
    let draw = |index| Ok(Prober::new(seed.wrapping_add(index)).draw(&inputs)?);
    (0..count).map(draw).collect()
}

/// Requests from `[NAME=]FILE` arguments; state that is not given is zero, as when a session
/// begins.
pub(crate) fn read(
    manifest: &Manifest,
    model: &Model,
    arguments: &[String],
) -> anyhow::Result<Vec<Values>> {
    if arguments.is_empty() {
        return Ok(Vec::new());
    }
    let is_state = |name: &str| manifest.states.iter().any(|state| state.input == name);
    let inputs = manifest.inputs.iter().cloned();
    let (state, wanted): (Vec<TensorSpec>, Vec<TensorSpec>) =
        inputs.partition(|spec| is_state(&spec.name));
    let requests = read_requests(&wanted, &state, arguments)?;
    let mut requests: Vec<Values> = requests.into_iter().map(|request| request.values).collect();
    let states = model
        .probe_inputs(None)?
        .into_iter()
        .filter(|input| is_state(&input.name));
    for state in states {
        let zeros = Tensor::zeros(state.dtype, state.shape)?;
        for request in &mut requests {
            request
                .entry(state.name.clone())
                .or_insert_with(|| zeros.clone());
        }
    }
    Ok(requests)
}
