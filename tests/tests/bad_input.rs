//! What is wrong is said by name, costs only itself, and never gets further than it must.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]
#![allow(
    clippy::cast_possible_truncation,
    reason = "rows, seeds and payloads of tests are small"
)]

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use seamline_cloud::Service;
use seamline_cloud::config::AuthMode;
use seamline_edge::{Client, Error, ErrorKind, Values};
use seamline_graph::builder::GraphBuilder;
use seamline_net::identity::{ClientIdentity, Trust, create};
use seamline_net::{ClientConnection, ClientOptions, ConnectErrorKind, ContractHandle, Request};
use seamline_partitioner::{Model, compare};
use seamline_plan::{Bindings, DType, Dim, Fingerprint, MANIFEST_FILE, Tensor};
use seamline_tests::{
    ADMIN_TOKEN, TestService, copy_folder, cut, draw, http_get, identities, middle, model, runtime,
    serve_config, values, zoo,
};
use seamline_wire::{ErrorCode, TensorHeader, VersionRange};
use tempfile::TempDir;

/// The model of these tests; cut once, copied where a test spoils it.
const MODEL: &str = "ocr-cls";

fn whole() -> Model {
    model(MODEL)
}

/// A bundle of [`MODEL`], made once a process.
fn bundle() -> &'static Path {
    static BUNDLE: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let make = || {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("m.seam");
        let model = whole();
        cut(&model, &out, &[&middle(&model).id], |_| {});
        (folder, out)
    };
    &BUNDLE.get_or_init(make).1
}

/// Identities and a folder with the bundle, of a test's own.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place {
            folder: tempfile::tempdir().unwrap(),
        };
        identities(&place.identity());
        copy_folder(bundle(), &place.bundle());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn identity(&self) -> PathBuf {
        self.path("identity")
    }

    fn bundles(&self) -> PathBuf {
        self.path("bundles")
    }

    fn bundle(&self) -> PathBuf {
        self.bundles().join("m.seam")
    }

    async fn serve(&self) -> TestService {
        TestService::start(&self.bundles(), &self.identity(), |_| {}).await
    }

    /// Why a service of this place does not start.
    async fn start_error(&self) -> String {
        let config = serve_config(&self.bundles(), &self.identity());
        let Err(error) = Service::start(&config, &runtime()).await else {
            panic!("the service must not start")
        };
        error.to_string()
    }
}

fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

async fn build_error(builder: seamline_edge::ClientBuilder) -> Error {
    match builder.build().await {
        Ok(_) => panic!("the client must not be made"),
        Err(error) => error,
    }
}

