//! The real service and the real client over an emulated link.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use seamline_edge::{Client, ErrorKind, TransportOptions, Values};
use seamline_partitioner::{Model, Optimization, compare};
use seamline_plan::Tensor;
use seamline_tests::link::{LinkOptions, LinkProxy, Loss, PipeOptions, RebindTo, Reorder};
use seamline_tests::{
    TestService, cut, draw, identities, middle, runtime, slow_model, slow_request, wire_model,
};
use tempfile::TempDir;
use tokio::task::JoinSet;

/// |difference| / max(1, |whole|) of an answer, with f32 on the wire.
const MAX_REL: f64 = 1e-4;

/// The client's deadline: long beside what these links take, short beside the idle timeout.
const DEADLINE: Duration = Duration::from_secs(15);

/// A model cut, served, and run whole for comparison.
struct Place {
    _folder: TempDir,
    bundle: PathBuf,
    model: Model,
    session: seamline_ort::Session,
    service: TestService,
}

impl Place {
    async fn new(model: Model) -> Place {
        let folder = tempfile::tempdir().unwrap();
        let identity = folder.path().join("identity");
        let bundles = folder.path().join("bundles");
        identities(&identity);
        std::fs::create_dir(&bundles).unwrap();
        let bundle = bundles.join("model.seam");
        split(&model, &bundle);
        let session = model.session(&runtime(), Optimization::All).unwrap();
        let service = TestService::start(&bundles, &identity, |config| {
            config.transport.idle_timeout_ms = 1000 * DEADLINE.as_secs() * 2;
        })
        .await;
        Place {
            _folder: folder,
            bundle,
            model,
            session,
            service,
        }
    }

    fn link(&self, options: LinkOptions) -> LinkProxy {
        LinkProxy::start(self.service.addr, options).unwrap()
    }

    async fn client(&self, link: &LinkProxy, transport: TransportOptions) -> Client {
        let client = self.service.client_over(link, &self.bundle);
        let client = client.codec("raw").transport(transport).deadline(DEADLINE);
        client.build().await.unwrap()
    }

    fn whole(&mut self, inputs: &Values) -> Vec<Tensor> {
        self.model.run(&mut self.session, inputs).unwrap()
    }

    async fn stop(self) {
        assert!(self.service.stop().await);
    }
}

/// At a seam where the model has one; else the service runs all of it.
fn split(model: &Model, bundle: &Path) {
    if model.name == "slow" {
        cut(model, bundle, &[], |options| options.cloud_head = true);
    } else {
        cut(model, bundle, &[&middle(model).id], |_| {});
    }
}

fn check(expected: &[Tensor], answer: &seamline_edge::Answer, what: &str) {
    assert_eq!(expected.len(), answer.outputs().len());
    for (expected, (name, got)) in expected.iter().zip(answer.outputs()) {
        let off = compare(expected, got).max_rel;
        assert!(off <= MAX_REL, "{what}, `{name}`: {off:e}");
    }
}

/// 50 Mbit/s and a round trip of 10 ms, changed by `change` in both directions.
fn quick(seed: u64, change: impl Fn(&mut PipeOptions)) -> LinkOptions {
    let mut pipe = PipeOptions {
        rate: Some(50_000_000),
        delay: Duration::from_millis(5),
        ..PipeOptions::default()
    };
    change(&mut pipe);
    LinkOptions {
        seed,
        ..LinkOptions::symmetric(pipe)
    }
}

/// 100 KiB there, 100 KiB back.
fn both_ways() -> Model {
    wire_model(400, 400)
}

/// 300 KiB there, 256 bytes back.
fn upload() -> Model {
    wire_model(1200, 1)
}

/// So much is on its way, but not all.
const PART: u64 = 60_000;

