//! The service: bind, load, warm up, serve, drain.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use seamline_net::identity::{
    CA_FILE, IdentityError, ServerIdentity, TOKENS_FILE, TokenList, Trust,
};
use seamline_net::{
    BindError, ClientAuth, Congestion, ConnectionHandle, Contracts, ServerEndpoint, ServerOptions,
    TransportOptions,
};
use seamline_ort::{Runtime, SessionOptions};
use seamline_plan::Fingerprint;
use seamline_wire::{ErrorCode, Load, OpenRefusal};
use thiserror::Error;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::admin::{
    AdminError, AdminOptions, AdminServer, AdminToken, HEADER_TIMEOUT, Health, TokenError,
};
use crate::admission::Admission;
use crate::config::{self, AuthMode, ServeConfig, TransportConfig};
use crate::connection;
use crate::contract::Contract;
use crate::executor::Executors;
use crate::load::{self, LoadError};
use crate::metrics::Metrics;
use crate::sessions::Sessions;

/// File of the admin plane's token in the identity folder.
pub const ADMIN_TOKEN_FILE: &str = "admin.token";

/// A service that cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Identity files are missing or wrong.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The address cannot be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The operating system does not tell the address.
    #[error("cannot read the address that was bound: {0}")]
    Address(std::io::Error),
    /// The admin plane cannot be served.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The admin token is missing or unusable.
    #[error("{0}; `seamline-cloud identity new DIR` makes one, or set admin.enabled = false")]
    AdminToken(#[from] TokenError),
    /// Bundles are missing or broken.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The operating system gives no threads.
    #[error("cannot start the executor threads: {0}")]
    Threads(std::io::Error),
}

/// What every connection shares.
pub(crate) struct Shared {
    pub(crate) contracts: Arc<Vec<Contract>>,
    pub(crate) executors: Executors,
    pub(crate) admission: Admission,
    pub(crate) sessions: Sessions,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) default_deadline: Duration,
    max_in_flight: u32,
    connections: Mutex<Vec<(u64, ConnectionHandle)>>,
    next_connection: AtomicU64,
}

impl Shared {
    pub(crate) fn register(&self, handle: ConnectionHandle) -> u64 {
        let id = self.next_connection.fetch_add(1, Ordering::Relaxed);
        let mut connections = self.connections.lock();
        if self.admission.is_draining() {
            handle.drain();
        }
        connections.push((id, handle));
        self.sessions.begin_connection(id);
        self.metrics.connections.inc();
        id
    }

    pub(crate) fn unregister(&self, id: u64) {
        self.connections.lock().retain(|(other, _)| *other != id);
        self.metrics.connections.dec();
        self.sessions.end_connection(id);
    }

    fn refresh(&self, metrics: &Metrics) {
        metrics.set_load(
            self.admission.in_flight(),
            self.admission.bytes_held(),
            self.executors.queue_length(),
        );
        metrics
            .sessions
            .set(i64::try_from(self.sessions.len()).unwrap_or(i64::MAX));
    }
}

impl Contracts for Shared {
    fn open(&self, fingerprint: Fingerprint, model: &str) -> Result<u32, OpenRefusal> {
        let found = self
            .contracts
            .iter()
            .position(|c| c.fingerprint() == fingerprint);
        found
            .and_then(|index| u32::try_from(index).ok())
            .ok_or_else(|| {
                let same = self
                    .contracts
                    .iter()
                    .filter(|c| c.manifest().model.name == model);
                OpenRefusal::unknown(model, fingerprint, same.map(Contract::fingerprint))
            })
    }

    fn load(&self) -> Load {
        let wait = self.executors.oldest_wait();
        Load {
            in_flight: self.admission.in_flight(),
            capacity: self
                .max_in_flight
                .saturating_sub(self.admission.in_flight()),
            queue_us: u32::try_from(wait.as_micros()).unwrap_or(u32::MAX),
        }
    }
}

/// A service that is warm and listens.
pub struct Service {
    endpoint: ServerEndpoint,
    address: SocketAddr,
    admin: Option<Admin>,
    shared: Arc<Shared>,
    health: Health,
    drain_timeout: Duration,
}

