//! What the end-to-end tests share: the runtime, trained models, identities, a running service.

pub mod adaptation;
pub mod calibrated;
pub mod law;
pub mod link;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use seamline_assets::{MODELS, Store};
use seamline_cloud::config::ServeConfig;
use seamline_cloud::{ADMIN_TOKEN_FILE, Service};
use seamline_edge::{Client, ClientBuilder, Values};
use seamline_graph::builder::{self, GraphBuilder};
use seamline_graph::seams::Seam;
use seamline_net::identity::create;
use seamline_ort::{Runtime, RuntimeOptions, locate};
use seamline_partitioner::{
    Model, Optimization, Prober, Source, SplitOptions, SplitReport, find_seams, split,
};
use seamline_plan::{Bindings, DType, Dim, Fingerprint, Tensor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use link::LinkProxy;

pub use seamline_examples::calibration;

/// The process's ONNX Runtime, fetched where it is not here yet.
pub fn runtime() -> Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let load = || {
        let path = std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
        let library = locate(path.as_deref(), &Store::from_env()).expect("ONNX Runtime");
        Runtime::load(&RuntimeOptions::new(library)).expect("ONNX Runtime loads")
    };
    RUNTIME.get_or_init(load).clone()
}

/// A trained model of the zoo, fetched where it is not here yet.
pub fn zoo(name: &str) -> PathBuf {
    let model = MODELS
        .iter()
        .find(|model| model.name == name)
        .expect("a model of the zoo");
    Store::from_env()
        .get(&model.pin)
        .expect("the model can be fetched")
}

/// Sizes of symbols that the models' own data have, where the usual ones are not valid.
pub fn sizes(name: &str) -> Bindings {
    let sizes: &[(&str, u64)] = match name {
        "ocr-rec" => &[("x_dim2", 48), ("p2o.DynamicDimension.1", 320)],
        "ocr-cls" => &[("x_dim2", 48), ("x_dim3", 192)],
        "ocr-det" => &[
            ("p2o.DynamicDimension.1", 256),
            ("p2o.DynamicDimension.2", 256),
        ],
        "vad-seq" => &[("sequence_length", 4)],
        "vad-if" => &[("sequence", 576)],
        _ => &[],
    };
    sizes
        .iter()
        .map(|(symbol, size)| ((*symbol).to_owned(), *size))
        .collect()
}

/// A model of the zoo, ready to be cut: opened at [`sizes`], what inference cannot tell learnt.
pub fn model(name: &str) -> Model {
    let mut model = Model::open(&zoo(name), &sizes(name), None).expect("the model opens");
    model.learn(&runtime(), 1).expect("a probe run");
    model
}

/// One request for `model`, drawn from `seed`.
pub fn draw(model: &Model, seed: u64) -> Values {
    let inputs = model.probe_inputs(None).expect("inputs that can be drawn");
    Prober::new(seed)
        .draw(&inputs)
        .expect("inputs of a sane size")
}

/// The listed seam nearest to half of the work.
pub fn middle(model: &Model) -> Seam {
    let off = |seam: &Seam| (seam.depth() - 0.5).abs();
    let seams = find_seams(model, &[]).expect("seams").listed;
    seams
        .into_iter()
        .min_by(|a, b| off(a).total_cmp(&off(b)))
        .expect("a model has seams")
}

/// Cuts `model` at the seams `at` into a bundle at `out`; `edit` changes how.
pub fn cut(
    model: &Model,
    out: &Path,
    at: &[&str],
    edit: impl FnOnce(&mut SplitOptions),
) -> SplitReport {
    let at = at.iter().map(|&seam| seam.to_owned()).collect();
    let mut options = SplitOptions {
        at,
        seed: 1,
        ..SplitOptions::default()
    };
    edit(&mut options);
    let source = Source {
        model: model.graph.source.clone().unwrap_or_default(),
        shapes: model.reference.clone(),
        image: None,
    };
    split(model, &runtime(), out, &options, &source).expect("the model can be cut")
}

