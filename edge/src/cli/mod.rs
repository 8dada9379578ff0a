//! The commands of `seamline-edge`.

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod run;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use seamline_assets::Store;
use seamline_edge::{Client, Provider, Runtime, RuntimeOptions, Values, locate, read_input};
use seamline_plan::{Manifest, Tensor, TensorSpec};
use tracing_subscriber::EnvFilter;

/// What every command that asks a service needs.
#[derive(Args, Clone)]
pub(crate) struct Connection {
    /// The bundle (NAME.seam).
    pub(crate) bundle: PathBuf,
    /// The service; without it the device runs everything, where the bundle allows.
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) cloud: Option<String>,
    /// Folder with ca.pem and this device's certificate or token.
    #[arg(long, value_name = "DIR", default_value = "identity")]
    identity: PathBuf,
    /// This device's name in that folder.
    #[arg(long, value_name = "NAME", default_value = "device")]
    device: String,
    /// Name on the service's certificate, where it is not the host's.
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// Cut to use; the bundle's default without it.
    #[arg(long, value_name = "ID")]
    cut: Option<String>,
    /// Codec for every value that allows it: raw, f16 or int8; the bundle's default without it.
    #[arg(long, value_name = "NAME")]
    codec: Option<String>,
    /// Execution providers for the head, first choice first.
    #[arg(long = "provider", value_name = "NAME", value_delimiter = ',')]
    providers: Vec<Provider>,
    /// Longest time to wait for an answer, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    deadline_ms: u64,
    /// Threads for the head; one a core without it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl Connection {
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let mut builder = Client::builder(&self.bundle)
            .runtime(load_runtime(self.threads.map(usize::from))?)
            .deadline(Duration::from_millis(self.deadline_ms));
        if let Some(cloud) = &self.cloud {
            builder = builder
                .cloud(cloud)
                .identity_folder(&self.identity, &self.device);
        }
        if let Some(name) = &self.server_name {
            builder = builder.server_name(name);
        }
        if let Some(cut) = &self.cut {
            builder = builder.cut(cut);
        }
        if let Some(codec) = &self.codec {
            builder = builder.codec(codec);
        }
        if !self.providers.is_empty() {
            builder = builder.providers(self.providers.clone());
        }
        Ok(builder.build().await?)
    }
}

pub(crate) fn load_runtime(threads: Option<usize>) -> anyhow::Result<Runtime> {
    let path = std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
    let library = locate(path.as_deref(), &Store::from_env())?;
    let mut options = RuntimeOptions::new(library);
    if let Some(threads) = threads {
        options.threads = threads.max(1);
    }
    Runtime::load(&options).context("ONNX Runtime")
}

pub(crate) fn start_logging() {
    let filter = EnvFilter::try_from_env("SEAMLINE_LOG")
        .unwrap_or_else(|_| EnvFilter::new("warn,ort=error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}

/// Inputs from `[NAME=]FILE` arguments: one file for a model of one input, else one for each.
/// Several files for a model of one input are several requests.
pub(crate) fn read_requests(
    manifest: &Manifest,
    arguments: &[String],
) -> anyhow::Result<Vec<(String, Values)>> {
    let wanted: Vec<&TensorSpec> = manifest
        .inputs
        .iter()
        .filter(|spec| !manifest.states.iter().any(|state| state.input == spec.name))
        .collect();
    if let [only] = wanted.as_slice() {
        let requests = arguments.iter().map(|argument| {
            let (_, path) = split_argument(only, argument);
            let tensor = read_input(Path::new(path), only)?;
            Ok((path.to_owned(), Values::from([(only.name.clone(), tensor)])))
        });
        return requests.collect();
    }
    let mut values = Values::new();
    for argument in arguments {
        let (name, tensor) = read_named(&wanted, argument)?;
        if values.insert(name.clone(), tensor).is_some() {
            bail!("--input names `{name}` twice");
        }
    }
    Ok(vec![(arguments.join(" "), values)])
}

fn split_argument<'a>(only: &TensorSpec, argument: &'a str) -> (Option<&'a str>, &'a str) {
    match argument.split_once('=') {
        Some((name, path)) if name == only.name => (Some(name), path),
        _ => (None, argument),
    }
}

fn read_named(wanted: &[&TensorSpec], argument: &str) -> anyhow::Result<(String, Tensor)> {
    let names = || {
        wanted
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let Some((name, path)) = argument.split_once('=') else {
        bail!(
            "the model takes {}; give each as --input NAME=FILE",
            names()
        );
    };
    let Some(spec) = wanted.iter().find(|spec| spec.name == name) else {
        bail!("there is no input `{name}`; the model takes {}", names());
    };
    Ok((name.to_owned(), read_input(Path::new(path), spec)?))
}
