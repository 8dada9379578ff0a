//! The batch symbol and where it stands.

use seamline_plan::Bindings;

use super::{F, shape};
use crate::builder::{GraphBuilder, ints};
use crate::infer::{axis_of, batch_symbol, infer};

fn symbol(inputs: &[&str]) -> Option<String> {
    let mut builder = GraphBuilder::new("test", 13);
    for (i, dims) in inputs.iter().enumerate() {
        builder.input(&format!("x{i}"), F, &shape(dims));
    }
    batch_symbol(&builder.build().unwrap())
}

#[test]
fn the_batch_is_the_shared_first_axis_or_the_named_one() {
    let cases: &[(&[&str], Option<&str>)] = &[
        (
            &["DynamicDimension.0 3 224 224"],
            Some("DynamicDimension.0"),
        ),
        (&["? 3 H W"], Some("x0_dim0")),
        (
            &["batch_size sequence_length", "batch_size sequence_length"],
            Some("batch_size"),
        ),
        // A recurrent state has the batch on its second axis.
        (&["batch sequence", "2 batch 128", ""], Some("batch")),
        // One symbol on axis 0, but it names a length.
        (&["sequence_length 576", "1 1 128"], None),
        (&["1 3 224 224"], None),
        (&["X 4", "Y 4"], None),
        (&["X X"], None),
        (&[], None),
    ];
    for (inputs, expected) in cases {
        assert_eq!(symbol(inputs).as_deref(), *expected, "{inputs:?}");
    }
}

#[test]
fn an_axis_is_told_only_where_the_symbol_stands_once() {
    let mut builder = GraphBuilder::new("test", 13);
    builder
        .input("x", F, &shape("N 3 H"))
        .node_with(
            "Transpose",
            &["x"],
            &["moved"],
            vec![ints("perm", &[2, 0, 1])],
        )
        .node_with(
            "Transpose",
            &["y"],
            &["flipped"],
            vec![ints("perm", &[1, 0])],
        )
        .input("y", F, &shape("N 1"))
        .node("Add", &["y", "flipped"], &["square"])
        .node("ReduceSum", &["x"], &["total"]);
    let graph = builder.build().unwrap();
    let types = infer(&graph, &Bindings::new());
    let axis = |name: &str| axis_of(&types, graph.find(name).unwrap(), "N");
    assert_eq!(axis("x"), Some(0));
    assert_eq!(axis("moved"), Some(1));
    assert_eq!(axis("square"), None);
    assert_eq!(axis("total"), None);
}
