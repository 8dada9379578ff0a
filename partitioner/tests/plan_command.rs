//! `seamline plan` as it is used: profiles of this machine and from files, calibration data, and
//! what it says to input that it cannot use.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[allow(dead_code, reason = "other tests use the rest")]
mod common;

use std::path::PathBuf;

use common::{Place, Ran};
use seamline_graph::WriteOptions;
use seamline_graph::builder::GraphBuilder;
use seamline_plan::DType;
use serde_json::Value;

/// A folder whose plans are kept there, and ONNX Runtime as it was found before.
struct Desk {
    place: Place,
    library: PathBuf,
}

impl Desk {
    fn new() -> Desk {
        let store = seamline_assets::Store::from_env();
        let set = std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from);
        Desk {
            library: seamline_ort::locate(set.as_deref(), &store).unwrap().path,
            place: Place::new(),
        }
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = self
            .place
            .command(&[&["plan", "--quick"], arguments].concat());
        command
            .env("ORT_DYLIB_PATH", &self.library)
            .env("SEAMLINE_CACHE", self.place.path("cache"));
        Ran::of(command.output().unwrap())
    }

    fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(ran.code, code, "{}{}", ran.stdout, ran.stderr);
        serde_json::from_str(&ran.stdout).unwrap()
    }

    fn refused(&self, arguments: &[&str], parts: &[&str]) {
        self.run(arguments).assert_refused(1, parts);
    }

    /// Requests for the perceptron, in `data`.
    fn data(&self, count: usize) {
        let folder = self.place.path("data");
        std::fs::create_dir_all(&folder).unwrap();
        for request in 0..count {
            let values: Vec<String> = (0..8)
                .map(|index| format!("{}", ((request * 31 + index * 17) % 23) as f32 / 11.0 - 1.0))
                .collect();
            let text = format!("[[{}]]", values.join(","));
            std::fs::write(folder.join(format!("{request:02}.json")), text).unwrap();
        }
    }
}

fn candidate<'p>(plan: &'p Value, id: &str) -> &'p Value {
    let candidates = plan["plan"]["candidates"].as_array().unwrap();
    candidates.iter().find(|it| it["id"] == id).unwrap()
}

#[test]
fn a_plan_is_written_checked_measured_and_asked() {
    let desk = Desk::new();
    desk.place.perceptron("m.onnx");
    desk.data(12);
    let plan = desk.json(
        0,
        &[
            "m.onnx",
            "--calibration",
            "data",
            "-o",
            "m.seam",
            "--measure",
        ],
    );
    let chosen = plan["plan"]["chosen"].as_str().unwrap();
    assert_eq!(chosen, "device", "a net of microseconds stays where it is");
    assert!(
        candidate(&plan, chosen)["measured"]["requests"]
            .as_u64()
            .unwrap()
            > 0
    );
    assert!(
        plan["plan"]["metric"]["samples"] == 12,
        "{}",
        plan["plan"]["metric"]
    );
    assert_eq!(
        candidate(&plan, "input/raw")["accuracy"],
        plan["plan"]["metric"]["baseline"]
    );
    for file in ["manifest.json", "costs.json", "plan.json"] {
        assert!(desk.place.path("m.seam").join(file).is_file(), "{file}");
    }

    // The same plan holds on the same machines, and not where the device is far slower.
    assert_eq!(
        desk.json(0, &["m.onnx", "--check", "m.seam", "--margin", "3"])["passed"],
        true
    );
    let slow = [
        "m.onnx",
        "--check",
        "m.seam",
        "--device-slowdown",
        "10000",
        "--link",
        "ethernet",
    ];
    let worse = desk.json(1, &slow);
    assert_eq!(
        (&worse["old"], &worse["passed"]),
        (&"device".into(), &false.into()),
        "{worse}"
    );

    // Of the plan in the bundle, and of one that is made now.
    let why = desk.run(&["m.seam", "--why-not", "input/raw"]);
    assert!(
        why.code == 0 && why.stdout.contains("device was chosen"),
        "{}",
        why.stdout
    );
    let why = desk.run(&["m.onnx", "--why-not", "b"]);
    assert!(
        why.code == 0 && why.stdout.contains("device was chosen"),
        "{}",
        why.stdout
    );
    desk.refused(
        &["m.onnx", "--why-not", "s99"],
        &["no candidate, cut or crossing value `s99`"],
    );

    // The costs that a bundle has learnt correct the profiles.
    let learnt = desk.run(&["m.onnx", "--learn", "m.seam"]);
    assert_eq!(learnt.code, 0, "{}", learnt.stderr);
}

#[test]
fn case_37_a_slow_device_sends_its_input_and_the_plan_says_that_no_split_is_better() {
    let desk = Desk::new();
    desk.place.perceptron("m.onnx");
    let plan = desk.json(
        0,
        &["m.onnx", "--device-slowdown", "10000", "--link", "ethernet"],
    );
    let record = &plan["plan"];
    assert_eq!(
        candidate(&plan, record["chosen"].as_str().unwrap())["cut"],
        "input"
    );
    let reason = record["reason"].to_string();
    assert!(reason.contains("No split is better"), "{reason}");
    let notes = record["notes"].to_string();
    assert!(notes.contains("multiplied by 10000"), "{notes}");
}

