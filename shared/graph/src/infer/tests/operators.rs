//! Shapes and dtypes, by family of operators.

use seamline_plan::{Bindings, DType};

use super::{F, Floats, Given, Input, Ints, Missing, Scalar, check, one_node, shape, shape_of};
use crate::builder::{GraphBuilder, float, int, ints, string};
use crate::infer::infer;
use crate::proto::AttributeProto;

/// Opset, operator, inputs, attributes, shapes of the outputs.
type Case = (
    i64,
    &'static str,
    Vec<Given>,
    Vec<AttributeProto>,
    &'static [&'static str],
);

#[track_caller]
fn run(cases: Vec<Case>) {
    for (opset, op, given, attributes, expected) in cases {
        check(opset, op, &given, attributes, expected);
    }
}

fn x(dims: &'static str) -> Given {
    Input(F, dims)
}

#[test]
fn element_by_element_broadcasts() {
    run(vec![
        (13, "Relu", vec![x("N 3 ?")], vec![], &["N 3 x0_dim2"]),
        (13, "Add", vec![x("N 1 4"), x("5 1")], vec![], &["N 5 4"]),
        (13, "Add", vec![x("N"), x("N")], vec![], &["N"]),
        // A symbol can be 1, so that two different ones tell nothing.
        (13, "Add", vec![x("N"), x("M")], vec![], &["?"]),
        (13, "Add", vec![x("N"), x("4")], vec![], &["4"]),
        (
            13,
            "Where",
            vec![Input(DType::Bool, "N 1"), x("1 4"), x("")],
            vec![],
            &["N 4"],
        ),
        (
            13,
            "Max",
            vec![x("3 1"), x("1 N"), x("1")],
            vec![],
            &["3 N"],
        ),
        (13, "PRelu", vec![x("N 3"), x("3")], vec![], &["N 3"]),
        (13, "Dropout", vec![x("N 3")], vec![], &["N 3", "N 3"]),
    ]);
}

#[test]
fn convolutions_and_pools() {
    let k3 = || ints("kernel_shape", &[3, 3]);
    run(vec![
        (
            11,
            "Conv",
            vec![x("N 3 32 W"), x("8 3 3 3")],
            vec![ints("pads", &[1, 1, 1, 1])],
            &["N 8 32 W"],
        ),
        (
            11,
            "Conv",
            vec![x("N 3 32 W"), x("8 3 3 3")],
            vec![ints("strides", &[2, 2])],
            &["N 8 15 ?"],
        ),
        (
            11,
            "Conv",
            vec![x("N 3 9 9"), x("8 3 3 3")],
            vec![ints("dilations", &[2, 2])],
            &["N 8 5 5"],
        ),
        (
            11,
            "Conv",
            vec![x("N 3 9 W"), x("8 3 3 3")],
            vec![string("auto_pad", "SAME_UPPER"), ints("strides", &[2, 1])],
            &["N 8 5 W"],
        ),
        (
            11,
            "ConvTranspose",
            vec![x("N 4 5 W"), x("4 2 3 3")],
            vec![
                ints("strides", &[2, 1]),
                ints("pads", &[1, 1, 1, 1]),
                ints("output_padding", &[1, 0]),
            ],
            &["N 2 10 W"],
        ),
        (
            11,
            "ConvTranspose",
            vec![x("N 4 5"), x("4 2 3")],
            vec![ints("output_shape", &[11])],
            &["N 2 11"],
        ),
        (
            11,
            "ConvInteger",
            vec![Input(DType::U8, "1 3 8 8"), Input(DType::U8, "4 3 3 3")],
            vec![],
            &["1 4 6 6"],
        ),
        (
            12,
            "MaxPool",
            vec![x("N 3 7 7")],
            vec![k3(), ints("strides", &[2, 2])],
            &["N 3 3 3", "N 3 3 3"],
        ),
        (
            12,
            "MaxPool",
            vec![x("N 3 8 8")],
            vec![k3(), ints("strides", &[2, 2]), int("ceil_mode", 1)],
            &["N 3 4 4"],
        ),
        (
            12,
            "AveragePool",
            vec![x("N 3 8 8")],
            vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])],
            &["N 3 4 4"],
        ),
        (
            12,
            "GlobalAveragePool",
            vec![x("N 3 H W")],
            vec![],
            &["N 3 1 1"],
        ),
    ]);
}

