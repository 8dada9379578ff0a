//! The way to the service: connects, opens the contract, and connects again when the connection
//! is lost.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seamline_net::identity::{ClientIdentity, Trust};
use seamline_net::{
    Client, ClientConnection, ClientOptions, ConnectError, ConnectErrorKind, ContractHandle,
    OpenError, PathStats, Reply, Request, RequestError, TransportOptions, random_id,
};
use seamline_plan::{Bundle, Fingerprint};
use seamline_wire::ErrorCode;
use tokio::sync::Mutex;
use tokio::time::timeout_at;

use crate::device::Encoded;
use crate::error::{Error, ErrorKind};

/// How to reach the service.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkOptions {
    /// `HOST:PORT`.
    pub(crate) address: String,
    /// Name on the service's certificate; the host without it.
    pub(crate) server_name: Option<String>,
    /// The identity folder and this device's name in it.
    pub(crate) identity: Option<(PathBuf, String)>,
    pub(crate) transport: TransportOptions,
}

/// A step of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) session: u64,
    pub(crate) step: u64,
}

/// A connection that comes back.
pub(crate) struct Link {
    target: Arc<Target>,
    state: Mutex<State>,
}

/// A service, and the contract that is asked of it.
pub(crate) struct Target {
    host: String,
    port: u16,
    server_name: String,
    identity: ClientIdentity,
    trust: Trust,
    transport: TransportOptions,
    fingerprint: Fingerprint,
    model: String,
}

#[derive(Default)]
struct State {
    live: Option<Live>,
    /// Connections that failed in a row, and when the last one did.
    failures: u32,
    failed_at: Option<Instant>,
    closed: bool,
}

#[derive(Clone)]
struct Live {
    connection: ClientConnection,
    contract: ContractHandle,
}

impl Link {
    /// Reads the identity and checks the address; does not connect yet.
    pub(crate) fn new(options: LinkOptions, bundle: &Bundle) -> Result<Link, Error> {
        let model = &bundle.manifest().model.name;
        Ok(Link {
            target: Arc::new(Target::new(options, bundle.fingerprint(), model)?),
            state: Mutex::default(),
        })
    }

    /// Another connection to the same service.
    pub(crate) fn again(&self) -> Link {
        Link {
            target: Arc::clone(&self.target),
            state: Mutex::default(),
        }
    }

    /// Connects where there is no connection.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), Error> {
        self.live(deadline).await.map(|_| ())
    }

    /// Sends a request and waits for the answer. Where the connection turns out to be lost and
    /// the request is no step of a session, it is sent once more, under the same id, over a new
    /// one: running a tail twice changes nothing, and only one answer can arrive.
    pub(crate) async fn request(
        &self,
        cut: usize,
        priority: u8,
        deadline: Instant,
        step: Option<Step>,
        encoded: &Encoded,
    ) -> Result<Reply, Error> {
        let id = random_id().map_err(|error| Error::new(ErrorKind::Identity, error))?;
        let cut = u16::try_from(cut).map_err(|error| Error::new(ErrorKind::Bundle, error))?;
        let mut again = step.is_none();
        loop {
            let live = self.live(deadline).await?;
            let request = Request {
                id,
                contract: live.contract,
                cut,
                priority,
                deadline: Some(deadline),
                trace: None,
                session: step.map(|step| (step.session, step.step)),
                tensors: encoded.tensors.clone(),
            };
            let result = live
                .connection
                .request(request, encoded.payloads.clone())
                .await;
            match result {
                Ok(reply) => return Ok(reply),
                Err(error) if again && is_connection_over(&error) => {
                    tracing::debug!(%error, "connecting again");
                    again = false;
                    self.forget(&live).await;
                }
                Err(error) => {
                    if is_connection_over(&error) {
                        self.forget(&live).await;
                    }
                    return Err(request_error(error));
                }
            }
        }
    }

    /// What is known of the path; `None` without a connection, or while one is made.
    pub(crate) fn path(&self) -> Option<PathStats> {
        let state = self.state.try_lock().ok()?;
        let live = state.live.as_ref()?;
        let is_open = live.connection.closed_reason().is_none();
        is_open.then(|| live.connection.path())
    }

    /// Closes the connection for good.
    pub(crate) async fn close(&self) {
        let mut state = self.state.lock().await;
        state.closed = true;
        if let Some(live) = state.live.take() {
            live.connection
                .close(ErrorCode::Closed, "the client is done");
            // The service learns of it at once instead of after its idle timeout.
            let patience = Duration::from_millis(500);
            let _ = tokio::time::timeout(patience, live.connection.wait_idle()).await;
        }
    }

    async fn forget(&self, dead: &Live) {
        let mut state = self.state.lock().await;
        let same = |live: &Live| live.connection.is_same(&dead.connection);
        if state.live.as_ref().is_some_and(same) {
            state.live = None;
        }
    }

    /// The connection, made anew where it is over. After a failure the next attempt waits, longer
    /// each time, so that a service that is down is not stormed by its devices.
    async fn live(&self, deadline: Instant) -> Result<Live, Error> {
        let late = |_| {
            let text = format!(
                "no connection to {}:{} in time",
                self.target.host, self.target.port
            );
            Error::text(ErrorKind::Deadline, text)
        };
        let mut state = timeout_at(deadline.into(), self.state.lock())
            .await
            .map_err(late)?;
        if state.closed {
            return Err(Error::text(ErrorKind::Cancelled, "the client is closed"));
        }
        if let Some(live) = &state.live
            && live.connection.closed_reason().is_none()
            && !live.connection.is_draining()
        {
            return Ok(live.clone());
        }
        state.live = None;
        if let Some(failed_at) = state.failed_at {
            let wait = backoff(state.failures).saturating_sub(failed_at.elapsed());
            timeout_at(deadline.into(), tokio::time::sleep(wait))
                .await
                .map_err(late)?;
        }
        let result = timeout_at(deadline.into(), self.target.connect())
            .await
            .map_err(late)?;
        match result {
            Ok(live) => {
                state.live = Some(live.clone());
                (state.failures, state.failed_at) = (0, None);
                Ok(live)
            }
            Err(error) => {
                state.failures = state.failures.saturating_add(1);
                state.failed_at = Some(Instant::now());
                Err(error)
            }
        }
    }
}

