//! Whether a service's memory ends growing when no two requests have the same shape (case 34).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use seamline_edge::{BlockingClient, Client};
use seamline_graph::builder::{GraphBuilder, ints};
use seamline_ort::Runtime;
use seamline_partitioner::{Model, Source, SplitOptions, split};
use seamline_plan::{Bindings, DType, Dim, Fingerprint, Tensor};

use crate::harness;
use crate::harness::service::{ServiceProcess, runtime};
use crate::{report, resident};

const REQUESTS: usize = 10_000;
const CHANNELS: usize = 4;
/// Heights and widths are drawn from here.
const SIZES: std::ops::Range<usize> = 8..108;
/// What the second half of the requests may add.
const PROMISE: f64 = 1.05;

pub(crate) fn measure() {
    let requests = harness::argument("--requests").map_or(REQUESTS, |n| n.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime(false);
    let bundles = folder.path().join("bundles");
    let bundle = convolutions(&runtime, &bundles);
    let service = ServiceProcess::start(folder.path(), &bundles, |_| {});
    let client = Client::builder(&bundle)
        .runtime(runtime)
        .cloud(&service.addresses.service.to_string())
        .identity_folder(&service.identity, "device")
        .build_blocking()
        .unwrap();
    let mut shapes: Vec<(usize, usize)> = SIZES.flat_map(|h| SIZES.map(move |w| (h, w))).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut shapes);
    let mut half = None;
    for (index, &(height, width)) in shapes.iter().cycle().take(requests).enumerate() {
        ask(&client, height, width);
        let done = index + 1;
        if done % (requests / 10) != 0 {
            continue;
        }
        let now = resident::of(service.process());
        let at_half = *half.get_or_insert(now.all);
        if done == requests / 2 {
            half = Some(now.all);
        }
        let promise = (done == requests).then_some(PROMISE);
        let case = format!("service after {done} requests of as many shapes");
        let peer = if done <= requests / 2 {
            "at first"
        } else {
            "half way"
        };
        report(case, now.all, peer, at_half, promise);
    }
}

fn ask(client: &BlockingClient, height: usize, width: usize) {
    let x = Tensor::zeros(DType::F32, vec![1, CHANNELS, height, width]).unwrap();
    client.infer(BTreeMap::from([("x".to_owned(), x)])).unwrap();
}

/// Two convolutions over pictures of any size, cut between them.
pub(crate) fn convolutions(runtime: &Runtime, bundles: &Path) -> PathBuf {
    let any = [
        "n".into(),
        Dim::Fixed(CHANNELS as u64),
        "h".into(),
        "w".into(),
    ];
    let side = CHANNELS as i64;
    let weight = vec![0.02; CHANNELS * CHANNELS * 9];
    let pads = || vec![ints("pads", &[1, 1, 1, 1])];
    let graph = GraphBuilder::new("convolutions", 17)
        .input("x", DType::F32, &any)
        .output("y", DType::F32, &any)
        .weight_f32("weight", &[side, side, 3, 3], &weight)
        .node_with("Conv", &["x", "weight"], &["a"], pads())
        .node("Relu", &["a"], &["b"])
        .node_with("Conv", &["b", "weight"], &["y"], pads())
        .build()
        .unwrap();
    let sizes: Bindings = [("h", 100), ("w", 100)]
        .map(|(symbol, size)| (symbol.to_owned(), size))
        .into();
    let hash = Fingerprint::of(b"convolutions");
    let model = Model::new(graph, "convolutions".into(), hash, &sizes).unwrap();
    let options = SplitOptions {
        at: vec!["b".into()],
        edge_tail: true,
        ..SplitOptions::default()
    };
    std::fs::create_dir_all(bundles).unwrap();
    let bundle = bundles.join("convolutions.seam");
    split(&model, runtime, &bundle, &options, &Source::default()).unwrap();
    bundle
}