#[test]
fn matrix_products_and_recurrence() {
    run(vec![
        (13, "MatMul", vec![x("N S 8"), x("8 5")], vec![], &["N S 5"]),
        (
            13,
            "MatMul",
            vec![x("N 1 S 8"), x("4 8 T")],
            vec![],
            &["N 4 S T"],
        ),
        (13, "MatMul", vec![x("8"), x("N 8 5")], vec![], &["N 5"]),
        (13, "MatMul", vec![x("8"), x("8")], vec![], &[""]),
        (
            13,
            "Gemm",
            vec![x("8 N"), x("5 8")],
            vec![int("transA", 1), int("transB", 1)],
            &["N 5"],
        ),
        (
            13,
            "Einsum",
            vec![x("N S H D"), x("N T H D")],
            vec![string("equation", "bqhd,bkhd->bhqk")],
            &["N H S T"],
        ),
        (
            13,
            "Einsum",
            vec![x("N 3 4"), x("4 5")],
            vec![string("equation", "...ij,jk->...ik")],
            &["N 3 5"],
        ),
        (
            14,
            "LSTM",
            vec![x("T N 8"), x("2 64 8"), x("2 64 16")],
            vec![int("hidden_size", 16), string("direction", "bidirectional")],
            &["T 2 N 16", "2 N 16", "2 N 16"],
        ),
        (
            14,
            "GRU",
            vec![x("T N 8"), x("1 48 8"), x("1 48 16")],
            vec![int("hidden_size", 16)],
            &["T 1 N 16", "1 N 16"],
        ),
        (
            13,
            "com.microsoft::MatMulNBits",
            vec![x("N S 64")],
            vec![int("K", 64), int("N", 32)],
            &["N S 32"],
        ),
        (
            13,
            "com.microsoft::FusedMatMul",
            vec![x("N S 8"), x("N T 8")],
            vec![int("transB", 1)],
            &["N S T"],
        ),
    ]);
}

#[test]
fn normalisations() {
    run(vec![
        (
            15,
            "BatchNormalization",
            vec![x("N 3 H"), x("3"), x("3"), x("3"), x("3")],
            vec![],
            &["N 3 H"],
        ),
        (
            17,
            "LayerNormalization",
            vec![x("N S 8"), x("8")],
            vec![],
            &["N S 8", "N S 1"],
        ),
        (18, "Softmax", vec![x("N 4")], vec![], &["N 4"]),
        (
            13,
            "com.microsoft::SkipLayerNormalization",
            vec![x("N S 8"), x("N S 8"), x("8")],
            vec![float("epsilon", 1e-5)],
            &["N S 8"],
        ),
    ]);
}

#[test]
fn layout() {
    run(vec![
        (
            13,
            "Transpose",
            vec![x("N 3 H")],
            vec![ints("perm", &[2, 0, 1])],
            &["H N 3"],
        ),
        (13, "Transpose", vec![x("N 3 H")], vec![], &["H 3 N"]),
        (13, "Flatten", vec![x("N 3 4")], vec![], &["N 12"]),
        (13, "Flatten", vec![x("N 3 H")], vec![], &["N ?"]),
        (
            13,
            "Reshape",
            vec![x("N S 8"), Ints(&[0, 0, 2, 4])],
            vec![],
            &["N S 2 4"],
        ),
        (
            13,
            "Reshape",
            vec![x("N S 8"), Ints(&[0, -1, 8])],
            vec![],
            &["N S 8"],
        ),
        (
            13,
            "Reshape",
            vec![x("N 2 4"), Ints(&[-1, 8])],
            vec![],
            &["N 8"],
        ),
        (
            13,
            "Reshape",
            vec![x("N S 8"), Ints(&[-1, 8])],
            vec![],
            &["? 8"],
        ),
        (
            13,
            "Reshape",
            vec![x("N S 8"), Input(DType::I64, "3")],
            vec![],
            &["? ? ?"],
        ),
        (
            11,
            "Squeeze",
            vec![x("N 1 4")],
            vec![ints("axes", &[1])],
            &["N 4"],
        ),
        (
            13,
            "Squeeze",
            vec![x("N 1 4"), Ints(&[-2])],
            vec![],
            &["N 4"],
        ),
        (13, "Squeeze", vec![x("N 1 4")], vec![], &["none"]),
        (
            11,
            "Unsqueeze",
            vec![x("N 4")],
            vec![ints("axes", &[0, 3])],
            &["1 N 4 1"],
        ),
        (
            13,
            "Unsqueeze",
            vec![x("N 4"), Ints(&[-1])],
            vec![],
            &["N 4 1"],
        ),
        (
            13,
            "Concat",
            vec![x("N 3"), x("N 4")],
            vec![int("axis", -1)],
            &["N 7"],
        ),
        (
            13,
            "Concat",
            vec![x("? 3"), x("5 4")],
            vec![int("axis", 1)],
            &["5 7"],
        ),
        (
            13,
            "Concat",
            vec![x("N 3"), x("1 3")],
            vec![int("axis", 0)],
            &["? 3"],
        ),
        (
            11,
            "Split",
            vec![x("N 6")],
            vec![int("axis", 1), ints("split", &[2, 4])],
            &["N 2", "N 4"],
        ),
        (
            13,
            "Split",
            vec![x("N 6"), Ints(&[1, 5])],
            vec![int("axis", 1)],
            &["N 1", "N 5"],
        ),
        (
            18,
            "Split",
            vec![x("N 7")],
            vec![int("axis", 1), int("num_outputs", 3)],
            &["N 3", "N 3", "N 1"],
        ),
        (
            13,
            "Expand",
            vec![x("N 1"), Ints(&[2, 1, 5])],
            vec![],
            &["2 N 5"],
        ),
        (13, "Tile", vec![x("N 3"), Ints(&[1, 2])], vec![], &["N 6"]),
        (
            13,
            "DepthToSpace",
            vec![x("N 8 3 W")],
            vec![int("blocksize", 2)],
            &["N 2 6 ?"],
        ),
        (
            13,
            "SpaceToDepth",
            vec![x("N 2 6 4")],
            vec![int("blocksize", 2)],
            &["N 8 3 2"],
        ),
    ]);
}

