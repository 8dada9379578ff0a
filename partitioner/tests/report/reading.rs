//! Reading and writing `plan.json`.

use std::process::{Command, Output};

use seamline_partitioner::plan::{PLAN_FILE, PlanRecord, PlanRecordError};
use seamline_partitioner::report::html;
use serde_json::Value;

use crate::fixture;

fn report(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seamline"));
    command.arg("report").args(arguments).output().unwrap()
}

fn refused(arguments: &[&str], parts: &[&str]) {
    let output = report(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(output.stdout.is_empty());
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

#[test]
fn a_plan_comes_back_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let record = fixture::example();
    record.write(&folder.path().join(PLAN_FILE)).unwrap();
    let file = folder.path().join(PLAN_FILE);
    let by_bundle = PlanRecord::read(folder.path()).unwrap();
    assert_eq!(by_bundle, PlanRecord::read(&file).unwrap());
    assert_eq!(by_bundle.chosen().unwrap().id, record.chosen);
    // The last bit of a number may differ; no digit that is shown does.
    assert_eq!(html(&by_bundle), html(&record));
}

#[test]
fn the_command_writes_the_page_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let record = fixture::example();
    record.write(&folder.path().join(PLAN_FILE)).unwrap();
    let bundle = folder.path().to_str().unwrap();
    let page = folder.path().join("report.html");
    let output = report(&[bundle, "-o", page.to_str().unwrap(), "--json"]);
    assert!(output.status.success());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["candidates"], record.candidates.len());
    assert_eq!(document["chosen"], record.chosen.as_str());
    let written = std::fs::read_to_string(&page).unwrap();
    assert_eq!(document["bytes"], written.len());
    assert_eq!(written, html(&record));
}

#[test]
fn what_is_no_planned_bundle_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let page = folder.path().join("report.html");
    let out = page.to_str().unwrap();
    refused(&[path, "-o", out], &["is not a bundle", "seamline plan"]);
    std::fs::write(folder.path().join("manifest.json"), "{}").unwrap();
    let parts = [
        "made by `seamline split`",
        "`seamline plan` writes plan.json",
    ];
    refused(&[path, "-o", out], &parts);
    let missing = folder.path().join("missing.seam");
    refused(&[missing.to_str().unwrap(), "-o", out], &["missing.seam"]);
    assert!(!page.exists());
    fixture::example()
        .write(&folder.path().join(PLAN_FILE))
        .unwrap();
    refused(&[path, "-o", path], &["is a folder"]);
}

#[test]
fn another_format_and_other_files_are_refused() {
    let mut json: Value = serde_json::from_slice(&fixture::example().to_json()).unwrap();
    json["format"] = 99.into();
    let problem = PlanRecord::parse(&json.to_string()).unwrap_err();
    assert_eq!(problem, "it has format 99; this build reads 1");
    for text in ["", "{}", "[]", "null", "{\"format\": \"1\"}"] {
        let problem = PlanRecord::parse(text).unwrap_err();
        assert!(problem.starts_with("this is no plan"), "{text}: {problem}");
    }
    json["format"] = 1.into();
    json["candidates"][0]["energy_j"] = Value::Null;
    let problem = PlanRecord::parse(&json.to_string()).unwrap_err();
    assert!(problem.contains("expected f64"), "{problem}");
}

#[test]
fn impossible_figures_are_named_and_never_written() {
    type Spoil = (&'static str, fn(&mut PlanRecord));
    let spoil: [Spoil; 14] = [
        ("`chosen` is `s999/raw`", |r| r.chosen = "s999/raw".into()),
        ("`chosen`", |r| r.candidates.clear()),
        ("`link`", |r| r.link.loss = f64::NAN),
        ("`slowdown` is 0", |r| r.device.slowdown = 0.0),
        ("`cloud_usd_per_hour`", |r| {
            r.prices.cloud_usd_per_hour = -1.0
        }),
        ("`accuracy_loss`", |r| {
            r.constraints.accuracy_loss = Some(f64::NAN)
        }),
        ("`baseline`", |r| {
            r.metric.as_mut().unwrap().baseline = f64::INFINITY
        }),
        ("`at_input`", |r| {
            r.attack.as_mut().unwrap().at_input = f64::NAN
        }),
        ("`candidates[3]` (input/int8-packed): `depth` is 1.5", |r| {
            r.candidates[3].depth = 1.5
        }),
        ("`send` is NaN", |r| {
            r.candidates[7].latency.send_us = f64::NAN
        }),
        ("`energy_j` is inf", |r| {
            r.candidates[7].energy_j = f64::INFINITY
        }),
        ("`leakage.recovered`", |r| {
            r.candidates[7].leakage.as_mut().unwrap().recovered = f64::NAN;
        }),
        ("`measured.latency`", |r| {
            r.candidates[0].measured.as_mut().unwrap().latency.tail_us = -1.0;
        }),
        ("the same id", |r| {
            r.candidates[8].id = r.candidates[7].id.clone()
        }),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (part, spoil) in spoil {
        let mut record = fixture::example();
        spoil(&mut record);
        let problem = record.problem().unwrap();
        assert!(problem.contains(part), "`{part}` is not in: {problem}");
        let path = folder.path().join(PLAN_FILE);
        let error = record.write(&path).unwrap_err();
        assert!(matches!(error, PlanRecordError::Content { .. }), "{error}");
        assert!(!path.exists());
    }
}
