//! Which value of a model an attacker is after, and what it is for each request.

use std::collections::BTreeSet;

use seamline_graph::ValueId;
use seamline_graph::infer::InputDomain;
use seamline_ort::Runtime;
use seamline_plan::{DType, Tensor};

use super::tokens::embedding_table;
use super::{LeakageError, no_figure};
use crate::model::Model;
use crate::plan::calibration::{Calibration, Sample};

/// What kind of input it is.
pub(super) enum Kind {
    Picture,
    Tokens,
    Other,
}

/// The input that says most: a picture, or tokens, or else the largest.
pub(super) fn main_input(model: &Model) -> Result<(ValueId, Kind), LeakageError> {
    let rank = |id: ValueId| model.facts(id).reference.as_ref().map_or(0, Vec::len);
    let size = |id: ValueId| model.facts(id).elements().unwrap_or(0);
    let is_float = |id: ValueId| model.facts(id).dtype.is_some_and(DType::is_float);
    let inputs = || model.graph.inputs.iter().copied();
    let is_picture = |id: &ValueId| {
        rank(*id) == 4 && size(*id) > 64 && (is_float(*id) || is_byte_picture(model, *id))
    };
    if let Some(id) = inputs().filter(is_picture).max_by_key(|&id| size(id)) {
        return Ok((id, Kind::Picture));
    }
    let is_tokens = |id: &ValueId| {
        matches!(model.domain(*id), Some(InputDomain::Indices { .. }))
            && embedding_table(&model.graph, *id).is_some()
    };
    // Of several (token types, positions) the one with most to choose from.
    let rows = |id: ValueId| {
        embedding_table(&model.graph, id).map_or(0, |(table, w)| table.len() / w.max(1))
    };
    if let Some(id) = inputs().filter(is_tokens).max_by_key(|&id| rows(id)) {
        return Ok((id, Kind::Tokens));
    }
    match inputs()
        .filter(|&id| is_float(id))
        .max_by_key(|&id| size(id))
    {
        Some(id) => Ok((id, Kind::Other)),
        None => no_figure("the model has no input of pictures, numbers or tokens"),
    }
}

pub(super) fn is_byte_picture(model: &Model, id: ValueId) -> bool {
    let facts = model.facts(id);
    let channels = facts
        .reference
        .as_ref()
        .and_then(|shape| shape.get(3).copied());
    facts.dtype == Some(DType::U8) && channels == Some(3)
}

/// The value that preprocessing nodes make of `picture`: the last float [N, 3, H, W] that comes from
/// it with no trained weights between.
pub(super) fn seen_by_the_net(model: &Model, picture: ValueId) -> Option<String> {
    const TRAINED: &[&str] = &["Conv", "MatMul", "Gemm", "ConvInteger", "QLinearConv"];
    // Weights made by nodes, of constants or quantised ones, have such shapes too.
    let mut made_of_it = BTreeSet::from([picture]);
    let mut before = Vec::new();
    for node in &model.graph.nodes {
        let mut inputs = node.inputs.iter().flatten();
        if !inputs.any(|id| made_of_it.contains(id)) {
            continue;
        }
        if TRAINED.contains(&node.op_type.as_str()) {
            break;
        }
        made_of_it.extend(node.makes());
        before.push(node);
    }
    let is_seen = |id: &ValueId| {
        let facts = model.facts(*id);
        let shape = facts.reference.as_deref().unwrap_or_default();
        facts.dtype.is_some_and(DType::is_float) && shape.len() == 4 && shape[1] == 3
    };
    let seen = before
        .into_iter()
        .flat_map(|node| node.makes().collect::<Vec<_>>())
        .rfind(is_seen);
    seen.map(|id| model.graph.value(id).name.clone())
}

pub(super) fn values_of(calibration: &Calibration, name: &str) -> Vec<Tensor> {
    let value = |sample: &Sample| sample.values.get(name).cloned();
    calibration.samples.iter().filter_map(value).collect()
}

/// The value `name` of every request.
pub(super) fn inner_values(
    runtime: &Runtime,
    model: &Model,
    calibration: &Calibration,
    name: &str,
) -> Result<Vec<Tensor>, LeakageError> {
    let failed = |error: crate::ModelError| LeakageError::NoFigure(format!("`{name}`: {error}"));
    let names = [name.to_owned()];
    let mut session = model
        .session_with_outputs(runtime, &names)
        .map_err(failed)?;
    let mut values = Vec::with_capacity(calibration.samples.len());
    for sample in &calibration.samples {
        values.extend(model.run(&mut session, &sample.values).map_err(failed)?);
    }
    Ok(values)
}
