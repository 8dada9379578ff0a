//! Control-flow bodies and model-local functions.

use seamline_plan::DType;

use super::{same_answers, sized};
use crate::builder::{self, GraphBuilder, node};
use crate::proto::{FunctionProto, OperatorSetIdProto};
use crate::seams::{SeamError, SeamFinder};
use crate::{Graph, ReadProblem};

/// A body without inputs that applies `op` to an outer value.
fn branch(name: &str, op: &str, outer: &str) -> crate::proto::GraphProto {
    let output = format!("{name}_out");
    let mut body = GraphBuilder::new(name, 17);
    body.node(op, &[outer], &[&output])
        .output(&output, DType::F32, &[4.into()]);
    body.to_body()
}

/// `a -> b -> c -> If`, where a body inside the then-branch of the If reads `a`.
fn nested() -> Graph {
    let mut inner = GraphBuilder::new("then", 17);
    inner
        .node_with(
            "If",
            &["flag"],
            &["inner"],
            vec![
                builder::body("then_branch", branch("deep_then", "Relu", "a")),
                builder::body("else_branch", branch("deep_else", "Neg", "c")),
            ],
        )
        .output("inner", DType::F32, &[4.into()]);
    let mut graph = GraphBuilder::new("nested", 17);
    graph
        .input("x", DType::F32, &[4.into()])
        .input("flag", DType::Bool, &[1.into()])
        .node("Relu", &["x"], &["a"])
        .node("Relu", &["a"], &["b"])
        .node("Relu", &["b"], &["c"])
        .node_with(
            "If",
            &["flag"],
            &["y"],
            vec![
                builder::body("then_branch", inner.to_body()),
                builder::body("else_branch", branch("else", "Abs", "c")),
            ],
        )
        .output("y", DType::F32, &[4.into()]);
    graph.build().unwrap()
}

#[test]
fn case_01_values_that_bodies_read_are_live_across_a_cut() {
    let graph = nested();
    let choice = graph.nodes.iter().find(|node| node.is("If")).unwrap();
    let captures: Vec<&str> = choice
        .captures
        .iter()
        .map(|&id| graph.value(id).name.as_str())
        .collect();
    assert_eq!(captures, ["flag", "a", "c"], "nested bodies count");

    let costed = sized(&graph);
    let seam = SeamFinder::new(&costed).at("b").unwrap();
    assert_eq!(seam.names(&graph), ["flag", "a", "b"]);
    let stages = same_answers(&graph, &[seam.cut]);
    assert_eq!(stages.stages[1].inputs.len(), 3);
}

#[test]
fn case_02_a_cut_inside_a_body_is_refused_by_node_and_body() {
    let graph = nested();
    let costed = sized(&graph);
    let finder = SeamFinder::new(&costed);
    for (value, body) in [
        ("deep_then_out", "then_branch"),
        ("else_out", "else_branch"),
    ] {
        let error = finder.at(value).unwrap_err();
        assert_eq!(
            error,
            SeamError::InsideBody {
                value: value.into(),
                node: "`y/node` (If)".into(),
                body: body.into(),
            }
        );
    }
    assert!(matches!(
        finder.at("nowhere"),
        Err(SeamError::Unknown { .. })
    ));
}

fn function(name: &str, calls: &str) -> FunctionProto {
    FunctionProto {
        name: Some(name.into()),
        domain: Some("local".into()),
        input: vec!["in".into()],
        output: vec!["out".into()],
        node: vec![node(calls, &["in"], &["out"], vec![])],
        opset_import: ["", "local"]
            .map(|domain| OperatorSetIdProto {
                domain: Some(domain.into()),
                version: Some(if domain.is_empty() { 17 } else { 1 }),
            })
            .into(),
        ..FunctionProto::default()
    }
}

#[test]
fn case_03_functions_travel_with_the_half_that_uses_them() {
    let mut builder = GraphBuilder::new("functions", 17);
    builder
        .import("local", 1)
        .import("unused.domain", 3)
        .function(function("InHead", "Relu"))
        .function(function("InBody", "local::Deep"))
        .function(function("Deep", "Neg"))
        .function(function("Nowhere", "Abs"))
        .input("x", DType::F32, &[4.into()])
        .input("flag", DType::Bool, &[1.into()])
        .node("local::InHead", &["x"], &["a"])
        .node("Relu", &["a"], &["b"])
        .node_with(
            "If",
            &["flag"],
            &["y"],
            vec![
                builder::body("then_branch", branch("then", "local::InBody", "b")),
                builder::body("else_branch", branch("else", "Abs", "b")),
            ],
        )
        .output("y", DType::F32, &[4.into()]);
    let graph = builder.build().unwrap();
    let costed = sized(&graph);
    let seam = SeamFinder::new(&costed).at("a").unwrap();
    let stages = same_answers(&graph, &[seam.cut]).stages;
    let names = |graph: &Graph| -> Vec<String> {
        graph
            .header
            .functions()
            .iter()
            .map(|function| function.name().to_owned())
            .collect()
    };
    assert_eq!(names(&stages[0].graph), ["InHead"]);
    assert_eq!(
        names(&stages[1].graph),
        ["InBody", "Deep"],
        "called from a body and a function"
    );
    for stage in &stages {
        assert_eq!(stage.graph.header.opset("local"), Some(1));
        assert_eq!(stage.graph.header.opset("unused.domain"), None);
    }
}

#[test]
fn a_body_that_reads_a_missing_value_is_refused_by_node() {
    let mut builder = GraphBuilder::new("dangling", 17);
    builder
        .input("flag", DType::Bool, &[1.into()])
        .node_with(
            "If",
            &["flag"],
            &["y"],
            vec![builder::body(
                "then_branch",
                branch("then", "Relu", "missing"),
            )],
        )
        .output("y", DType::F32, &[4.into()]);
    let error = builder.build().unwrap_err();
    assert!(
        matches!(&error.problem, ReadProblem::Dangling { node, value } if node == "`y/node` (If)" && value == "missing"),
        "{error}"
    );
}
