//! Writing ONNX: a [`Graph`] back to messages and files.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use prost::Message;
use thiserror::Error;

use crate::graph::{Graph, Node, Value, ValueId};
use crate::proto::{GraphProto, ModelProto, NodeProto, ValueInfoProto, type_proto};
use crate::proto::{StringStringEntryProto, TensorProto, TypeProto, tensor_proto};
use crate::proto::{TensorShapeProto, tensor_shape_proto};
use seamline_plan::{DType, Dim};

/// Protobuf's own limit on a message.
const MESSAGE_LIMIT: usize = i32::MAX as usize;

/// Offsets in an external file: pages, so that a runtime can map a tensor where it lies.
const ALIGNMENT: u64 = 4096;

/// How a model is written.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Where weights of some size go; `None` keeps all in the model file, which protobuf limits
    /// to 2 GiB.
    pub external: Option<ExternalOptions>,
}

/// Which weights go to a file of their own, and its name.
#[derive(Clone, Debug)]
pub struct ExternalOptions {
    /// The file's name, beside the model.
    pub file: String,
    /// Weights of at least this many bytes go there. Default choice: 1024.
    pub threshold: u64,
}

/// A model that cannot be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The operating system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// Too large for one message.
    #[error(
        "{}: the model takes {bytes} bytes, and a protobuf file at most {MESSAGE_LIMIT}: write its weights to an external file",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What it would take.
        bytes: usize,
    },
}

impl Graph {
    /// The graph as an ONNX message; weights are shared, not copied.
    pub fn to_model_proto(&self) -> ModelProto {
        let mut model = self.header.model.clone();
        model.graph = Some(self.to_graph_proto());
        model
    }

    /// Writes the model to `path`, and weights beside it as `options` say. A file is there whole
    /// or not at all.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write(&self, path: &Path, options: &WriteOptions) -> Result<(), WriteError> {
        let mut model = self.to_model_proto();
        if let Some(external) = &options.external {
            let mut weights = ExternalWeights::new(&external.file, external.threshold);
            weights.take(&mut model);
            if !weights.is_empty() {
                let target = path.with_file_name(&external.file);
                weights.write(&target)?;
            }
        }
        let bytes = model.encoded_len();
        if bytes > MESSAGE_LIMIT {
            let path = path.to_owned();
            return Err(WriteError::TooLarge { path, bytes });
        }
        seamline_plan::write_atomic(path, &model.encode_to_vec()).map_err(|error| WriteError::Io {
            path: path.to_owned(),
            error,
        })
    }

    fn to_graph_proto(&self) -> GraphProto {
        let mut overridable = self.overridable.clone();
        if self.header.ir_version() < 4 {
            // Before version 4 every initializer had to be declared as an input.
            overridable = self.initializers.keys().copied().collect();
        }
        let inputs = self.inputs.iter().chain(&overridable);
        let interface: HashSet<ValueId> = inputs.clone().chain(&self.outputs).copied().collect();
        let declare = |id: &ValueId| declaration(self.value(*id));
        let (dense, sparse): (Vec<_>, Vec<_>) = self
            .initializers
            .values()
            .cloned()
            .partition(|weight| weight.sparse.is_none());
        GraphProto {
            input: inputs.map(declare).collect(),
            output: self.outputs.iter().map(declare).collect(),
            initializer: dense.into_iter().map(|weight| weight.tensor).collect(),
            sparse_initializer: sparse
                .into_iter()
                .filter_map(|weight| Some(*weight.sparse?))
                .collect(),
            value_info: self
                .values
                .iter()
                .zip((0u32..).map(ValueId))
                .filter(|(_, id)| !interface.contains(id))
                .filter_map(|(value, _)| value.declared.clone())
                .collect(),
            ..self.to_graph_proto_of(self.nodes.iter())
        }
    }

    /// The graph's own name, documentation and annotations with `nodes`, and no values.
    pub(crate) fn to_graph_proto_of<'a>(
        &self,
        nodes: impl Iterator<Item = &'a Node>,
    ) -> GraphProto {
        GraphProto {
            name: Some(self.name.clone()),
            node: nodes.map(|node| self.to_node_proto(node)).collect(),
            doc_string: self.header.graph_doc.clone(),
            metadata_props: self.header.graph_metadata.clone(),
            quantization_annotation: self.header.quantization.clone(),
            ..GraphProto::default()
        }
    }

    fn to_node_proto(&self, node: &Node) -> NodeProto {
        let name =
            |id: &Option<ValueId>| id.map_or_else(String::new, |id| self.value(id).name.clone());
        let given = |text: &String| (!text.is_empty()).then(|| text.clone());
        NodeProto {
            input: node.inputs.iter().map(name).collect(),
            output: node.outputs.iter().map(name).collect(),
            name: given(&node.name),
            op_type: Some(node.op_type.clone()),
            domain: given(&node.domain),
            overload: given(&node.overload),
            attribute: node.attributes.clone(),
            doc_string: node.doc_string.clone(),
            metadata_props: node.metadata.clone(),
            device_configurations: node.devices.clone(),
        }
    }
}

