//! Reading ONNX: bytes to messages, messages to a checked [`Graph`].

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use prost::Message;
use seamline_plan::{DType, Dim};
use thiserror::Error;

use crate::bodies;
use crate::external;
use crate::graph::{Graph, ModelHeader, Node, NodeId, Value, ValueId, canonical_domain};
use crate::nesting::{self, TooDeep};
use crate::proto::{
    GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto,
    tensor_shape_proto::dimension, type_proto,
};
use crate::tensor::Initializer;

/// A model that cannot be read.
#[derive(Debug, Error)]
#[error("{}{problem}", file.as_ref().map(|file| format!("{}: ", file.display())).unwrap_or_default())]
pub struct ReadError {
    /// The file, where there is one.
    pub file: Option<PathBuf>,
    /// What is wrong.
    #[source]
    pub problem: ReadProblem,
}

/// Why a model cannot be read.
#[derive(Debug, Error)]
pub enum ReadProblem {
    /// The operating system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// Nothing in the file.
    #[error("the file is empty; expected an ONNX model: copy or export it again")]
    Empty,
    /// No protobuf, or cut short.
    #[error(
        "not an ONNX model, or only part of one ({bytes} bytes; {error}): check the path, and copy or export the file again"
    )]
    Decode {
        /// The file's length.
        bytes: usize,
        /// Where decoding failed.
        error: prost::DecodeError,
    },
    /// Protobuf, but no model.
    #[error("not an ONNX model: it decodes, but holds no {missing}: check the path")]
    NotAModel {
        /// What a model has and this lacks.
        missing: &'static str,
    },
    /// An input that nothing makes.
    #[error(
        "node {node} reads `{value}`, which no input, initializer or node makes: the model is invalid, export it again"
    )]
    Dangling {
        /// The node and its operator.
        node: String,
        /// The missing value.
        value: String,
    },
    /// An output that nothing makes.
    #[error("output `{value}` is made by no input, initializer or node: export the model again")]
    DanglingOutput {
        /// The output.
        value: String,
    },
    /// A name written twice.
    #[error(
        "value `{value}` is made twice, by {first} and by {second}: values of a model are written once, export it again"
    )]
    Duplicate {
        /// The value.
        value: String,
        /// The first maker.
        first: String,
        /// The second maker.
        second: String,
    },
    /// Nodes that wait for each other.
    #[error(
        "node {node} depends on its own output `{value}`: the model has a cycle, export it again"
    )]
    Cycle {
        /// One node of the cycle and its operator.
        node: String,
        /// The value that closes it.
        value: String,
    },
    /// Bodies nested too deeply.
    #[error(
        "node {node} nests control-flow bodies more than {} deep",
        bodies::MAX_NESTING
    )]
    Nesting {
        /// The outermost node and its operator.
        node: String,
    },
    /// Types nested too deeply.
    #[error(
        "the type of value `{value}` nests sequences, maps and optionals more than {} deep",
        nesting::MAX_TYPE_NESTING
    )]
    TypeNesting {
        /// The value.
        value: String,
    },
    /// Tensor data of another file.
    #[error("external data of tensor `{tensor}`: {problem}")]
    ExternalData {
        /// The tensor.
        tensor: String,
        /// What is wrong.
        problem: String,
    },
    /// Tensor data that does not fit its dimensions.
    #[error("{0}; the file is damaged, copy or export it again")]
    Tensor(#[from] crate::TensorDataError),
    /// More nodes or values than 32 bits count.
    #[error("the model has more than {} nodes or values", u32::MAX)]
    TooLarge,
}

