//! The commands of `seamline-cloud`.

pub(crate) mod check;
pub(crate) mod doctor;
pub(crate) mod identity;
pub(crate) mod profile;
pub(crate) mod serve;

use std::path::PathBuf;

use anyhow::Context;
use seamline_assets::Store;
use seamline_ort::{Runtime, RuntimeOptions, locate};

/// ONNX Runtime with `threads` threads, 0 for one a core.
pub(crate) fn load_runtime(threads: u32) -> anyhow::Result<Runtime> {
    let path = std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
    let library = locate(path.as_deref(), &Store::from_env())?;
    let mut options = RuntimeOptions::new(library);
    if threads > 0 {
        options.threads = threads as usize;
    }
    Runtime::load(&options).context("ONNX Runtime")
}