#[test]
fn case_38_a_figure_of_leakage_comes_with_what_it_does_not_say() {
    let desk = Desk::new();
    desk.place.perceptron("m.onnx");
    desk.data(64);
    let plan = desk.json(0, &["m.onnx", "--calibration", "data"]);
    let record = &plan["plan"];
    let notes = record["notes"].to_string();
    assert!(notes.contains("Splitting is not privacy"), "{notes}");
    assert!(
        record["attack"]["at_input"].as_f64().unwrap() > 0.95,
        "{}",
        record["attack"]
    );
    let recovered = |id: &str| {
        candidate(&plan, id)["leakage"]["recovered"]
            .as_f64()
            .unwrap()
    };
    assert!(recovered("input/raw") > 0.99, "the input gives away itself");
    let splits = record["candidates"].as_array().unwrap().iter();
    let measured = splits.filter(|it| it["placement"] == "split" && !it["leakage"].is_null());
    assert!(measured.count() > 0, "every examined cut has a figure");
    let without = desk.json(0, &["m.onnx", "--calibration", "data", "--no-leakage"]);
    assert!(without["plan"]["attack"].is_null());
}

#[test]
fn case_13_profiles_are_files_and_say_what_ran_where() {
    let desk = Desk::new();
    desk.place.perceptron("m.onnx");
    let kit = desk.json(0, &["m.onnx", "--kit", "kit"]);
    assert!(desk.place.path("kit").join("kit.json").is_file(), "{kit}");

    // What was measured of this machine, as a file.
    desk.json(0, &["m.onnx"]);
    let [device, cloud] = ["edge-", "cloud-"].map(|prefix| {
        let plans = std::fs::read_dir(desk.place.path("cache").join("plans")).unwrap();
        let folder = plans.flatten().next().unwrap().path();
        let files = std::fs::read_dir(folder)
            .unwrap()
            .flatten()
            .map(|entry| entry.path());
        let is_it = |path: &PathBuf| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(prefix)
        };
        files.into_iter().find(is_it).unwrap()
    });
    std::fs::copy(device, desk.place.path("device.json")).unwrap();
    std::fs::copy(cloud, desk.place.path("cloud.json")).unwrap();
    let files = ["--device", "device.json", "--cloud", "cloud.json"];
    let plan = desk.json(0, &[&["m.onnx"], &files[..]].concat());
    assert_eq!(plan["plan"]["chosen"], "device");

    let measure = [&["m.onnx", "-o", "m.seam", "--measure"], &files[..]].concat();
    desk.refused(
        &measure,
        &["--measure runs the bundle on this machine", "--learn"],
    );
    desk.refused(
        &["m.onnx", "--device", "cloud.json"],
        &["seamline-cloud profile", "is wanted"],
    );
    desk.refused(
        &["m.onnx", "--device", "absent.json"],
        &["absent.json", "No such file"],
    );

    desk.place.convolution("other.onnx");
    desk.refused(
        &[&["other.onnx"], &files[..]].concat(),
        &[
            "the device profile is of model m",
            "measure this one",
            "--kit",
        ],
    );
    let shape = [&["m.onnx", "--shape", "N=2"], &files[..]].concat();
    desk.refused(
        &shape,
        &["was measured at N=1", "the plan is for N=2", "--shape"],
    );

    // Case 13: nodes that a provider handed back.
    let text = std::fs::read_to_string(desk.place.path("device.json")).unwrap();
    let mut profile: Value = serde_json::from_str(&text).unwrap();
    profile["machine"]["providers"] = serde_json::json!(["qnn", "cpu"]);
    for part in profile["parts"].as_array_mut().unwrap() {
        part["placement"] =
            serde_json::json!({"QNNExecutionProvider": 3, "CPUExecutionProvider": 2});
    }
    std::fs::write(desk.place.path("npu.json"), profile.to_string()).unwrap();
    let plan = desk.json(
        0,
        &["m.onnx", "--device", "npu.json", "--cloud", "cloud.json"],
    );
    let notes = plan["plan"]["notes"].to_string();
    let handed_back = "2 of the whole model's 5 nodes ran on the CPU although qnn was asked for";
    assert!(notes.contains(handed_back), "{notes}");

    let edit = |from: &str, to: &str| {
        let path = desk.place.path("device.json");
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        let edited = text.replacen(from, to, 1);
        std::fs::write(desk.place.path("edited.json"), edited).unwrap();
    };
    let edited = ["m.onnx", "--device", "edited.json"];
    edit("\"format\": 1", "\"format\": 9");
    desk.refused(&edited, &["format 9", "reads 1", "measure again"]);
    edit("\"slowdown\": 1.0", "\"slowdown\": NaN");
    desk.refused(
        &edited,
        &["edited.json", "it is no profile", "seamline-edge profile"],
    );
    edit("\"slowdown\": 1.0", "\"slowdown\": -1.0");
    desk.refused(&edited, &["`slowdown` is -1"]);
    edit("\"us\": ", "\"us\": -");
    desk.refused(&edited, &["`nodes[0].us`", "expected times"]);
    edit("\"p50_us\": ", "\"p50_us\": -");
    desk.refused(&edited, &["parts[0].time", "p50_us is -"]);
}