impl Graph {
    /// Reads the model at `path`: mapped, its weights and external data shared with the mapping.
    ///
    /// # Errors
    /// [`ReadError`], which names file, node and operator.
    pub fn read(path: &Path) -> Result<Graph, ReadError> {
        let read = || {
            let file = seamline_plan::map_file(path)?;
            let mut model = decode(file.bytes())?;
            external::resolve(&mut model, Some(path.parent().unwrap_or(Path::new(""))))?;
            let mut graph = build(model)?;
            graph.source = Some(path.to_owned());
            Ok(graph)
        };
        read().map_err(|problem| ReadError {
            file: Some(path.to_owned()),
            problem,
        })
    }

    /// Reads a model from memory; its weights share `bytes`.
    ///
    /// # Errors
    /// [`ReadError`]; external data is refused.
    pub fn from_bytes(bytes: &Bytes) -> Result<Graph, ReadError> {
        decode(bytes)
            .and_then(from_model)
            .map_err(|problem| ReadError {
                file: None,
                problem,
            })
    }

    /// Checks a model message and takes it over.
    ///
    /// # Errors
    /// [`ReadError`]; external data is refused.
    pub fn from_model_proto(model: ModelProto) -> Result<Graph, ReadError> {
        from_model(model).map_err(|problem| ReadError {
            file: None,
            problem,
        })
    }
}

fn from_model(mut model: ModelProto) -> Result<Graph, ReadProblem> {
    external::resolve(&mut model, None)?;
    build(model)
}

fn decode(bytes: &Bytes) -> Result<ModelProto, ReadProblem> {
    if bytes.is_empty() {
        return Err(ReadProblem::Empty);
    }
    ModelProto::decode(bytes.clone()).map_err(|error| match nesting::too_deep(bytes) {
        Some(TooDeep::Bodies(node)) => ReadProblem::Nesting { node },
        Some(TooDeep::Type(value)) => ReadProblem::TypeNesting { value },
        None => ReadProblem::Decode {
            bytes: bytes.len(),
            error,
        },
    })
}

fn build(mut model: ModelProto) -> Result<Graph, ReadProblem> {
    if model.ir_version.is_none() {
        return Err(ReadProblem::NotAModel {
            missing: "IR version",
        });
    }
    let proto = model
        .graph
        .take()
        .ok_or(ReadProblem::NotAModel { missing: "graph" })?;
    let graph = Graph {
        name: proto.name.clone().unwrap_or_default(),
        header: ModelHeader {
            model,
            graph_doc: proto.doc_string.clone(),
            graph_metadata: proto.metadata_props.clone(),
            quantization: proto.quantization_annotation.clone(),
        },
        ..Graph::default()
    };
    Builder::new(graph).build(proto)
}

struct Builder {
    graph: Graph,
    /// Who makes each value, for the error about a second maker.
    makers: Vec<String>,
}

impl Builder {
    fn new(graph: Graph) -> Builder {
        Builder {
            graph,
            makers: Vec::new(),
        }
    }

    fn build(mut self, proto: GraphProto) -> Result<Graph, ReadProblem> {
        self.initializers(&proto)?;
        for input in &proto.input {
            if let Some(id) = self.graph.find(input.name()) {
                if !self.graph.initializers.contains_key(&id) {
                    return Err(self.duplicate(id, "a graph input"));
                }
                self.graph.overridable.push(id);
                declare(&mut self.graph.values[id.index()], input);
            } else {
                let id = self.make(input.name(), || "a graph input".into())?;
                self.graph.inputs.push(id);
                declare(&mut self.graph.values[id.index()], input);
            }
        }
        for node in &proto.node {
            for name in node.output.iter().filter(|name| !name.is_empty()) {
                self.make(name, || format!("node {}", label(node)))?;
            }
        }
        for info in proto.value_info.iter().chain(&proto.output) {
            if let Some(id) = self.graph.find(info.name()) {
                declare(&mut self.graph.values[id.index()], info);
            }
        }
        for output in &proto.output {
            let id = self
                .graph
                .find(output.name())
                .ok_or_else(|| ReadProblem::DanglingOutput {
                    value: output.name().to_owned(),
                })?;
            self.graph.outputs.push(id);
        }
        let nodes = proto
            .node
            .into_iter()
            .map(|node| self.node(node))
            .collect::<Result<Vec<_>, _>>()?;
        u32::try_from(nodes.len()).map_err(|_| ReadProblem::TooLarge)?;
        self.graph.nodes = sort(&self.graph, nodes)?;
        link(&mut self.graph);
        Ok(self.graph)
    }

