//! Which values an input can take, told by what the graph does with it, so that random probes
//! are valid requests.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use seamline_plan::DType;

use super::body::Operator;
use super::constant;
use super::known::{Elem, Fact};
use super::types::Types;
use crate::proto::{GraphProto, NodeProto};
use crate::{Graph, Node, ValueId, canonical_domain};

/// The values that an input can take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputDomain {
    /// Floats; a probe draws them from the normal distribution.
    Normal,
    /// Bytes of a picture: 0 to 255.
    Bytes,
    /// Whole numbers from 0 to `upper` - 1: positions in a table of `upper` rows.
    Indices {
        /// Rows of the smallest table.
        upper: u64,
    },
    /// 0 or 1 (false or true).
    Mask,
    /// One of these, which the graph compares the input with.
    OneOf(Vec<i64>),
    /// Whole numbers from `lo` to `hi`, both included.
    SmallInt {
        /// The least.
        lo: i64,
        /// The greatest.
        hi: i64,
    },
}

/// Operators that hand on input 0's elements unchanged.
const CARRIERS: &[&str] = &[
    "Concat",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
];

/// Operators that treat their input as true or false.
const TESTS: &[&str] = &[
    "And",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Not",
    "Or",
    "Sub",
    "Where",
    "Xor",
    "If",
    "Compress",
    "NonZero",
];

/// The domain of every input of `graph`.
pub fn domains(graph: &Graph, types: &Types) -> BTreeMap<ValueId, InputDomain> {
    graph
        .inputs
        .iter()
        .map(|&input| (input, domain(graph, types, input)))
        .collect()
}

fn domain(graph: &Graph, types: &Types, input: ValueId) -> InputDomain {
    let dtype = types.dtype(input).unwrap_or(DType::F32);
    if dtype.is_float() {
        return InputDomain::Normal;
    }
    if dtype == DType::Bool {
        return InputDomain::Mask;
    }
    let scalar = types
        .shape(input)
        .is_none_or(|shape| shape.iter().all(|dim| dim.fixed() == Some(1)));
    let found = Search::run(graph, types, &graph.value(input).name);
    if let Some(upper) = found.upper {
        return InputDomain::Indices { upper };
    }
    if dtype == DType::U8 {
        return InputDomain::Bytes;
    }
    if scalar && !found.compared.is_empty() {
        return InputDomain::OneOf(found.compared.into_iter().collect());
    }
    if found.sizes {
        return InputDomain::SmallInt { lo: 1, hi: 4 };
    }
    if found.tested {
        return InputDomain::Mask;
    }
    match dtype {
        DType::I8 => InputDomain::SmallInt { lo: -128, hi: 127 },
        _ => InputDomain::SmallInt { lo: 0, hi: 7 },
    }
}

/// A node as the search sees it, names instead of ids.
struct Use<'a> {
    operator: Operator<'a>,
    inputs: Vec<&'a str>,
    outputs: Vec<&'a str>,
}

impl<'a> Use<'a> {
    fn of_node(graph: &'a Graph, node: &'a Node) -> Use<'a> {
        let name = |id: &Option<ValueId>| id.map_or("", |id| graph.value(id).name.as_str());
        Use {
            operator: Operator::of_node(node),
            inputs: node.inputs.iter().map(name).collect(),
            outputs: node.outputs.iter().map(name).collect(),
        }
    }

    fn of_proto(node: &'a NodeProto) -> Use<'a> {
        Use {
            operator: Operator {
                domain: canonical_domain(node.domain()),
                op: node.op_type(),
                overload: node.overload(),
                attributes: &node.attribute,
            },
            inputs: node.input.iter().map(String::as_str).collect(),
            outputs: node.output.iter().map(String::as_str).collect(),
        }
    }
}

/// A value that carries the input's elements, plus `offset`; `body` is where it is read.
#[derive(Clone, Copy)]
struct Carrier<'a> {
    name: &'a str,
    body: Option<&'a GraphProto>,
    offset: i64,
}

/// What the search found that the input's elements are used for.
struct Search<'a> {
    graph: &'a Graph,
    types: &'a Types,
    open: Vec<Carrier<'a>>,
    seen: HashSet<(&'a str, Option<*const GraphProto>)>,
    upper: Option<u64>,
    compared: BTreeSet<i64>,
    sizes: bool,
    tested: bool,
}

