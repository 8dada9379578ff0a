//! What the end-to-end tests share: the runtime, trained models, identities, a running service.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use seamline_assets::{MODELS, Store};
use seamline_cloud::Service;
use seamline_cloud::config::ServeConfig;
use seamline_edge::{Client, ClientBuilder};
use seamline_net::identity::create;
use seamline_ort::{Runtime, RuntimeOptions, locate};
use seamline_plan::{Bindings, Tensor};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

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
    let model = MODELS.iter().find(|model| model.name == name).expect("a model of the zoo");
    Store::from_env().get(&model.pin).expect("the model can be fetched")
}

/// Sizes of symbols that the models' own data have, where the usual ones are not valid.
pub fn sizes(name: &str) -> Bindings {
    let sizes: &[(&str, u64)] = match name {
        "ocr-rec" => &[("x_dim2", 48), ("p2o.DynamicDimension.1", 320)],
        "ocr-cls" => &[("x_dim2", 48), ("x_dim3", 192)],
        "ocr-det" => &[("p2o.DynamicDimension.1", 256), ("p2o.DynamicDimension.2", 256)],
        "vad-seq" => &[("sequence_length", 4)],
        "vad-if" => &[("sequence", 576)],
        _ => &[],
    };
    sizes.iter().map(|(symbol, size)| ((*symbol).to_owned(), *size)).collect()
}

/// The largest `|difference|` and the largest `|difference| / max(1, |whole|)` of f32 tensors;
/// 0 or infinity for other types, as they are equal or not.
pub fn differences(whole: &Tensor, split: &Tensor) -> (f64, f64) {
    assert_eq!((whole.dtype(), whole.shape()), (split.dtype(), split.shape()));
    let (Ok(whole_f32), Ok(split_f32)) = (whole.as_slice::<f32>(), split.as_slice::<f32>()) else {
        let equal = whole.bytes() == split.bytes();
        return if equal { (0.0, 0.0) } else { (f64::INFINITY, f64::INFINITY) };
    };
    let pairs = whole_f32.iter().zip(split_f32).map(|(&w, &s)| (f64::from(w), f64::from(s)));
    pairs.fold((0.0, 0.0), |(abs, rel): (f64, f64), (w, s)| {
        // Equal infinities and NaN on both sides are no difference.
        let same = w == s || (w.is_nan() && s.is_nan());
        let difference = if same { 0.0 } else { (w - s).abs() };
        let difference = if difference.is_nan() { f64::INFINITY } else { difference };
        (abs.max(difference), rel.max(difference / w.abs().max(1.0)))
    })
}

/// An identity folder with an authority, a server for loopback, the admin token and a device
/// called `device`.
pub fn identities(dir: &Path) {
    create::authority(dir, "test-authority", 2).expect("authority");
    create::server(dir, &["localhost".into(), "127.0.0.1".into()], 2).expect("server");
    create::device(dir, "device", 2).expect("device");
    std::fs::write(dir.join(seamline_cloud::ADMIN_TOKEN_FILE), "0123456789abcdef0123456789abcdef")
        .expect("admin token");
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
        let mut config = ServeConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            bundles: bundles.to_owned(),
            ..ServeConfig::default()
        };
        config.identity.dir = identity.to_owned();
        config.admin.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        config.drain_timeout_ms = 5000;
        edit(&mut config);
        let service = Service::start(&config, &runtime()).await.expect("the service starts");
        let (addr, admin) = (service.local_addr(), service.admin_addr());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(service.run(async {
            let _ = stopped.await;
        }));
        TestService { addr, admin, identity: identity.to_owned(), stop: Some(stop), task }
    }

    /// A builder of a client of this service.
    pub fn client(&self, bundle: &Path) -> ClientBuilder {
        Client::builder(bundle)
            .runtime(runtime())
            .cloud(&self.addr.to_string())
            .identity_folder(&self.identity, "device")
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

/// Values by name.
pub fn values<const N: usize>(values: [(&str, Tensor); N]) -> seamline_edge::Values {
    values.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect()
}