    fn initializers(&mut self, proto: &GraphProto) -> Result<(), ReadProblem> {
        let dense = proto
            .initializer
            .iter()
            .map(|tensor| Initializer::from(tensor.clone()));
        let sparse = proto.sparse_initializer.iter().map(|sparse| Initializer {
            tensor: TensorProto {
                name: sparse
                    .values
                    .as_ref()
                    .and_then(|values| values.name.clone()),
                data_type: sparse.values.as_ref().and_then(|values| values.data_type),
                dims: sparse.dims.clone(),
                ..TensorProto::default()
            },
            sparse: Some(Box::new(sparse.clone())),
        });
        for initializer in dense.chain(sparse) {
            let id = self.make(initializer.tensor.name(), || "an initializer".into())?;
            let dims = initializer.dims()?;
            if let Some(raw) = &initializer.tensor.raw_data
                && initializer.is_sized()
                && raw.len() as u64 != initializer.byte_len()?
            {
                initializer.bytes()?;
            }
            let value = &mut self.graph.values[id.index()];
            value.dtype = initializer.dtype();
            value.shape = Some(dims.into_iter().map(Dim::Fixed).collect());
            self.graph.initializers.insert(id, initializer);
        }
        Ok(())
    }

    fn make(&mut self, name: &str, maker: impl Fn() -> String) -> Result<ValueId, ReadProblem> {
        if let Some(first) = self.graph.find(name) {
            return Err(self.duplicate(first, &maker()));
        }
        let id = u32::try_from(self.graph.values.len()).map_err(|_| ReadProblem::TooLarge)?;
        let id = ValueId(id);
        self.graph.values.push(Value {
            name: name.to_owned(),
            ..Value::default()
        });
        self.graph.by_name.insert(name.to_owned(), id);
        self.makers.push(maker());
        Ok(id)
    }

    fn duplicate(&self, first: ValueId, second: &str) -> ReadProblem {
        ReadProblem::Duplicate {
            value: self.graph.value(first).name.clone(),
            first: self.makers[first.index()].clone(),
            second: second.to_owned(),
        }
    }

    fn node(&self, proto: NodeProto) -> Result<Node, ReadProblem> {
        let find = |name: &str| {
            self.graph.find(name).ok_or_else(|| ReadProblem::Dangling {
                node: label(&proto),
                value: name.to_owned(),
            })
        };
        let named = |name: &String| (!name.is_empty()).then(|| find(name)).transpose();
        let inputs = proto.input.iter().map(named).collect::<Result<_, _>>()?;
        let outputs = proto.output.iter().map(named).collect::<Result<_, _>>()?;
        let mut captures = Vec::new();
        for body in bodies::bodies_of(&proto) {
            let reads = bodies::outer_reads(body).map_err(|_| ReadProblem::Nesting {
                node: label(&proto),
            })?;
            for name in reads {
                captures.push(find(name)?);
            }
        }
        captures.sort_unstable();
        captures.dedup();
        Ok(Node {
            domain: canonical_domain(proto.domain()).to_owned(),
            name: proto.name.unwrap_or_default(),
            op_type: proto.op_type.unwrap_or_default(),
            overload: proto.overload.unwrap_or_default(),
            inputs,
            captures,
            outputs,
            attributes: proto.attribute,
            doc_string: proto.doc_string,
            metadata: proto.metadata_props,
            devices: proto.device_configurations,
        })
    }
}