#[test]
fn a_file_that_is_no_model_and_a_truncated_one_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prose.onnx");
    let refuse = |content: &[u8]| {
        std::fs::write(&path, content).unwrap();
        let Err(error) = Model::open(&path, &Bindings::new(), None) else {
            panic!("{} bytes are no model", content.len())
        };
        assert_says(&error.to_string(), &["prose.onnx"]);
    };
    refuse(b"");
    refuse(b"This is no model, but a sentence about one.");
    refuse(&[0xff; 4096]);
    let bytes = std::fs::read(zoo(MODEL)).unwrap();
    for part in 1..64 {
        refuse(&bytes[..bytes.len() * part / 64]);
    }
    refuse(&bytes[..bytes.len() - 1]);
    let absent = Model::open(&folder.path().join("absent.onnx"), &Bindings::new(), None);
    assert_says(
        &absent.map(|_| ()).unwrap_err().to_string(),
        &["absent.onnx"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_edited_by_hand_is_refused_on_both_sides() {
    let place = Place::new();
    let edit = |file: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let path = place.bundle().join(file);
        let mut content = std::fs::read(bundle().join(file)).unwrap();
        change(&mut content);
        std::fs::write(path, content).unwrap();
    };
    let restore = |file: &str| edit(file, &|_| {});
    let client = || {
        Client::builder(place.bundle())
            .runtime(runtime())
            .cloud("127.0.0.1:1")
    };
    let files = |side: &str| -> Vec<String> {
        let folder = std::fs::read_dir(bundle().join(side)).unwrap();
        folder
            .map(|file| format!("{side}/{}", file.unwrap().file_name().display()))
            .collect()
    };
    for file in files("edge") {
        edit(&file, &|content| *content.last_mut().unwrap() ^= 1);
        let error = build_error(client()).await;
        assert_eq!(error.kind(), ErrorKind::Bundle);
        assert_says(&error.to_string(), &[&file, "BLAKE3"]);
        restore(&file);
    }
    for file in files("cloud") {
        edit(&file, &|content| content.truncate(content.len() / 2));
        assert_says(&place.start_error().await, &[&file, "the manifest says"]);
        std::fs::remove_file(place.bundle().join(&file)).unwrap();
        assert_says(&place.start_error().await, &[&file, "missing"]);
        restore(&file);
    }
    edit(MANIFEST_FILE, &|content| {
        content.truncate(content.len() / 2)
    });
    let error = build_error(client()).await;
    assert_eq!(error.kind(), ErrorKind::Bundle);
    assert_says(&error.to_string(), &["manifest.json is not valid"]);
    assert_says(
        &place.start_error().await,
        &["m.seam", "manifest.json is not valid"],
    );
    edit(MANIFEST_FILE, &|content| {
        let text = String::from_utf8(content.clone()).unwrap();
        *content = text
            .replacen("\"format\": 1", "\"format\": 9", 1)
            .into_bytes();
    });
    assert_says(&place.start_error().await, &["format 9", "reads format 1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_without_bundles_or_with_half_of_one_does_not_start() {
    let place = Place::new();
    std::fs::remove_file(place.bundle().join(MANIFEST_FILE)).unwrap();
    assert_says(
        &place.start_error().await,
        &["m.seam", "has no manifest.json", "seamline split"],
    );
    std::fs::remove_dir_all(place.bundle()).unwrap();
    assert_says(
        &place.start_error().await,
        &["holds no bundle", "seamline split"],
    );
    std::fs::remove_dir_all(place.bundles()).unwrap();
    assert_says(&place.start_error().await, &["bundles", "cannot read"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_named() {
    let place = Place::new();
    let service = place.serve().await;
    let config = seamline_cloud::config::ServeConfig {
        listen: service.addr,
        ..serve_config(&place.bundles(), &place.identity())
    };
    let error = Service::start(&config, &runtime())
        .await
        .map(|_| ())
        .unwrap_err();
    assert_says(
        &error.to_string(),
        &[&format!("port {}", service.addr.port()), "in use"],
    );
    let mut config = serve_config(&place.bundles(), &place.identity());
    config.admin.listen = service.admin.unwrap();
    let error = Service::start(&config, &runtime())
        .await
        .map(|_| ())
        .unwrap_err();
    assert_says(
        &error.to_string(),
        &[&service.admin.unwrap().port().to_string()],
    );
    assert!(service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_that_does_not_fit_is_named_with_what_was_expected_and_what_came() {
    let place = Place::new();
    let service = place.serve().await;
    let client = service.client(&place.bundle()).build().await.unwrap();
    let good = draw(&whole(), 1);
    let (name, tensor) = good.iter().next().unwrap();
    let mut cases: Vec<(Values, Vec<&str>)> = vec![
        (Values::new(), vec![name, "missing"]),
        (
            values([(
                name,
                Tensor::zeros(DType::I64, tensor.shape().to_vec()).unwrap(),
            )]),
            vec![name, "f32", "i64"],
        ),
        (
            values([(
                name,
                Tensor::zeros(DType::F32, vec![1, 5, 48, 192]).unwrap(),
            )]),
            vec![name, "3", "5"],
        ),
        (
            values([(name, Tensor::zeros(DType::F32, vec![7]).unwrap())]),
            vec![name, "[7]"],
        ),
    ];
    let mut unknown = good.clone();
    unknown.insert("surplus".into(), tensor.clone());
    cases.push((unknown, vec!["surplus", name]));
    for (inputs, parts) in cases {
        let error = client.infer(inputs).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input, "{error}");
        assert_says(&error.to_string(), &parts);
    }
    client.infer(good).await.unwrap();
    assert!(service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_an_expired_and_a_missing_certificate_are_told_apart() {
    let place = Place::new();
    let service = place.serve().await;
    let client = |folder: &Path, device: &str| {
        service
            .client(&place.bundle())
            .identity_folder(folder, device)
    };
    // Of another authority, which this device trusts and the service is not of.
    let other = place.path("other");
    identities(&other);
    let error = build_error(client(&other, "device")).await;
    assert_eq!(error.kind(), ErrorKind::Identity, "{error}");
    // It trusts the right authority, but its certificate is of the other one.
    std::fs::copy(place.identity().join("ca.pem"), other.join("ca.pem")).unwrap();
    let error = build_error(client(&other, "device")).await;
    assert_eq!(error.kind(), ErrorKind::Identity, "{error}");
    assert_says(&error.to_string(), &["certificate"]);
    let error = build_error(client(&place.identity(), "nobody")).await;
    assert_eq!(error.kind(), ErrorKind::Identity, "{error}");
    assert_says(&error.to_string(), &["nobody.pem", "identity"]);
    // Valid until now: refused as soon as the second that it was made in is over.
    create::device(&place.identity(), "brief", 0).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    let error = loop {
        match client(&place.identity(), "brief").build().await {
            Ok(client) => client.close().await,
            Err(error) => break error,
        }
        assert!(
            Instant::now() < until,
            "a certificate of no days is still accepted"
        );
    };
    assert_eq!(error.kind(), ErrorKind::Identity, "{error}");
    assert_says(&error.to_string(), &["expired", "seamline-cloud identity"]);
    // Nothing at all, by hand: the SDK does not let it come to that.
    let trust = Trust::load(&place.identity()).unwrap();
    let options = ClientOptions::new(service.addr, "localhost", ClientIdentity::None, trust);
    let error = seamline_net::Client::connect(options)
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(error.kind(), ConnectErrorKind::Unauthenticated, "{error}");
    client(&place.identity(), "device")
        .build()
        .await
        .expect("the right one is welcome");
    assert!(service.stop().await);
}

/// A connection by hand with the bundle's contract open.
async fn by_hand(place: &Place, service: &TestService) -> (ClientConnection, ContractHandle) {
    let identity = ClientIdentity::load(&place.identity(), "device").unwrap();
    let trust = Trust::load(&place.identity()).unwrap();
    let options = ClientOptions::new(service.addr, "localhost", identity, trust);
    let connection = seamline_net::Client::connect(options).await.unwrap();
    let contract = connection
        .open(fingerprint(&place.bundle()), MODEL)
        .await
        .unwrap();
    (connection, contract)
}

fn fingerprint(bundle: &Path) -> Fingerprint {
    Fingerprint::of(&std::fs::read(bundle.join(MANIFEST_FILE)).unwrap())
}

/// A request by hand: what is spoiled of a good one, and how it is refused.
struct Spoiled {
    what: &'static str,
    spoil: fn(&mut Request, &mut Vec<Bytes>),
    code: ErrorCode,
    says: &'static [&'static str],
}

/// Case 15, and requests whose shape does not fit the contract.
#[tokio::test(flavor = "multi_thread")]
async fn case_15_a_client_can_only_name_what_the_service_holds() {
    let place = Place::new();
    let service = place.serve().await;
    let good = service.client(&place.bundle()).build().await.unwrap();
    let inputs = draw(&whole(), 1);
    let expected = good.infer(inputs.clone()).await.unwrap();
    let crossing = &good.cut().crossing;
    assert!(!crossing.is_empty());
    let cut = good.manifest().cut(&good.cut().id).unwrap().0;
    let (connection, contract) = by_hand(&place, &service).await;
    let request = || {
        let tensors: Vec<TensorHeader> = crossing
            .iter()
            .map(|value| TensorHeader {
                codec: value.codecs[0].id(),
                dtype: value.spec.dtype.code(),
                shape: value.reference.clone(),
                bytes: value.reference.iter().product::<u64>() * value.spec.dtype.size() as u64,
            })
            .collect();
        let payload = |tensor: &TensorHeader| Bytes::from(vec![0; tensor.bytes as usize]);
        let payloads: Vec<Bytes> = tensors.iter().map(payload).collect();
        let cut = u16::try_from(cut).unwrap();
        (Request::new(contract, cut, tensors).unwrap(), payloads)
    };
    let spoiled = [
        Spoiled {
            what: "a cut that the contract lacks",
            spoil: |request, _| request.cut = 99,
            code: ErrorCode::Unsupported,
            says: &["cut 99"],
        },
        Spoiled {
            what: "a cut behind the last stage",
            spoil: |request, _| request.cut = u16::MAX,
            code: ErrorCode::Unsupported,
            says: &["cut 65535"],
        },
        Spoiled {
            what: "a codec that nobody knows",
            spoil: |request, _| request.tensors[0].codec = 250,
            code: ErrorCode::Unsupported,
            says: &["codec 250", "raw"],
        },
        Spoiled {
            what: "another element type",
            spoil: |request, _| request.tensors[0].dtype = DType::I32.code(),
            code: ErrorCode::InvalidTensor,
            says: &["i32", "f32"],
        },
        Spoiled {
            what: "a dimension more",
            spoil: |request, _| request.tensors[0].shape.push(1),
            code: ErrorCode::InvalidTensor,
            says: &["expected"],
        },
        Spoiled {
            what: "no rows",
            spoil: |request, payloads| {
                request.tensors[0].shape[0] = 0;
                request.tensors[0].bytes = 0;
                payloads[0] = Bytes::new();
            },
            code: ErrorCode::InvalidTensor,
            says: &["row"],
        },
        Spoiled {
            what: "half of the bytes",
            spoil: |request, payloads| {
                request.tensors[0].bytes /= 2;
                let half = payloads[0].len() / 2;
                payloads[0].truncate(half);
            },
            code: ErrorCode::InvalidTensor,
            says: &["bytes"],
        },
        Spoiled {
            what: "more bytes than the shape has",
            spoil: |request, payloads| {
                request.tensors[0].bytes += 4;
                payloads[0] = [&payloads[0][..], &[0; 4]].concat().into();
            },
            code: ErrorCode::InvalidTensor,
            says: &["bytes"],
        },
        Spoiled {
            what: "a tensor too many",
            spoil: |request, payloads| {
                request.tensors.push(request.tensors[0].clone());
                payloads.push(payloads[0].clone());
            },
            code: ErrorCode::InvalidTensor,
            says: &["tensors came"],
        },
        Spoiled {
            what: "none",
            spoil: |request, payloads| {
                request.tensors.clear();
                payloads.clear();
            },
            code: ErrorCode::InvalidTensor,
            says: &["0 tensors came"],
        },
        Spoiled {
            what: "a step of a session that was never begun",
            spoil: |request, _| request.session = Some((5, 7)),
            code: ErrorCode::UnknownSession,
            says: &["session 5"],
        },
    ];
    for Spoiled {
        what,
        spoil,
        code,
        says,
    } in spoiled
    {
        let (mut wrong, mut payloads) = request();
        spoil(&mut wrong, &mut payloads);
        let error = connection.request(wrong, payloads).await.unwrap_err();
        assert_eq!(error.code(), Some(code), "{what}: {error}");
        assert_says(&error.to_string(), says);
        let (right, payloads) = request();
        connection
            .request(right, payloads)
            .await
            .unwrap_or_else(|error| panic!("after {what}: the connection goes on: {error}"));
    }
    // A contract that this connection did not open, though another one did.
    let identity = ClientIdentity::load(&place.identity(), "device").unwrap();
    let trust = Trust::load(&place.identity()).unwrap();
    let options = ClientOptions::new(service.addr, "localhost", identity, trust);
    let stranger = seamline_net::Client::connect(options).await.unwrap();
    let (unopened, payloads) = request();
    let error = stranger.request(unopened, payloads).await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UnknownContract), "{error}");
    let answer = good.infer(inputs).await.unwrap();
    assert_eq!(answer.outputs(), expected.outputs());
    service.wait_for("seamline_in_flight_requests", 0.0).await;
    service.wait_for("seamline_held_bytes", 0.0).await;
    assert!(service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn case_16_another_build_or_version_is_told_both() {
    let place = Place::new();
    let service = place.serve().await;
    let model = whole();
    let build = place.path("another.seam");
    cut(&model, &build, &[&middle(&model).id], |options| {
        options.codec = Some("int8".into())
    });
    let (ours, theirs) = (fingerprint(&build), fingerprint(&place.bundle()));
    assert_ne!(ours, theirs);
    let error = build_error(service.client(&build)).await;
    assert_eq!(error.kind(), ErrorKind::Contract, "{error}");
    assert_says(
        &error.to_string(),
        &[&ours.to_string(), &theirs.to_string()],
    );

    let identity = ClientIdentity::load(&place.identity(), "device").unwrap();
    let trust = Trust::load(&place.identity()).unwrap();
    let mut options = ClientOptions::new(service.addr, "localhost", identity, trust);
    options.versions = VersionRange { min: 7, max: 9 };
    let error = seamline_net::Client::connect(options)
        .await
        .map(|_| ())
        .unwrap_err();
    assert_eq!(error.kind(), ConnectErrorKind::VersionMismatch, "{error}");
    assert_says(&error.to_string(), &["7", "9", "1"]);
    assert!(service.stop().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn case_18_devices_and_administrators_have_no_key_in_common() {
    let place = Place::new();
    let sensor = create::token(&place.identity(), "sensor").unwrap();
    let identity = place.identity();
    let service = TestService::start(&place.bundles(), &identity, |config| {
        config.identity.auth = AuthMode::Either;
    })
    .await;
    let device = service
        .client(&place.bundle())
        .identity_folder(&identity, "sensor");
    let device = device
        .build()
        .await
        .expect("a token of the list is welcome");
    device.infer(draw(&whole(), 1)).await.unwrap();
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(service.admin_get(path, None).await.0, 401, "{path}");
        assert_eq!(
            service.admin_get(path, Some(&sensor.to_hex())).await.0,
            401,
            "{path}"
        );
        assert_eq!(
            service.admin_get(path, Some(ADMIN_TOKEN)).await.0,
            200,
            "{path}"
        );
    }
    let (_, metrics) = service.admin_get("/metrics", Some(ADMIN_TOKEN)).await;
    assert_says(&metrics, &["seamline_requests_total{outcome=\"ok\"} 1"]);
    // The admin's token has the form of a device's, and is none.
    std::fs::write(identity.join("intruder.token"), ADMIN_TOKEN).unwrap();
    let intruder = service
        .client(&place.bundle())
        .identity_folder(&identity, "intruder");
    let error = build_error(intruder).await;
    assert_eq!(error.kind(), ErrorKind::Identity, "{error}");
    // The data plane speaks no HTTP, and the admin plane no data: neither port is the other's.
    assert!(
        http_get(service.addr, "/metrics", Some(ADMIN_TOKEN))
            .await
            .is_err()
    );
    assert!(service.stop().await);
}

/// A table of sixteen rows of eight; an index beyond it makes ONNX Runtime fail the whole run.
fn lookup() -> Model {
    let table: Vec<f32> = (0..128u8).map(f32::from).collect();
    let rows = |width: u64| [Dim::Sym("N".into()), Dim::Fixed(4), Dim::Fixed(width)];
    let graph = GraphBuilder::new("lookup", 17)
        .input("ids", DType::I64, &rows(1)[..2])
        .output("found", DType::F32, &rows(8))
        .weight_f32("table", &[16, 8], &table)
        .node("Gather", &["table", "ids"], &["rows"])
        .node("Neg", &["rows"], &["found"])
        .build()
        .unwrap();
    let hash = Fingerprint::of(b"lookup");
    Model::new(graph, "lookup".into(), hash, &Bindings::new()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_fails_does_not_take_its_batch_mates_with_it() {
    const BATCH: u32 = 3;
    let place = Place::new();
    let model = lookup();
    let out = place.bundles().join("lookup.seam");
    let report = cut(&model, &out, &[], |options| options.cloud_head = true);
    assert!(
        report.manifest.cuts[0].is_batchable(),
        "{:?}",
        report.batching
    );
    let service = TestService::start(&place.bundles(), &place.identity(), |config| {
        config.batching.max_batch_size = BATCH;
        config.batching.max_queue_delay_us = 10_000_000;
    })
    .await;
    let client = service.client(&out).build().await.unwrap();
    let ask = |ids: [i64; 4]| {
        let client = client.clone();
        async move {
            let ids = Tensor::from_vec(vec![1, 4], ids.to_vec()).unwrap();
            client.infer(values([("ids", ids)])).await
        }
    };
    let (first, bad, second) = tokio::join!(
        ask([0, 1, 2, 3]),
        ask([0, 1, 1_000_000, 3]),
        ask([15, 14, 13, 12])
    );
    let error = bad.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Service, "{error}");
    assert!(
        !error.to_string().contains("Gather"),
        "nothing private: {error}"
    );
    let expect = |ids: [u8; 4]| {
        let elements = ids
            .iter()
            .flat_map(|id| (0..8).map(move |c| -f32::from(id * 8 + c)));
        Tensor::from_vec(vec![1, 4, 8], elements.collect()).unwrap()
    };
    for (answer, ids) in [(first, [0, 1, 2, 3]), (second, [15, 14, 13, 12])] {
        let answer = answer.expect("its batch-mate is to blame");
        assert_eq!(
            compare(&expect(ids), answer.output("found").unwrap()).max_abs,
            0.0
        );
    }
    assert!(service.stop().await);
}