/// Copies a folder, a bundle say, with all that is in it.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("its type").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// The admin token of [`identities`]; of the form that a device's token has.
pub const ADMIN_TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// An identity folder with an authority, a server for loopback, the admin token and a device
/// called `device`.
pub fn identities(dir: &Path) {
    create::authority(dir, "test-authority", 2).expect("authority");
    create::server(dir, &["localhost".into(), "127.0.0.1".into()], 2).expect("server");
    create::device(dir, "device", 2).expect("device");
    std::fs::write(dir.join(ADMIN_TOKEN_FILE), ADMIN_TOKEN).expect("admin token");
}

/// A service of `bundles` on free ports of loopback.
pub fn serve_config(bundles: &Path, identity: &Path) -> ServeConfig {
    let mut config = ServeConfig {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        bundles: bundles.to_owned(),
        drain_timeout_ms: 5000,
        ..ServeConfig::default()
    };
    config.identity.dir = identity.to_owned();
    config.admin.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config
}

/// A service on loopback; it drains when dropped or stopped.
pub struct TestService {
    /// Where devices connect.
    pub addr: SocketAddr,
    /// Where the admin plane is.
    pub admin: Option<SocketAddr>,
    identity: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<bool>,
}

impl TestService {
    /// Starts a service of `bundles` with identities in `identity`; `edit` changes its
    /// configuration.
    pub async fn start(
        bundles: &Path,
        identity: &Path,
        edit: impl FnOnce(&mut ServeConfig),
    ) -> TestService {
        let mut config = serve_config(bundles, identity);
        edit(&mut config);
        let service = Service::start(&config, &runtime())
            .await
            .expect("the service starts");
        let (addr, admin) = (service.local_addr(), service.admin_addr());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(service.run(async {
            let _ = stopped.await;
        }));
        TestService {
            addr,
            admin,
            identity: identity.to_owned(),
            stop: Some(stop),
            task,
        }
    }

    /// A builder of a client behind a link to this service.
    pub fn client_over(&self, link: &LinkProxy, bundle: &Path) -> ClientBuilder {
        self.client(bundle).cloud(&link.addr().to_string())
    }

    /// A builder of a client of this service.
    pub fn client(&self, bundle: &Path) -> ClientBuilder {
        Client::builder(bundle)
            .runtime(runtime())
            .cloud(&self.addr.to_string())
            .identity_folder(&self.identity, "device")
    }

    /// What the admin plane answers to a GET of `path` with `token`: the status and the body.
    pub async fn admin_get(&self, path: &str, token: Option<&str>) -> (u16, String) {
        let admin = self.admin.expect("the admin plane is on");
        http_get(admin, path, token)
            .await
            .expect("the admin plane answers")
    }

    /// The value of a metric's first line that begins with `line`; 0 where there is none.
    pub async fn metric(&self, line: &str) -> f64 {
        let (status, text) = self.admin_get("/metrics", Some(ADMIN_TOKEN)).await;
        assert_eq!(status, 200, "{text}");
        let value = text
            .lines()
            .find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
        value.map_or(0.0, |value| value.parse().expect("a number"))
    }

    /// Asks again and again until a metric has a value; fails after 20 s.
    pub async fn wait_for(&self, line: &str, expected: f64) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let got = self.metric(line).await;
            if got == expected {
                return;
            }
            assert!(
                Instant::now() < until,
                "{line} is {got}, not {expected}, after 20 s"
            );
        }
    }

    /// Begins to drain, as SIGTERM does.
    pub fn drain(&mut self) {
        drop(self.stop.take());
    }

    /// Drains and waits; whether all requests were finished.
    pub async fn stop(mut self) -> bool {
        self.drain();
        self.task.await.expect("the service ends without a panic")
    }
}

/// A GET by hand: the status and the body.
///
/// # Errors
/// The connection's.
pub async fn http_get(
    addr: SocketAddr,
    path: &str,
    token: Option<&str>,
) -> std::io::Result<(u16, String)> {
    let mut stream = tokio::net::TcpStream::connect(addr).await?;
    let authorization = token
        .map(|token| format!("Authorization: Bearer {token}\r\n"))
        .unwrap_or_default();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\n{authorization}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0);
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned());
    Ok((status, body.unwrap_or_default()))
}