#[test]
fn slices_and_pads() {
    const END: i64 = i64::MAX;
    run(vec![
        (
            9,
            "Slice",
            vec![x("N 8")],
            vec![
                ints("axes", &[1]),
                ints("starts", &[2]),
                ints("ends", &[-1]),
            ],
            &["N 5"],
        ),
        (
            13,
            "Slice",
            vec![x("N 8"), Ints(&[0]), Ints(&[END]), Ints(&[0])],
            vec![],
            &["N 8"],
        ),
        (
            13,
            "Slice",
            vec![x("N 8"), Ints(&[1]), Ints(&[END]), Ints(&[-1]), Ints(&[3])],
            vec![],
            &["N 3"],
        ),
        (
            13,
            "Slice",
            vec![
                x("N 8"),
                Ints(&[-1]),
                Ints(&[-END]),
                Ints(&[0]),
                Ints(&[-1]),
            ],
            vec![],
            &["N 8"],
        ),
        (
            13,
            "Slice",
            vec![x("N 8"), Ints(&[6]), Ints(&[1]), Ints(&[1]), Ints(&[-2])],
            vec![],
            &["N 3"],
        ),
        (
            13,
            "Slice",
            vec![x("N 8"), Ints(&[5]), Ints(&[2]), Ints(&[1])],
            vec![],
            &["N 0"],
        ),
        (
            13,
            "Slice",
            vec![x("N 8"), Ints(&[1]), Ints(&[2]), Ints(&[0])],
            vec![],
            &["? 8"],
        ),
        (
            13,
            "Slice",
            vec![x("N 8"), Input(DType::I64, "1"), Ints(&[2]), Ints(&[1])],
            vec![],
            &["N ?"],
        ),
        (
            10,
            "Pad",
            vec![x("N 3")],
            vec![ints("pads", &[0, 1, 0, 2])],
            &["N 6"],
        ),
        (
            18,
            "Pad",
            vec![x("N 3"), Ints(&[1, 2]), Missing, Ints(&[-1])],
            vec![],
            &["N 6"],
        ),
    ]);
}

#[test]
fn indexing() {
    run(vec![
        (
            13,
            "Gather",
            vec![x("100 8"), Input(DType::I64, "N S")],
            vec![],
            &["N S 8"],
        ),
        (
            13,
            "Gather",
            vec![x("N 4 8"), Scalar(0)],
            vec![int("axis", 1)],
            &["N 8"],
        ),
        (
            13,
            "GatherElements",
            vec![x("N 4"), Input(DType::I64, "N 2")],
            vec![int("axis", 1)],
            &["N 2"],
        ),
        (
            13,
            "GatherND",
            vec![x("N 4 5"), Input(DType::I64, "K 2")],
            vec![],
            &["K 5"],
        ),
        (
            13,
            "GatherND",
            vec![x("N 4 5"), Input(DType::I64, "N 1")],
            vec![int("batch_dims", 1)],
            &["N 5"],
        ),
        (
            13,
            "ScatterND",
            vec![x("N 4"), Input(DType::I64, "K 1"), x("K 4")],
            vec![],
            &["N 4"],
        ),
        (13, "NonZero", vec![x("N 4")], vec![], &["2 ?"]),
        (
            13,
            "OneHot",
            vec![Input(DType::I64, "N S"), Scalar(7), x("2")],
            vec![],
            &["N S 7"],
        ),
        (
            13,
            "TopK",
            vec![x("N 9"), Ints(&[3])],
            vec![],
            &["N 3", "N 3"],
        ),
    ]);
}

