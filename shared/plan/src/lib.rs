//! Types that every Seamline crate shares: dtypes, shapes, tensors, codec specs, the bundle and
//! its manifest. Pure data: nothing here runs a model or opens a socket.

#![deny(unsafe_code)]

mod bundle;
mod codec;
mod costs;
mod dtype;
mod file;
#[cfg(feature = "input")]
mod input;
mod kit;
mod link;
mod manifest;
mod profile;
mod rows;
mod shape;
mod spread;
mod tensor;
mod text;

pub use bundle::{Bundle, BundleError, BundleWriter, MANIFEST_FILE, Side, WEIGHTS_FILE};
pub use codec::{CODEC_NAMES, CodecSpec};
pub use costs::{
    COSTS_FILE, COSTS_FORMAT, Costs, CostsError, CutOption, Latency, Load, Objective, Prices,
    TailTime,
};
pub use dtype::{DType, Element};
pub use file::{MappedFile, map_file, read_text, write_atomic};
#[cfg(feature = "input")]
pub use input::{FileRequest, InputError, read_input, read_requests};
pub use kit::{KIT_FILE, KIT_FORMAT, Kit, KitError, KitSeam, KitTensor};
pub use link::{LinkModel, LinkSource, LinkState, Radio, Rate};
pub use manifest::{
    Crossing, Cut, FileEntry, Fingerprint, MANIFEST_FORMAT, MAX_CUTS, MAX_MANIFEST_BYTES,
    MAX_STAGES, Manifest, ModelInfo, Reply, Stage, StateSpec,
};
pub use profile::{
    CodecTime, Machine, NodeTime, PROFILE_FORMAT, PartTime, Profile, ProfileFileError,
    ProfiledModel, WHOLE,
};
pub use rows::{Joiner, concat_rows, split_rows};
pub use shape::{Bindings, Dim, SpecMismatch, TensorSpec, element_count, format_shape, is_unnamed};
pub use spread::Spread;
pub use tensor::{Tensor, TensorError};
pub use text::{error_text, write_out};
