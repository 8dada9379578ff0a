//! Model graphs: ONNX reading and writing, shape inference, seams, extraction.
//!
//! [`Graph::read`] maps a model and never copies its weights, [`infer`] finds shapes,
//! [`seams::SeamFinder`] where it can be cut, [`extract`] makes the stages, each a standalone
//! [`Graph`], and [`Graph::write`] writes one.

#![forbid(unsafe_code)]

mod bodies;
pub mod builder;
mod cut;
mod external;
pub mod extract;
mod fold;
mod functions;
mod graph;
mod hazards;
pub mod infer;
mod nesting;
mod outputs;
pub mod preprocess;
#[allow(
    rustdoc::all,
    reason = "generated; the documentation is in proto/onnx.proto"
)]
pub mod proto;
mod read;
pub mod seams;
mod sizes;
mod tensor;
#[cfg(test)]
mod tests;
mod write;

pub use cut::{Sides, StageCut};
pub use graph::{Graph, ModelHeader, Node, NodeId, Value, ValueId, canonical_domain};
pub use hazards::{Hazard, HazardError};
pub use read::{ReadError, ReadProblem};
pub use sizes::AxisSizes;
pub use tensor::{Initializer, TensorDataError};
pub use write::{ExternalOptions, ExternalWeights, WriteError, WriteOptions, tensor_type};
