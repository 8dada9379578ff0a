//! Stages as models.

use std::collections::BTreeSet;

use seamline_plan::{DType, Dim};

use super::{same_answers, sized};
use crate::builder::{self, GraphBuilder};
use crate::extract::{ExtractError, extract};
use crate::proto::type_proto;
use crate::seams::SeamFinder;
use crate::{Graph, NodeId, StageCut};

fn line() -> GraphBuilder {
    let mut builder = GraphBuilder::new("line", 17);
    builder
        .input("x", DType::F32, &["N".into(), 4.into()])
        .node("Relu", &["x"], &["a"])
        .node("Abs", &["a"], &["b"])
        .node("Neg", &["b"], &["y"])
        .output("y", DType::F32, &["N".into(), 4.into()]);
    builder
}

fn cut_at(graph: &Graph, value: &str) -> StageCut {
    SeamFinder::new(&sized(graph)).at(value).unwrap().cut
}

#[test]
fn case_05_a_value_without_a_known_shape_keeps_its_dimensions_open_in_both_halves() {
    let graph = line().build().unwrap();
    let cut = cut_at(&graph, "a");
    let shape = vec![Dim::Sym("N".into()), Dim::Unknown];
    let stages = extract(&graph, std::slice::from_ref(&cut), |_| {
        Some((DType::F32, Some(shape.clone())))
    })
    .unwrap()
    .stages;
    for (graph, id) in [
        (&stages[0].graph, stages[0].graph.outputs[0]),
        (&stages[1].graph, stages[1].graph.inputs[0]),
    ] {
        let declared = graph.value(id).declared.as_ref().unwrap();
        let Some(type_proto::Value::TensorType(tensor)) = &declared.r#type.as_ref().unwrap().value
        else {
            panic!("no tensor type");
        };
        assert_eq!(tensor.elem_type(), 1);
        let dims = &tensor.shape.as_ref().unwrap().dim;
        assert!(dims[0].value.is_some() && dims[1].value.is_none());
        assert_eq!(graph.value(id).shape, Some(shape.clone()));
    }

    let error = extract(&graph, std::slice::from_ref(&cut), |_| None).unwrap_err();
    assert!(
        matches!(error, ExtractError::UnknownType { ref value } if value == "a"),
        "{error}"
    );
    let error = extract(&graph, &[cut], |_| Some((DType::F32, None))).unwrap_err();
    assert!(
        matches!(error, ExtractError::UnknownRank { ref value } if value == "a"),
        "{error}"
    );
}

#[test]
fn case_07_weights_go_to_both_halves_and_never_cross() {
    let mut builder = GraphBuilder::new("weights", 17);
    let two = builder::tensor("", DType::F32, &[1], 2f32.to_le_bytes().into());
    builder
        .input("x", DType::F32, &[4.into()])
        .weight_f32("shared", &[1], &[1.0])
        .weight_f32("late_only", &[1], &[3.0])
        .weight_f32("answer", &[1], &[42.0])
        .node_with(
            "Constant",
            &[],
            &["two"],
            vec![builder::tensor_attribute("value", two)],
        )
        .node("Add", &["two", "shared"], &["folded"])
        .node("Add", &["x", "shared"], &["a"])
        .node("Mul", &["a", "folded"], &["b"])
        .node("Add", &["b", "shared"], &["c"])
        .node("Mul", &["c", "folded"], &["d"])
        .node("Add", &["d", "late_only"], &["y"])
        .output("y", DType::F32, &[4.into()])
        .output("answer", DType::F32, &[1.into()])
        .output("x", DType::F32, &[4.into()]);
    let graph = builder.build().unwrap();
    let mut cut = cut_at(&graph, "b");
    assert_eq!(cut.crossing, [graph.find("b").unwrap()]);
    // A boundary that is itself a weight: nothing more crosses, both sides have it.
    cut.crossing
        .extend(["shared", "two", "folded"].map(|name| graph.find(name).unwrap()));
    let stages = same_answers(&graph, &[cut]);
    assert_eq!(stages.crossing, [[graph.find("b").unwrap()]]);
    let weights = |index: usize| -> Vec<&str> {
        let graph = &stages.stages[index].graph;
        graph
            .initializers
            .keys()
            .map(|&id| graph.value(id).name.as_str())
            .collect()
    };
    assert_eq!(weights(0), ["shared", "answer"]);
    assert_eq!(weights(1), ["shared", "late_only"]);
    for stage in &stages.stages {
        assert!(
            stage
                .graph
                .find("two")
                .is_some_and(|id| stage.graph.is_weight(id))
        );
    }
    let names: Vec<&str> = stages.stages[0]
        .outputs
        .iter()
        .map(|&id| graph.value(id).name.as_str())
        .collect();
    assert_eq!(
        names,
        ["answer", "x", "b"],
        "outputs that are inputs or weights come first"
    );
}

