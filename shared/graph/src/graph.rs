//! The model as typed nodes and values: an SSA DAG whose names are those of the ONNX file.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use seamline_plan::{DType, Dim};

use crate::proto::{self, AttributeProto, FunctionProto, ModelProto, ValueInfoProto};
use crate::tensor::Initializer;

/// Index of a value in [`Graph::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// Index of a node in [`Graph::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl ValueId {
    /// The index as `usize`.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    /// The index as `usize`.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A value: written once, by a node, a caller or the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Value {
    /// The name in the file; unique.
    pub name: String,
    /// Element type as the file declares it, where it does and Seamline carries it.
    pub dtype: Option<DType>,
    /// Shape as the file declares it; `None` where even the rank is unknown.
    pub shape: Option<Vec<Dim>>,
    /// The node that makes it; `None` for graph inputs and initializers.
    pub producer: Option<NodeId>,
    /// The nodes that read it, bodies of theirs included; ascending, each once.
    pub consumers: Vec<NodeId>,
    /// The file's declaration, verbatim (sequence and optional types included).
    pub declared: Option<ValueInfoProto>,
}

impl Value {
    /// Whether the file declares a type that is not a dense tensor (sequence, optional, map,
    /// sparse tensor), which cannot cross a cut.
    pub fn is_declared_non_tensor(&self) -> bool {
        let kind = self.declared.as_ref().and_then(|info| info.r#type.as_ref());
        matches!(
            kind.and_then(|kind| kind.value.as_ref()),
            Some(value) if !matches!(value, proto::type_proto::Value::TensorType(_))
        )
    }
}

/// One operator of the graph. Operators and domains that Seamline does not know are kept as they
/// are.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// The name in the file; may be empty.
    pub name: String,
    /// The operator's domain; empty for ONNX's own (`ai.onnx`).
    pub domain: String,
    /// The operator, e.g. `Conv`.
    pub op_type: String,
    /// The overload of a model-local function; nearly always empty.
    pub overload: String,
    /// Inputs by position; `None` where an optional one is left out.
    pub inputs: Vec<Option<ValueId>>,
    /// Outer values that the node's bodies read, nested bodies too; ascending, each once.
    pub captures: Vec<ValueId>,
    /// Outputs by position; `None` where an optional one is left out.
    pub outputs: Vec<Option<ValueId>>,
    /// Attributes, bodies among them, verbatim. Bodies refer to outer values by name.
    pub attributes: Vec<AttributeProto>,
    /// Documentation, where there is any.
    pub doc_string: Option<String>,
    /// The node's metadata, verbatim.
    pub metadata: Vec<proto::StringStringEntryProto>,
    /// Device annotations, verbatim.
    pub devices: Vec<proto::NodeDeviceConfigurationProto>,
}

impl Node {
    /// Whether this is `op_type` of ONNX's own domain.
    pub fn is(&self, op_type: &str) -> bool {
        self.domain.is_empty() && self.op_type == op_type
    }

    /// Values that must exist before the node runs: inputs, then captures; some may repeat.
    pub fn reads(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.inputs.iter().flatten().chain(&self.captures).copied()
    }

    /// Values that the node makes.
    pub fn makes(&self) -> impl Iterator<Item = ValueId> + '_ {
        self.outputs.iter().flatten().copied()
    }

    /// The input at `position`, where it is given.
    pub fn input(&self, position: usize) -> Option<ValueId> {
        self.inputs.get(position).copied().flatten()
    }

    /// The output at `position`, where it is named.
    pub fn output(&self, position: usize) -> Option<ValueId> {
        self.outputs.get(position).copied().flatten()
    }

    /// The attribute `name`.
    pub fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attributes.iter().find(|attr| attr.name() == name)
    }

    /// The integer attribute `name`.
    pub fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name).and_then(|attr| attr.i)
    }

    /// The float attribute `name`.
    pub fn float(&self, name: &str) -> Option<f32> {
        self.attribute(name).and_then(|attr| attr.f)
    }

    /// The integer-list attribute `name`.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|attr| attr.ints.as_slice())
    }

    /// The float-list attribute `name`.
    pub fn floats(&self, name: &str) -> Option<&[f32]> {
        self.attribute(name).map(|attr| attr.floats.as_slice())
    }

    /// The string attribute `name`, where it is UTF-8.
    pub fn string(&self, name: &str) -> Option<&str> {
        let bytes = self.attribute(name)?.s.as_ref()?;
        std::str::from_utf8(bytes).ok()
    }

    /// The tensor attribute `name`.
    pub fn tensor(&self, name: &str) -> Option<&proto::TensorProto> {
        self.attribute(name)?.t.as_ref()
    }

    /// The node's bodies with the attributes that hold them.
    pub fn bodies(&self) -> impl Iterator<Item = (&str, &proto::GraphProto)> {
        self.attributes
            .iter()
            .flat_map(|attr| attr.g.iter().chain(&attr.graphs).map(|g| (attr.name(), g)))
    }
}

