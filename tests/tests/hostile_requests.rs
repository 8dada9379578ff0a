//! The whole system under odd values and spoiled bundles.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use seamline_cloud::Service;
use seamline_edge::{Client, ErrorKind};
use seamline_graph::builder::{self, GraphBuilder};
use seamline_partitioner::Model;
use seamline_plan::{Bindings, DType, Dim, Fingerprint, MANIFEST_FILE, Tensor};
use seamline_tests::{TestService, copy_folder, cut, identities, runtime, serve_config, values};
use tempfile::TempDir;

/// Moves the elements of an `N` × 2 × 2 tensor, and computes nothing.
fn transpose() -> Model {
    let square = [Dim::Sym("N".into()), Dim::Fixed(2), Dim::Fixed(2)];
    let perm = || vec![builder::ints("perm", &[0, 2, 1])];
    let graph = GraphBuilder::new("transpose", 17)
        .input("x", DType::F32, &square)
        .output("y", DType::F32, &square)
        .node_with("Transpose", &["x"], &["a"], perm())
        .node("Neg", &["a"], &["b"])
        .node("Neg", &["b"], &["c"])
        .node_with("Transpose", &["c"], &["d"], perm())
        .node_with("Transpose", &["d"], &["y"], perm())
        .build()
        .unwrap();
    let hash = Fingerprint::of(b"transpose");
    Model::new(graph, "transpose".into(), hash, &Bindings::new()).unwrap()
}

/// A bundle of [`transpose`] that is cut at its input and in its middle, made once a process.
fn bundle() -> &'static Path {
    static BUNDLE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let make = || {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("m.seam");
        cut(&transpose(), &out, &["b"], |options| {
            options.cloud_head = true
        });
        (folder, out)
    };
    &BUNDLE.get_or_init(make).1
}

/// NaN with its payload, infinities, −0 and the smallest number.
const ODD: [u32; 8] = [
    0x7fc0_0000,
    0xffc0_1234,
    0x7fc0_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x8000_0000,
    0x0000_0001,
    0x3f80_0000,
];

#[tokio::test(flavor = "multi_thread")]
async fn nan_and_other_odd_values_cross_the_system_unharmed() {
    let folder = tempfile::tempdir().unwrap();
    let identity = folder.path().join("identity");
    identities(&identity);
    let service = TestService::start(bundle(), &identity, |_| {}).await;
    let x = ODD.map(f32::from_bits).to_vec();
    let x = Tensor::from_vec(vec![2, 2, 2], x).unwrap();
    let expected: Vec<u32> = [0, 2, 1, 3, 4, 6, 5, 7].map(|at: usize| ODD[at]).to_vec();
    for at in ["input", "s0"] {
        let client = service.client(bundle()).cut(at).build().await.unwrap();
        let answer = client.infer(values([("x", x.clone())])).await.unwrap();
        let y = answer.output("y").unwrap().as_slice::<f32>().unwrap();
        let y: Vec<u32> = y.iter().map(|y| y.to_bits()).collect();
        assert_eq!(y, expected, "cut {at}");
    }
    assert!(service.stop().await);
}

/// A spoiled copy of the bundle, and what both sides must say of it.
async fn refused_on_both_sides(spoil: impl Fn(&Path), part: &str) {
    let folder = tempfile::tempdir().unwrap();
    let identity = folder.path().join("identity");
    identities(&identity);
    let spoiled = folder.path().join("m.seam");
    copy_folder(bundle(), &spoiled);
    spoil(&spoiled);
    let config = serve_config(&spoiled, &identity);
    let error = Service::start(&config, &runtime()).await.map(|_| ());
    let error = error.unwrap_err().to_string();
    assert!(error.contains(part), "service: `{part}` is not in: {error}");
    let client = Client::builder(&spoiled)
        .runtime(runtime())
        .cloud("127.0.0.1:1");
    let error = client.build().await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bundle, "{error}");
    let error = error.to_string();
    assert!(error.contains(part), "device: `{part}` is not in: {error}");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn links_that_lead_outside_a_bundle_are_refused() {
    use std::os::unix::fs::symlink;
    let link = |root: &Path, part: &str| {
        let outside = root.with_file_name(part.replace('/', "-"));
        std::fs::rename(root.join(part), &outside).unwrap();
        symlink(&outside, root.join(part)).unwrap();
    };
    let folders = |root: &Path| {
        link(root, "edge");
        link(root, "cloud");
    };
    refused_on_both_sides(folders, "symbolic link").await;
    refused_on_both_sides(|root| link(root, MANIFEST_FILE), "symbolic link").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn file_names_that_lead_outside_a_bundle_are_refused() {
    for path in ["../../evil", "/etc/passwd", "cloud/../../evil"] {
        let rename = |root: &Path| {
            let manifest = root.join(MANIFEST_FILE);
            let text = std::fs::read_to_string(&manifest).unwrap();
            let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
            json["files"][0]["path"] = path.into();
            std::fs::write(&manifest, json.to_string()).unwrap();
        };
        let part = format!("`{path}` is not a plain path inside the bundle");
        refused_on_both_sides(rename, &part).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_of_a_later_version_is_named_on_both_sides() {
    let later = |root: &Path| {
        std::fs::write(root.join(MANIFEST_FILE), r#"{"format":2,"new":[]}"#).unwrap();
    };
    refused_on_both_sides(later, "format 2; this build reads format 1").await;
}
