//! The whole path over loopback: real models, real identities, real QUIC.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "rows, seeds and payloads of tests are small"
)]

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use seamline_cloud::config::ServeConfig;
use seamline_edge::{Client, ErrorKind, StreamMode, StreamOptions, Values};
use seamline_partitioner::{ImagePreprocess, Model, Optimization, compare, find_seams};
use seamline_plan::{Bindings, CodecSpec, StateSpec, Tensor};
use seamline_tests::{
    TestService, cut, draw, identities, middle, model, runtime, sizes, slow_model, slow_request,
    zoo,
};
use tempfile::TempDir;
use tokio::task::JoinSet;

/// |difference| / max(1, |whole|) of an answer, with f32 on the wire and everything optimised.
const MAX_REL: f64 = 1e-4;

const IN_FLIGHT: &str = "seamline_in_flight_requests";
const QUEUED: &str = "seamline_queue_length";

/// Longer than any of these tests: a queue delay that ends only when the batch is full.
const UNTIL_FULL_US: u64 = 10_000_000;

/// A folder with identities and a folder for bundles.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        identities(&folder.path().join("identity"));
        std::fs::create_dir(folder.path().join("bundles")).unwrap();
        Place { folder }
    }

    fn bundle(&self, name: &str) -> PathBuf {
        self.bundles().join(format!("{name}.seam"))
    }

    fn bundles(&self) -> PathBuf {
        self.folder.path().join("bundles")
    }

    fn identity(&self) -> PathBuf {
        self.folder.path().join("identity")
    }

    async fn serve(&self, edit: impl FnOnce(&mut ServeConfig)) -> TestService {
        TestService::start(&self.bundles(), &self.identity(), edit).await
    }

    /// Cuts `model` in its middle.
    fn cut_in_the_middle(&self, model: &Model) -> PathBuf {
        let out = self.bundle(&model.name);
        cut(model, &out, &[&middle(model).id], |_| {});
        out
    }
}

/// The whole model's outputs.
struct Whole {
    model: Model,
    session: seamline_ort::Session,
}

impl Whole {
    fn new(name: &str) -> Whole {
        let model = model(name);
        let session = model.session(&runtime(), Optimization::All).unwrap();
        Whole { model, session }
    }

    fn run(&mut self, inputs: &Values) -> Vec<Tensor> {
        self.model.run(&mut self.session, inputs).unwrap()
    }
}

/// The largest relative difference of an answer.
fn off(expected: &[Tensor], answer: &seamline_edge::Answer) -> f64 {
    assert_eq!(expected.len(), answer.outputs().len());
    let pairs = expected.iter().zip(answer.outputs());
    pairs
        .map(|(expected, (_, got))| compare(expected, got).max_rel)
        .fold(0.0, f64::max)
}

fn batches(config: &mut ServeConfig, size: u32) {
    config.batching.max_batch_size = size;
    config.batching.max_queue_delay_us = UNTIL_FULL_US;
}

