//! What a plan chooses, on models and profiles whose best cut is known by construction.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::collections::BTreeMap;

use seamline_graph::builder::GraphBuilder;
use seamline_partitioner::Model;
use seamline_partitioner::plan::{
    Constraints, Findings, FoundCodec, MetricRecord, OVERHEAD, Placement, Scenario, Weighing,
    apply, best, keep, mark_pareto, options, places, reasons, weigh,
};
use seamline_plan::{
    Bindings, DType, Fingerprint, LinkModel, Machine, NodeTime, Objective, PROFILE_FORMAT,
    PartTime, Prices, Profile, ProfiledModel, Side, Spread, WHOLE,
};

/// A chain of `MatMul`s whose values have `widths` floats: `v0` is the input.
fn chain(widths: &[i64]) -> Model {
    let mut builder = GraphBuilder::new("chain", 17);
    let dim = |width: i64| u64::try_from(width).unwrap().into();
    builder.input("v0", DType::F32, &[1u64.into(), dim(widths[0])]);
    for (index, pair) in widths.windows(2).enumerate() {
        let weight = format!("w{index}");
        let count = usize::try_from(pair[0] * pair[1]).unwrap();
        builder.weight_f32(&weight, pair, &vec![0.01; count]);
        builder.node(
            "MatMul",
            &[&format!("v{index}"), &weight],
            &[&format!("v{}", index + 1)],
        );
    }
    let last = widths.len() - 1;
    builder.output(
        &format!("v{last}"),
        DType::F32,
        &[1u64.into(), dim(widths[last])],
    );
    let graph = builder.build().unwrap();
    Model::new(
        graph,
        "chain".into(),
        Fingerprint([7; 32]),
        &Bindings::new(),
    )
    .unwrap()
}

/// A machine on which each node takes so long, and the whole model their sum.
fn profile(model: &Model, side: Side, node_us: &[f64]) -> Profile {
    let part = |batch: u64, us: f64| PartTime {
        values: Vec::new(),
        seam: WHOLE.into(),
        batch,
        threads: 1,
        time: Spread::exactly(us),
        resident_bytes: 1 << 20,
        placement: BTreeMap::new(),
        codecs: codec_times(model),
    };
    let total: f64 = node_us.iter().sum();
    Profile {
        format: PROFILE_FORMAT,
        side,
        model: ProfiledModel {
            name: model.name.clone(),
            graph_hash: model.hash,
            shapes: model.reference.clone(),
        },
        machine: Machine::default(),
        slowdown: 1.0,
        corrected: 1.0,
        nodes: (0..)
            .zip(node_us)
            .map(|(node, &us)| NodeTime { node, us })
            .collect(),
        parts: vec![part(1, total)],
    }
}

/// Codecs on the input, none of which takes long.
fn codec_times(model: &Model) -> Vec<seamline_plan::CodecTime> {
    let raw = model.facts(model.graph.inputs[0]).bytes().unwrap();
    let sizes = [("raw", 1), ("f16", 2), ("int8", 4), ("zstd", 1)];
    sizes
        .map(|(codec, share)| seamline_plan::CodecTime {
            codec: codec.into(),
            time: Spread::exactly(10.0),
            bytes: raw / share,
        })
        .into()
}

fn scenario<'p>(device: &'p Profile, cloud: &'p Profile, link: &str) -> Scenario<'p> {
    Scenario {
        device,
        cloud,
        device_threads: None,
        cloud_threads: None,
        link: LinkModel::preset(link).unwrap(),
        objective: Objective::Latency,
        constraints: Constraints::default(),
        prices: Prices::default(),
        arrivals_per_s: 0.0,
        executors: 1,
        max_batch: 8,
        overhead: OVERHEAD,
    }
}

fn decide(model: &Model, scenario: &Scenario<'_>) -> (Weighing, Result<usize, String>) {
    decide_by(model, scenario, &Findings::default())
}