/// What the file says about the model as a whole: everything of its `ModelProto` but the graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelHeader {
    /// The file's model message; its `graph` is `None`.
    pub model: ModelProto,
    /// The graph's documentation.
    pub graph_doc: Option<String>,
    /// The graph's metadata.
    pub graph_metadata: Vec<proto::StringStringEntryProto>,
    /// Quantisation annotations, by tensor name.
    pub quantization: Vec<proto::TensorAnnotation>,
}

impl ModelHeader {
    /// The version of the ONNX format.
    pub fn ir_version(&self) -> i64 {
        self.model.ir_version()
    }

    /// The operator-set version imported for `domain` (empty and `ai.onnx` are the same).
    pub fn opset(&self, domain: &str) -> Option<i64> {
        let wanted = canonical_domain(domain);
        self.model
            .opset_import
            .iter()
            .find(|import| canonical_domain(import.domain()) == wanted)
            .map(|import| import.version())
    }

    /// Model-local functions.
    pub fn functions(&self) -> &[FunctionProto] {
        &self.model.functions
    }

    /// The model's metadata, e.g. class labels.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        self.model
            .metadata_props
            .iter()
            .map(|entry| (entry.key().to_owned(), entry.value().to_owned()))
            .collect()
    }
}

/// The domain under one spelling: ONNX's own is empty.
pub fn canonical_domain(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}

/// A model graph.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The graph's name.
    pub name: String,
    /// All values of the outer graph.
    pub values: Vec<Value>,
    /// All nodes, every one after those whose values it reads.
    pub nodes: Vec<Node>,
    /// What a caller must give, in the file's order.
    pub inputs: Vec<ValueId>,
    /// Initializers that the file also declares as inputs, so that a caller may override them.
    pub overridable: Vec<ValueId>,
    /// What a caller gets, in the file's order.
    pub outputs: Vec<ValueId>,
    /// Weights.
    pub initializers: BTreeMap<ValueId, Initializer>,
    /// Everything else that the file says.
    pub header: ModelHeader,
    /// The file that the graph was read from.
    pub source: Option<PathBuf>,
    pub(crate) by_name: HashMap<String, ValueId>,
}

impl Graph {
    /// The value `id`.
    ///
    /// # Panics
    /// Where `id` is another graph's.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The node `id`.
    ///
    /// # Panics
    /// Where `id` is another graph's.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The value called `name`, of the outer graph.
    pub fn find(&self, name: &str) -> Option<ValueId> {
        self.by_name.get(name).copied()
    }

    /// Every node with its id, in topological order.
    pub fn enumerate_nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        (0u32..).map(NodeId).zip(&self.nodes)
    }

    /// The operator-set version of ONNX's own domain.
    pub fn opset(&self) -> i64 {
        self.header.opset("").unwrap_or(0)
    }

    /// Whether `id` is a weight: an initializer, or made by a `Constant` node. Weights are free to
    /// stand on both sides of a cut.
    pub fn is_weight(&self, id: ValueId) -> bool {
        self.initializers.contains_key(&id)
            || self
                .value(id)
                .producer
                .is_some_and(|node| self.node(node).is("Constant"))
    }

    /// The content of a weight: an initializer, or the tensor of a `Constant` node. `None` for
    /// other values and for sparse and string constants.
    pub fn constant(&self, id: ValueId) -> Option<Initializer> {
        if let Some(initializer) = self.initializers.get(&id) {
            return Some(initializer.clone());
        }
        let node = self.node(self.value(id).producer?);
        node.is("Constant")
            .then(|| Initializer::of_constant_node(node))
            .flatten()
    }

    /// How errors name a node: its name, or operator and position where it has none.
    pub fn node_label(&self, id: NodeId) -> String {
        let node = self.node(id);
        if node.name.is_empty() {
            format!("#{} ({})", id.0, node.op_type)
        } else {
            format!("`{}` ({})", node.name, node.op_type)
        }
    }
}