#[test]
fn reductions() {
    run(vec![
        (
            13,
            "ReduceMean",
            vec![x("N 3 H W")],
            vec![ints("axes", &[2, 3])],
            &["N 3 1 1"],
        ),
        (
            18,
            "ReduceMean",
            vec![x("N 3 H"), Ints(&[-1])],
            vec![int("keepdims", 0)],
            &["N 3"],
        ),
        (
            18,
            "ReduceSum",
            vec![x("N 3")],
            vec![int("keepdims", 0)],
            &[""],
        ),
        (
            18,
            "ReduceSum",
            vec![x("N 3")],
            vec![int("noop_with_empty_axes", 1)],
            &["N 3"],
        ),
        (
            18,
            "ReduceSum",
            vec![x("N 3"), Input(DType::I64, "1")],
            vec![],
            &["? ?"],
        ),
        (
            13,
            "ArgMax",
            vec![x("N 9")],
            vec![int("axis", 1), int("keepdims", 0)],
            &["N"],
        ),
        (14, "CumSum", vec![x("N 9"), Scalar(1)], vec![], &["N 9"]),
    ]);
}

#[test]
fn resizing() {
    run(vec![
        (
            9,
            "Upsample",
            vec![x("N 3 4 W"), Floats(&[1., 1., 2., 2.])],
            vec![],
            &["N 3 8 ?"],
        ),
        (
            10,
            "Resize",
            vec![x("N 3 4 5"), Floats(&[1., 1., 2., 0.5])],
            vec![],
            &["N 3 8 2"],
        ),
        (
            13,
            "Resize",
            vec![x("N 3 4 5"), Missing, Missing, Ints(&[1, 3, 7, 9])],
            vec![],
            &["1 3 7 9"],
        ),
        (
            18,
            "Resize",
            vec![x("N 3 4 5"), Missing, Missing, Ints(&[7, 9])],
            vec![ints("axes", &[2, 3])],
            &["N 3 7 9"],
        ),
        (
            18,
            "Resize",
            vec![x("N 3 4 8"), Missing, Missing, Ints(&[8, 8])],
            vec![
                ints("axes", &[2, 3]),
                string("keep_aspect_ratio_policy", "not_larger"),
            ],
            &["N 3 4 8"],
        ),
    ]);
}

#[test]
fn dtypes_follow_the_operator() {
    let u8_in = || Input(DType::U8, "N 3");
    let cases: Vec<(&str, Vec<Given>, Vec<AttributeProto>, DType)> = vec![
        ("Cast", vec![x("N")], vec![int("to", 7)], DType::I64),
        ("CastLike", vec![x("N"), u8_in()], vec![], DType::U8),
        ("Equal", vec![x("N"), x("N")], vec![], DType::Bool),
        ("Shape", vec![x("N")], vec![], DType::I64),
        ("ArgMax", vec![x("N")], vec![], DType::I64),
        (
            "Where",
            vec![Input(DType::Bool, "N"), u8_in(), u8_in()],
            vec![],
            DType::U8,
        ),
        (
            "MatMulInteger",
            vec![u8_in(), Input(DType::U8, "3 4")],
            vec![],
            DType::I32,
        ),
        (
            "QuantizeLinear",
            vec![x("N"), x(""), Input(DType::I8, "")],
            vec![],
            DType::I8,
        ),
        ("QuantizeLinear", vec![x("N"), x("")], vec![], DType::U8),
        (
            "DequantizeLinear",
            vec![u8_in(), Input(DType::F16, "")],
            vec![],
            DType::F16,
        ),
        (
            "Pow",
            vec![x("N"), Input(DType::I64, "")],
            vec![],
            DType::F32,
        ),
    ];
    for (op, given, attributes, expected) in cases {
        let (graph, types) = one_node(19, op, &given, attributes, 1);
        assert_eq!(
            types.dtype(graph.find("y0").unwrap()),
            Some(expected),
            "{op}"
        );
    }
}

#[test]
fn an_unknown_operator_is_what_the_file_declares() {
    let mut builder = GraphBuilder::new("test", 13);
    builder
        .import("acme", 1)
        .input("x", F, &shape("N 4"))
        .node("acme::Mystery", &["x"], &["a"])
        .node("Relu", &["a"], &["b"])
        .node("acme::Mystery", &["b"], &["c"])
        .declare("a", F, &shape("N 7"));
    let graph = builder.build().unwrap();
    let types = infer(&graph, &Bindings::from([("N".into(), 3)]));
    assert_eq!(shape_of(&graph, &types, "b"), "3 7");
    assert_eq!(shape_of(&graph, &types, "c"), "none");
}

#[test]
fn inference_wins_over_a_contradicting_declaration() {
    let mut builder = GraphBuilder::new("test", 13);
    builder
        .input("x", F, &shape("N 4"))
        .node("Relu", &["x"], &["y"])
        .declare("y", F, &shape("1 5 6"));
    let graph = builder.build().unwrap();
    let types = infer(&graph, &Bindings::new());
    assert_eq!(shape_of(&graph, &types, "y"), "N 4");
}
