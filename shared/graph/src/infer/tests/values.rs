//! Shape arithmetic: small tensors followed by value, symbols included.

use seamline_plan::{Bindings, DType, Dim};

use super::{F, shape, shape_of};
use crate::builder::{GraphBuilder, int, ints, tensor, tensor_attribute};
use crate::infer::{infer, input_symbol};

/// The graph that reshapes `x`, of shape `dims`, to the vector `target` that `arithmetic` makes.
#[track_caller]
fn check(dims: &str, arithmetic: impl Fn(&mut GraphBuilder), symbolic: &str, bound: &str) {
    let mut builder = GraphBuilder::new("test", 13);
    builder.input("x", F, &shape(dims));
    for (name, value) in [("zero", 0), ("one", 1), ("two", 2), ("minus", -1)] {
        builder.weight_i64(name, &[1], &[value]);
        builder.weight_i64(&format!("{name}.s"), &[], &[value]);
    }
    builder.node("Shape", &["x"], &["shape"]);
    arithmetic(&mut builder);
    builder.node("Reshape", &["x", "target"], &["y"]);
    let graph = builder.build().unwrap();
    let types = infer(&graph, &Bindings::new());
    assert_eq!(shape_of(&graph, &types, "y"), symbolic, "symbolic");
    let bindings = Bindings::from([("N".into(), 2), ("S".into(), 6), ("W".into(), 10)]);
    let types = infer(&graph, &bindings);
    assert_eq!(shape_of(&graph, &types, "y"), bound, "bound");
}

#[test]
fn gather_unsqueeze_concat() {
    let heads = |builder: &mut GraphBuilder| {
        builder
            .weight_i64("heads", &[2], &[2, 4])
            .node("Gather", &["shape", "zero.s"], &["n"])
            .node("Unsqueeze", &["n", "zero"], &["n1"])
            .node("Slice", &["shape", "one", "two"], &["s1"])
            .node_with(
                "Concat",
                &["n1", "s1", "heads"],
                &["target"],
                vec![int("axis", 0)],
            );
    };
    check("N S 8", heads, "N S 2 4", "2 6 2 4");
}

#[test]
fn arithmetic_keeps_symbols_only_where_certain() {
    let halve = |builder: &mut GraphBuilder| {
        builder
            .node("Split", &["shape"], &["n", "s", "c"])
            .node("Div", &["s", "two"], &["half"])
            .node("Mul", &["n", "one"], &["n1"])
            .node_with(
                "Concat",
                &["n1", "half", "minus"],
                &["target"],
                vec![int("axis", 0)],
            );
    };
    check("N S 8", halve, "N ? ?", "2 3 16");
}

#[test]
fn floats_casts_and_rounding() {
    let scaled = |builder: &mut GraphBuilder| {
        builder
            .weight_f32("scale", &[1], &[0.5])
            .weight_f32("unit", &[1], &[1.0])
            .node("Split", &["shape"], &["n", "w"])
            .node_with("Cast", &["w"], &["wf"], vec![int("to", 1)])
            .node("Mul", &["wf", "scale"], &["half"])
            .node("Floor", &["half"], &["floor"])
            .node_with("Cast", &["floor"], &["wi"], vec![int("to", 7)])
            .node_with("Cast", &["n"], &["nf"], vec![int("to", 1)])
            .node("Mul", &["nf", "unit"], &["n1"])
            .node_with("Cast", &["n1"], &["ni"], vec![int("to", 7)])
            .node_with(
                "Concat",
                &["ni", "minus", "wi"],
                &["target"],
                vec![int("axis", 0)],
            );
    };
    check("N W", scaled, "N ? ?", "2 2 5");
}

#[test]
fn where_equal_and_constant_of_shape() {
    // How exporters write `expand(-1, ...)`: the sizes that are -1 become 1.
    let replaced = |builder: &mut GraphBuilder| {
        let one = tensor("", DType::I64, &[1], 1i64.to_le_bytes().to_vec());
        builder
            .node_with(
                "Concat",
                &["shape", "minus"],
                &["wanted"],
                vec![int("axis", 0)],
            )
            .weight_i64("rank", &[1], &[3])
            .node_with(
                "ConstantOfShape",
                &["rank"],
                &["ones"],
                vec![tensor_attribute("value", one)],
            )
            .node("Equal", &["wanted", "minus"], &["open"])
            .node("Where", &["open", "ones", "wanted"], &["target"]);
    };
    check("N S", replaced, "N S 1", "2 6 1");
}

#[test]
fn products_ranges_and_scatter_free_reductions() {
    let flat = |builder: &mut GraphBuilder| {
        builder
            .node_with("Slice", &["shape", "one", "three"], &["rest"], vec![])
            .weight_i64("three", &[1], &[3])
            .node_with(
                "ReduceProd",
                &["rest"],
                &["count"],
                vec![int("keepdims", 1)],
            )
            .node("Slice", &["shape", "zero", "one"], &["n"])
            .node_with("Concat", &["n", "count"], &["target"], vec![int("axis", 0)]);
    };
    check("N 3 4", flat, "N 12", "2 12");
    let sized = |builder: &mut GraphBuilder| {
        builder
            .node("Size", &["x"], &["size"])
            .node("Unsqueeze", &["size", "zero"], &["target"]);
    };
    check("N 3", sized, "?", "6");
}

#[test]
fn ranges_follow_a_symbol() {
    let mut builder = GraphBuilder::new("test", 13);
    builder
        .input("ids", DType::I64, &shape("N S"))
        .weight_i64("zero", &[], &[0])
        .weight_i64("one", &[], &[1])
        .weight_f32("table", &[512, 8], &[0.0; 512 * 8])
        .node("Shape", &["ids"], &["shape"])
        .node("Gather", &["shape", "one"], &["s"])
        .node("Range", &["zero", "s", "one"], &["positions"])
        .node("Gather", &["table", "positions"], &["embedded"]);
    let graph = builder.build().unwrap();
    let types = infer(&graph, &Bindings::new());
    assert_eq!(shape_of(&graph, &types, "embedded"), "S 8");
}

#[test]
fn unnamed_dimensions_of_inputs_get_symbols() {
    let mut builder = GraphBuilder::new("test", 13);
    builder
        .input(
            "x",
            F,
            &[
                Dim::Unknown,
                Dim::from("?"),
                Dim::from("-1"),
                Dim::from("W"),
            ],
        )
        .node_with(
            "Transpose",
            &["x"],
            &["y"],
            vec![ints("perm", &[3, 2, 1, 0])],
        );
    let graph = builder.build().unwrap();
    let types = infer(&graph, &Bindings::new());
    assert_eq!(shape_of(&graph, &types, "y"), "W x_dim2 x_dim1 x_dim0");
    let bindings = Bindings::from([(input_symbol("x", 1), 5)]);
    let types = infer(&graph, &bindings);
    assert_eq!(shape_of(&graph, &types, "y"), "W x_dim2 5 x_dim0");
    assert_eq!(types.elements(graph.find("y").unwrap()), None);
}