/// The admin plane while it runs; it ends when this is dropped.
struct Admin {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Service {
    /// Binds the addresses, loads and verifies the bundles and warms up. The admin plane answers
    /// from the start; devices that connect before the service is warm are turned away at once, so
    /// that they try again or elsewhere. Dropping the future stops the loading soon.
    ///
    /// # Errors
    /// [`StartError`], which says what is wrong and what to do.
    pub async fn start(config: &ServeConfig, runtime: &Runtime) -> Result<Service, StartError> {
        // What can fail at once fails before anything is loaded.
        let endpoint = ServerEndpoint::bind(server_options(config)?)?;
        let address = endpoint.local_addr().map_err(StartError::Address)?;
        let health = Health::new(Instant::now(), config.executors.stall_after());
        let metrics = Arc::new(Metrics::new());
        let loaded = Arc::new(OnceLock::<Weak<Shared>>::new());
        let admin = start_admin(config, &health, &metrics, &loaded).await?;
        let (config, runtime) = (config.clone(), runtime.clone());
        let drain_timeout = Duration::from_millis(config.drain_timeout_ms);
        let (loading, stop) = (health.clone(), StopOnDrop::default());
        let stopped = Arc::clone(&stop.0);
        tracing::info!(%address, bundles = %config.bundles.display(), "loading and warming up");
        let load = move || load_shared(&config, &runtime, &loading, &metrics, &stopped);
        let outcome = tokio::select! {
            loaded = tokio::task::spawn_blocking(load) => loaded,
            never = refuse_devices(&endpoint) => match never {},
        };
        let shared =
            outcome.map_err(|error| StartError::Threads(std::io::Error::other(error)))??;
        // Set once, here.
        let _ = loaded.set(Arc::downgrade(&shared));
        Ok(Service {
            endpoint,
            address,
            admin,
            shared,
            health,
            drain_timeout,
        })
    }

    /// Where devices connect.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Where the admin plane is, if it is on.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|admin| admin.address)
    }

    /// The contracts that are served.
    pub fn contracts(&self) -> &[Contract] {
        &self.shared.contracts
    }

