//! Model-local functions and operator-set imports that a set of nodes needs.

use std::collections::{BTreeSet, HashMap};

use crate::bodies::all_nodes;
use crate::graph::{Node, canonical_domain};
use crate::proto::{FunctionProto, NodeProto, OperatorSetIdProto};

type Key<'a> = (&'a str, &'a str, &'a str);

/// What of a model's functions and imports a set of nodes needs.
pub(crate) struct Needs {
    pub(crate) functions: Vec<FunctionProto>,
    pub(crate) opsets: Vec<OperatorSetIdProto>,
}

/// The functions that `nodes` call (from bodies and from other functions too) and the imports of
/// the domains that they use, in the file's order. ONNX's own domain is always kept.
pub(crate) fn needs<'a>(
    nodes: impl Iterator<Item = &'a Node>,
    functions: &'a [FunctionProto],
    opsets: &[OperatorSetIdProto],
) -> Needs {
    let by_key: HashMap<Key<'_>, usize> = functions
        .iter()
        .enumerate()
        .map(|(index, function)| (function_key(function), index))
        .collect();
    let mut used = BTreeSet::new();
    let mut domains = BTreeSet::from([""]);
    let mut pending: Vec<Key<'_>> = Vec::new();
    for node in nodes {
        pending.push((
            canonical_domain(&node.domain),
            &node.op_type,
            &node.overload,
        ));
        for (_, body) in node.bodies() {
            pending.extend(all_nodes(body).into_iter().map(node_key));
        }
    }
    while let Some(key) = pending.pop() {
        domains.insert(key.0);
        let Some(&index) = by_key.get(&key) else {
            continue;
        };
        if !used.insert(index) {
            continue;
        }
        let function = &functions[index];
        domains.extend(
            function
                .opset_import
                .iter()
                .map(|set| canonical_domain(set.domain())),
        );
        pending.extend(function.node.iter().flat_map(|node| {
            let inner = crate::bodies::bodies_of(node).flat_map(all_nodes);
            std::iter::once(node)
                .chain(inner)
                .map(node_key)
                .collect::<Vec<_>>()
        }));
    }
    Needs {
        functions: used.iter().map(|&index| functions[index].clone()).collect(),
        opsets: opsets
            .iter()
            .filter(|set| domains.contains(canonical_domain(set.domain())))
            .cloned()
            .collect(),
    }
}

fn node_key(node: &NodeProto) -> Key<'_> {
    (
        canonical_domain(node.domain()),
        node.op_type(),
        node.overload(),
    )
}

fn function_key(function: &FunctionProto) -> Key<'_> {
    (
        canonical_domain(function.domain()),
        function.name(),
        function.overload(),
    )
}
