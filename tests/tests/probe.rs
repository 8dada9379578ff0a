//! `LinkProber` through the emulated link, whose truth is known.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use seamline_edge::{ErrorKind, LinkProbe, LinkProber, TransportOptions};
use seamline_plan::Radio;
use seamline_tests::link::{LinkOptions, LinkProxy, Loss};
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

fn assert_near(what: &str, got: f64, truth: f64) {
    let off = (got / truth - 1.0).abs();
    assert!(off <= 0.15, "{what} is {got}, and the link's is {truth}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_is_found_to_be_what_it_is() {
    let _turn = turn().await;
    let place = Place::new(1200, 400).await;
    let probe = place.probe(link(), Duration::from_secs(3)).await;
    println!("{probe:?}");
    let link = probe.link("wifi", Radio::default()).unwrap();
    assert_eq!(link.problem(), None);
    assert_near("round trip", link.round_trip.p50_us, 40_000.0);
    assert_near("up", link.up.p50_bps, 18_880_000.0);
    assert_near("down", link.down.p50_bps, 50_000_000.0);
    assert!(link.loss < 0.002, "nothing is lost: {}", link.loss);
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
    assert_near("round trip", probe.round_trip.p50_us, 40_000.0);
    assert_eq!((probe.up, probe.down, probe.rounds), (None, None, 0));
    assert_eq!(probe.link("wifi", Radio::default()), None);

    let other = place.folder.path().join("other.seam");
    let model = wire_model(40, 1);
    cut(&model, &other, &[&middle(&model).id], |_| {});
    let error = place.prober(&link).bundle(&other).run().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Contract, "{error}");
    assert!(place.service.stop().await);
}
