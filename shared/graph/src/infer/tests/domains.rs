//! What inputs may hold.

use std::collections::BTreeMap;

use seamline_plan::{Bindings, DType, Dim};

use super::{F, shape};
use crate::builder::{GraphBuilder, body, int};
use crate::infer::{InputDomain, domains, infer};

fn found(builder: &GraphBuilder) -> BTreeMap<String, InputDomain> {
    let graph = builder.build().unwrap();
    let types = infer(&graph, &Bindings::new());
    domains(&graph, &types)
        .into_iter()
        .map(|(id, domain)| (graph.value(id).name.clone(), domain))
        .collect()
}

#[test]
fn a_text_encoder() {
    let ids: &[Dim] = &shape("N S");
    let mut builder = GraphBuilder::new("test", 13);
    builder
        .input("ids", DType::I64, ids)
        .input("segments", DType::I64, ids)
        .input("positions", DType::I64, ids)
        .input("mask", DType::I64, ids)
        .weight_f32("words", &[100, 2], &[0.0; 200])
        .weight_f32("kinds", &[2, 2], &[0.0; 4])
        .weight_f32("places", &[50, 2], &[0.0; 100])
        .weight_f32("one", &[], &[1.0])
        .weight_i64("two", &[], &[2])
        .node("Identity", &["ids"], &["ids2"])
        .node("Gather", &["words", "ids2"], &["w"])
        .node("Gather", &["kinds", "segments"], &["k"])
        .node("Add", &["positions", "two"], &["shifted"])
        .node("Gather", &["places", "shifted"], &["p"])
        .node_with("Cast", &["mask"], &["mask.f"], vec![int("to", 1)])
        .node("Sub", &["one", "mask.f"], &["m"]);
    assert_eq!(
        found(&builder),
        BTreeMap::from([
            ("ids".into(), InputDomain::Indices { upper: 100 }),
            ("segments".into(), InputDomain::Indices { upper: 2 }),
            ("positions".into(), InputDomain::Indices { upper: 48 }),
            ("mask".into(), InputDomain::Mask),
        ])
    );
}

#[test]
fn pictures_floats_sizes_and_choices() {
    let mut branch = GraphBuilder::new("branch", 13);
    branch
        .weight_i64("other", &[], &[8000])
        .node("Equal", &["rate", "other"], &["slow"])
        .output("slow", DType::Bool, &[]);
    let mut builder = GraphBuilder::new("test", 13);
    builder
        .input("picture", DType::U8, &shape("H W 3"))
        .input("x", F, &shape("N 4"))
        .input("flag", DType::Bool, &[])
        .input("rate", DType::I64, &[])
        .input("size", DType::I64, &shape("2"))
        .input("level", DType::I8, &shape("4"))
        .weight_i64("sixteen", &[], &[16000])
        .node_with("Cast", &["picture"], &["p"], vec![int("to", 1)])
        .node("Equal", &["rate", "sixteen"], &["fast"])
        .node_with(
            "If",
            &["flag"],
            &["y"],
            vec![
                body("then_branch", branch.to_body()),
                body("else_branch", branch.to_body()),
            ],
        )
        .node("Reshape", &["x", "size"], &["r"]);
    assert_eq!(
        found(&builder),
        BTreeMap::from([
            ("picture".into(), InputDomain::Bytes),
            ("x".into(), InputDomain::Normal),
            ("flag".into(), InputDomain::Mask),
            ("rate".into(), InputDomain::OneOf(vec![8000, 16000])),
            ("size".into(), InputDomain::SmallInt { lo: 1, hi: 4 }),
            ("level".into(), InputDomain::SmallInt { lo: -128, hi: 127 }),
        ])
    );
}