#[test]
fn a_chain_of_stages_hands_on_what_later_stages_need() {
    let mut builder = line();
    builder
        .node("Add", &["x", "y"], &["z"])
        .output("z", DType::F32, &["N".into(), 4.into()]);
    let graph = builder.build().unwrap();
    let cuts = ["a", "b", "y"].map(|value| cut_at(&graph, value));
    let stages = same_answers(&graph, &cuts);
    let names: Vec<Vec<&str>> = stages
        .crossing
        .iter()
        .map(|values| {
            values
                .iter()
                .map(|&id| graph.value(id).name.as_str())
                .collect()
        })
        .collect();
    assert_eq!(names, [["x", "a"], ["x", "b"], ["x", "y"]]);
    let reads: Vec<usize> = stages
        .stages
        .iter()
        .map(|stage| stage.inputs.len())
        .collect();
    assert_eq!(
        reads,
        [1, 1, 1, 2],
        "`x` passes the stages that do not read it"
    );
}

#[test]
fn names_documents_and_types_of_the_model_survive() {
    let mut model = line().to_model_proto();
    model.doc_string = Some("about".into());
    model.producer_name = Some("someone".into());
    model
        .metadata_props
        .push(crate::proto::StringStringEntryProto {
            key: Some("labels".into()),
            value: Some("0,90,180,270".into()),
        });
    let graph = Graph::from_model_proto(model).unwrap();
    let stages = same_answers(&graph, &[cut_at(&graph, "a")]).stages;
    for stage in &stages {
        assert_eq!(stage.graph.name, "line");
        assert_eq!(stage.graph.header.model.doc_string(), "about");
        assert_eq!(stage.graph.header.model.producer_name(), "someone");
        assert_eq!(stage.graph.header.metadata()["labels"], "0,90,180,270");
    }
    assert_eq!(stages[0].graph.nodes[0].name, "a/node");
    let output = stages[1].graph.outputs[0];
    assert_eq!(
        stages[1].graph.value(output).shape,
        Some(vec!["N".into(), 4.into()])
    );
}

#[test]
fn cuts_that_do_not_go_together_are_refused() {
    let graph = line().build().unwrap();
    let types = |_| Some((DType::F32, Some(vec![Dim::Unknown])));
    let cuts = [cut_at(&graph, "b"), cut_at(&graph, "a")];
    let error = extract(&graph, &cuts, types).unwrap_err();
    assert!(
        matches!(
            error,
            ExtractError::NotNested {
                earlier: 0,
                later: 1,
                ..
            }
        ),
        "{error}"
    );
    let cuts = [cut_at(&graph, "a"), cut_at(&graph, "a")];
    let error = extract(&graph, &cuts, types).unwrap_err();
    assert!(matches!(error, ExtractError::Empty { stage: 1 }), "{error}");
    let cut = StageCut {
        crossing: vec![graph.find("y").unwrap()],
        ..cut_at(&graph, "a")
    };
    let error = extract(&graph, &[cut], types).unwrap_err();
    assert!(
        matches!(error, ExtractError::Inconsistent { stage: 0, .. }),
        "{error}"
    );
}

#[test]
fn a_cut_can_be_made_from_any_closed_set_of_nodes() {
    let graph = line().build().unwrap();
    let before = BTreeSet::from([NodeId(0), NodeId(1)]);
    let cut = StageCut::after_nodes(&graph, &before).unwrap();
    assert_eq!(cut, cut_at(&graph, "b"));
    let sides = cut.sides(&graph);
    assert_eq!(
        (sides.head, sides.tail),
        (vec![true, true, false], vec![false, false, true])
    );
    let open = BTreeSet::from([NodeId(1)]);
    assert_eq!(
        StageCut::after_nodes(&graph, &open),
        Err((NodeId(1), NodeId(0)))
    );
}