/// Topological order; nodes that the file already has in order stay where they are.
fn sort(graph: &Graph, nodes: Vec<Node>) -> Result<Vec<Node>, ReadProblem> {
    let mut producer: HashMap<ValueId, usize> = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        producer.extend(node.makes().map(|value| (value, index)));
    }
    let mut waiting = vec![0usize; nodes.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        for maker in node.reads().filter_map(|value| producer.get(&value)) {
            readers[*maker].push(index);
            waiting[index] += 1;
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> = (0..nodes.len())
        .filter(|&index| waiting[index] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &reader in &readers[index] {
            waiting[reader] -= 1;
            if waiting[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    if order.len() < nodes.len() {
        return Err(cycle(graph, &nodes, &producer, &waiting));
    }
    let mut slots: Vec<Option<Node>> = nodes.into_iter().map(Some).collect();
    Ok(order
        .into_iter()
        .filter_map(|index| slots[index].take())
        .collect())
}

/// Names a node that is itself on a cycle, not merely behind one: walks back along makers that
/// still wait until one comes up again.
fn cycle(
    graph: &Graph,
    nodes: &[Node],
    producer: &HashMap<ValueId, usize>,
    waiting: &[usize],
) -> ReadProblem {
    let mut seen = vec![false; nodes.len()];
    let mut at = waiting.iter().position(|&count| count > 0).unwrap_or(0);
    let mut through = String::new();
    while !std::mem::replace(&mut seen[at], true) {
        let back = nodes[at].reads().find_map(|value| {
            let maker = *producer.get(&value)?;
            (waiting[maker] > 0).then_some((value, maker))
        });
        let Some((value, maker)) = back else { break };
        through.clone_from(&graph.value(value).name);
        at = maker;
    }
    ReadProblem::Cycle {
        node: format!("`{}` ({})", nodes[at].name, nodes[at].op_type),
        value: through,
    }
}

/// Fills in producers and consumers.
fn link(graph: &mut Graph) {
    for (id, node) in (0u32..).map(NodeId).zip(&graph.nodes) {
        for value in node.makes() {
            graph.values[value.index()].producer = Some(id);
        }
        for value in node.reads() {
            let consumers = &mut graph.values[value.index()].consumers;
            if consumers.last() != Some(&id) {
                consumers.push(id);
            }
        }
    }
}

fn declare(value: &mut Value, info: &ValueInfoProto) {
    // The first declaration that carries a type is kept: files often repeat outputs untyped.
    if value
        .declared
        .as_ref()
        .is_some_and(|declared| declared.r#type.is_some())
    {
        return;
    }
    value.declared = Some(info.clone());
    let Some((code, shape)) = info.r#type.as_ref().and_then(tensor_type) else {
        return;
    };
    value.dtype = value.dtype.or(DType::from_code(code));
    if value.shape.is_none() {
        value.shape = shape;
    }
}

/// Element type code and shape of a dense tensor type.
fn tensor_type(kind: &TypeProto) -> Option<(i32, Option<Vec<Dim>>)> {
    let Some(type_proto::Value::TensorType(tensor)) = &kind.value else {
        return None;
    };
    let shape = tensor.shape.as_ref().map(|shape| {
        let dims = shape.dim.iter().map(|dim| match &dim.value {
            // Exporters write -1 (and 0, for a batch) where they mean "unknown".
            Some(dimension::Value::DimValue(size)) => {
                u64::try_from(*size).map_or(Dim::Unknown, Dim::Fixed)
            }
            Some(dimension::Value::DimParam(symbol)) if !symbol.is_empty() => {
                Dim::Sym(symbol.clone())
            }
            _ => Dim::Unknown,
        });
        dims.collect()
    });
    Some((tensor.elem_type(), shape))
}

fn label(node: &NodeProto) -> String {
    match node.output.iter().find(|name| !name.is_empty()) {
        Some(output) if node.name().is_empty() => {
            format!("({}) that makes `{output}`", node.op_type())
        }
        _ => format!("`{}` ({})", node.name(), node.op_type()),
    }
}