impl<'a> Search<'a> {
    fn run(graph: &'a Graph, types: &'a Types, input: &'a str) -> Search<'a> {
        let mut search = Search {
            graph,
            types,
            open: Vec::new(),
            seen: HashSet::new(),
            upper: None,
            compared: BTreeSet::new(),
            sizes: false,
            tested: false,
        };
        search.push(Carrier {
            name: input,
            body: None,
            offset: 0,
        });
        while let Some(carrier) = search.open.pop() {
            search.visit(carrier);
        }
        search
    }

    fn push(&mut self, carrier: Carrier<'a>) {
        let place = carrier.body.map(std::ptr::from_ref);
        if !carrier.name.is_empty() && self.seen.insert((carrier.name, place)) {
            self.open.push(carrier);
        }
    }

    fn visit(&mut self, carrier: Carrier<'a>) {
        match carrier.body {
            Some(body) => {
                for node in &body.node {
                    self.reads(carrier, &Use::of_proto(node));
                }
            }
            None => {
                let graph = self.graph;
                let Some(id) = graph.find(carrier.name) else {
                    return;
                };
                for &node in &graph.value(id).consumers {
                    self.reads(carrier, &Use::of_node(graph, graph.node(node)));
                }
            }
        }
    }

    fn reads(&mut self, carrier: Carrier<'a>, reader: &Use<'a>) {
        for attribute in reader.operator.attributes {
            for body in attribute.g.iter().chain(&attribute.graphs) {
                self.push(Carrier {
                    body: Some(body),
                    ..carrier
                });
            }
        }
        for (slot, name) in reader.inputs.iter().enumerate() {
            if *name == carrier.name {
                self.reads_slot(carrier, reader, slot);
            }
        }
    }

    fn reads_slot(&mut self, carrier: Carrier<'a>, reader: &Use<'a>, slot: usize) {
        let op = reader.operator.op;
        if let Some(upper) = self.table(carrier, reader, slot) {
            let upper = upper.saturating_sub_signed(carrier.offset).max(1);
            self.upper = Some(self.upper.map_or(upper, |least| least.min(upper)));
            return;
        }
        if is_size(op, slot) {
            self.sizes = true;
            return;
        }
        match (op, slot) {
            (_, 0) if CARRIERS.contains(&op) => self.shift(carrier, reader, Some(0)),
            ("Concat", _) | ("Where", 1 | 2) | ("Max" | "Min" | "Clip", _) => {
                self.shift(carrier, reader, Some(0));
            }
            ("Cast", _) => {
                self.shift(carrier, reader, Some(0));
                let to = reader
                    .operator
                    .attributes
                    .iter()
                    .find(|attr| attr.name() == "to");
                let to = to.and_then(|attr| DType::from_code(i32::try_from(attr.i?).ok()?));
                self.tested |= to.is_some_and(|to| to.is_float() || to == DType::Bool);
            }
            ("Add" | "Sub", _) => {
                let other = reader.inputs.get(1 - slot.min(1)).copied().unwrap_or("");
                let constant =
                    self.constants(other, carrier.body)
                        .and_then(|list| match list[..] {
                            [value] => Some(value),
                            _ => None,
                        });
                match (op, slot, constant) {
                    ("Add", _, Some(value)) => self.shift(carrier, reader, Some(value)),
                    ("Sub", 0, Some(value)) => self.shift(carrier, reader, value.checked_neg()),
                    _ => self.tested |= op == "Sub",
                }
            }
            _ => {
                if op == "Equal" {
                    let other = reader.inputs.get(1 - slot.min(1)).copied().unwrap_or("");
                    let constants = self.constants(other, carrier.body).unwrap_or_default();
                    self.compared.extend(constants);
                }
                self.tested |= TESTS.contains(&op);
            }
        }
    }

    fn shift(&mut self, carrier: Carrier<'a>, reader: &Use<'a>, by: Option<i64>) {
        let Some(offset) = by.and_then(|by| carrier.offset.checked_add(by)) else {
            return;
        };
        for output in &reader.outputs {
            self.push(Carrier {
                name: output,
                offset,
                ..carrier
            });
        }
    }

    /// Rows of the table that the input at `slot` indexes.
    fn table(&self, carrier: Carrier<'a>, reader: &Use<'a>, slot: usize) -> Option<u64> {
        let axis = || {
            let attributes = reader.operator.attributes.iter();
            let axis = attributes.into_iter().find(|attr| attr.name() == "axis");
            axis.and_then(|attr| attr.i).unwrap_or(0)
        };
        let (data, axis) = match (reader.operator.op, slot) {
            ("Gather" | "GatherElements" | "ScatterElements" | "GatherBlockQuantized", 1) => {
                (0, axis())
            }
            ("GatherND" | "ScatterND", 1) => (0, 0),
            ("EmbedLayerNormalization", 0) => (2, 0),
            ("EmbedLayerNormalization", 1) => (4, 0),
            ("OneHot", 0) => {
                let depth = self.constants(reader.inputs.get(1)?, carrier.body)?;
                return u64::try_from(*depth.first()?).ok();
            }
            _ => return None,
        };
        let shape = self.fact(reader.inputs.get(data)?, carrier.body)?.shape?;
        let rank = i64::try_from(shape.len()).ok()?;
        let axis = if axis < 0 {
            axis.checked_add(rank)?
        } else {
            axis
        };
        shape.get(usize::try_from(axis).ok()?)?.fixed()
    }

    /// The elements of a constant, where they are few and integers.
    fn constants(&self, name: &str, body: Option<&GraphProto>) -> Option<Vec<i64>> {
        let known = self.fact(name, body)?.known?;
        known.elems().iter().map(Elem::int).collect()
    }

    /// What is known of a value that a body, or the graph, reads under `name`.
    fn fact(&self, name: &str, body: Option<&GraphProto>) -> Option<Fact> {
        if let Some(body) = body {
            let mut weights = body.initializer.iter();
            if let Some(tensor) = weights.find(|tensor| tensor.name() == name) {
                return Some(constant::fact_of_tensor(tensor));
            }
            let mut nodes = body.node.iter();
            let made = nodes.find(|node| node.output.iter().any(|output| output == name));
            if let Some(node) = made {
                let value = node.attribute.iter().find(|attr| attr.name() == "value")?;
                return Some(constant::fact_of_tensor(value.t.as_ref()?));
            }
        }
        let id = self.graph.find(name)?;
        self.types.fact(id).cloned()
    }
}

/// Whether the operator takes sizes, positions or counts at `slot`.
fn is_size(op: &str, slot: usize) -> bool {
    matches!(
        (op, slot),
        (
            "Reshape" | "Expand" | "Tile" | "TopK" | "Pad" | "Unsqueeze" | "Squeeze",
            1
        ) | ("ConstantOfShape" | "Loop", 0)
            | ("Range", 0..=2)
            | ("Slice", 1..=4)
            | ("Resize", 3)
    )
}
