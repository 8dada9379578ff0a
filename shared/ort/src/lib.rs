//! ONNX Runtime for Seamline: where its library is, one environment with one thread pool a
//! process, sessions over stages, execution providers and what ran where.

#![deny(unsafe_code)]

mod library;
#[cfg_attr(not(feature = "load-dynamic"), path = "locate_linked.rs")]
mod locate;
mod memory;
mod profile;
mod provider;
mod runtime;
mod session;
mod stages;
mod value;

pub use library::{Library, LibrarySource};
pub use locate::{LocateError, locate};
pub use memory::release_freed;
pub use profile::{NodeProfile, Placement, ProfileError, placement, profile};
pub use provider::Provider;
pub use runtime::{Runtime, RuntimeError, RuntimeOptions};
pub use session::{
    ModelSource, Optimization, RunError, Session, SessionError, SessionOptions, ThreadPool,
};
pub use stages::{StageChain, StageError};
