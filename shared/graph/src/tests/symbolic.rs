//! Runs a graph on hashes instead of numbers: a node's output is the hash of its operator, its
//! attributes and what it reads. Two graphs that give the same hashes compute the same thing.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use prost::Message;

use crate::extract::{Stages, extract};
use crate::seams::{Costed, TensorSize};
use crate::{Graph, NodeId, StageCut, ValueId};

fn hash_of(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// Adds to `live` what `graph` makes of the values in it, by name.
fn run(graph: &Graph, live: &mut HashMap<String, u64>) {
    let name = |id: ValueId| graph.value(id).name.clone();
    let mut values: HashMap<ValueId, u64> = HashMap::new();
    for &input in &graph.inputs {
        values.insert(input, live[&name(input)]);
    }
    for (&id, weight) in &graph.initializers {
        values.insert(id, hash_of(weight.bytes().unwrap()));
    }
    for node in &graph.nodes {
        let reads: Vec<u64> = node.reads().map(|value| values[&value]).collect();
        let attributes: Vec<Vec<u8>> = node.attributes.iter().map(Message::encode_to_vec).collect();
        for (position, output) in node.outputs.iter().enumerate() {
            if let Some(output) = output {
                let made = hash_of((&node.domain, &node.op_type, &reads, &attributes, position));
                values.insert(*output, made);
            }
        }
    }
    for &output in &graph.outputs {
        live.insert(name(output), values[&output]);
    }
}

fn inputs_of(graph: &Graph) -> HashMap<String, u64> {
    let name = |&id: &ValueId| graph.value(id).name.clone();
    graph
        .inputs
        .iter()
        .map(name)
        .map(|name| (name.clone(), hash_of(name)))
        .collect()
}

/// Cuts `graph` and checks that its stages, one after the other, give the whole graph's outputs,
/// each stage reading only what crosses the cut before it.
pub(crate) fn same_answers(graph: &Graph, cuts: &[StageCut]) -> Stages {
    let stages = extract(graph, cuts, |id| {
        let value = graph.value(id);
        Some((
            value.dtype.unwrap_or(seamline_plan::DType::F32),
            value.shape.clone().or(Some(vec![])),
        ))
    })
    .unwrap();
    let mut whole = inputs_of(graph);
    run(graph, &mut whole);
    let mut live = inputs_of(graph);
    let mut answers = HashMap::new();
    for (index, stage) in stages.stages.iter().enumerate() {
        run(&stage.graph, &mut live);
        for &output in graph
            .outputs
            .iter()
            .filter(|output| stage.outputs.contains(output))
        {
            let name = graph.value(output).name.clone();
            answers.insert(name.clone(), live[&name]);
        }
        if let Some(crossing) = stages.crossing.get(index) {
            let names: Vec<&String> = crossing.iter().map(|&id| &graph.value(id).name).collect();
            live.retain(|name, _| names.contains(&name));
            assert_eq!(
                live.len(),
                names.len(),
                "something that crosses was not made"
            );
        }
    }
    for &output in &graph.outputs {
        let name = &graph.value(output).name;
        assert_eq!(answers.get(name), whole.get(name), "output {name}");
    }
    stages
}

/// `graph` with sizes as declared (16 `f32` elements where not) and one FLOP a node.
pub(crate) fn sized(graph: &Graph) -> Costed<'_> {
    let size = |id: ValueId| {
        let value = graph.value(id);
        let dims = value
            .shape
            .as_ref()
            .map(|shape| shape.iter().map(|dim| dim.fixed().unwrap_or(4)).collect());
        Some(TensorSize {
            dtype: value.dtype.unwrap_or(seamline_plan::DType::F32),
            dims: dims.unwrap_or(vec![16]),
        })
    };
    Costed::new(graph, size, |_: NodeId| 1)
}
