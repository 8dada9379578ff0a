//! Evaluation of one node, and of the node lists inside control flow and model-local functions.

use std::cell::Cell;
use std::collections::HashMap;

use seamline_plan::{Bindings, DType, Dim};

use super::call::{Call, Out};
use super::known::Fact;
use super::{MIN_OPSET, constant, control, flops, refined, rules, settled};
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto, ValueInfoProto,
    tensor_shape_proto::dimension::Value as DimValue, type_proto,
};
use crate::{Graph, Node, canonical_domain};

/// Bodies nested deeper than this are not followed.
const MAX_DEPTH: usize = 32;

/// Nodes visited inside bodies, in all; a model whose functions call each other can ask for
/// exponentially many.
pub(super) const MAX_BODY_NODES: u32 = 200_000;

/// The model's local functions by domain, name and overload.
pub(super) type Functions<'g> = HashMap<(&'g str, &'g str, &'g str), &'g FunctionProto>;

/// The local functions of `graph`.
pub(super) fn functions(graph: &Graph) -> Functions<'_> {
    let functions = graph.header.functions().iter();
    functions
        .map(|function| {
            let domain = canonical_domain(function.domain());
            ((domain, function.name(), function.overload()), function)
        })
        .collect()
}

/// What holds throughout an evaluation.
#[derive(Clone, Copy)]
pub(super) struct Context<'g> {
    functions: &'g Functions<'g>,
    pub(super) bindings: &'g Bindings,
    imports: &'g [OperatorSetIdProto],
    /// The attributes of the function call that is being evaluated.
    arguments: &'g [AttributeProto],
    depth: usize,
    /// How many of the enclosing bodies are loops.
    pub(super) loops: usize,
    body_nodes_left: &'g Cell<u32>,
}

impl<'g> Context<'g> {
    pub(super) fn new(
        graph: &'g Graph,
        functions: &'g Functions<'g>,
        bindings: &'g Bindings,
        body_nodes_left: &'g Cell<u32>,
    ) -> Context<'g> {
        Context {
            functions,
            bindings,
            imports: &graph.header.model.opset_import,
            arguments: &[],
            depth: 0,
            loops: 0,
            body_nodes_left,
        }
    }

    /// The version that rules go by. Domains other than ONNX's have no versions that matter.
    pub(super) fn version(&self, domain: &str) -> i64 {
        if !domain.is_empty() {
            return i64::MAX;
        }
        if self.imports.is_empty() {
            // By the specification.
            return 1;
        }
        self.imports
            .iter()
            .find(|import| canonical_domain(import.domain()).is_empty())
            .map_or(i64::MAX, OperatorSetIdProto::version)
    }

    /// The context inside a loop's body.
    pub(super) fn in_loop(self) -> Context<'g> {
        Context {
            loops: self.loops + 1,
            ..self
        }
    }
}

/// What a node does, whichever message holds it.
pub(super) struct Operator<'a> {
    pub(super) domain: &'a str,
    pub(super) op: &'a str,
    pub(super) overload: &'a str,
    pub(super) attributes: &'a [AttributeProto],
}

impl<'a> Operator<'a> {
    pub(super) fn of_node(node: &'a Node) -> Operator<'a> {
        Operator {
            domain: canonical_domain(&node.domain),
            op: &node.op_type,
            overload: &node.overload,
            attributes: &node.attributes,
        }
    }

    /// The body in the attribute `name`.
    pub(super) fn body(&self, name: &str) -> Option<&'a GraphProto> {
        self.attributes
            .iter()
            .find(|attr| attr.name() == name)
            .and_then(|attr| attr.g.as_ref())
    }
}

/// Where a body finds the values that it does not make itself.
pub(super) enum Parent<'s> {
    Root {
        graph: &'s Graph,
        facts: &'s [Fact],
    },
    Body(&'s Scope<'s>),
    /// A function sees only its arguments.
    Sealed,
}

