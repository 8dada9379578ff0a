//! Control-flow bodies (If, Loop, Scan …): which names they read from outside.

use std::collections::{BTreeSet, HashSet};

use crate::proto::{GraphProto, NodeProto};

/// Bodies nested deeper are refused; real models stay in single digits. The protobuf decoder takes
/// a hundred levels of messages, three for each body.
pub(crate) const MAX_NESTING: usize = 30;

/// Bodies nested beyond [`MAX_NESTING`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct TooDeep;

/// Names that `body`, and bodies inside it, read but do not make.
pub(crate) fn outer_reads(body: &GraphProto) -> Result<BTreeSet<&str>, TooDeep> {
    outer_reads_at(body, MAX_NESTING)
}

fn outer_reads_at(body: &GraphProto, depth: usize) -> Result<BTreeSet<&str>, TooDeep> {
    let depth = depth.checked_sub(1).ok_or(TooDeep)?;
    let made: HashSet<&str> = made_names(body).collect();
    let mut reads = BTreeSet::new();
    for node in &body.node {
        reads.extend(node.input.iter().map(String::as_str));
        for inner in bodies_of(node) {
            reads.extend(outer_reads_at(inner, depth)?);
        }
    }
    // A body may give an outer value as its result without touching it.
    reads.extend(body.output.iter().map(|output| output.name()));
    reads.retain(|name| !name.is_empty() && !made.contains(name));
    Ok(reads)
}

/// Names that `body` itself makes: inputs, initializers and node outputs.
pub(crate) fn made_names(body: &GraphProto) -> impl Iterator<Item = &str> {
    let inputs = body.input.iter().map(|input| input.name());
    let dense = body.initializer.iter().map(|tensor| tensor.name());
    let sparse = body
        .sparse_initializer
        .iter()
        .filter_map(|tensor| tensor.values.as_ref().map(|values| values.name()));
    let outputs = body
        .node
        .iter()
        .flat_map(|node| node.output.iter().map(String::as_str));
    inputs.chain(dense).chain(sparse).chain(outputs)
}

/// The bodies that `node` holds.
pub(crate) fn bodies_of(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute
        .iter()
        .flat_map(|attr| attr.g.iter().chain(&attr.graphs))
}

/// Every node of `body` and of the bodies inside it. Depth was checked when the model was read.
pub(crate) fn all_nodes(body: &GraphProto) -> Vec<&NodeProto> {
    let mut nodes = Vec::new();
    let mut pending = vec![body];
    while let Some(body) = pending.pop() {
        for node in &body.node {
            nodes.push(node);
            pending.extend(bodies_of(node));
        }
    }
    nodes
}

/// Whether `body`, or a body inside it, makes a value called `name`.
pub(crate) fn made_anywhere(body: &GraphProto, name: &str) -> bool {
    let mut pending = vec![body];
    while let Some(body) = pending.pop() {
        if made_names(body).any(|made| made == name) {
            return true;
        }
        pending.extend(body.node.iter().flat_map(bodies_of));
    }
    false
}