#[tokio::test(flavor = "multi_thread")]
async fn case_33_concurrent_clients_are_batched_and_get_their_own_answers() {
    const BATCH: usize = 4;
    const ROUNDS: u64 = 3;
    let place = Place::new();
    let mut whole = Whole::new("ocr-cls");
    let bundle = place.cut_in_the_middle(&whole.model);
    let service = place.serve(|config| batches(config, BATCH as u32)).await;
    let client = service.client(&bundle).build().await.unwrap();
    for round in 0..ROUNDS {
        let mut expected = Vec::new();
        let mut tasks = JoinSet::new();
        for row in 0..BATCH {
            let seed = round * 100 + row as u64;
            let inputs = draw(&whole.model, seed);
            expected.push(whole.run(&inputs));
            let client = client.with_own_connection().await.unwrap();
            tasks.spawn(async move { (row, client.infer(inputs).await.unwrap()) });
        }
        while let Some(task) = tasks.join_next().await {
            let (row, answer) = task.unwrap();
            assert_eq!(
                answer.batch_size as usize, BATCH,
                "a full batch runs at once"
            );
            let own = off(&expected[row], &answer);
            assert!(own <= MAX_REL, "round {round}, row {row}: {own:e}");
            for other in (0..BATCH).filter(|&other| other != row) {
                let swapped = off(&expected[other], &answer);
                assert!(
                    swapped > 2.0 * own,
                    "rows {row} and {other} cannot be told apart"
                );
            }
        }
    }
    service.wait_for(IN_FLIGHT, 0.0).await;
    assert!(service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn different_shapes_are_never_joined_and_equal_ones_are() {
    let place = Place::new();
    let narrow = Whole::new("ocr-rec");
    let bundle = place.cut_in_the_middle(&narrow.model);
    let wide: Bindings = sizes("ocr-rec")
        .into_iter()
        .map(|(symbol, size)| (symbol, if size == 320 { 160 } else { size }))
        .collect();
    let wide = Model::open(&zoo("ocr-rec"), &wide, None).unwrap();
    let session = wide.session(&runtime(), Optimization::All).unwrap();
    let mut wholes = [
        narrow,
        Whole {
            model: wide,
            session,
        },
    ];
    let service = place.serve(|config| batches(config, 2)).await;
    let client = service.client(&bundle).build().await.unwrap();
    let mut tasks = JoinSet::new();
    for seed in 0..8u64 {
        let whole = &mut wholes[seed as usize % 2];
        let inputs = draw(&whole.model, seed);
        let expected = whole.run(&inputs);
        let client = client.clone();
        tasks.spawn(async move { (seed, expected, client.infer(inputs).await.unwrap()) });
    }
    while let Some(task) = tasks.join_next().await {
        let (seed, expected, answer) = task.unwrap();
        assert_eq!(answer.batch_size, 2);
        let off = off(&expected, &answer);
        assert!(off <= MAX_REL, "seed {seed}: {off:e}");
    }
    assert!(service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn bundles_and_cuts_of_one_model_are_served_side_by_side() {
    let place = Place::new();
    let mut whole = Whole::new("ocr-cls");
    let seams = find_seams(&whole.model, &[]).unwrap().listed;
    let (early, late) = (&seams[seams.len() / 4].id, &seams[seams.len() * 3 / 4].id);
    let (two, one) = (place.bundle("two"), place.bundle("one"));
    let report = cut(&whole.model, &two, &[early, late], |options| {
        options.cloud_head = true
    });
    cut(&whole.model, &one, &[late], |_| {});
    let service = place.serve(|_| {}).await;
    let mut clients = vec![service.client(&one).build().await.unwrap()];
    for cut in &report.manifest.cuts {
        clients.push(service.client(&two).cut(&cut.id).build().await.unwrap());
    }
    assert_eq!(
        clients.len(),
        4,
        "the input cut, two seams, and the other bundle"
    );
    let mut tasks = JoinSet::new();
    for seed in 0..12u64 {
        let inputs = draw(&whole.model, seed);
        let expected = whole.run(&inputs);
        let client = clients[seed as usize % clients.len()].clone();
        tasks.spawn(async move {
            let answer = client.infer(inputs).await.unwrap();
            assert_eq!(answer.cut, client.cut().id);
            (seed, off(&expected, &answer))
        });
    }
    while let Some(task) = tasks.join_next().await {
        let (seed, off) = task.unwrap();
        assert!(off <= MAX_REL, "seed {seed}: {off:e}");
    }
    assert!(service.stop().await);
}

/// Where the recurrent state is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keeper {
    Device,
    Service,
}

/// Steps of vad-seq through two sessions against the whole model run step by step: one of two
/// minutes of sound at four windows of 32 ms a step, and a short one.
async fn state_is_carried(keeper: Keeper) {
    const STEPS: [u64; 2] = [940, 50];
    let states = [("h", "hn"), ("c", "cn")].map(|(i, o)| StateSpec {
        input: i.into(),
        output: o.into(),
    });
    let place = Place::new();
    let mut whole = Whole::new("vad-seq");
    let bundle = place.bundle("vad-seq");
    let seams = find_seams(&whole.model, &[]).unwrap().listed;
    let kept = seams.iter().find(|seam| {
        let report = cut(&whole.model, &bundle, &[&seam.id], |options| {
            options.states = states.to_vec();
        });
        let reads = |stage: usize| {
            let inputs = &report.manifest.stages[stage].inputs;
            states
                .iter()
                .filter(|state| inputs.contains(&state.input))
                .count()
        };
        match keeper {
            Keeper::Device => reads(0) == states.len(),
            Keeper::Service => reads(1) == states.len(),
        }
    });
    let seam = &kept.expect("a seam that leaves the state on that side").id;
    let service = place.serve(|_| {}).await;
    let client = service.client(&bundle).build().await.unwrap();
    let crosses = client.cut().crossing.iter().any(|value| {
        states
            .iter()
            .any(|state| [&state.input, &state.output].contains(&&value.spec.name))
    });
    assert!(!crosses, "state stays where it is");
    let mut sessions = [client.session().unwrap(), client.session().unwrap()];
    // Two sessions at once: neither sees the other's state.
    for (which, session) in sessions.iter_mut().enumerate() {
        let mut carried: Option<Values> = None;
        for step in 0..STEPS[which] {
            let mut inputs = draw(&whole.model, 1000 * which as u64 + step);
            let given: Values = inputs
                .iter()
                .filter(|(name, _)| states.iter().all(|state| state.input != **name))
                .map(|(name, tensor)| (name.clone(), tensor.clone()))
                .collect();
            for state in &states {
                let zeros = Tensor::zeros(
                    inputs[&state.input].dtype(),
                    inputs[&state.input].shape().to_vec(),
                );
                let last = carried.as_ref().map(|values| values[&state.output].clone());
                inputs.insert(state.input.clone(), last.unwrap_or_else(|| zeros.unwrap()));
            }
            let outputs = whole.run(&inputs);
            let names = whole.model.graph.outputs.iter();
            let names = names.map(|&id| whole.model.graph.value(id).name.clone());
            let expected: Values = names.zip(outputs).collect();
            let answer = session.infer(given).await.unwrap();
            for (name, tensor) in answer.outputs() {
                let off = compare(&expected[name], tensor).max_rel;
                assert!(
                    off <= MAX_REL,
                    "{keeper:?} at {seam}, session {which}, step {step}, `{name}`: {off:e}"
                );
            }
            assert_eq!(answer.outputs().len() + states.len(), expected.len());
            carried = Some(expected);
        }
        assert_eq!(session.steps(), STEPS[which]);
    }
    let slots = if keeper == Keeper::Service { 2.0 } else { 0.0 };
    if slots > 0.0 {
        assert_eq!(service.metric("seamline_sessions").await, slots);
    }
    client.close().await;
    service.wait_for("seamline_sessions", 0.0).await;
    assert!(service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_keeps_its_state_on_the_device() {
    state_is_carried(Keeper::Device).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_keeps_its_state_in_the_service() {
    state_is_carried(Keeper::Service).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_keeps_order_and_bounds_what_is_in_flight() {
    const FRAMES: u64 = 9;
    let place = Place::new();
    let mut whole = Whole::new("ocr-cls");
    let bundle = place.cut_in_the_middle(&whole.model);
    let service = place.serve(|_| {}).await;
    let client = service.client(&bundle).build().await.unwrap();
    let options = StreamOptions {
        max_in_flight: 2,
        mode: StreamMode::Every,
    };
    let (mut sender, mut answers) = client.stream(options);
    let inputs: Vec<Values> = (0..FRAMES).map(|seed| draw(&whole.model, seed)).collect();
    let expected: Vec<_> = inputs.iter().map(|inputs| whole.run(inputs)).collect();
    let mut taken = 0;
    let mut check = |(id, answer): (u64, Result<_, _>)| {
        assert_eq!(id, taken, "in order");
        let off = off(&expected[usize::try_from(id).unwrap()], &answer.unwrap());
        assert!(off <= MAX_REL, "frame {id}: {off:e}");
        taken += 1;
    };
    for (frame, inputs) in inputs.into_iter().enumerate() {
        let mut send = pin!(sender.send(inputs));
        let sent = std::future::poll_fn(|context| Poll::Ready(send.as_mut().poll(context))).await;
        match sent {
            Poll::Ready(sent) => {
                assert!(frame < 2, "only two places");
                assert_eq!(sent.unwrap(), (frame as u64, None));
            }
            Poll::Pending => {
                assert!(frame >= 2, "two places are free at first");
                check(answers.next().await.unwrap());
                assert_eq!(send.await.unwrap(), (frame as u64, None));
            }
        }
    }
    drop(sender);
    while let Some(answer) = answers.next().await {
        check(answer);
    }
    assert_eq!(taken, FRAMES);
    assert!(service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_stream_of_live_frames_the_latest_wins() {
    let place = Place::new();
    let mut whole = Whole::new("ocr-cls");
    let bundle = place.cut_in_the_middle(&whole.model);
    let service = place.serve(|_| {}).await;
    let client = service.client(&bundle).build().await.unwrap();
    let options = StreamOptions {
        max_in_flight: 1,
        mode: StreamMode::LatestWins,
    };
    let (mut sender, mut answers) = client.stream(options);
    assert_eq!(sender.send(draw(&whole.model, 0)).await.unwrap(), (0, None));
    // The only place is taken until the first answer is read.
    service
        .wait_for("seamline_requests_total{outcome=\"ok\"}", 1.0)
        .await;
    let displaced = [(1, None), (2, Some(1)), (3, Some(2))];
    for (seed, expected) in (1..).zip(displaced) {
        assert_eq!(
            sender.send(draw(&whole.model, seed)).await.unwrap(),
            expected
        );
    }
    drop(sender);
    for expected_id in [0, 3] {
        let (id, answer) = answers.next().await.unwrap();
        assert_eq!(id, expected_id);
        let expected = whole.run(&draw(&whole.model, id));
        assert!(off(&expected, &answer.unwrap()) <= MAX_REL);
    }
    assert!(answers.next().await.is_none());
    drop(client);
    assert!(service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_blocking_client_answers_alike() {
    let place = Place::new();
    let mut whole = Whole::new("ocr-cls");
    let bundle = place.cut_in_the_middle(&whole.model);
    let service = place.serve(|_| {}).await;
    let builder = service.client(&bundle);
    let ask = tokio::task::spawn_blocking(move || {
        let client = builder.build_blocking().unwrap();
        for seed in 0..3 {
            let inputs = draw(&whole.model, seed);
            let answer = client.infer(inputs.clone()).unwrap();
            assert!(off(&whole.run(&inputs), &answer) <= MAX_REL, "seed {seed}");
        }
        client.close();
        let error = client.infer(draw(&whole.model, 0)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
    });
    ask.await.unwrap();
    assert!(service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_passes_is_an_error_of_its_kind_and_frees_the_request() {
    let place = Place::new();
    let model = slow_model();
    let bundle = place.bundle("slow");
    cut(&model, &bundle, &[], |options| options.cloud_head = true);
    let service = place.serve(|_| {}).await;
    // Nothing answers here, so that only the deadline can end the attempt to connect.
    let silent = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let unheard = service
        .client(&bundle)
        .cloud(&silent.local_addr().unwrap().to_string())
        .deadline(Duration::from_millis(50))
        .build()
        .await;
    let error = unheard.map(|_| ()).unwrap_err();
    assert_eq!(
        error.kind(),
        ErrorKind::Deadline,
        "connecting counts: {error}"
    );
    // The only executor is busy for much longer than the second request may wait.
    let slow = slow_request(&model, Duration::from_secs(3));
    let patient = service
        .client(&bundle)
        .deadline(Duration::from_secs(60))
        .build()
        .await
        .unwrap();
    let short = Duration::from_millis(500);
    let hasty = patient.with_deadline(short);
    let first = tokio::spawn({
        let slow = slow.clone();
        async move { patient.infer(slow).await.map(|_| ()) }
    });
    service.wait_for(IN_FLIGHT, 1.0).await;
    let started = Instant::now();
    let error = hasty.infer(slow).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Deadline, "{error}");
    let waited = started.elapsed();
    assert!(
        waited >= short && !first.is_finished(),
        "not at the deadline, but after {waited:?}"
    );
    service.wait_for(QUEUED, 0.0).await;
    first.await.unwrap().expect("the first one has time");
    service.wait_for(IN_FLIGHT, 0.0).await;
    drop(hasty);
    assert!(service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_request_takes_it_back() {
    let place = Place::new();
    let model = model("ocr-cls");
    let bundle = place.cut_in_the_middle(&model);
    let service = place.serve(|config| batches(config, 2)).await;
    let client = service.client(&bundle).build().await.unwrap();
    let dropped = tokio::spawn({
        let (client, inputs) = (client.clone(), draw(&model, 0));
        async move { client.infer(inputs).await.map(|_| ()) }
    });
    service.wait_for(QUEUED, 1.0).await;
    assert_eq!(service.metric(IN_FLIGHT).await, 1.0);
    dropped.abort();
    service.wait_for(QUEUED, 0.0).await;
    service.wait_for(IN_FLIGHT, 0.0).await;
    // Two more make a batch of two: the dropped one is not in it.
    let two = tokio::join!(client.infer(draw(&model, 1)), client.infer(draw(&model, 2)));
    assert_eq!(
        (two.0.unwrap().batch_size, two.1.unwrap().batch_size),
        (2, 2)
    );
    assert!(service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_vanishes_leaves_nothing_behind() {
    let place = Place::new();
    let model = model("ocr-cls");
    let bundle = place.cut_in_the_middle(&model);
    let service = place.serve(|config| batches(config, 2)).await;
    let client = service.client(&bundle).build().await.unwrap();
    let gone = tokio::spawn({
        let (client, inputs) = (client.clone(), draw(&model, 0));
        async move { client.infer(inputs).await.map(|_| ()) }
    });
    service.wait_for(QUEUED, 1.0).await;
    client.close().await;
    let error = gone.await.unwrap().unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Disconnected | ErrorKind::Cancelled),
        "{error:?}"
    );
    for gauge in [
        QUEUED,
        IN_FLIGHT,
        "seamline_connections",
        "seamline_held_bytes",
    ] {
        service.wait_for(gauge, 0.0).await;
    }
    assert!(service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn case_28_a_drain_answers_what_was_accepted_and_turns_away_what_is_new() {
    let place = Place::new();
    let mut whole = Whole::new("ocr-cls");
    let bundle = place.cut_in_the_middle(&whole.model);
    // The request waits two seconds for others: time enough to drain while it is in flight.
    let mut service = place
        .serve(|config| {
            config.batching.max_batch_size = 2;
            config.batching.max_queue_delay_us = 2_000_000;
        })
        .await;
    let deadline = Duration::from_secs(5);
    let client = service
        .client(&bundle)
        .deadline(deadline)
        .build()
        .await
        .unwrap();
    let late = client.with_own_connection().await.unwrap();
    let inputs = draw(&whole.model, 0);
    let accepted = tokio::spawn({
        let (client, inputs) = (client.clone(), inputs.clone());
        async move { client.infer(inputs).await }
    });
    service.wait_for(QUEUED, 1.0).await;
    let admin = service.admin.unwrap();
    service.drain();
    let error = late.infer(inputs.clone()).await.unwrap_err();
    assert!(
        error.is_retryable(),
        "{error:?}: the caller may go to another replica"
    );
    let answer = accepted
        .await
        .unwrap()
        .expect("what was accepted is answered");
    assert!(off(&whole.run(&inputs), &answer) <= MAX_REL);
    assert!(service.stop().await, "everything was finished");
    let gone = seamline_tests::http_get(admin, "/healthz", None).await;
    assert!(gone.is_err(), "the admin plane ends with the service");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_finds_a_service_that_came_back() {
    let place = Place::new();
    let mut whole = Whole::new("ocr-cls");
    let bundle = place.cut_in_the_middle(&whole.model);
    // Of a port that the system hands out another test's socket may take hold in between.
    let port = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let address = ([127, 0, 0, 1], port).into();
    let service = place.serve(|config| config.listen = address).await;
    let client = service.client(&bundle).build().await.unwrap();
    let mut ask = async |client: &Client, seed: u64| {
        let inputs = draw(&whole.model, seed);
        let answer = client.infer(inputs.clone()).await.unwrap();
        assert!(off(&whole.run(&inputs), &answer) <= MAX_REL, "seed {seed}");
    };
    ask(&client, 0).await;
    assert!(service.stop().await);
    let service = place.serve(|config| config.listen = address).await;
    ask(&client, 1).await;
    assert!(service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn codecs_are_chosen_by_name_and_say_what_they_cost() {
    let place = Place::new();
    let mut whole = Whole::new("orientation");
    let bundle = place.cut_in_the_middle(&whole.model);
    let service = place.serve(|_| {}).await;
    let inputs = draw(&whole.model, 3);
    let expected = whole.run(&inputs);
    let mut sent = Vec::new();
    for (codec, limit) in [("raw", MAX_REL), ("f16", 1e-2), ("int8", 0.2)] {
        let client = service.client(&bundle).codec(codec).build().await.unwrap();
        let answer = client.infer(inputs.clone()).await.unwrap();
        let off = off(&expected, &answer);
        assert!(off <= limit, "{codec}: {off:e}");
        sent.push(answer.bytes_sent);
    }
    assert!(sent[0] == 2 * sent[1] && sent[1] > sent[2], "{sent:?}");
    let error = service
        .client(&bundle)
        .codec("int7")
        .build()
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Bundle);
    assert!(error.to_string().contains("int8"), "{error}");
    assert!(service.stop().await);
}

/// The honest rival of every cut: the picture itself, compressed. The service decodes it, and the
/// tail is the whole model.
#[tokio::test(flavor = "multi_thread")]
async fn a_picture_can_be_sent_compressed() {
    let place = Place::new();
    let image = ImagePreprocess {
        input: "x".into(),
        ..ImagePreprocess::default()
    };
    let path = zoo("orientation");
    let mut model = Model::open(&path, &sizes("orientation"), Some(&image)).unwrap();
    model.learn(&runtime(), 1).unwrap();
    let bundle = place.bundle("pictures");
    cut(&model, &bundle, &[], |options| {
        options.cloud_head = true;
        options.codec = Some("jpeg85".into());
    });
    let session = model.session(&runtime(), Optimization::All).unwrap();
    let mut whole = Whole { model, session };
    let service = place.serve(|_| {}).await;

    let sample = |at: usize| (40 + (at / 3 % 224 + at / 672) / 3 + at % 3 * 20) as u8;
    let samples: Vec<u8> = (0..224 * 224 * 3).map(sample).collect();
    let picture = Tensor::from_vec(vec![1, 224, 224, 3], samples).unwrap();
    let ask = async |codec: Option<&str>, picture: &Tensor| {
        let client = service.client(&bundle);
        let client = match codec {
            Some(codec) => client.codec(codec),
            None => client,
        };
        let inputs = Values::from([("image".to_owned(), picture.clone())]);
        let answer = client.build().await.unwrap().infer(inputs).await.unwrap();
        let (_, output) = answer.outputs().iter().next().unwrap();
        (answer.bytes_sent, output.bytes().clone(), answer)
    };
    let (raw_sent, raw, _) = ask(Some("raw"), &picture).await;
    for codec in ["png", "zstd"] {
        let (sent, output, _) = ask(Some(codec), &picture).await;
        assert!(sent < raw_sent / 4, "{codec}: {sent} bytes of {raw_sent}");
        assert_eq!(output, raw, "{codec}: what is lossless changes no bit");
    }
    for codec in ["jpeg85", "jpeg50", "webp75"] {
        let spec = CodecSpec::from_name(codec).unwrap();
        let payload = seamline_codec::encode_bytes(&spec, &picture).unwrap();
        let (dtype, shape) = (picture.dtype(), picture.shape());
        let decoded = seamline_codec::decode(&spec, dtype, shape, &payload).unwrap();
        assert_ne!(decoded.bytes(), picture.bytes(), "{codec} is lossy");
        let (sent, output, answer) = ask(Some(codec), &picture).await;
        assert!(sent < raw_sent / 10, "{codec}: {sent} bytes of {raw_sent}");
        let (_, of_decoded, _) = ask(Some("raw"), &decoded).await;
        assert_eq!(
            output, of_decoded,
            "{codec}: the tail sees what was decoded"
        );
        let inputs = Values::from([("image".to_owned(), decoded)]);
        let off = off(&whole.run(&inputs), &answer);
        assert!(off <= MAX_REL, "{codec}: {off:e}");
        if codec == "jpeg85" {
            let (default_sent, default, _) = ask(None, &picture).await;
            assert_eq!((default_sent, default), (sent, output), "`split --codec`");
        }
    }
    let refused = service.client(&bundle).codec("jpeg77").build().await;
    let error = refused.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("jpeg85, jpeg95"), "{error}");
    assert!(service.stop().await);
}

/// A bundle that holds every stage for the device needs no service.
#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_holds_everything_runs_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut whole = Whole::new("ocr-cls");
    let out: &Path = &folder.path().join("alone.seam");
    cut(&whole.model, out, &[&middle(&whole.model).id], |options| {
        options.edge_tail = true
    });
    let client = Client::builder(out)
        .runtime(runtime())
        .build()
        .await
        .unwrap();
    let inputs = draw(&whole.model, 5);
    let answer = client.infer(inputs.clone()).await.unwrap();
    assert_eq!((answer.bytes_sent, answer.batch_size), (0, 0));
    assert!(off(&whole.run(&inputs), &answer) <= MAX_REL);
}