#[test]
fn constraints_that_nothing_keeps_are_named_with_what_is_missing() {
    let desk = Desk::new();
    desk.place.perceptron("m.onnx");
    desk.refused(
        &["m.onnx", "--deadline-ms", "0.000001"],
        &[
            "no candidate keeps every constraint",
            "95th percentile",
            "more than the 0.0 ms allowed",
        ],
    );
    desk.refused(&["m.onnx", "--max-memory", "nan"], &["--max-memory is NaN"]);
    desk.refused(
        &["m.onnx", "--link", "carrier-pigeon"],
        &["carrier-pigeon", "3g", "wifi"],
    );
}

#[test]
fn data_that_does_not_fit_is_named() {
    let desk = Desk::new();
    desk.place.perceptron("m.onnx");
    std::fs::create_dir(desk.place.path("data")).unwrap();
    let plan = ["m.onnx", "--calibration", "data"];
    desk.refused(&plan, &["data: no inputs in this folder"]);
    std::fs::write(desk.place.path("data").join("a.json"), "[[1, 2, 3]]").unwrap();
    desk.refused(&plan, &["a.json", "x", "8"]);
    desk.refused(
        &["m.onnx", "--calibration", "absent"],
        &["absent", "takes a folder"],
    );
    desk.data(2);
    std::fs::remove_file(desk.place.path("data").join("a.json")).unwrap();
    let metric = [&plan[..], &["--metric", "accuracy"]].concat();
    desk.refused(&metric, &["accuracy", "labels"]);
    let command = [&plan[..], &["--metric-command", "echo often"]].concat();
    desk.refused(&command, &["echo often", "expected one finite number"]);
    let command = [&plan[..], &["--metric-command", "cat >/dev/null; echo 0.5"]].concat();
    assert_eq!(desk.json(0, &command)["plan"]["metric"]["baseline"], 0.5);
}

#[test]
fn figures_that_mean_nothing_are_refused() {
    let desk = Desk::new();
    desk.place.perceptron("m.onnx");
    for (flag, value) in [
        ("--arrivals", "NaN"),
        ("--arrivals", "-1"),
        ("--arrivals", "inf"),
        ("--executors", "0"),
        ("--max-batch", "0"),
        ("--samples", "0"),
        ("--device-threads", "1000000"),
        ("--device-slowdown", "0"),
    ] {
        let ran = desk.run(&["m.onnx", &format!("{flag}={value}")]);
        ran.assert_refused(2, &[flag, "invalid value"]);
    }
    let both = desk.run(&["m.onnx", "--kit", "kit", "-o", "m.seam"]);
    both.assert_refused(2, &["cannot be used with"]);
    // More arrives than a service of one executor can answer.
    let slow = ["--cloud-slowdown", "10000", "--arrivals", "100000"];
    let plan = desk.json(0, &[&["m.onnx"], &slow[..]].concat());
    let breaks = candidate(&plan, "input/raw")["breaks"].to_string();
    assert!(breaks.contains("the service cannot keep up"), "{breaks}");
}

#[test]
fn a_bundle_of_another_model_is_neither_checked_nor_learnt_from() {
    let desk = Desk::new();
    desk.place.perceptron("m.onnx");
    desk.place.convolution("other.onnx");
    desk.json(0, &["m.onnx", "-o", "m.seam"]);
    for flag in ["--check", "--learn"] {
        let other = ["other.onnx", flag, "m.seam"];
        desk.refused(
            &other,
            &["m.seam is a bundle of model m", "and this is other"],
        );
    }
    // Nor is anything but a page made in a bundle.
    let mut report = desk
        .place
        .command(&["report", "m.seam", "-o", "m.seam/manifest.json"]);
    Ran::of(report.output().unwrap()).assert_refused(1, &["ends in .html"]);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("m.onnx", desk.place.path("link.html")).unwrap();
        let mut report = desk.place.command(&["report", "m.seam", "-o", "link.html"]);
        let parts = ["link.html", "other than a regular file"];
        Ran::of(report.output().unwrap()).assert_refused(1, &parts);
    }
}

#[test]
fn a_model_without_a_seam_is_planned_whole() {
    let desk = Desk::new();
    let mut builder = GraphBuilder::new("one", 15);
    builder
        .input("x", DType::F32, &[1.into(), 4.into()])
        .output("y", DType::F32, &[1.into(), 4.into()])
        .node("Relu", &["x"], &["y"]);
    let graph = builder.build().unwrap();
    graph
        .write(&desk.place.path("one.onnx"), &WriteOptions::default())
        .unwrap();
    let plan = desk.json(0, &["one.onnx", "-o", "one.seam"]);
    assert_eq!(plan["plan"]["chosen"], "device");
    let reason = plan["plan"]["reason"].to_string();
    assert!(reason.contains("no legal seam"), "{reason}");
}
