//! The admin plane: `/metrics`, `/healthz` and `/readyz` over HTTP/1.1, on an address and with a
//! credential of their own. An identity of the data plane opens nothing here.
//!
//! Every connection carries one request, must send its header within [`HEADER_TIMEOUT`] and is
//! closed after [`CONNECTION_TIMEOUT`]; when [`MAX_CONNECTIONS`] are open the oldest gives way, so
//! that connections held open on purpose cannot lock a probe out.

mod auth;
mod health;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

pub use auth::{AdminToken, TokenError};
pub use health::{Health, Heartbeat, NotReady, Unhealthy};

use crate::metrics::{CONTENT_TYPE, Metrics};

/// Time for a client to send its request header.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(3);

/// Time for a whole connection, the answer included.
pub const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections open at the same time.
pub const MAX_CONNECTIONS: usize = 32;

/// Bytes of a request header that are read; hyper's smallest.
const HEADER_BYTES: usize = 8192;

/// Pause after the system refused a connection, as when no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Brings gauges up to date just before they are read.
pub type Refresh = Box<dyn Fn(&Metrics) + Send + Sync>;

/// What the admin plane serves, and to whom.
pub struct AdminOptions {
    /// Address to listen on.
    pub listen: SocketAddr,
    /// Token that requests must carry; none only on a loopback address.
    pub token: Option<AdminToken>,
    /// Answer `/healthz` and `/readyz` without the token.
    pub open_probes: bool,
    /// See [`HEADER_TIMEOUT`].
    pub header_timeout: Duration,
    /// What `/metrics` shows.
    pub metrics: Arc<Metrics>,
    /// Called before `/metrics` is answered; heartbeat ages are set already.
    pub refresh: Refresh,
    /// What the probes tell.
    pub health: Health,
}

/// Why the admin plane cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Others could reach it without a credential.
    #[error(
        "the admin address {0} can be reached from other machines: set admin.token_file, or listen \
         on a loopback address"
    )]
    TokenRequired(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on the admin address {address}: {source}; set admin.listen to another")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
}

/// A bound admin plane.
pub struct AdminServer {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
    header_timeout: Duration,
}

struct Shared {
    token: Option<AdminToken>,
    open_probes: bool,
    metrics: Arc<Metrics>,
    refresh: Refresh,
    health: Health,
}

impl AdminServer {
    /// Binds the address; connections wait until [`AdminServer::serve`] runs.
    ///
    /// # Errors
    /// When the address is not loopback and there is no token, or it cannot be listened on.
    pub async fn bind(options: AdminOptions) -> Result<AdminServer, AdminError> {
        let AdminOptions {
            listen,
            token,
            open_probes,
            header_timeout,
            metrics,
            refresh,
            health,
        } = options;
        if token.is_none() && !listen.ip().is_loopback() {
            return Err(AdminError::TokenRequired(listen));
        }
        let failed = |source| AdminError::Listen {
            address: listen,
            source,
        };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let router = router(Shared {
            token,
            open_probes,
            metrics,
            refresh,
            health,
        });
        Ok(AdminServer {
            listener,
            address,
            router,
            header_timeout,
        })
    }

    /// The address bound, with the port that the system chose where 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` completes, then closes what is open.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut tasks = JoinSet::new();
        let mut oldest_first: VecDeque<AbortHandle> = VecDeque::new();
        loop {
            let accepted = tokio::select! {
                () = &mut shutdown => return,
                accepted = self.listener.accept() => accepted,
            };
            while tasks.try_join_next().is_some() {}
            oldest_first.retain(|task| !task.is_finished());
            match accepted {
                Ok((stream, _)) => {
                    if oldest_first.len() >= MAX_CONNECTIONS
                        && let Some(oldest) = oldest_first.pop_front()
                    {
                        oldest.abort();
                    }
                    let connection = connection(stream, self.router.clone(), self.header_timeout);
                    oldest_first.push_back(tasks.spawn(connection));
                }
                Err(error) => {
                    tracing::warn!(%error, "an admin connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Answers one request on `stream`. How it fails concerns only the client.
async fn connection(stream: TcpStream, router: Router, header_timeout: Duration) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(HEADER_BYTES)
        .keep_alive(false);
    let served = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    match tokio::time::timeout(CONNECTION_TIMEOUT, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "an admin connection failed"),
        Err(_) => tracing::debug!("an admin connection took too long"),
    }
}

fn router(shared: Shared) -> Router {
    let shared = Arc::new(shared);
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .layer(from_fn_with_state(Arc::clone(&shared), authenticate))
        .with_state(shared)
}

/// Lets a request through that carries the token. All others get the same answer, whether the path
/// exists or not.
async fn authenticate(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Result<Response, Infallible> {
    let open = shared.open_probes && matches!(request.uri().path(), "/healthz" | "/readyz");
    let header = request.headers().get(header::AUTHORIZATION);
    let allowed = match &shared.token {
        None => true,
        Some(token) => open || header.is_some_and(|value| token.accepts(value.as_bytes())),
    };
    if !allowed {
        let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
        return Ok((StatusCode::UNAUTHORIZED, challenge).into_response());
    }
    Ok(next.run(request).await)
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    for (executor, age) in shared.health.heartbeat_ages(Instant::now()) {
        shared.metrics.set_heartbeat_age(executor, age);
    }
    (shared.refresh)(&shared.metrics);
    match shared.metrics.encode() {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn healthz(State(shared): State<Arc<Shared>>) -> Response {
    probe(shared.health.alive(Instant::now()))
}

async fn readyz(State(shared): State<Arc<Shared>>) -> Response {
    probe(shared.health.ready(Instant::now()))
}

/// 200 `ok`, or 503 with one reason a line.
fn probe<E: std::fmt::Display>(result: Result<(), Vec<E>>) -> Response {
    match result {
        Ok(()) => "ok\n".into_response(),
        Err(reasons) => {
            let body: String = reasons.iter().map(|reason| format!("{reason}\n")).collect();
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}
