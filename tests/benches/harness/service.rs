//! A service in a process of its own: this program again, with `--serve`. It is set up as
//! `seamline-cloud serve` is, and offers the bare exchange on a second port.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use seamline_cloud::Service;
use seamline_cloud::config::ServeConfig;
use seamline_ort::{Runtime, RuntimeOptions, locate};
use serde::{Deserialize, Serialize};

use super::{argument, exchange};

/// The service's process; it ends when this is dropped.
pub(crate) struct ServiceProcess {
    child: Child,
    pub(crate) addresses: Addresses,
    pub(crate) identity: PathBuf,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Addresses {
    pub(crate) service: SocketAddr,
    pub(crate) exchange: SocketAddr,
}

impl ServiceProcess {
    /// Serves the bundles in `bundles` with the defaults, changed by `edit`.
    pub(crate) fn start(
        folder: &Path,
        bundles: &Path,
        edit: impl FnOnce(&mut ServeConfig),
    ) -> Self {
        let identity = folder.join("identity");
        if !identity.exists() {
            std::fs::create_dir_all(&identity).unwrap();
            seamline_tests::identities(&identity);
        }
        let mut config = ServeConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            bundles: bundles.to_owned(),
            ..ServeConfig::default()
        };
        config.identity.dir.clone_from(&identity);
        config.admin.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        config.admin.token_file = Some(identity.join(seamline_cloud::ADMIN_TOKEN_FILE));
        edit(&mut config);
        let path = folder.join("serve.toml");
        std::fs::write(&path, toml::to_string(&config).unwrap()).unwrap();
        let mut child = spawn_self(&["--serve", path.to_str().unwrap()]);
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let addresses = serde_json::from_str(&line).expect("the service starts");
        ServiceProcess {
            child,
            addresses,
            identity,
        }
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        // Its end of input asks it to stop; where that fails the process is gone already.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// This program again. It ends with its input.
pub(crate) fn spawn_self(arguments: &[&str]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// ONNX Runtime as every binary of Seamline sets it up.
pub(crate) fn runtime(spinning: bool) -> Runtime {
    let path = std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
    let library = locate(path.as_deref(), &seamline_assets::Store::from_env()).unwrap();
    Runtime::load(&RuntimeOptions {
        spinning,
        ..RuntimeOptions::new(library)
    })
    .unwrap()
}

/// Serves and returns true where this process was started to.
pub(crate) fn serve_if_asked() -> bool {
    let Some(path) = argument("--serve") else {
        return false;
    };
    let config = ServeConfig::load(Path::new(&path)).unwrap();
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(config.transport.threads())
        .enable_all()
        .build()
        .unwrap();
    tokio.block_on(async {
        let service = Service::start(&config, &runtime(false)).await.unwrap();
        let (endpoint, exchange) = exchange::serve(&config.identity.dir);
        let addresses = Addresses {
            service: service.local_addr(),
            exchange,
        };
        println!("{}", serde_json::to_string(&addresses).unwrap());
        service.run(end_of_input()).await;
        drop(endpoint);
    });
    true
}

/// Completes when the parent closes this process's input, or is gone.
async fn end_of_input() {
    let wait = || std::io::stdin().read_to_end(&mut Vec::new());
    // Whatever ended it, the parent is not there any more.
    let _ = tokio::task::spawn_blocking(wait).await;
}
