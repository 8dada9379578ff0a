//! `LinkProber` through the emulated link, whose truth is known.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use seamline_edge::{ErrorKind, LinkProbe, LinkProber, TransportOptions};
use seamline_partitioner::plan::read_link;
use seamline_plan::{LinkSource, Radio};
use seamline_tests::link::{LinkOptions, LinkProxy, Loss, PipeOptions};
use seamline_tests::{TestService, cut, identities, middle, wire_model};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

const ROUND_TRIP: Duration = Duration::from_millis(40);

/// A service of a model that does next to nothing with 64 rows.
struct Place {
    folder: TempDir,
    bundle: PathBuf,
    service: TestService,
}

impl Place {
    /// Rows of so many numbers go up, and so many come back.
    async fn new(columns: u32, answer: u32) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let bundles = folder.path().join("bundles");
        identities(&folder.path().join("identity"));
        std::fs::create_dir(&bundles).unwrap();
        let bundle = bundles.join("wire.seam");
        let model = wire_model(columns, answer);
        cut(&model, &bundle, &[&middle(&model).id], |_| {});
        let identity = folder.path().join("identity");
        let service = TestService::start(&bundles, &identity, |_| {}).await;
        Place {
            folder,
            bundle,
            service,
        }
    }

    fn prober(&self, link: &LinkProxy) -> LinkProber {
        let identity: &Path = &self.folder.path().join("identity");
        LinkProber::new(&link.addr().to_string(), identity, "device")
            // The search for a larger packet would count as loss.
            .transport(TransportOptions {
                mtu_max: Some(1452),
                ..TransportOptions::default()
            })
    }

    async fn probe(&self, options: LinkOptions, time: Duration) -> LinkProbe {
        let link = LinkProxy::start(self.service.addr, options).unwrap();
        let prober = self.prober(&link).bundle(&self.bundle).time(time);
        prober.run().await.unwrap()
    }
}

/// 18.88 Mbit/s up, 50 down, a round trip of 40 ms.
fn link() -> LinkOptions {
    LinkOptions::wifi().both(|pipe| pipe.delay = ROUND_TRIP / 2)
}

/// One test at a time: a busy machine makes a link slower than its options say.
async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// How far off a measured rate or round trip may be, as a share of the emulated one.
const NEAR: f64 = 0.15;

/// The most loss that may be seen where there is none: a late acknowledgement on a busy machine
/// counts as a lost packet.
const NO_LOSS: f64 = 0.01;

/// How often a link is measured before a probe counts as wrong. The emulator sends in real time:
/// other programs on the machine delay packets that the link does not, and a wrong probe is wrong
/// each time.
const TRIES: usize = 4;

/// What of `probe` is more than 15 % off the emulated link, or not as a link for plans must be.
fn faults(probe: &LinkProbe, truth: &LinkOptions) -> Vec<String> {
    let mut faults = Vec::new();
    let mut near = |what: &str, got: f64, truth: f64| {
        if (got / truth - 1.0).abs() > NEAR {
            faults.push(format!("{what} is {got:.0}, and the link's is {truth:.0}"));
        }
    };
    let link = probe.link("link", Radio::default()).unwrap();
    let rate = |pipe: &PipeOptions| pipe.rate.unwrap() as f64;
    let round_trip = truth.round_trip().as_secs_f64() * 1e6;
    near("round trip", link.round_trip.p50_us, round_trip);
    near("rate up", link.up.p50_bps, rate(&truth.up));
    near("rate down", link.down.p50_bps, rate(&truth.down));
    if link.loss > NO_LOSS {
        faults.push(format!("the link loses nothing, the probe {}", link.loss));
    }
    faults
}

