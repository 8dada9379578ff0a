//! The admin plane over real sockets on loopback.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use seamline_cloud::admin::{
    AdminError, AdminOptions, AdminServer, AdminToken, HEADER_TIMEOUT, Health, MAX_CONNECTIONS,
};
use seamline_cloud::metrics::{Metrics, Outcome};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const TOKEN: &str = "a-token-for-this-test-only";
const STALL: Duration = Duration::from_secs(3600);

struct Plane {
    address: SocketAddr,
    health: Health,
    metrics: Arc<Metrics>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn options(token: Option<&str>) -> AdminOptions {
    AdminOptions {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        token: token.map(|token| AdminToken::new(token).unwrap()),
        open_probes: false,
        header_timeout: HEADER_TIMEOUT,
        metrics: Arc::new(Metrics::new()),
        refresh: Box::new(|metrics| metrics.set_load(5, 0, 0)),
        health: Health::new(Instant::now(), STALL),
    }
}

async fn start(options: AdminOptions) -> Plane {
    let (health, metrics) = (options.health.clone(), Arc::clone(&options.metrics));
    let server = AdminServer::bind(options).await.unwrap();
    let address = server.local_addr();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(server.serve(async move {
        let _dropped_too = stopped.await;
    }));
    Plane {
        address,
        health,
        metrics,
        stop,
        task,
    }
}

/// Sends bytes and gives back all that comes until the connection is closed.
async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn get(address: SocketAddr, path: &str, header: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: admin\r\n{header}\r\n");
    let answer = exchange(address, &request).await;
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (
        status.unwrap_or_else(|| panic!("no status in {answer:?}")),
        body.to_owned(),
    )
}

fn bearer() -> String {
    format!("Authorization: Bearer {TOKEN}\r\n")
}

#[tokio::test]
async fn metrics_are_shown_with_fresh_gauges() {
    let plane = start(options(Some(TOKEN))).await;
    let _heartbeat = plane.health.add_executor(Instant::now());
    plane.metrics.request_done(Outcome::Overloaded);
    let (status, body) = get(plane.address, "/metrics", &bearer()).await;
    assert_eq!(status, 200);
    for part in [
        "seamline_requests_total{outcome=\"overloaded\"} 1\n",
        "seamline_in_flight_requests 5\n",
        "seamline_executor_heartbeat_age_seconds{executor=\"0\"} ",
    ] {
        assert!(body.contains(part), "no {part:?} in\n{body}");
    }
}

#[tokio::test]
async fn case_18_nothing_is_told_without_the_admin_token() {
    let plane = start(options(Some(TOKEN))).await;
    let wrong = format!("Authorization: Bearer {TOKEN}x\r\n");
    let basic = format!("Authorization: Basic {TOKEN}\r\n");
    let device = "Authorization: Bearer a-token-of-some-device-of-the-data-plane\r\n";
    let mut answers = Vec::new();
    for header in ["", &wrong, &basic, device] {
        for path in ["/metrics", "/healthz", "/readyz", "/", "/no-such-path"] {
            let (status, body) = get(plane.address, path, header).await;
            assert_eq!((status, body.as_str()), (401, ""), "{path} with {header:?}");
        }
        let request = format!("POST /metrics HTTP/1.1\r\nHost: admin\r\n{header}\r\n");
        let answer = exchange(plane.address, &request).await;
        let (head, _) = answer.split_once("date:").expect("a date header");
        answers.push(head.to_owned());
    }
    answers.dedup();
    assert_eq!(
        answers.len(),
        1,
        "wrong tokens can be told apart: {answers:?}"
    );
    assert_eq!(get(plane.address, "/metrics", &bearer()).await.0, 200);
    assert_eq!(get(plane.address, "/no-such-path", &bearer()).await.0, 404);
}

#[tokio::test]
async fn case_18_open_probes_open_only_the_probes() {
    let plane = start(AdminOptions {
        open_probes: true,
        ..options(Some(TOKEN))
    })
    .await;
    plane.health.set_warm();
    let _heartbeat = plane.health.add_executor(Instant::now());
    assert_eq!(
        get(plane.address, "/healthz", "").await,
        (200, "ok\n".to_owned())
    );
    assert_eq!(
        get(plane.address, "/readyz", "").await,
        (200, "ok\n".to_owned())
    );
    for path in [
        "/metrics",
        "/healthz/",
        "/healthz/../metrics",
        "//readyz",
        "/metrics?/healthz",
    ] {
        assert_eq!(get(plane.address, path, "").await.0, 401, "{path}");
    }
}

#[tokio::test]
async fn case_18_an_address_that_others_reach_needs_a_token() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let listen = address.parse().unwrap();
        let refused = AdminServer::bind(AdminOptions {
            listen,
            ..options(None)
        })
        .await;
        let Err(error) = refused else {
            panic!("{address} was bound without a token")
        };
        assert!(matches!(error, AdminError::TokenRequired(_)), "{error}");
        assert!(error.to_string().contains("admin.token_file"), "{error}");
    }
    let plane = start(options(None)).await;
    assert_eq!(
        get(plane.address, "/metrics", "").await.0,
        200,
        "loopback may do without"
    );
}

