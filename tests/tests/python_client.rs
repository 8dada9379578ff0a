//! The client in `examples/python`, written from PROTOCOL.md alone, against the service.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use seamline_assets::Store;
use seamline_net::identity::{CA_FILE, create};
use seamline_plan::{Fingerprint, MANIFEST_FILE, StateSpec};
use seamline_tests::{TestService, cut, identities, middle, model, zoo};

const MODEL: &str = "vad-seq";
const DEVICE: &str = "device";

/// Between the service and the ONNX Runtime of Python: other builds, other threads.
const MAX_ABS: f64 = 1e-4;

/// What `--check` and heads need beside the client's requirements.
const RUNTIME: &str = "onnxruntime==1.32.0";

/// Python with what the client needs.
struct Python {
    packages: PathBuf,
}

fn client_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/python")
}

/// What a command prints on stdout, or why it failed.
fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output();
    let output = output.map_err(|error| format!("{command:?} cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

impl Python {
    /// Fetches the packages into the asset cache, where they are not there yet; says what is
    /// missing where there is no Python or no pip.
    fn fetch() -> Result<Python, String> {
        let version = output(Command::new("python3").arg("--version"))?;
        output(Command::new("python3").args(["-m", "pip", "--version"]))?;
        let requirements = client_folder().join("requirements.txt");
        let mut key = std::fs::read(&requirements).unwrap();
        key.extend_from_slice(RUNTIME.as_bytes());
        key.extend_from_slice(version.as_bytes());
        let root = Store::from_env().root().to_owned();
        let packages = root.join(format!("python-{}", Fingerprint::of(&key).short()));
        if !packages.exists() {
            std::fs::create_dir_all(&root).unwrap();
            let fresh = tempfile::tempdir_in(&root).unwrap();
            let target = fresh.path().join("packages");
            let mut pip = Command::new("python3");
            pip.args(["-m", "pip", "install", "--quiet", "--only-binary=:all:"])
                .arg("--disable-pip-version-check")
                .arg("--target")
                .arg(&target)
                .arg("--requirement")
                .arg(&requirements)
                .arg(RUNTIME);
            // With pip there, packages that cannot be had are a failure, not a reason to skip.
            output(&mut pip).unwrap();
            // Another process may have been faster; its packages are as good.
            let renamed = std::fs::rename(&target, &packages);
            assert!(renamed.is_ok() || packages.exists(), "{renamed:?}");
        }
        Ok(Python { packages })
    }

    /// A Python that finds the packages.
    fn command(&self) -> Command {
        let mut command = Command::new("python3");
        command
            .env("PYTHONPATH", &self.packages)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONUTF8", "1");
        command
    }
}

/// The client, and where it finds service and identities.
struct Client<'a> {
    python: &'a Python,
    service: &'a TestService,
}

impl Client<'_> {
    /// Runs it: what it prints, or its error.
    fn run(&self, bundle: &Path, identity: &Path, more: &[&str]) -> Result<String, String> {
        let mut client = self.python.command();
        client
            .arg(client_folder().join("client.py"))
            .arg(bundle)
            .args(["--connect", &self.service.addr.to_string()])
            .arg("--identity")
            .arg(identity)
            .args(["--device", DEVICE])
            .args(more);
        tokio::task::block_in_place(|| output(&mut client))
    }

    /// Fails unless the client ends with an error that contains `expected`.
    fn fails(&self, bundle: &Path, identity: &Path, more: &[&str], expected: &str) {
        let error = self.run(bundle, identity, more).unwrap_err();
        assert!(error.contains(expected), "`{expected}` is not in: {error}");
    }
}

/// A bundle with the service's head and its state, cut in the middle.
fn make_bundle(out: &Path) {
    let whole = model(MODEL);
    cut(&whole, out, &[&middle(&whole).id], |options| {
        options.cloud_head = true;
        options.states = [("h", "hn"), ("c", "cn")]
            .map(|(input, output)| StateSpec {
                input: input.into(),
                output: output.into(),
            })
            .to_vec();
    });
}

/// A folder with a bundle's manifest, of which only the bytes differ.
fn with_another_fingerprint(bundle: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    let mut manifest = std::fs::read(bundle.join(MANIFEST_FILE)).unwrap();
    manifest.push(b'\n');
    std::fs::write(to.join(MANIFEST_FILE), manifest).unwrap();
}

/// The largest difference that `--check` printed.
fn checked(printed: &str) -> f64 {
    let line = printed.lines().last().unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_written_from_the_document_alone_is_served() {
    let python = match tokio::task::block_in_place(Python::fetch) {
        Ok(python) => python,
        Err(reason) => {
            eprintln!("SKIPPED a_client_written_from_the_document_alone_is_served: {reason}");
            return;
        }
    };
    let mut tests = python.command();
    tests
        .args(["-m", "unittest", "test_wire"])
        .current_dir(client_folder());
    tokio::task::block_in_place(|| output(&mut tests)).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let (identity, bundles) = (place("identity"), place("bundles"));
    identities(&identity);
    std::fs::create_dir(&bundles).unwrap();
    let bundle = bundles.join("vad.seam");
    make_bundle(&bundle);
    let service = TestService::start(&bundles, &identity, |_| {}).await;
    let client = Client {
        python: &python,
        service: &service,
    };

    let whole = zoo(MODEL);
    let check: &[&str] = &["--steps", "5", "--check", whole.to_str().unwrap()];
    let cuts: [&[&str]; 2] = [&[], &["--cut", "input"]];
    for cut in cuts {
        let printed = client.run(&bundle, &identity, &[check, cut].concat());
        let printed = printed.unwrap();
        assert!(checked(&printed) <= MAX_ABS, "{cut:?}:\n{printed}");
    }

    let edited = place("edited.seam");
    with_another_fingerprint(&bundle, &edited);
    let expected = "UnknownContract (4): the device has bundle";
    client.fails(&edited, &identity, &[], expected);

    let narrow = place("narrow.npy");
    let save = format!("import numpy; numpy.save({narrow:?}, numpy.zeros((4, 575), 'f4'))");
    output(python.command().args(["-c", &save])).unwrap();
    let input = format!("input={}", narrow.display());
    let expected = "InvalidTensor (6): `input` has shape [4, 575]";
    let more = ["--cut", "input", "--input", &input];
    client.fails(&bundle, &identity, &more, expected);

    let strangers = place("strangers");
    create::authority(&strangers, "another-authority", 2).unwrap();
    create::device(&strangers, DEVICE, 2).unwrap();
    std::fs::copy(identity.join(CA_FILE), strangers.join(CA_FILE)).unwrap();
    client.fails(&bundle, &strangers, &[], "authority is not known (48)");

    assert!(service.stop().await);
}