/// The values of one body.
pub(super) struct Scope<'s> {
    own: HashMap<&'s str, Fact>,
    parent: &'s Parent<'s>,
}

impl Scope<'_> {
    fn lookup(&self, name: &str) -> Option<&Fact> {
        let mut scope = self;
        loop {
            if let Some(fact) = scope.own.get(name) {
                return Some(fact);
            }
            match scope.parent {
                Parent::Root { graph, facts } => return facts.get(graph.find(name)?.index()),
                Parent::Body(outer) => scope = outer,
                Parent::Sealed => return None,
            }
        }
    }
}

/// What came of one node or body.
#[derive(Default)]
pub(super) struct Result {
    pub(super) outputs: Vec<Fact>,
    /// FLOPs of the bodies inside, where there are any.
    pub(super) body_flops: Option<f64>,
}

/// Evaluates one node.
pub(super) fn step(
    context: &Context<'_>,
    operator: &Operator<'_>,
    inputs: Vec<Option<&Fact>>,
    outputs: usize,
    parent: &Parent<'_>,
) -> Result {
    if operator.domain.is_empty() {
        let control = match operator.op {
            "If" => Some(control::branch(context, operator, &inputs, outputs, parent)),
            "Loop" => Some(control::repeat(context, operator, &inputs, outputs, parent)),
            "Scan" => Some(control::scan(context, operator, &inputs, outputs, parent)),
            _ => None,
        };
        if let Some(result) = control {
            return result;
        }
    }
    let function = (operator.domain, operator.op, operator.overload);
    if let Some(function) = context.functions.get(&function) {
        return call_function(context, function, operator, &inputs);
    }
    let call = Call {
        op: operator.op,
        version: context.version(operator.domain),
        attributes: operator.attributes,
        inputs,
        outputs,
    };
    let mut out = Out::new(outputs);
    let is_known = call.version >= MIN_OPSET || operator.op == "Constant";
    if let Some(rule) = rules::find(operator.domain, operator.op).filter(|_| is_known) {
        // `None` says that nothing more could be told; what was told before stands.
        let _ = rule(&call, &mut out);
    }
    Result {
        outputs: out.facts,
        body_flops: None,
    }
}

fn call_function(
    context: &Context<'_>,
    function: &FunctionProto,
    operator: &Operator<'_>,
    inputs: &[Option<&Fact>],
) -> Result {
    if context.depth >= MAX_DEPTH {
        return Result::default();
    }
    let mut arguments = resolved(operator.attributes, context.arguments);
    for default in &function.attribute_proto {
        if !arguments.iter().any(|attr| attr.name() == default.name()) {
            arguments.push(default.clone());
        }
    }
    let inner = Context {
        imports: &function.opset_import,
        arguments: &arguments,
        depth: context.depth + 1,
        ..*context
    };
    let mut scope = Scope {
        own: HashMap::new(),
        parent: &Parent::Sealed,
    };
    for (name, fact) in function.input.iter().zip(inputs) {
        if let Some(fact) = fact {
            scope.own.insert(name, (*fact).clone());
        }
    }
    let flops = run(&inner, &function.node, &HashMap::new(), &mut scope);
    let outputs = function.output.iter();
    Result {
        outputs: outputs
            .map(|name| scope.lookup(name).cloned().unwrap_or_default())
            .collect(),
        body_flops: Some(flops),
    }
}

