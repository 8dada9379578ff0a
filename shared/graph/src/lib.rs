//! Model graphs: ONNX reading and writing, shape inference, seams, extraction.
//!
//! [`Graph::read`] maps a model and never copies its weights; [`seams::find`] lists where it can

#![forbid(unsafe_code)]

mod bodies;
pub mod builder;
mod external;
mod functions;
mod graph;
#[allow(
    rustdoc::all,
    reason = "generated; the documentation is in proto/onnx.proto"
)]
pub mod proto;
mod read;
mod tensor;
mod write;

pub use graph::{Graph, ModelHeader, Node, NodeId, Value, ValueId, canonical_domain};
pub use read::{MIN_OPSET, ReadError, ReadProblem};
pub use tensor::{Initializer, TensorDataError};
pub use write::{ExternalOptions, ExternalWeights, WriteError, WriteOptions, tensor_type};
