//! Inputs of `seamline verify`: from files, or drawn at random.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use seamline_partitioner::{Model, Prober};
use seamline_plan::{Bindings, Manifest, Tensor, TensorSpec, read_input};

pub(crate) type Values = BTreeMap<String, Tensor>;

/// `count` requests that the model can take.
pub(crate) fn draw(model: &Model, count: u64, seed: u64) -> anyhow::Result<Vec<Values>> {
    let inputs = model.probe_inputs(None)?;
    let draw = |index| Ok(Prober::new(seed.wrapping_add(index)).draw(&inputs)?);
    (0..count).map(draw).collect()
}

/// Requests from `[NAME=]FILE` arguments: for a model of one input each file is a request, else
/// all files together are one. State that is not given is zero, as when a session begins.
pub(crate) fn read(
    manifest: &Manifest,
    model: &Model,
    arguments: &[String],
) -> anyhow::Result<Vec<Values>> {
    if arguments.is_empty() {
        return Ok(Vec::new());
    }
    let is_state = |name: &str| manifest.states.iter().any(|state| state.input == name);
    let wanted: Vec<&TensorSpec> = manifest
        .inputs
        .iter()
        .filter(|spec| !is_state(&spec.name))
        .collect();
    let mut requests = match wanted.as_slice() {
        [only] => read_each(only, arguments)?,
        _ => vec![read_together(&manifest.inputs, arguments)?],
    };
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
    for spec in wanted {
        if requests
            .iter()
            .any(|request| !request.contains_key(&spec.name))
        {
            bail!("no --input for {spec}; give each input as --input NAME=FILE");
        }
    }
    Ok(requests)
}

fn read_each(only: &TensorSpec, arguments: &[String]) -> anyhow::Result<Vec<Values>> {
    let requests = arguments.iter().map(|argument| {
        let path = match argument.split_once('=') {
            Some((name, path)) if name == only.name => path,
            _ => argument,
        };
        Ok(Values::from([(
            only.name.clone(),
            read_checked(path, only)?,
        )]))
    });
    requests.collect()
}

fn read_together(specs: &[TensorSpec], arguments: &[String]) -> anyhow::Result<Values> {
    let mut values = Values::new();
    for argument in arguments {
        let names = || {
            specs
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let Some((name, path)) = argument.split_once('=') else {
            bail!(
                "the model takes {}; give each as --input NAME=FILE",
                names()
            );
        };
        let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
            bail!("there is no input `{name}`; the model takes {}", names());
        };
        if values
            .insert(name.to_owned(), read_checked(path, spec)?)
            .is_some()
        {
            bail!("--input names `{name}` twice");
        }
    }
    Ok(values)
}

fn read_checked(path: &str, spec: &TensorSpec) -> anyhow::Result<Tensor> {
    let tensor = read_input(Path::new(path), spec)?;
    spec.check(tensor.dtype(), tensor.shape(), &mut Bindings::new())
        .with_context(|| path.to_owned())?;
    Ok(tensor)
}