    /// Serves until `shutdown` completes, then drains: refuses what is new, finishes what was
    /// accepted, and gives up on it after the configured time. Returns whether all was finished.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> bool {
        let Service {
            endpoint,
            admin,
            shared,
            health,
            drain_timeout,
            ..
        } = self;
        let accept = async {
            while let Some(pending) = endpoint.accept().await {
                tokio::spawn(connection::serve(Arc::clone(&shared), pending));
            }
        };
        tokio::select! {
            () = accept => {}
            () = shutdown => {}
        }
        tracing::info!(in_flight = shared.admission.in_flight(), "draining");
        health.set_draining();
        shared.admission.start_drain();
        for (_, handle) in shared.connections.lock().iter() {
            handle.drain();
        }
        let finished = tokio::time::timeout(drain_timeout, async {
            shared.admission.drained().await;
            // Each connection ends once its client has its last answer.
            while !shared.connections.lock().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let finished = tokio::select! {
            finished = finished => finished.is_ok(),
            never = refuse_devices(&endpoint) => match never {},
        };
        endpoint.close(
            ErrorCode::Draining,
            "the service is stopping; connect to another one",
        );
        // A peer that has gone silent must not hold the process.
        let _ = tokio::time::timeout(Duration::from_secs(1), endpoint.wait_idle()).await;
        if let Some(Admin { stop, task, .. }) = admin {
            drop(stop);
            let _ = tokio::time::timeout(Duration::from_secs(1), task).await;
        }
        finished
    }
}

/// Tells a thread to stop when nobody waits for it any more.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Turns away every device that comes before the service is warm or during a drain, so that it
/// goes elsewhere at once.
async fn refuse_devices(endpoint: &ServerEndpoint) -> Infallible {
    while let Some(pending) = endpoint.accept().await {
        pending.refuse();
    }
    std::future::pending().await
}

fn load_shared(
    config: &ServeConfig,
    runtime: &Runtime,
    health: &Health,
    metrics: &Arc<Metrics>,
    stop: &AtomicBool,
) -> Result<Arc<Shared>, StartError> {
    let contracts = Arc::new(load::open_bundles(
        &config.bundles,
        config.limits.max_over_reference,
    )?);
    let limits = config.batching.limits();
    let buckets = load::buckets(&limits);
    let mut tails = Vec::new();
    for _ in 0..config.executors.instances {
        let mut set = load::load_tails(runtime, &contracts, &SessionOptions::default())?;
        load::warm_up(&contracts, &mut set, &buckets, health, stop)?;
        tails.push(set);
    }
    let executors = Executors::start(
        limits,
        Arc::clone(&contracts),
        tails,
        Arc::clone(metrics),
        health,
    )
    .map_err(StartError::Threads)?;
    health.set_warm();
    Ok(Arc::new(Shared {
        contracts,
        executors,
        admission: Admission::new(config.limits.admission()),
        sessions: Sessions::new(
            config.limits.max_sessions as usize,
            config.limits.max_sessions_per_connection as usize,
        ),
        metrics: Arc::clone(metrics),
        default_deadline: config.batching.default_deadline(),
        max_in_flight: config.limits.max_in_flight,
        connections: Mutex::default(),
        next_connection: AtomicU64::new(0),
    }))
}

async fn start_admin(
    config: &ServeConfig,
    health: &Health,
    metrics: &Arc<Metrics>,
    loaded: &Arc<OnceLock<Weak<Shared>>>,
) -> Result<Option<Admin>, StartError> {
    let Some(token) = admin_token(config)? else {
        return Ok(None);
    };
    let gauges = Arc::clone(loaded);
    let server = AdminServer::bind(AdminOptions {
        listen: config.admin.listen,
        token: Some(token),
        open_probes: config.admin.open_probes,
        header_timeout: HEADER_TIMEOUT,
        metrics: Arc::clone(metrics),
        refresh: Box::new(move |metrics| {
            if let Some(shared) = gauges.get().and_then(Weak::upgrade) {
                shared.refresh(metrics);
            }
        }),
        health: health.clone(),
    })
    .await?;
    let address = server.local_addr();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(server.serve(async {
        // Ends by a drop, never by a value.
        let _ = stopped.await;
    }));
    Ok(Some(Admin {
        address,
        stop,
        task,
    }))
}

/// The admin plane's token, or `None` where the admin plane is off.
fn admin_token(config: &ServeConfig) -> Result<Option<AdminToken>, StartError> {
    if !config.admin.enabled {
        return Ok(None);
    }
    let default = || config.identity.dir.join(ADMIN_TOKEN_FILE);
    let path = config.admin.token_file.clone().unwrap_or_else(default);
    Ok(Some(AdminToken::read(&path)?))
}

fn server_options(config: &ServeConfig) -> Result<ServerOptions, StartError> {
    let dir: &Path = &config.identity.dir;
    let trust = || Trust::load_file(&dir.join(CA_FILE));
    let tokens = || TokenList::load(&dir.join(TOKENS_FILE));
    let client_auth = match config.identity.auth {
        AuthMode::Certificates => ClientAuth::Certificate(trust()?),
        AuthMode::Tokens => ClientAuth::Token(tokens()?),
        AuthMode::Either => ClientAuth::Either(trust()?, tokens()?),
    };
    let mut options = ServerOptions::new(config.listen, ServerIdentity::load(dir)?, client_auth);
    options.agent = concat!("seamline-cloud/", env!("CARGO_PKG_VERSION")).to_owned();
    options.max_connections = config.limits.max_connections as usize;
    options.max_connections_per_address = config.limits.max_connections_per_address as usize;
    options.max_connections_per_device = config.limits.max_connections_per_device as usize;
    options.limits.max_request_bytes = config.limits.max_request_bytes;
    options.limits.max_in_flight = config.limits.max_in_flight_per_connection;
    options.transport = transport_options(&config.transport);
    Ok(options)
}

fn transport_options(config: &TransportConfig) -> TransportOptions {
    TransportOptions {
        congestion: match config.congestion {
            config::Congestion::Cubic => Congestion::Cubic,
            config::Congestion::Bbr => Congestion::Bbr,
        },
        stream_window: config.stream_window_bytes,
        connection_window: config.connection_window_bytes,
        send_window: config.send_window_bytes,
        idle_timeout: Duration::from_millis(config.idle_timeout_ms),
        ..TransportOptions::default()
    }
}
