//! Which nodes may run on both sides of a cut.
//!
//! A node is *constant* where it depends on weights only and always gives the same result: both
//! sides may have it, and its outputs never cross. It is *cheap* where it is shape or mask
//! arithmetic, by all of these:
//! - its operator is one of [`CHEAP_OPS`];
//! - each output has a known size, of at most [`LIGHT_ELEMENTS`] elements;
//! - each input is an integer or boolean value, the output of another cheap node, or a constant of
//!   at most [`LIGHT_CONSTANT`] elements (so no embedding table); `Shape` and `Size` read anything.
//!
//! Floating-point activations are therefore never recomputed, masks made from integers are.

use seamline_plan::DType;

use super::TensorSize;
use crate::graph::{Graph, Node, NodeId, ValueId};

/// The most elements that an output of a cheap node may have.
pub const LIGHT_ELEMENTS: u64 = 1 << 18;

/// The most elements of a constant that a cheap node may read.
pub const LIGHT_CONSTANT: u64 = 1 << 14;

/// Operators of shape and mask arithmetic; all are linear in their outputs.
#[rustfmt::skip]
pub const CHEAP_OPS: &[&str] = &[
    "Abs", "Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape", "Div", "Equal", "Expand",
    "Flatten", "Floor", "Gather", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual",
    "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Range", "ReduceMax", "ReduceMin",
    "ReduceProd", "ReduceSum", "Reshape", "Shape", "Size", "Slice", "Split", "Sqrt", "Squeeze",
    "Sub", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where", "Xor",
];

/// Operators whose result is not a function of their inputs.
const RANDOM_OPS: &[&str] = &[
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
];

/// What a node is to a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// No output depends on it.
    Dead,
    /// Depends on weights only.
    Constant,
    /// May run on both sides.
    Cheap,
    /// Runs on one side.
    Ordinary,
}

/// Nodes that depend on weights only, by [`NodeId`].
pub(crate) fn constant_nodes(graph: &Graph) -> Vec<bool> {
    let mut constant = vec![false; graph.nodes.len()];
    for (id, node) in graph.enumerate_nodes() {
        let known = matches!(node.domain.as_str(), "" | "ai.onnx.ml" | "com.microsoft");
        let is_pure =
            known && !RANDOM_OPS.contains(&node.op_type.as_str()) && node.bodies().next().is_none();
        let mut reads = node.reads().peekable();
        constant[id.index()] = node.is("Constant")
            || is_pure
                && reads.peek().is_some()
                && reads.all(|value| {
                    let made = graph.value(value).producer;
                    graph.initializers.contains_key(&value)
                        || made.is_some_and(|maker| constant[maker.index()])
                });
    }
    constant
}

/// The role of every node.
pub(crate) fn classify(graph: &Graph, sizes: &[Option<TensorSize>]) -> Vec<Role> {
    let constant = constant_nodes(graph);
    let live = crate::cut::needed(graph, graph.outputs.iter().copied(), &Default::default());
    let mut roles = vec![Role::Dead; graph.nodes.len()];
    for (id, node) in graph.enumerate_nodes().filter(|(id, _)| live[id.index()]) {
        roles[id.index()] = if constant[id.index()] {
            Role::Constant
        } else if is_cheap(graph, sizes, &roles, node) {
            Role::Cheap
        } else {
            Role::Ordinary
        };
    }
    roles
}

fn is_cheap(graph: &Graph, sizes: &[Option<TensorSize>], roles: &[Role], node: &Node) -> bool {
    let size = |value: ValueId| sizes[value.index()].as_ref();
    let role = |node: NodeId| roles[node.index()];
    let is_light = |value: ValueId| {
        let producer = graph.value(value).producer;
        let is_constant = graph.initializers.contains_key(&value)
            || producer.is_some_and(|node| role(node) == Role::Constant);
        if is_constant {
            // A constant without a known size is of a node that shape inference does not know.
            let elements = graph.initializers.get(&value).map_or_else(
                || size(value).map(TensorSize::elements),
                |weight| weight.elements().ok(),
            );
            return elements.is_some_and(|elements| elements <= LIGHT_CONSTANT);
        }
        producer.is_some_and(|node| role(node) == Role::Cheap)
            || size(value).is_some_and(|size| is_integer(size.dtype))
    };
    node.domain.is_empty()
        && CHEAP_OPS.contains(&node.op_type.as_str())
        && node
            .makes()
            .all(|value| size(value).is_some_and(|size| size.elements() <= LIGHT_ELEMENTS))
        && (matches!(node.op_type.as_str(), "Shape" | "Size") || node.reads().all(is_light))
}

/// Bytes are quantised activations or pictures as often as masks: only wide integers and booleans
/// are shape arithmetic.
fn is_integer(dtype: DType) -> bool {
    matches!(
        dtype,
        DType::I32 | DType::I64 | DType::U32 | DType::U64 | DType::Bool
    )
}