fn decide_by(
    model: &Model,
    scenario: &Scenario<'_>,
    findings: &Findings,
) -> (Weighing, Result<usize, String>) {
    let mut weighing = weigh(model, scenario, findings).unwrap();
    let Weighing {
        places, candidates, ..
    } = &mut weighing;
    apply(&scenario.constraints, findings, places, candidates);
    mark_pareto(findings, candidates);
    let chosen = best(&scenario.constraints, findings, candidates);
    (weighing, chosen.map_err(|error| error.to_string()))
}

/// Wide in front, narrow behind the second node, and then a long tail.
const FUNNEL: [i64; 7] = [20_000, 200, 40, 40, 40, 40, 4];

#[test]
fn the_best_cut_is_where_little_crosses_and_the_device_is_still_quick() {
    let model = chain(&FUNNEL);
    let device = profile(
        &model,
        Side::Edge,
        &[3000.0, 3000.0, 90e3, 90e3, 90e3, 90e3],
    );
    let cloud = profile(&model, Side::Cloud, &[1000.0; 6]);
    let (weighing, chosen) = decide(&model, &scenario(&device, &cloud, "wifi"));
    let chosen = &weighing.candidates[chosen.unwrap()].candidate;
    assert_eq!(
        (chosen.placement, chosen.values.as_slice()),
        (Placement::Split, &["v1".to_owned()][..])
    );
    assert!(!chosen.measured_whole, "only the whole model was measured");
}

#[test]
fn case_37_where_splitting_loses_the_plan_says_so() {
    let model = chain(&[100, 2000, 2000, 4]);
    // Every inner value is far larger than the input.
    let quick = profile(&model, Side::Cloud, &[100.0; 3]);
    let slow = profile(&model, Side::Edge, &[200e3; 3]);
    let (weighing, chosen) = decide(&model, &scenario(&slow, &quick, "lte"));
    let all: Vec<_> = weighing
        .candidates
        .iter()
        .map(|it| it.candidate.clone())
        .collect();
    let chosen = &all[chosen.unwrap()];
    assert_eq!(chosen.placement, Placement::CloudRaw);
    let text = reasons(Objective::Latency, &all, chosen).join("\n");
    assert!(text.contains("No split is better"), "{text}");
    assert!(text.contains("On the device alone"), "{text}");

    // And with a quick device the link only costs time.
    let quick_device = profile(&model, Side::Edge, &[300.0; 3]);
    let (weighing, chosen) = decide(&model, &scenario(&quick_device, &quick, "3g"));
    assert_eq!(weighing.candidates[chosen.unwrap()].candidate.id, "device");
}

#[test]
fn case_12_the_plan_follows_measured_times_and_not_bit_widths() {
    let model = chain(&FUNNEL);
    let device = profile(
        &model,
        Side::Edge,
        &[3000.0, 3000.0, 90e3, 90e3, 90e3, 90e3],
    );
    let cloud = profile(&model, Side::Cloud, &[1000.0; 6]);
    let mut findings = Findings::of(MetricRecord {
        name: "cosine".into(),
        higher_is_better: true,
        baseline: 1.0,
        samples: 8,
    });
    let codec = |codec: &str| FoundCodec {
        codec: codec.into(),
        accuracy: Some(1.0),
        problem: None,
        up_bytes: if codec == "int8" { 204 } else { 800 },
        down_bytes: 16,
        leakage: None,
        no_leakage: None,
    };
    findings.add(vec!["v1".into()], vec![codec("raw"), codec("int8")]);
    let chosen = |device: &Profile| {
        let scenario = scenario(device, &cloud, "wifi");
        let (weighing, chosen) = decide_by(&model, &scenario, &findings);
        weighing.candidates[chosen.unwrap()].candidate.id.clone()
    };
    assert!(
        chosen(&device).ends_with("/int8"),
        "fewer bytes, as quickly"
    );
    // Quantising takes longer on this device than the bytes that it saves.
    let mut slow = device.clone();
    for part in &mut slow.parts {
        let int8 = part.codecs.iter_mut().find(|it| it.codec == "int8");
        int8.unwrap().time = Spread::exactly(900e3);
    }
    assert!(!chosen(&slow).ends_with("/int8"), "{}", chosen(&slow));
}