/// Evaluates a body on `arguments`, which are its inputs by position.
pub(super) fn run_body(
    context: &Context<'_>,
    body: &GraphProto,
    arguments: Vec<Fact>,
    parent: &Parent<'_>,
) -> Result {
    if context.depth >= MAX_DEPTH {
        return Result::default();
    }
    let inner = Context {
        depth: context.depth + 1,
        ..*context
    };
    let declarations: HashMap<&str, Fact> = body
        .value_info
        .iter()
        .chain(&body.output)
        .map(|info| (info.name(), declared(info, context.bindings)))
        .collect();
    let mut scope = Scope {
        own: HashMap::new(),
        parent,
    };
    for tensor in &body.initializer {
        let fact = constant::fact_of_tensor(tensor);
        scope.own.insert(tensor.name(), fact);
    }
    for (info, fact) in body.input.iter().zip(arguments) {
        let fact = refined(fact, &declared(info, context.bindings));
        scope.own.insert(info.name(), fact);
    }
    let flops = run(&inner, &body.node, &declarations, &mut scope);
    let outputs = body.output.iter();
    Result {
        outputs: outputs
            .map(|info| scope.lookup(info.name()).cloned().unwrap_or_default())
            .collect(),
        body_flops: Some(flops),
    }
}

/// Evaluates `nodes` in order into `scope`; returns their FLOPs.
fn run<'s>(
    context: &Context<'_>,
    nodes: &'s [NodeProto],
    declarations: &HashMap<&str, Fact>,
    scope: &mut Scope<'s>,
) -> f64 {
    let unknown = Fact::default();
    let mut total = 0.0;
    for node in nodes {
        let left = context.body_nodes_left.get();
        if left == 0 {
            break;
        }
        context.body_nodes_left.set(left - 1);
        let attributes;
        let operator = Operator {
            domain: canonical_domain(node.domain()),
            op: node.op_type(),
            overload: node.overload(),
            attributes: if needs_arguments(&node.attribute) {
                attributes = resolved(&node.attribute, context.arguments);
                &attributes
            } else {
                &node.attribute
            },
        };
        let inputs: Vec<Option<&Fact>> = node
            .input
            .iter()
            .map(|name| (!name.is_empty()).then(|| scope.lookup(name).unwrap_or(&unknown)))
            .collect();
        let parent = Parent::Body(scope);
        let result = step(
            context,
            &operator,
            inputs.clone(),
            node.output.len(),
            &parent,
        );
        total += result
            .body_flops
            .unwrap_or_else(|| flops::of_call(&operator, inputs, &result.outputs));
        for (name, fact) in node.output.iter().zip(result.outputs) {
            let mut fact = settled(fact, context.bindings);
            if let Some(declared) = declarations.get(name.as_str()) {
                fact = refined(fact, declared);
            }
            scope.own.insert(name, fact);
        }
    }
    total
}

fn needs_arguments(attributes: &[AttributeProto]) -> bool {
    attributes
        .iter()
        .any(|attr| !attr.ref_attr_name().is_empty())
}

/// The attributes with references to the enclosing function's replaced by what they refer to.
fn resolved(attributes: &[AttributeProto], arguments: &[AttributeProto]) -> Vec<AttributeProto> {
    attributes
        .iter()
        .filter_map(|attr| {
            let wanted = attr.ref_attr_name();
            if wanted.is_empty() {
                return Some(attr.clone());
            }
            let found = arguments
                .iter()
                .find(|argument| argument.name() == wanted)?;
            Some(AttributeProto {
                name: attr.name.clone(),
                ..found.clone()
            })
        })
        .collect()
}

/// What a body declares of a value.
fn declared(info: &ValueInfoProto, bindings: &Bindings) -> Fact {
    let Some(type_proto::Value::TensorType(tensor)) =
        info.r#type.as_ref().and_then(|kind| kind.value.as_ref())
    else {
        return Fact::default();
    };
    let shape = tensor.shape.as_ref().map(|shape| {
        shape
            .dim
            .iter()
            .map(|dim| match &dim.value {
                Some(DimValue::DimValue(size)) => {
                    u64::try_from(*size).map_or(Dim::Unknown, Dim::Fixed)
                }
                Some(DimValue::DimParam(symbol)) => Dim::Sym(symbol.clone()),
                None => Dim::Unknown,
            })
            .collect()
    });
    let fact = Fact {
        dtype: DType::from_code(tensor.elem_type()),
        shape,
        known: None,
    };
    settled(fact, bindings)
}