/// 50 ms doubled with each failure up to 5 s, less up to half of it at random.
fn backoff(failures: u32) -> Duration {
    const FIRST: Duration = Duration::from_millis(50);
    const LONGEST: Duration = Duration::from_secs(5);
    let full = FIRST
        .saturating_mul(1 << failures.saturating_sub(1).min(10))
        .min(LONGEST);
    // Without random bytes every device waits the full time.
    let random = random_id().map_or(0, |id| (id % 1000) as u32);
    full - full.mul_f64(0.5 * f64::from(random) / 1000.0)
}

impl Target {
    /// Reads the identity and checks the address.
    pub(crate) fn new(
        options: LinkOptions,
        fingerprint: Fingerprint,
        model: &str,
    ) -> Result<Target, Error> {
        let bad_address = || {
            let text = format!("`{}` is no address; give HOST:PORT", options.address);
            Error::text(ErrorKind::Connect, text)
        };
        let (host, port) = options.address.rsplit_once(':').ok_or_else(bad_address)?;
        let port: u16 = port.parse().map_err(|_| bad_address())?;
        let host = host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let (folder, device) = options.identity.ok_or_else(|| {
            let text = "no identity was given; call ClientBuilder::identity_folder";
            Error::text(ErrorKind::Identity, text)
        })?;
        let identity = |error| Error::new(ErrorKind::Identity, error);
        Ok(Target {
            server_name: options.server_name.unwrap_or_else(|| host.clone()),
            host,
            port,
            identity: ClientIdentity::load(&folder, &device).map_err(identity)?,
            trust: Trust::load(&folder).map_err(identity)?,
            transport: options.transport,
            fingerprint,
            model: model.to_owned(),
        })
    }

    async fn connect(&self) -> Result<Live, Error> {
        let connection = self.connection().await?;
        let contract = self.open(&connection).await?;
        Ok(Live {
            connection,
            contract,
        })
    }

    /// A connection on which nothing is open yet.
    pub(crate) async fn connection(&self) -> Result<ClientConnection, Error> {
        let addr = self.resolve().await?;
        let options = ClientOptions {
            transport: self.transport.clone(),
            agent: concat!("seamline-edge/", env!("CARGO_PKG_VERSION")).to_owned(),
            ..ClientOptions::new(
                addr,
                self.server_name.clone(),
                self.identity.clone(),
                self.trust.clone(),
            )
        };
        Client::connect(options).await.map_err(connect_error)
    }

    /// Opens the contract.
    pub(crate) async fn open(
        &self,
        connection: &ClientConnection,
    ) -> Result<ContractHandle, Error> {
        let opened = connection.open(self.fingerprint, &self.model).await;
        opened.map_err(open_error)
    }

    async fn resolve(&self) -> Result<SocketAddr, Error> {
        let unknown = |problem: String| {
            let text = format!("{}: {problem}; check the service's host name", self.host);
            Error::text(ErrorKind::Connect, text)
        };
        let mut addresses = tokio::net::lookup_host((self.host.as_str(), self.port))
            .await
            .map_err(|error| unknown(error.to_string()))?;
        addresses
            .next()
            .ok_or_else(|| unknown("it has no address".into()))
    }
}

/// Whether the connection takes nothing more, so that another one may help.
fn is_connection_over(error: &RequestError) -> bool {
    match error {
        RequestError::Lost(_) => true,
        RequestError::NotStarted(start) => {
            matches!(start.code(), ErrorCode::Closed | ErrorCode::Draining)
        }
        RequestError::Refused { code, .. } => *code == ErrorCode::Draining,
        _ => false,
    }
}

fn connect_error(error: ConnectError) -> Error {
    let kind = match error.kind() {
        ConnectErrorKind::Unauthenticated | ConnectErrorKind::ServerNotTrusted => {
            ErrorKind::Identity
        }
        ConnectErrorKind::VersionMismatch => ErrorKind::Contract,
        ConnectErrorKind::Refused => ErrorKind::Unavailable,
        _ => ErrorKind::Connect,
    };
    Error::new(kind, error)
}

fn open_error(error: OpenError) -> Error {
    let kind = match &error {
        OpenError::Refused(refusal) if refusal.code == ErrorCode::NotReady => {
            ErrorKind::Unavailable
        }
        OpenError::Lost(_) => ErrorKind::Disconnected,
        _ => ErrorKind::Contract,
    };
    Error::new(kind, error)
}

pub(crate) fn request_error(error: RequestError) -> Error {
    let kind = match &error {
        RequestError::DeadlineExceeded => ErrorKind::Deadline,
        RequestError::Lost(_) => ErrorKind::Disconnected,
        RequestError::Invalid(_) => ErrorKind::Input,
        RequestError::NotStarted(_) => ErrorKind::Unavailable,
        RequestError::Refused { code, .. } => match code {
            ErrorCode::Overloaded | ErrorCode::Draining | ErrorCode::NotReady => {
                ErrorKind::Unavailable
            }
            ErrorCode::DeadlineExceeded => ErrorKind::Deadline,
            ErrorCode::UnknownContract => ErrorKind::Contract,
            _ => ErrorKind::Service,
        },
        _ => ErrorKind::Service,
    };
    Error::new(kind, error)
}
