//! ONNX Runtime for Seamline: where its library is, one environment with one thread pool a
//! process, sessions over stages, execution providers and what ran where.

#![forbid(unsafe_code)]

#[cfg_attr(not(feature = "load-dynamic"), path = "library_linked.rs")]
mod library;
mod profile;
mod provider;
mod runtime;
mod session;
mod stages;
mod value;

pub use library::{Library, LibrarySource, LocateError, locate};
pub use profile::{NodeProfile, Placement, ProfileError, placement, profile};
pub use provider::Provider;
pub use runtime::{Runtime, RuntimeError, RuntimeOptions};
pub use session::{
    ModelSource, Optimization, RunError, Session, SessionError, SessionOptions, ThreadPool,
};
pub use stages::{StageChain, StageError};