#[tokio::test]
async fn probes_say_why_not() {
    let plane = start(options(None)).await;
    let start = Instant::now();
    plane.health.set_warming(3, 8);
    let ready = get(plane.address, "/readyz", "").await;
    assert_eq!(ready, (503, "warming up: 3 of 8 steps done\n".to_owned()));
    assert_eq!(
        get(plane.address, "/healthz", "").await.0,
        200,
        "warming up is healthy"
    );
    let heartbeat = plane.health.add_executor(start);
    plane.health.set_warm();
    assert_eq!(get(plane.address, "/readyz", "").await.0, 200);
    drop(heartbeat);
    let ended = (503, "executor 0 has ended\n".to_owned());
    assert_eq!(get(plane.address, "/healthz", "").await, ended);
    assert_eq!(get(plane.address, "/readyz", "").await, ended);
    plane.health.set_draining();
    assert_eq!(
        get(plane.address, "/readyz", "").await,
        (503, "draining\n".to_owned())
    );
    assert_eq!(get(plane.address, "/healthz", "").await.0, 200);
}

/// A stuck executor is seen although its socket, and the whole process, still answer.
#[tokio::test]
async fn a_stuck_executor_is_unhealthy() {
    let health = Health::new(Instant::now(), Duration::ZERO);
    let plane = start(AdminOptions {
        health,
        ..options(None)
    })
    .await;
    plane.health.set_warm();
    let silent = plane.health.add_executor(Instant::now());
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(2) {
        std::hint::spin_loop();
    }
    let (status, body) = get(plane.address, "/healthz", "").await;
    assert_eq!(status, 503);
    assert!(
        body.starts_with("executor 0 has been silent for "),
        "{body}"
    );
    drop(silent);
}

/// Connections that send their header byte by byte, or nothing, are closed in time.
#[tokio::test]
async fn slow_headers_are_cut_off() {
    let header_timeout = Duration::from_millis(50);
    let plane = start(AdminOptions {
        header_timeout,
        ..options(Some(TOKEN))
    })
    .await;
    for sent in ["", "GET /metr"] {
        // Without the timeout of the server this would never end.
        let answer = exchange(plane.address, sent).await;
        assert!(!answer.contains("200 OK"), "{answer}");
    }
}

#[tokio::test]
async fn connections_held_open_do_not_lock_a_probe_out() {
    let plane = start(options(Some(TOKEN))).await;
    let mut held = Vec::new();
    for _ in 0..3 * MAX_CONNECTIONS {
        let mut stream = TcpStream::connect(plane.address).await.unwrap();
        // The server may have closed it already.
        let _closed = stream.write_all(b"GET /metrics HTTP/1.1\r\n").await;
        held.push(stream);
    }
    let asked = Instant::now();
    assert_eq!(get(plane.address, "/metrics", &bearer()).await.0, 200);
    assert!(
        asked.elapsed() < HEADER_TIMEOUT,
        "it had to wait for the others to time out"
    );
}

#[tokio::test]
async fn garbage_and_long_headers_are_refused() {
    let plane = start(options(Some(TOKEN))).await;
    let long = format!(
        "GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n",
        "x".repeat(1 << 20)
    );
    for request in ["\0\x01\x02\r\n\r\n", "GET\r\n\r\n", &long] {
        let mut stream = TcpStream::connect(plane.address).await.unwrap();
        // Both fail where the server has closed the connection before all was sent.
        let _closed = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer).await;
        assert!(
            !answer.starts_with(b"HTTP/1.1 200"),
            "{:?}",
            String::from_utf8_lossy(&answer)
        );
    }
    assert_eq!(
        get(plane.address, "/metrics", &bearer()).await.0,
        200,
        "it still serves"
    );
}

#[tokio::test]
async fn shutdown_ends_the_server_and_a_taken_port_is_named() {
    let plane = start(options(None)).await;
    let taken = AdminServer::bind(AdminOptions {
        listen: plane.address,
        ..options(None)
    })
    .await;
    let Err(error) = taken else {
        panic!("bound twice")
    };
    assert!(
        error.to_string().contains(&plane.address.to_string()),
        "{error}"
    );
    plane.stop.send(()).unwrap();
    plane.task.await.unwrap();
    assert!(TcpStream::connect(plane.address).await.is_err());
}
