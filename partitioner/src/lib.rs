//! Plans and cuts models.
//!
//! [`Model::open`] reads one, [`find_seams`] lists where it can be cut, [`split`] makes a bundle,
//! [`verify`] compares it with the whole. `seamline` is the command line.

#![forbid(unsafe_code)]

mod batch;
mod compare;
mod contract;
mod cut;
mod model;
pub mod plan;
mod probe;
mod reference;
pub mod report;
mod source;
mod split;
mod verify;

pub use batch::{BATCH_TOLERANCE, BatchProof, BatchVerdict};
pub use compare::{Difference, compare};
pub use contract::{INPUT_CUT, OUTPUT_CUT, WireBytes, wire_bytes};
pub use cut::{CutError, Seams, find_seams, stages};
pub use model::{Model, ModelError, ValueFacts, format_bindings};
pub use probe::{ProbeInput, Prober};
pub use seamline_graph::preprocess::{ChannelOrder, ImagePreprocess, Resize};
pub use seamline_ort::Optimization;
pub use source::{SOURCE_FILE, Source, SourceError};
pub use split::{SideBytes, SplitError, SplitOptions, SplitReport, split, split_at};
pub use verify::{
    CutDifference, Halves, OutputDifference, VerifyError, VerifyOptions, spread, verify,
};