async fn answers_are_right(loss: Loss) {
    const SEED: u64 = 7;
    let mut place = Place::new(both_ways()).await;
    let link = place.link(quick(SEED, |pipe| {
        pipe.loss = loss;
        pipe.jitter = Duration::from_millis(1);
        pipe.duplicate = 0.05;
        pipe.reorder = Some(Reorder {
            chance: 0.05,
            by: Duration::from_millis(3),
        });
    }));
    let client = place.client(&link, TransportOptions::default()).await;
    let mut tasks = JoinSet::new();
    for seed in 0..8 {
        let inputs = draw(&place.model, seed);
        let expected = place.whole(&inputs);
        let client = client.clone();
        tasks.spawn(async move { (seed, expected, client.infer(inputs).await.unwrap()) });
    }
    while let Some(task) = tasks.join_next().await {
        let (seed, expected, answer) = task.unwrap();
        check(&expected, &answer, &format!("{loss:?}, request {seed}"));
    }
    let stats = link.stats();
    for pipe in [stats.up, stats.down] {
        for count in [pipe.lost, pipe.reordered, pipe.duplicated] {
            assert!(count > 0, "the link was too kind: {pipe:?}");
        }
    }
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_right_under_loss_reordering_and_duplicates() {
    answers_are_right(Loss::Random(0.03)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_right_under_bursts_of_loss() {
    answers_are_right(Loss::bursts(0.03, 4.0)).await;
}

/// Drops the mapping while the request is being sent.
async fn rebinds_in_mid_request(to: RebindTo) {
    let mut place = Place::new(upload()).await;
    let link = place.link(LinkOptions {
        rebind_to: to,
        // Slow enough that a busy machine still interrupts a request in its middle.
        ..LinkOptions::lte()
    });
    let client = place.client(&link, TransportOptions::default()).await;
    for seed in 0..3 {
        let inputs = draw(&place.model, seed);
        let expected = place.whole(&inputs);
        let before = link.stats().up.delivered_bytes;
        let asking = tokio::spawn({
            let client = client.clone();
            async move { client.infer(inputs).await }
        });
        link.wait_until("sent in part", |stats| {
            stats.up.delivered_bytes > before + PART
        })
        .await;
        assert!(!asking.is_finished());
        link.rebind();
        let sent = link.stats().up.delivered_bytes;
        let answer = asking.await.unwrap().unwrap();
        check(&expected, &answer, &format!("{to:?}, request {seed}"));
        let rest = link.stats().up.delivered_bytes - sent;
        assert!(rest > PART, "only {rest} bytes went the new way");
    }
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_19_a_nat_mapping_dropped_in_mid_request_does_not_matter() {
    rebinds_in_mid_request(RebindTo::Port).await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn case_19_another_address_in_mid_request_does_not_matter() {
    rebinds_in_mid_request(RebindTo::Address).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_19_mappings_dropped_again_and_again_do_not_matter() {
    let mut place = Place::new(upload()).await;
    let link = place.link(LinkOptions {
        rebind_every: Some(Duration::from_millis(100)),
        ..LinkOptions::wifi()
    });
    let client = place.client(&link, TransportOptions::default()).await;
    for seed in 0..5 {
        let inputs = draw(&place.model, seed);
        let expected = place.whole(&inputs);
        let answer = client.infer(inputs).await.unwrap();
        check(&expected, &answer, &format!("request {seed}"));
    }
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_19_a_mapping_dropped_while_the_service_computes_costs_a_keep_alive_at_most() {
    let mut place = Place::new(slow_model()).await;
    let inputs = slow_request(&place.model, Duration::from_secs(1));
    let expected = place.whole(&inputs);
    let link = place.link(LinkOptions::wifi());
    let transport = TransportOptions {
        keep_alive: Some(Duration::from_millis(400)),
        ..TransportOptions::default()
    };
    let client = place.client(&link, transport).await;
    let asking = tokio::spawn(async move { client.infer(inputs).await });
    place
        .service
        .wait_for("seamline_in_flight_requests", 1.0)
        .await;
    link.rebind();
    // The device waits and has nothing to send: the answer finds no way until it keeps alive.
    let answer = asking.await.unwrap().unwrap();
    check(&expected, &answer, "the answer");
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_completes_after_a_blackout_shorter_than_its_deadline() {
    const BLACKOUT: Duration = Duration::from_millis(700);
    let mut place = Place::new(upload()).await;
    let link = place.link(LinkOptions::lte());
    let client = place.client(&link, TransportOptions::default()).await;
    let inputs = draw(&place.model, 1);
    let expected = place.whole(&inputs);
    let before = link.stats().up.delivered_bytes;
    let asking = tokio::spawn(async move { client.infer(inputs).await });
    link.wait_until("sent in part", |stats| {
        stats.up.delivered_bytes > before + PART
    })
    .await;
    let dark = Instant::now();
    link.set_dark(true);
    // This sleep is the fault itself, not a wait for something to have happened.
    tokio::time::sleep(BLACKOUT).await;
    assert!(!asking.is_finished());
    link.set_dark(false);
    let answer = asking.await.unwrap().unwrap();
    assert!(dark.elapsed() >= BLACKOUT);
    assert!(link.stats().up.dark > 0);
    check(&expected, &answer, "the answer");
    place.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_25_after_a_silence_beyond_the_idle_timeout_the_client_finds_back() {
    let mut place = Place::new(both_ways()).await;
    let link = place.link(quick(1, |_| {}));
    let transport = TransportOptions {
        idle_timeout: Duration::from_millis(600),
        keep_alive: Some(Duration::from_millis(150)),
        ..TransportOptions::default()
    };
    let client = place.client(&link, transport).await;
    let inputs = draw(&place.model, 1);
    let expected = place.whole(&inputs);
    check(
        &expected,
        &client.infer(inputs.clone()).await.unwrap(),
        "before",
    );
    assert_eq!(place.service.metric("seamline_connections").await, 1.0);
    link.set_dark(true);
    place.service.wait_for("seamline_connections", 0.0).await;
    // A request in the dark fails in its time, and by its kind.
    let impatient = client.with_deadline(Duration::from_millis(300));
    let error = impatient.infer(inputs.clone()).await.unwrap_err();
    let expected_kinds = [ErrorKind::Deadline, ErrorKind::Connect];
    assert!(expected_kinds.contains(&error.kind()), "{error}");
    link.set_dark(false);
    check(&expected, &client.infer(inputs).await.unwrap(), "after");
    assert_eq!(place.service.metric("seamline_connections").await, 1.0);
    place.stop().await;
}