/// The value's own declaration, or one made from its dtype and shape.
pub(crate) fn declaration(value: &Value) -> ValueInfoProto {
    if let Some(declared) = &value.declared
        && declared.r#type.is_some()
    {
        return declared.clone();
    }
    let base = value.declared.clone().unwrap_or_default();
    ValueInfoProto {
        name: Some(value.name.clone()),
        r#type: value
            .dtype
            .map(|dtype| tensor_type(dtype, value.shape.as_deref())),
        ..base
    }
}

/// The message for a dense tensor type; a shape of `None` leaves even the rank open.
pub fn tensor_type(dtype: DType, shape: Option<&[Dim]>) -> TypeProto {
    let dims = |dims: &[Dim]| TensorShapeProto {
        dim: dims.iter().map(dimension).collect(),
    };
    TypeProto {
        value: Some(type_proto::Value::TensorType(type_proto::Tensor {
            elem_type: Some(dtype.code().into()),
            shape: shape.map(dims),
        })),
        ..TypeProto::default()
    }
}

fn dimension(dim: &Dim) -> tensor_shape_proto::Dimension {
    use tensor_shape_proto::dimension::Value;
    tensor_shape_proto::Dimension {
        value: match dim {
            Dim::Fixed(size) => i64::try_from(*size).ok().map(Value::DimValue),
            Dim::Sym(symbol) => Some(Value::DimParam(symbol.clone())),
            Dim::Unknown => None,
        },
        ..tensor_shape_proto::Dimension::default()
    }
}

/// Weights of one or more models, laid out for one external file. Equal weights are stored once.
#[derive(Debug)]
pub struct ExternalWeights {
    file: String,
    threshold: u64,
    chunks: Vec<(u64, Bytes)>,
    end: u64,
    placed: HashMap<blake3::Hash, u64>,
}

impl ExternalWeights {
    /// An empty layout; models will name `file`, relative to their own folder.
    pub fn new(file: &str, threshold: u64) -> ExternalWeights {
        ExternalWeights {
            file: file.to_owned(),
            threshold,
            chunks: Vec::new(),
            end: 0,
            placed: HashMap::new(),
        }
    }

    /// Moves the raw initializers of `model` that reach the threshold into the layout.
    pub fn take(&mut self, model: &mut ModelProto) {
        let Some(graph) = &mut model.graph else {
            return;
        };
        for tensor in &mut graph.initializer {
            // A threshold of 0 must still leave empty tensors where they are.
            if let Some(raw) = tensor
                .raw_data
                .take_if(|raw| raw.len() as u64 >= self.threshold.max(1))
            {
                let length = raw.len();
                let offset = self.place(raw);
                refer(tensor, &self.file, offset, length);
            }
        }
    }

    fn place(&mut self, raw: Bytes) -> u64 {
        let hash = blake3::hash(&raw);
        if let Some(&offset) = self.placed.get(&hash) {
            return offset;
        }
        let offset = self.end.next_multiple_of(ALIGNMENT);
        self.end = offset + raw.len() as u64;
        self.chunks.push((offset, raw));
        self.placed.insert(hash, offset);
        offset
    }

    /// Whether no weight reached the threshold; no file is needed then.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The file's length in bytes.
    pub fn byte_len(&self) -> u64 {
        self.end
    }

    /// Streams the file's content.
    ///
    /// # Errors
    /// The writer's.
    pub fn write_to(&self, out: &mut impl io::Write) -> io::Result<()> {
        let mut at = 0u64;
        for (offset, chunk) in &self.chunks {
            io::copy(&mut io::Read::take(io::repeat(0), offset - at), out)?;
            out.write_all(chunk)?;
            at = offset + chunk.len() as u64;
        }
        Ok(())
    }

    fn write(&self, path: &Path) -> Result<(), WriteError> {
        let part = path.with_extension(format!("{}.part", std::process::id()));
        let write = || {
            let mut file = io::BufWriter::new(std::fs::File::create(&part)?);
            self.write_to(&mut file)?;
            file.into_inner()
                .map_err(io::IntoInnerError::into_error)?
                .sync_all()?;
            std::fs::rename(&part, path)
        };
        write().map_err(|error| {
            // The write's own error is the one to report.
            let _ = std::fs::remove_file(&part);
            WriteError::Io {
                path: path.to_owned(),
                error,
            }
        })
    }
}

fn refer(tensor: &mut TensorProto, file: &str, offset: u64, length: usize) {
    let entry = |key: &str, value: String| StringStringEntryProto {
        key: Some(key.into()),
        value: Some(value),
    };
    tensor.data_location = Some(tensor_proto::DataLocation::External.into());
    tensor.external_data = vec![
        entry("location", file.to_owned()),
        entry("offset", offset.to_string()),
        entry("length", length.to_string()),
    ];
}
