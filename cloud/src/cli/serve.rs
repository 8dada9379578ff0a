//! `seamline-cloud serve`.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use seamline_cloud::Service;
use seamline_cloud::config::{LogFormat, ServeConfig};
use tracing_subscriber::EnvFilter;

/// Flags win over the configuration file, which wins over the defaults.
#[derive(Args)]
pub(crate) struct Serve {
    /// Folder of bundles (NAME.seam), or one bundle.
    #[arg(long, value_name = "DIR")]
    bundles: Option<PathBuf>,
    /// Address that devices connect to.
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Configuration file (TOML); see seamline-cloud.example.toml.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder made by `seamline-cloud identity new`.
    #[arg(long, value_name = "DIR")]
    identity: Option<PathBuf>,
    /// Address of metrics and health.
    #[arg(long, value_name = "ADDR")]
    admin: Option<SocketAddr>,
}

impl Serve {
    fn config(&self) -> anyhow::Result<ServeConfig> {
        let mut config = match &self.config {
            Some(path) => ServeConfig::load(path)?,
            None => ServeConfig::default(),
        };
        if let Some(bundles) = &self.bundles {
            config.bundles.clone_from(bundles);
        }
        if let Some(listen) = self.listen {
            config.listen = listen;
        }
        if let Some(identity) = &self.identity {
            config.identity.dir.clone_from(identity);
        }
        if let Some(admin) = self.admin {
            config.admin.listen = admin;
        }
        config.check()?;
        Ok(config)
    }

    pub(crate) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let config = self.config()?;
        start_logging(config.log_format);
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.transport.threads())
            .enable_all()
            .build()?;
        tokio.block_on(async {
            let runtime = super::load_runtime(config.executors.intra_op_threads)?;
            // Before the long start, so that Ctrl-C is never lost.
            let mut shutdown = pin!(shutdown_signal()?);
            let service = tokio::select! {
                service = Service::start(&config, &runtime) => service?,
                () = &mut shutdown => {
                    tracing::info!("stopped before it was warm");
                    return Ok(ExitCode::SUCCESS);
                }
            };
            announce(&service, json);
            if service.run(shutdown).await {
                return Ok(ExitCode::SUCCESS);
            }
            tracing::error!("gave up on requests that were still running at the drain timeout");
            Ok(ExitCode::FAILURE)
        })
    }
}

/// Says where the service is, for a person or a program that started it. A service whose stdout
/// is gone serves all the same.
fn announce(service: &Service, json: bool) {
    let text = if json {
        document(service)
    } else {
        summary(service)
    };
    if let Err(error) = writeln!(std::io::stdout(), "{text}") {
        tracing::warn!(%error, "cannot write to stdout");
    }
}

fn document(service: &Service) -> String {
    let bundles: Vec<_> = service
        .contracts()
        .iter()
        .map(|contract| {
            serde_json::json!({
                "bundle": contract.bundle().root(),
                "model": contract.manifest().model.name,
                "fingerprint": contract.fingerprint(),
            })
        })
        .collect();
    let document = serde_json::json!({
        "listen": service.local_addr(),
        "admin": service.admin_addr(),
        "bundles": bundles,
    });
    document.to_string()
}

fn summary(service: &Service) -> String {
    let contracts = service.contracts();
    let mut lines = vec![format!(
        "serving {} bundle(s) on {}",
        contracts.len(),
        service.local_addr()
    )];
    lines.extend(contracts.iter().map(|contract| {
        let name = &contract.manifest().model.name;
        format!("  {name}  {}", contract.fingerprint().short())
    }));
    if let Some(admin) = service.admin_addr() {
        lines.push(format!(
            "metrics and health on http://{admin} (with the admin token)"
        ));
    }
    lines.join("\n")
}

fn start_logging(format: LogFormat) {
    let filter =
        EnvFilter::try_from_env("SEAMLINE_LOG").unwrap_or_else(|_| EnvFilter::new("info,ort=warn"));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        // Where stderr is gone or full, log lines are lost, not the thread that wrote them.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
}

/// Completes on SIGTERM or Ctrl-C.
#[cfg(unix)]
fn shutdown_signal() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM cannot be watched")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT cannot be watched")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Completes on Ctrl-C.
#[cfg(not(unix))]
fn shutdown_signal() -> anyhow::Result<impl Future<Output = ()>> {
    Ok(async {
        // Without Ctrl-C the service ends with its process.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
