//! What an idle connection costs the service.

use seamline_net::identity::{ClientIdentity, Trust};
use seamline_net::{ClientConnection, ClientEndpoint, ClientOptions, TransportOptions};
use seamline_plan::Bundle;

use crate::harness;
use crate::harness::bundles::Subject;
use crate::harness::service::{ServiceProcess, runtime};
use crate::{report, resident};

const CONNECTIONS: usize = 2000;
/// Connections that pay for what the first ones make the service allocate.
const FIRST: usize = 20;
/// An idle connection's share, in bytes.
const PROMISE: f64 = 64.0 * 1024.0;

pub(crate) fn measure() {
    let connections =
        harness::argument("--connections").map_or(CONNECTIONS, |n| n.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (runtime, bundles) = (runtime(false), folder.path().join("bundles"));
    let subject = Subject::open("ocr-cls", &runtime, None);
    let bundle = subject.split(&runtime, &bundles.join("ocr-cls.seam"), None);
    let service = ServiceProcess::start(folder.path(), &bundles, |config| {
        config.batching.max_batch_size = 1;
    });
    let tokio = tokio::runtime::Runtime::new().unwrap();
    let (before, after) = tokio.block_on(async {
        let transport = TransportOptions::default();
        let endpoint = ClientEndpoint::bind(service.addresses.service, &transport).unwrap();
        let mut alive = Vec::new();
        for _ in 0..FIRST {
            alive.push(connect(&endpoint, &service, &bundle).await);
        }
        let before = resident::of(service.process());
        for _ in 0..connections {
            alive.push(connect(&endpoint, &service, &bundle).await);
        }
        (before, resident::of(service.process()))
    });
    let each = (after.all - before.all) / connections as f64;
    let case = format!("service, each of {connections} idle connections");
    report(case, each, "promise", PROMISE, Some(1.0));
}

async fn connect(
    endpoint: &ClientEndpoint,
    service: &ServiceProcess,
    bundle: &std::path::Path,
) -> ClientConnection {
    let (manifest, fingerprint) = Bundle::read_manifest(bundle).unwrap();
    let identity = ClientIdentity::load(&service.identity, "device").unwrap();
    let trust = Trust::load(&service.identity).unwrap();
    let options = ClientOptions::new(service.addresses.service, "localhost", identity, trust);
    let connection = endpoint.connect(options).await.unwrap();
    connection
        .open(fingerprint, &manifest.model.name)
        .await
        .unwrap();
    connection
}
