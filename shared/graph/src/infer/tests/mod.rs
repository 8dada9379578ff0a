//! Small graphs, one table a family: what goes in, what comes out.

mod batch;
mod control;
mod domains;
mod flops;
mod hostile;
mod operators;
mod values;

use seamline_plan::{Bindings, DType, Dim, format_shape};

use super::{Types, infer};
use crate::Graph;
use crate::builder::GraphBuilder;
use crate::proto::AttributeProto;

/// A shape in text: numbers are fixed, `?` is unknown, everything else is a symbol.
fn shape(text: &str) -> Vec<Dim> {
    text.split_whitespace()
        .map(|dim| match dim.parse() {
            Ok(size) => Dim::Fixed(size),
            Err(_) if dim == "?" => Dim::Unknown,
            Err(_) => Dim::from(dim),
        })
        .collect()
}

/// A value of a graph under test: a tensor that the caller gives, or a constant.
#[derive(Clone)]
enum Given {
    Input(DType, &'static str),
    Ints(&'static [i64]),
    Scalar(i64),
    Floats(&'static [f32]),
    Missing,
}

const F: DType = DType::F32;
use Given::{Floats, Input, Ints, Missing, Scalar};

/// One node over `given`; returns types and the node's outputs.
fn one_node(
    opset: i64,
    op: &str,
    given: &[Given],
    attributes: Vec<AttributeProto>,
    outputs: usize,
) -> (Graph, Types) {
    let mut builder = GraphBuilder::new("test", opset);
    builder.import("com.microsoft", 1);
    let names: Vec<String> = (0..given.len()).map(|i| format!("x{i}")).collect();
    let mut inputs = Vec::new();
    for (name, value) in names.iter().zip(given) {
        match value {
            Input(dtype, dims) => builder.input(name, *dtype, &shape(dims)),
            Ints(list) => builder.weight_i64(name, &[list.len() as i64], list),
            Scalar(value) => builder.weight_i64(name, &[], &[*value]),
            Floats(list) => builder.weight_f32(name, &[list.len() as i64], list),
            Missing => {
                inputs.push("");
                continue;
            }
        };
        inputs.push(name.as_str());
    }
    let makes: Vec<String> = (0..outputs).map(|i| format!("y{i}")).collect();
    let makes: Vec<&str> = makes.iter().map(String::as_str).collect();
    builder.node_with(op, &inputs, &makes, attributes);
    let graph = builder.build().unwrap();
    let types = infer(&graph, &Bindings::new());
    (graph, types)
}

/// The shape of `name` as text, `none` where not even the rank is known.
fn shape_of(graph: &Graph, types: &Types, name: &str) -> String {
    match types.shape(graph.find(name).unwrap()) {
        Some(dims) => dims
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" "),
        None => "none".into(),
    }
}

/// Checks the outputs' shapes of one node.
#[track_caller]
fn check(
    opset: i64,
    op: &str,
    given: &[Given],
    attributes: Vec<AttributeProto>,
    expected: &[&str],
) -> (Graph, Types) {
    let (graph, types) = one_node(opset, op, given, attributes, expected.len());
    for (i, expected) in expected.iter().enumerate() {
        let got = shape_of(&graph, &types, &format!("y{i}"));
        let given: Vec<String> = (0..given.len())
            .filter_map(|j| Some(format_shape(types.shape(graph.find(&format!("x{j}"))?)?)))
            .collect();
        assert_eq!(
            &got, expected,
            "{op} (opset {opset}) of {given:?}, output {i}"
        );
    }
    (graph, types)
}