/// Measures until a probe is right, and gives it; fails where none of [`TRIES`] is.
async fn right_probe(place: &Place, name: &str, truth: &LinkOptions, time: Duration) -> LinkProbe {
    let mut wrong = Vec::new();
    for _ in 0..TRIES {
        let probe = place.probe(truth.clone(), time).await;
        println!("{name}: {probe:?}");
        let faults = faults(&probe, truth);
        if faults.is_empty() {
            return probe;
        }
        wrong.push(faults);
    }
    panic!("{name}, measured {TRIES} times: {wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_are_found_to_be_what_they_are() {
    let _turn = turn().await;
    let place = Place::new(1200, 400).await;
    for (name, truth, seconds) in [
        ("wifi", LinkOptions::wifi(), 2),
        ("lte", LinkOptions::lte(), 3),
        ("3g", LinkOptions::three_g(), 4),
    ] {
        let probe = right_probe(&place, name, &truth, Duration::from_secs(seconds)).await;
        let link = probe.link(name, Radio::default()).unwrap();
        assert_eq!(link.problem(), None, "{name}");
        assert!(link.up.p5_bps <= link.up.p50_bps && link.down.p5_bps <= link.down.p50_bps);
        assert!(link.round_trip.p95_us >= link.round_trip.p50_us);
        assert!(link.round_trip.samples >= 10, "{name}: {link:?}");

        let file = place.folder.path().join(format!("{name}.json"));
        std::fs::write(&file, serde_json::to_vec(&link).unwrap()).unwrap();
        let read = read_link(file.to_str().unwrap()).unwrap();
        assert_eq!((read.name.as_str(), read.source), (name, LinkSource::Probe));
        // A number's text may be a last bit off.
        let off = read.up.p5_bps / link.up.p5_bps - 1.0;
        assert!(
            off.abs() < 1e-9,
            "a plan reads what a probe wrote: {read:?}"
        );
    }
    assert!(place.service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn loss_is_seen() {
    let _turn = turn().await;
    let place = Place::new(160, 1).await;
    let lossy = LinkOptions { seed: 3, ..link() }.both(|pipe| pipe.loss = Loss::Random(0.03));
    let probe = place.probe(lossy, Duration::from_secs(2)).await;
    println!("{probe:?}");
    assert!((0.01..0.06).contains(&probe.loss), "{}", probe.loss);
    assert_eq!(probe.down, None, "answers of 256 bytes tell nothing");
    assert!(place.service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_bundle_there_is_the_round_trip() {
    let _turn = turn().await;
    let place = Place::new(160, 1).await;
    let link = LinkProxy::start(place.service.addr, link()).unwrap();
    let probe = place.prober(&link).run().await.unwrap();
    let off = probe.round_trip.p50_us / 40_000.0 - 1.0;
    assert!(off.abs() <= NEAR, "{probe:?}");
    assert_eq!((probe.up, probe.down, probe.rounds), (None, None, 0));
    assert_eq!(probe.link("wifi", Radio::default()), None);

    let other = place.folder.path().join("other.seam");
    let model = wire_model(40, 1);
    cut(&model, &other, &[&middle(&model).id], |_| {});
    let error = place.prober(&link).bundle(&other).run().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contract, "{error}");
    assert!(place.service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_probe_from_measuring_is_told_apart() {
    let _turn = turn().await;
    let place = Place::new(160, 1).await;
    let identity = place.folder.path().join("identity");
    let service = place.service.addr.to_string();
    let failure = async |address: &str, identity: &Path| {
        let prober = LinkProber::new(address, identity, "device");
        prober.run().await.unwrap_err()
    };

    // Bound, and silent: no service answers there.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = silent.local_addr().unwrap().to_string();
    let error = failure(&nobody, &identity).await;
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
    assert!(error.to_string().contains(&nobody), "{error}");

    let stranger = place.folder.path().join("stranger");
    identities(&stranger);
    let error = failure(&service, &stranger).await;
    assert_eq!(error.kind(), ErrorKind::Identity, "{error}");

    let error = failure("no port", &identity).await;
    assert_eq!(error.kind(), ErrorKind::Connect, "{error}");
    assert!(place.service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_breaks_ends_the_probe() {
    let _turn = turn().await;
    let place = Place::new(160, 1).await;
    let link = LinkProxy::start(place.service.addr, link()).unwrap();
    let prober = place.prober(&link).bundle(&place.bundle);
    let running = tokio::spawn(async move { prober.time(Duration::from_secs(60)).run().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!running.is_finished(), "it measures for a minute");
    // Ends every connection of the service's, in the middle of a round.
    assert!(place.service.stop().await);
    let error = running.await.unwrap().unwrap_err();
    let kinds = [ErrorKind::Disconnected, ErrorKind::Unavailable];
    assert!(kinds.contains(&error.kind()), "{:?}: {error}", error.kind());
}
