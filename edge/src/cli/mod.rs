//! The commands of `seamline-edge`.

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod probe;
pub(crate) mod profile;
pub(crate) mod run;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use seamline_assets::Store;
use seamline_edge::{Client, Provider, Runtime, RuntimeOptions, locate};
use seamline_plan::{FileRequest, Manifest, TensorSpec};
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
    /// Cut to use for every request. Without it the best at the moment, by the bundle's costs.json,
    /// the link and the service's load; the bundle's default where there is no costs.json.
    #[arg(long, value_name = "ID")]
    cut: Option<String>,
    /// Codec for every value that allows it: raw, f16, int8, packed, zstd or, for u8 pictures, png,
    /// jpeg85 and others (a wrong one lists them). Without it it is chosen with the cut; the
    /// bundle's first where nothing is chosen.
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

/// Whether what requests taught is kept.
#[derive(Args, Clone, Copy)]
pub(crate) struct Learning {
    /// Write what these requests took into the bundle's costs.json, for the clients to come. The
    /// bundle's fingerprint stays as it is. Needs --cloud and a planned bundle, and no --cut.
    #[arg(long, conflicts_with = "cut", requires = "cloud")]
    pub(crate) learn: bool,
}

impl Learning {
    /// Before the requests: whether there is anything to learn about.
    pub(crate) fn check(self, client: &Client) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.learn || client.adaptation().is_some(),
            "--learn needs the bundle's costs.json, and it has none that can be used; make one \
             with `seamline plan`"
        );
        Ok(())
    }

    /// After them.
    pub(crate) fn keep(self, client: &Client, bundle: &Path) -> anyhow::Result<()> {
        if self.learn
            && let Some(costs) = client.learned_costs()
        {
            costs.write(bundle).context("--learn")?;
        }
        Ok(())
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
        .log_internal_errors(false)
        .with_writer(std::io::stderr)
        .init();
}

/// Requests from `[NAME=]FILE` arguments; state is the session's.
pub(crate) fn read_requests(
    manifest: &Manifest,
    arguments: &[String],
) -> anyhow::Result<Vec<FileRequest>> {
    let is_state =
        |spec: &&TensorSpec| manifest.states.iter().any(|state| state.input == spec.name);
    let wanted: Vec<TensorSpec> = manifest
        .inputs
        .iter()
        .filter(|spec| !is_state(spec))
        .cloned()
        .collect();
    Ok(seamline_plan::read_requests(&wanted, &[], arguments)?)
}
