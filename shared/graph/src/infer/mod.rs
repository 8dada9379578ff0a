//! Shape and dtype inference with symbolic dimensions, and what follows from it: FLOPs, the
//! values that inputs may take, batch axes.
//!
//! Small integer tensors are followed by value, elements that stand for a symbol included, so
//! that shape arithmetic (`Shape` → `Gather` → `Concat` → `Reshape`) keeps its symbols. A
//! dimension that is not the same symbol any more (a strided convolution over `W`) is
//! [`Dim::Unknown`]; with every symbol bound to a size it becomes a number.

mod arith;
mod batch;
mod body;
mod call;
mod constant;
mod control;
mod dims;
mod domains;
mod flops;
mod known;
mod rules;
mod types;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::BTreeMap;

use seamline_plan::{Bindings, Dim};

pub use batch::{axis_of, batch_symbol};
pub use dims::input_symbol;
pub use domains::{InputDomain, domains};
pub use flops::{INTERPOLATION, NORMALIZATION, SOFTMAX, flops};
pub use seamline_plan::is_unnamed;
pub use types::Types;

use crate::{Graph, Value, ValueId};
use body::{Context, Operator, Parent};
use known::{Fact, MAX_RANK};

/// Symbols longer than this are treated as unknown: no exporter writes them.
const MAX_SYMBOL_BYTES: usize = 1024;

/// The oldest version of ONNX's own operators that inference knows. Before it, operators broadcast
/// by attributes and kept shapes elsewhere: they are opaque, and their values are what the file
/// declares.
pub const MIN_OPSET: i64 = 7;

/// Infers dtype and shape of every value of `graph`, with the symbols in `bindings` replaced by
/// their sizes.
///
/// An unnamed dimension of a graph input is the symbol [`input_symbol`]. A value that inference
/// cannot tell is what the file declares it to be; where the two contradict each other,
/// inference wins. Nodes are visited once, in order. Never fails: what is not known is unknown.
pub fn infer(graph: &Graph, bindings: &Bindings) -> Types {
    let mut types = Types {
        facts: vec![Fact::default(); graph.values.len()],
        body_flops: BTreeMap::new(),
    };
    for (fact, value) in types.facts.iter_mut().zip(&graph.values) {
        if value.producer.is_none() {
            *fact = declared(value, bindings);
        }
    }
    for &input in &graph.inputs {
        if let Some(fact) = types.facts.get_mut(input.index()) {
            *fact = input_fact(graph.value(input), bindings);
        }
    }
    for (&id, weight) in &graph.initializers {
        if let Some(fact) = types.facts.get_mut(id.index()) {
            *fact = constant::fact_of(weight);
        }
    }
    let body_nodes_left = Cell::new(body::MAX_BODY_NODES);
    let functions = body::functions(graph);
    let context = Context::new(graph, &functions, bindings, &body_nodes_left);
    for (id, node) in graph.enumerate_nodes() {
        let inputs = inputs_of(&types, &node.inputs);
        let operator = Operator::of_node(node);
        let parent = Parent::Root {
            graph,
            facts: &types.facts,
        };
        let result = body::step(&context, &operator, inputs, node.outputs.len(), &parent);
        for (output, fact) in node.outputs.iter().zip(result.outputs) {
            let Some(output) = *output else { continue };
            let declared = declared(graph.value(output), bindings);
            if let Some(slot) = types.facts.get_mut(output.index()) {
                *slot = refined(settled(fact, bindings), &declared);
            }
        }
        if let Some(flops) = result.body_flops {
            types.body_flops.insert(id, flops);
        }
    }
    types
}

fn inputs_of<'t>(types: &'t Types, inputs: &[Option<ValueId>]) -> Vec<Option<&'t Fact>> {
    inputs
        .iter()
        .map(|input| input.and_then(|id| types.fact(id)))
        .collect()
}

/// What the file declares of a value.
fn declared(value: &Value, bindings: &Bindings) -> Fact {
    let fact = Fact {
        dtype: value.dtype,
        shape: value.shape.clone(),
        known: None,
    };
    settled(fact, bindings)
}

/// A graph input: unnamed dimensions get a symbol of their own.
fn input_fact(value: &Value, bindings: &Bindings) -> Fact {
    let mut fact = declared(value, &Bindings::new());
    if let Some(shape) = &mut fact.shape {
        for (axis, dim) in shape.iter_mut().enumerate() {
            if *dim == Dim::Unknown {
                *dim = Dim::Sym(input_symbol(&value.name, axis));
            }
            *dim = dims::bind(dim, bindings);
        }
    }
    fact
}

/// The fact with symbols bound and nothing in it that only a hostile file has. Rules rely on
/// `known` and `shape` telling the same.
fn settled(mut fact: Fact, bindings: &Bindings) -> Fact {
    if let Some(known) = &fact.known {
        let dims = known.dims().iter();
        fact.shape = Some(dims.map(|&dim| Dim::Fixed(dim as u64)).collect());
    }
    if fact
        .shape
        .as_ref()
        .is_some_and(|shape| shape.len() > MAX_RANK)
    {
        return Fact {
            dtype: fact.dtype,
            ..Fact::default()
        };
    }
    for dim in fact.shape.iter_mut().flatten() {
        match dim {
            Dim::Sym(symbol) if symbol.len() > MAX_SYMBOL_BYTES => *dim = Dim::Unknown,
            Dim::Sym(_) => *dim = dims::bind(dim, bindings),
            Dim::Fixed(_) | Dim::Unknown => {}
        }
    }
    fact
}

/// The inferred fact, with what only the declaration knows.
fn refined(mut fact: Fact, declared: &Fact) -> Fact {
    fact.dtype = fact.dtype.or(declared.dtype);
    if fact.known.is_some() {
        return fact;
    }
    match (&mut fact.shape, &declared.shape) {
        (Some(shape), Some(other)) if shape.len() == other.len() => {
            for (dim, other) in shape.iter_mut().zip(other) {
                *dim = dims::refine_dim(dim, other);
            }
        }
        (None, Some(other)) => fact.shape = Some(other.clone()),
        _ => {}
    }
    fact
}
