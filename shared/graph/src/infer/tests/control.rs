//! Bodies: both branches, loops, scans, model-local functions.

use seamline_plan::{Bindings, DType};

use super::{F, shape, shape_of};
use crate::builder::{GraphBuilder, body, int, node};
use crate::infer::{flops, infer};
use crate::proto::{AttributeProto, FunctionProto, GraphProto};

fn branch(op: &str, inputs: &[&str]) -> GraphProto {
    let mut builder = GraphBuilder::new("branch", 13);
    builder.node(op, inputs, &["out"]).output("out", F, &[]);
    let mut graph = builder.to_body();
    graph.output[0].r#type = None;
    graph
}

fn bound() -> Bindings {
    Bindings::new()
}

#[test]
fn an_if_is_what_its_branches_share() {
    let mut builder = GraphBuilder::new("test", 13);
    builder
        .input("x", F, &shape("N 4"))
        .input("w", F, &shape("4 5"))
        .input("flag", DType::Bool, &[])
        .node_with(
            "If",
            &["flag"],
            &["y"],
            vec![
                body("then_branch", branch("MatMul", &["x", "w"])),
                body("else_branch", branch("Relu", &["x"])),
            ],
        );
    let graph = builder.build().unwrap();
    let types = infer(&graph, &bound());
    assert_eq!(shape_of(&graph, &types, "y"), "N ?");
    assert_eq!(types.dtype(graph.find("y").unwrap()), Some(F));
    // The dearer branch, a row of it: 4 multiply-adds for each of 5 columns.
    assert_eq!(flops(&graph, &types), vec![40.0]);
}

#[test]
fn an_if_whose_condition_is_known_is_one_branch() {
    let mut builder = GraphBuilder::new("test", 13);
    builder
        .input("x", F, &shape("N 4"))
        .input("w", F, &shape("4 5"))
        .weight_i64("two", &[], &[2])
        .node("Shape", &["x"], &["shape"])
        .node("Size", &["shape"], &["rank"])
        .node("Equal", &["rank", "two"], &["flag"])
        .node_with(
            "If",
            &["flag"],
            &["y"],
            vec![
                body("then_branch", branch("MatMul", &["x", "w"])),
                body("else_branch", branch("Relu", &["x"])),
            ],
        );
    let graph = builder.build().unwrap();
    assert_eq!(shape_of(&graph, &infer(&graph, &bound()), "y"), "N 5");
}

/// A loop over state `s` that `op` changes, and that also stacks it.
fn looped(op: &str, inputs: &[&str], attributes: Vec<AttributeProto>) -> GraphProto {
    let mut builder = GraphBuilder::new("loop", 13);
    builder
        .input("i", DType::I64, &[])
        .input("go", DType::Bool, &[])
        .input("s", F, &[])
        .node("Identity", &["go"], &["go2"])
        .node_with(op, inputs, &["s2"], attributes)
        .node("Identity", &["s2"], &["each"])
        .output("go2", DType::Bool, &[])
        .output("s2", F, &[])
        .output("each", F, &[]);
    let mut graph = builder.to_body();
    for info in graph
        .input
        .iter_mut()
        .skip(2)
        .chain(graph.output.iter_mut().skip(1))
    {
        info.r#type = None;
    }
    graph
}

#[test]
fn a_loop_keeps_what_no_round_changes() {
    let model = |graph| {
        let mut builder = GraphBuilder::new("test", 13);
        builder
            .input("x", F, &shape("N 4"))
            .weight_i64("trips", &[], &[3])
            .node_with(
                "Loop",
                &["trips", "", "x"],
                &["last", "all"],
                vec![body("body", graph)],
            );
        builder.build().unwrap()
    };
    let steady = model(looped("Relu", &["s"], vec![]));
    let types = infer(&steady, &bound());
    assert_eq!(shape_of(&steady, &types, "last"), "N 4");
    assert_eq!(shape_of(&steady, &types, "all"), "? N 4");
    assert_eq!(flops(&steady, &types), vec![12.0]);
    let growing = model(looped("Concat", &["s", "s"], vec![int("axis", 1)]));
    let types = infer(&growing, &bound());
    assert_eq!(shape_of(&growing, &types, "last"), "N ?");
}

#[test]
fn a_scan_runs_over_an_axis() {
    let mut scan = GraphBuilder::new("scan", 13);
    scan.input("s", F, &[])
        .input("row", F, &[])
        .node("Add", &["s", "row"], &["s2"])
        .node("Identity", &["s2"], &["each"])
        .output("s2", F, &[])
        .output("each", F, &[]);
    let mut graph = scan.to_body();
    for info in graph.input.iter_mut().chain(&mut graph.output) {
        info.r#type = None;
    }
    let mut builder = GraphBuilder::new("test", 13);
    builder
        .input("start", F, &shape("4"))
        .input("x", F, &shape("T 4"))
        .node_with(
            "Scan",
            &["start", "x"],
            &["last", "all"],
            vec![int("num_scan_inputs", 1), body("body", graph)],
        );
    let graph = builder.build().unwrap();
    let types = infer(&graph, &Bindings::from([("T".into(), 10)]));
    assert_eq!(shape_of(&graph, &types, "last"), "4");
    assert_eq!(shape_of(&graph, &types, "all"), "10 4");
    assert_eq!(flops(&graph, &types), vec![40.0]);
}

#[test]
fn functions_are_looked_into() {
    let reference = AttributeProto {
        ref_attr_name: Some("where".into()),
        ..int("axis", 0)
    };
    let reference = AttributeProto {
        i: None,
        ..reference
    };
    let function = FunctionProto {
        name: Some("Twice".into()),
        domain: Some("local".into()),
        input: vec!["a".into()],
        output: vec!["b".into()],
        attribute: vec!["where".into()],
        node: vec![node("Concat", &["a", "a"], &["b"], vec![reference])],
        opset_import: vec![crate::proto::OperatorSetIdProto {
            domain: Some(String::new()),
            version: Some(13),
        }],
        ..FunctionProto::default()
    };
    let mut builder = GraphBuilder::new("test", 13);
    builder
        .import("local", 1)
        .function(function)
        .input("x", F, &shape("N 4"))
        .node_with("local::Twice", &["x"], &["y"], vec![int("where", 1)]);
    let graph = builder.build().unwrap();
    assert_eq!(shape_of(&graph, &infer(&graph, &bound()), "y"), "N 8");
}
