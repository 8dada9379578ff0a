//! FLOPs by hand.

use seamline_plan::DType;

use super::{F, Given, Input, one_node};
use crate::builder::{int, ints, string};
use crate::infer::flops;
use crate::proto::AttributeProto;

#[test]
fn counts_are_those_of_the_formulas() {
    let x = |dims| Input(F, dims);
    let cases: Vec<(&str, Vec<Given>, Vec<AttributeProto>, f64)> = vec![
        // 16 output elements of 27 multiply-adds, 8 channels, and the bias.
        (
            "Conv",
            vec![x("1 3 6 6"), x("8 3 3 3"), x("8")],
            vec![],
            2.0 * 16.0 * 8.0 * 27.0 + 128.0,
        ),
        (
            "Conv",
            vec![x("1 8 6 6"), x("8 1 3 3")],
            vec![int("group", 8)],
            2.0 * 128.0 * 9.0,
        ),
        (
            "ConvTranspose",
            vec![x("1 4 5 5"), x("4 2 3 3")],
            vec![],
            2.0 * 100.0 * 18.0,
        ),
        (
            "MatMul",
            vec![x("2 3 4"), x("4 5")],
            vec![],
            2.0 * 30.0 * 4.0,
        ),
        (
            "Gemm",
            vec![x("4 3"), x("4 5"), x("5")],
            vec![int("transA", 1)],
            2.0 * 15.0 * 4.0 + 15.0,
        ),
        (
            "Einsum",
            vec![x("2 3 4"), x("2 5 4")],
            vec![string("equation", "bqd,bkd->bqk")],
            2.0 * 120.0,
        ),
        // A batch that is not bound counts as one row.
        ("MatMul", vec![x("N 4"), x("4 5")], vec![], 2.0 * 5.0 * 4.0),
        ("Relu", vec![x("2 3")], vec![], 6.0),
        ("Softmax", vec![x("2 3")], vec![], 30.0),
        ("LayerNormalization", vec![x("2 3"), x("3")], vec![], 48.0),
        (
            "MaxPool",
            vec![x("1 1 4 4")],
            vec![ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])],
            16.0,
        ),
        ("GlobalAveragePool", vec![x("1 2 4 4")], vec![], 32.0),
        (
            "LSTM",
            vec![x("5 2 8"), x("1 64 8"), x("1 64 16")],
            vec![int("hidden_size", 16)],
            10.0 * 64.0 * (2.0 * 24.0 + 3.0),
        ),
        ("Transpose", vec![x("2 3")], vec![], 0.0),
        ("Shape", vec![x("2 3")], vec![], 0.0),
        (
            "Gather",
            vec![x("9 3"), Input(DType::I64, "4")],
            vec![],
            0.0,
        ),
        (
            "com.microsoft::MatMulNBits",
            vec![x("2 64")],
            vec![int("N", 32)],
            2.0 * 64.0 * 64.0,
        ),
    ];
    for (op, given, attributes, expected) in cases {
        let (graph, types) = one_node(17, op, &given, attributes, 1);
        assert_eq!(flops(&graph, &types), vec![expected], "{op}");
    }
}