#[test]
fn a_codec_that_changes_answers_is_not_taken_unmeasured() {
    let model = chain(&FUNNEL);
    let device = profile(&model, Side::Edge, &[1.0; 6]);
    let (weighing, _) = decide(&model, &scenario(&device, &device.clone(), "3g"));
    for weighed in &weighing.candidates {
        let lossy = weighed
            .candidate
            .codec
            .as_deref()
            .is_some_and(|it| it == "f16" || it == "int8");
        assert_eq!(
            !weighed.candidate.breaks.is_empty(),
            lossy,
            "{:?}",
            weighed.candidate
        );
    }
}

#[test]
fn constraints_that_cannot_be_kept_are_named_with_what_is_missing() {
    let model = chain(&FUNNEL);
    let device = profile(&model, Side::Edge, &[1000.0; 6]);
    let mut scenario = scenario(&device, &device, "lte");
    scenario.constraints.deadline_us = Some(500.0);
    scenario.constraints.device_memory = Some(1 << 10);
    let (_, chosen) = decide(&model, &scenario);
    let error = chosen.unwrap_err();
    assert!(
        error.contains("95th percentile: the nearest, device"),
        "{error}"
    );
    assert!(
        error.contains("5.5 ms more than the 0.5 ms allowed"),
        "{error}"
    );
    assert!(error.contains("memory on the device"), "{error}");
}

#[test]
fn a_profile_of_another_model_or_size_is_refused_by_name() {
    let model = chain(&FUNNEL);
    let good = profile(&model, Side::Edge, &[1000.0; 6]);
    let mut other = good.clone();
    other.model.graph_hash = Fingerprint([9; 32]);
    let findings = Findings::default();
    let error = weigh(&model, &scenario(&other, &good, "lte"), &findings)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("the device profile is of model chain"),
        "{error}"
    );
    let mut sized = good.clone();
    sized.model.shapes.insert("N".into(), 4);
    let error = weigh(&model, &scenario(&good, &sized, "lte"), &findings)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains("cloud profile was measured at N=4"),
        "{error}"
    );
    let mut empty = good.clone();
    empty.parts.clear();
    let error = weigh(&model, &scenario(&empty, &good, "lte"), &findings)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("no time of the whole model"), "{error}");
}

#[test]
fn a_bundle_keeps_what_is_best_on_other_links_too() {
    let model = chain(&FUNNEL);
    let device = profile(
        &model,
        Side::Edge,
        &[3000.0, 3000.0, 30e3, 30e3, 30e3, 30e3],
    );
    let cloud = profile(&model, Side::Cloud, &[100.0; 6]);
    let scenario = scenario(&device, &cloud, "wifi");
    let (weighing, chosen) = decide(&model, &scenario);
    let chosen = chosen.unwrap();
    let kept = keep(
        &model.graph,
        &scenario,
        &weighing.places,
        &weighing.candidates,
        chosen,
        4,
    );
    assert_eq!(kept[0], weighing.candidates[chosen].candidate.cut);
    assert!(
        kept.contains(&"output".to_owned()) && kept.contains(&"input".to_owned()),
        "{kept:?}"
    );
    let options = options(&weighing.candidates, chosen, &kept);
    assert!(options.iter().all(|option| kept.contains(&option.cut)));
}

#[test]
fn every_place_says_what_crosses() {
    let model = chain(&FUNNEL);
    let places = places(&model, None).unwrap();
    let (first, last) = (places.first().unwrap(), places.last().unwrap());
    assert_eq!((first.id.as_str(), first.raw_bytes), ("input", 80_000));
    assert_eq!((last.id.as_str(), last.raw_bytes), ("output", 0));
    let depths: Vec<f64> = places.iter().map(|place| place.depth).collect();
    assert!(
        depths.windows(2).all(|pair| pair[0] <= pair[1]),
        "{depths:?}"
    );
    let v2 = places
        .iter()
        .find(|place| place.values() == ["v2"])
        .unwrap();
    assert_eq!(v2.encoded_bytes("f16"), Some(80));
    assert_eq!(v2.reply_bytes, 16);
}