/// A model that takes as long as it is told: `n` products of a 64 × 64 matrix `x`.
pub fn slow_model() -> Model {
    products(None)
}

/// A model of one input `x` that takes about `time` on this machine, which is tried first.
pub fn model_that_takes(time: Duration) -> Model {
    let request = slow_request(&slow_model(), time);
    let n = request["n"].as_slice::<i64>().expect("a count")[0];
    products(Some(n))
}

fn products(n: Option<i64>) -> Model {
    let square = [Dim::Fixed(64), Dim::Fixed(64)];
    // A mean of each row, so that values stay: tiny ones would take ONNX Runtime many times as long.
    let weight = vec![1.0 / 64.0; 64 * 64];
    let body = GraphBuilder::new("product", 17)
        .input("step", DType::I64, &[])
        .input("go_on", DType::Bool, &[])
        .input("before", DType::F32, &square)
        .output("still", DType::Bool, &[])
        .output("after", DType::F32, &square)
        .node("Identity", &["go_on"], &["still"])
        .node("MatMul", &["before", "weight"], &["after"])
        .to_body();
    let mut graph = GraphBuilder::new("slow", 17);
    graph.input("x", DType::F32, &square);
    match n {
        Some(n) => graph.weight_i64("n", &[], &[n]),
        None => graph.input("n", DType::I64, &[]),
    };
    let graph = graph
        .output("y", DType::F32, &square)
        .weight_f32("weight", &[64, 64], &weight)
        .node_with(
            "Loop",
            &["n", "", "x"],
            &["y"],
            vec![builder::body("body", body)],
        )
        .build()
        .expect("a valid graph");
    let hash = Fingerprint::of(b"slow");
    Model::new(graph, "slow".into(), hash, &Bindings::new()).expect("a model without symbols")
}

/// A model that does next to nothing with much on the wire: rows of `columns` numbers cross its only
/// cut, rows of `answer` numbers come back; 64 rows of f32 each. Every number of the answer depends
/// on its row, so that a wrong byte shows.
pub fn wire_model(columns: u32, answer: u32) -> Model {
    let row = |columns: u32| [Dim::Fixed(64), Dim::Fixed(columns.into())];
    let weight: Vec<f32> = (0..columns * answer)
        .map(|at| (at * 7 % 17) as f32 / 16.0 - 0.5)
        .collect();
    let graph = GraphBuilder::new("wire", 17)
        .input("x", DType::F32, &row(columns))
        .output("y", DType::F32, &row(answer))
        .weight_f32("weight", &[columns.into(), answer.into()], &weight)
        .node("Relu", &["x"], &["positive"])
        .node("MatMul", &["positive", "weight"], &["y"])
        .build()
        .expect("a valid graph");
    let hash = Fingerprint::of(b"wire");
    Model::new(graph, "wire".into(), hash, &Bindings::new()).expect("a model without symbols")
}

/// A request for [`slow_model`] that takes about `time` on this machine, which is tried first.
pub fn slow_request(model: &Model, time: Duration) -> Values {
    const TRIED: i64 = 2000;
    let request = |n: i64| {
        let x = Tensor::zeros(DType::F32, vec![64, 64]).expect("a small tensor");
        let n = Tensor::from_vec(vec![], vec![n]).expect("a scalar");
        values([("x", x), ("n", n)])
    };
    let mut session = model
        .session(&runtime(), Optimization::All)
        .expect("the model loads");
    let started = Instant::now();
    model
        .run(&mut session, &request(TRIED))
        .expect("the model runs");
    let one = started.elapsed().as_secs_f64() / TRIED as f64;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "a number of products, far below 2^53"
    )]
    let n = (time.as_secs_f64() / one) as i64;
    request(n)
}

/// Values by name.
pub fn values<const N: usize>(values: [(&str, Tensor); N]) -> Values {
    values
        .into_iter()
        .map(|(name, tensor)| (name.to_owned(), tensor))
        .collect()
}
