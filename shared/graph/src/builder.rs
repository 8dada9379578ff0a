//! Small graphs by hand, for tests and tools.

use bytes::Bytes;
use seamline_plan::{DType, Dim};

use crate::graph::Graph;
use crate::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, ValueInfoProto, attribute_proto::AttributeType,
};
use crate::read::ReadError;
use crate::write::tensor_type;

/// Builds a model node by node.
#[derive(Clone, Debug)]
pub struct GraphBuilder {
    graph: GraphProto,
    functions: Vec<FunctionProto>,
    opsets: Vec<(String, i64)>,
}

impl GraphBuilder {
    /// An empty graph of `opset`.
    pub fn new(name: &str, opset: i64) -> GraphBuilder {
        GraphBuilder {
            graph: GraphProto {
                name: Some(name.into()),
                ..GraphProto::default()
            },
            functions: Vec::new(),
            opsets: vec![(String::new(), opset)],
        }
    }

    /// Imports `version` of another domain.
    pub fn import(&mut self, domain: &str, version: i64) -> &mut GraphBuilder {
        self.opsets.push((domain.into(), version));
        self
    }

    /// Adds a graph input.
    pub fn input(&mut self, name: &str, dtype: DType, shape: &[Dim]) -> &mut GraphBuilder {
        self.graph.input.push(value_info(name, dtype, Some(shape)));
        self
    }

    /// Adds a graph output.
    pub fn output(&mut self, name: &str, dtype: DType, shape: &[Dim]) -> &mut GraphBuilder {
        self.graph.output.push(value_info(name, dtype, Some(shape)));
        self
    }

    /// Declares the type of a value inside the graph.
    pub fn declare(&mut self, name: &str, dtype: DType, shape: &[Dim]) -> &mut GraphBuilder {
        self.graph
            .value_info
            .push(value_info(name, dtype, Some(shape)));
        self
    }

    /// Adds a weight of `f32`.
    pub fn weight_f32(&mut self, name: &str, dims: &[i64], data: &[f32]) -> &mut GraphBuilder {
        let raw = data.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.weight(tensor(name, DType::F32, dims, raw))
    }

    /// Adds a weight of `i64`.
    pub fn weight_i64(&mut self, name: &str, dims: &[i64], data: &[i64]) -> &mut GraphBuilder {
        let raw = data.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.weight(tensor(name, DType::I64, dims, raw))
    }

    /// Adds a weight.
    pub fn weight(&mut self, tensor: TensorProto) -> &mut GraphBuilder {
        self.graph.initializer.push(tensor);
        self
    }

    /// Adds a node named after its first output.
    pub fn node(&mut self, op: &str, inputs: &[&str], outputs: &[&str]) -> &mut GraphBuilder {
        self.node_with(op, inputs, outputs, Vec::new())
    }

    /// Adds a node with attributes. `op` may be `domain::Operator`.
    pub fn node_with(
        &mut self,
        op: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> &mut GraphBuilder {
        self.graph.node.push(node(op, inputs, outputs, attributes));
        self
    }

    /// Adds a model-local function.
    pub fn function(&mut self, function: FunctionProto) -> &mut GraphBuilder {
        self.functions.push(function);
        self
    }

    /// The graph as a body for [`body`].
    pub fn to_body(&self) -> GraphProto {
        self.graph.clone()
    }

    /// The model message.
    pub fn to_model_proto(&self) -> ModelProto {
        ModelProto {
            ir_version: Some(8),
            opset_import: self
                .opsets
                .iter()
                .map(|(domain, version)| OperatorSetIdProto {
                    domain: Some(domain.clone()),
                    version: Some(*version),
                })
                .collect(),
            producer_name: Some("seamline".into()),
            graph: Some(self.graph.clone()),
            functions: self.functions.clone(),
            ..ModelProto::default()
        }
    }

    /// The model file's bytes, unchecked.
    pub fn encode(&self) -> Vec<u8> {
        prost::Message::encode_to_vec(&self.to_model_proto())
    }

    /// The checked graph.
    ///
    /// # Errors
    /// [`ReadError`] where the nodes do not make a valid graph.
    pub fn build(&self) -> Result<Graph, ReadError> {
        Graph::from_model_proto(self.to_model_proto())
    }
}

/// A node message named after its first output; `op` may be `domain::Operator`.
pub fn node(
    op: &str,
    inputs: &[&str],
    outputs: &[&str],
    attributes: Vec<AttributeProto>,
) -> NodeProto {
    let (domain, op_type) = op.split_once("::").unwrap_or(("", op));
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    NodeProto {
        name: outputs.first().map(|&name| format!("{name}/node")),
        op_type: Some(op_type.into()),
        domain: (!domain.is_empty()).then(|| domain.into()),
        input: names(inputs),
        output: names(outputs),
        attribute: attributes,
        ..NodeProto::default()
    }
}

/// The declaration of a tensor value.
pub fn value_info(name: &str, dtype: DType, shape: Option<&[Dim]>) -> ValueInfoProto {
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(tensor_type(dtype, shape)),
        ..ValueInfoProto::default()
    }
}

/// A tensor of raw little-endian data.
pub fn tensor(name: &str, dtype: DType, dims: &[i64], raw: Vec<u8>) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        data_type: Some(dtype.code().into()),
        dims: dims.to_vec(),
        raw_data: Some(Bytes::from(raw)),
        ..TensorProto::default()
    }
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(kind.into()),
        ..AttributeProto::default()
    }
}

/// An integer attribute.
pub fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        i: Some(value),
        ..attribute(name, AttributeType::Int)
    }
}

/// An integer-list attribute.
pub fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto {
        ints: values.to_vec(),
        ..attribute(name, AttributeType::Ints)
    }
}

/// A float attribute.
pub fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto {
        f: Some(value),
        ..attribute(name, AttributeType::Float)
    }
}

/// A string attribute.
pub fn string(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        s: Some(Bytes::copy_from_slice(value.as_bytes())),
        ..attribute(name, AttributeType::String)
    }
}

/// A tensor attribute, e.g. `value` of `Constant`.
pub fn tensor_attribute(name: &str, value: TensorProto) -> AttributeProto {
    AttributeProto {
        t: Some(value),
        ..attribute(name, AttributeType::Tensor)
    }
}

/// A body, e.g. `then_branch` of `If`.
pub fn body(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto {
        g: Some(graph),
        ..attribute(name, AttributeType::Graph)
    }
}
