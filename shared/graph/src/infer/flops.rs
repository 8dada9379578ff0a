//! Floating-point operations of each node.
//!
//! Counted by these rules, a multiply-add as 2:
//! - convolutions, matrix products, recurrent layers, `Einsum` and attention: exactly, from the
//!   shapes; a bias adds 1 an output element;
//! - pooling and reductions: 1 an element read by a window or reduced;
//! - softmax [`SOFTMAX`], normalisations [`NORMALIZATION`] (batch normalisation 2, as its
//!   statistics are constants), interpolation [`INTERPOLATION`] an output element;
//! - everything else element by element: 1 an output element, whatever the function;
//! - shapes, indexing and moving data: 0.
//!
//! A dimension that is not fixed counts as 1, so that with the batch unbound the figure is per
//! row; bind every symbol for exact figures.

use seamline_plan::Dim;

use super::body::Operator;
use super::call::Call;
use super::known::Fact;
use super::rules::Labels;
use super::types::Types;
use crate::Graph;

/// FLOPs an element of a softmax: maximum, difference, exponential, sum, quotient.
pub const SOFTMAX: f64 = 5.0;

/// FLOPs an element of a normalisation: mean, variance, difference, scale, shift.
pub const NORMALIZATION: f64 = 8.0;

/// FLOPs an output element of a (bi)linear interpolation.
pub const INTERPOLATION: f64 = 8.0;

/// FLOPs a hidden element and gate of a recurrent layer, beside its matrix products.
const GATE: f64 = 3.0;

/// Operators that compute nothing: shapes, indexing, movement, constants.
const FREE: &[&str] = &[
    "Cast",
    "CastLike",
    "CenterCropPad",
    "Compress",
    "Concat",
    "ConcatFromSequence",
    "Constant",
    "ConstantOfShape",
    "DepthToSpace",
    "Dropout",
    "Expand",
    "EyeLike",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "If",
    "Loop",
    "NonZero",
    "OneHot",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
    "Pad",
    "Range",
    "Reshape",
    "ReverseSequence",
    "Scan",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    "Shape",
    "Size",
    "Slice",
    "SpaceToDepth",
    "Split",
    "SplitToSequence",
    "Squeeze",
    "TensorScatter",
    "Tile",
    "Transpose",
    "Trilu",
    "Unique",
    "Unsqueeze",
    "Where",
];

/// FLOPs of every node of `graph`, by position in [`Graph::nodes`]; see the module's rules. A
/// node with bodies counts what its body does: the dearer branch of an `If` whose condition is
/// not known, a `Loop` of unknown length once.
pub fn flops(graph: &Graph, types: &Types) -> Vec<f64> {
    graph
        .enumerate_nodes()
        .map(|(id, node)| {
            if let Some(flops) = types.body_flops.get(&id) {
                return *flops;
            }
            let unknown = Fact::default();
            let inputs = super::inputs_of(types, &node.inputs);
            let outputs: Vec<Fact> = node
                .outputs
                .iter()
                .map(|output| {
                    let fact = output.and_then(|id| types.fact(id)).unwrap_or(&unknown);
                    Fact {
                        dtype: fact.dtype,
                        shape: fact.shape.clone(),
                        known: None,
                    }
                })
                .collect();
            of_call(&Operator::of_node(node), inputs, &outputs)
        })
        .collect()
}

/// FLOPs of one node that has no bodies.
pub(super) fn of_call(
    operator: &Operator<'_>,
    inputs: Vec<Option<&Fact>>,
    outputs: &[Fact],
) -> f64 {
    let call = Call {
        op: operator.op,
        version: i64::MAX,
        attributes: operator.attributes,
        inputs,
        outputs: outputs.len(),
    };
    let made = volume(outputs.first().and_then(|fact| fact.shape.as_deref()));
    let read = volume(call.shape(0));
    match operator.op {
        op if FREE.contains(&op) => 0.0,
        "Conv" | "ConvInteger" | "DeformConv" | "FusedConv" => convolution(&call, made, 1, 2),
        "QLinearConv" => convolution(&call, made, 3, 8),
        "ConvTranspose" => {
            2.0 * read * volume(call.shape(1).and_then(|dims| dims.get(1..))) + bias(&call, 2, made)
        }
        "MatMul"
        | "MatMulInteger"
        | "MatMulInteger16"
        | "QLinearMatMul"
        | "MatMulNBits"
        | "MatMulBnb4"
        | "DynamicQuantizeMatMul"
        | "MatMulIntegerToFloat" => 2.0 * made * last(call.shape(0)),
        "FusedMatMul" | "TransposeMatMul" => 2.0 * made * inner(&call, "transA"),
        "Gemm" | "FusedGemm" => 2.0 * made * inner(&call, "transA") + bias(&call, 2, made),
        "QGemm" => 2.0 * made * inner(&call, "transA") + bias(&call, 6, made),
        "Einsum" => einsum(&call),
        "LSTM" => recurrent(&call, 4.0),
        "GRU" => recurrent(&call, 3.0),
        "RNN" => recurrent(&call, 1.0),
        "Attention" | "MultiHeadAttention" | "GroupQueryAttention" => attention(&call),
        "MaxPool" | "AveragePool" | "LpPool" => {
            let window = call.ints("kernel_shape").unwrap_or_default();
            made * window.iter().map(|&size| size as f64).product::<f64>()
        }
        "Softmax" | "LogSoftmax" | "Hardmax" | "QLinearSoftmax" => SOFTMAX * made,
        "BatchNormalization" | "QuantizeLinear" | "DequantizeLinear" => 2.0 * made,
        "Resize" | "Upsample" => match call.string("mode").as_deref() {
            None | Some("nearest") => 0.0,
            Some(_) => INTERPOLATION * made,
        },
        "GridSample" | "RoiAlign" => INTERPOLATION * made,
        "DFT" | "STFT" => {
            let length = volume(outputs.first().and_then(|fact| fact.shape.as_deref()));
            5.0 * length * length.max(2.0).log2()
        }
        "Det" | "TopK" | "NonMaxSuppression" => read,
        "LRN" | "MeanVarianceNormalization" | "LpNormalization" => NORMALIZATION * made,
        op if op.starts_with("Global") || op.starts_with("Reduce") || op.starts_with("Arg") => read,
        op if op.ends_with("Normalization") || op.ends_with("Norm") => NORMALIZATION * made,
        _ => made,
    }
}

/// Number of elements, unknown dimensions counted as 1; 0 for an unknown rank.
fn volume(shape: Option<&[Dim]>) -> f64 {
    shape.map_or(0.0, |shape| shape.iter().map(size).product())
}

fn size(dim: &Dim) -> f64 {
    dim.fixed().map_or(1.0, |size| size as f64)
}

fn last(shape: Option<&[Dim]>) -> f64 {
    shape.and_then(<[Dim]>::last).map_or(1.0, size)
}

fn bias(call: &Call<'_>, input: usize, made: f64) -> f64 {
    if call.has_input(input) { made } else { 0.0 }
}

/// Weights are `[out channels, channels of a group, window...]`.
fn convolution(call: &Call<'_>, made: f64, weights: usize, bias_at: usize) -> f64 {
    let macs = volume(call.shape(weights).and_then(|dims| dims.get(1..)));
    let bias_at = match call.op {
        "ConvInteger" => usize::MAX,
        "DeformConv" => 3,
        _ => bias_at,
    };
    2.0 * made * macs + bias(call, bias_at, made)
}

/// The dimension that input 0 shares with the other matrix.
fn inner(call: &Call<'_>, transposed: &str) -> f64 {
    let flipped = call.int(transposed).unwrap_or(0) != 0;
    match call.shape(0) {
        Some([.., rows, columns]) => size(if flipped { rows } else { columns }),
        shape => last(shape),
    }
}

fn einsum(call: &Call<'_>) -> f64 {
    let equation = call.string("equation").unwrap_or_default().replace(' ', "");
    let left = equation.split("->").next().unwrap_or_default();
    let terms: Vec<&str> = left.split(',').collect();
    let Some(labels) = Labels::of(call, &terms) else {
        return 0.0;
    };
    let points: f64 = labels
        .named
        .values()
        .chain(&labels.ellipsis)
        .map(size)
        .product();
    match terms.len() {
        0 | 1 => points,
        factors => 2.0 * points * (factors - 1) as f64,
    }
}

/// X `[time, batch, features]`, W `[directions, gates * hidden, features]`.
fn recurrent(call: &Call<'_>, gates: f64) -> f64 {
    let (Some([time, batch, features]), Some([directions, _, hidden])) =
        (call.shape(0), call.shape(2))
    else {
        return 0.0;
    };
    let steps = size(time) * size(batch) * size(directions);
    let hidden = size(hidden);
    steps * gates * hidden * (2.0 * (size(features) + hidden) + GATE)
}

/// Scores and their product with the values; for the fused form of three inputs, `[batch,
/// length, hidden]` with joint weights, the projections as well.
fn attention(call: &Call<'_>) -> f64 {
    let Some(query) = call.shape(0) else {
        return 0.0;
    };
    let joint = call.shape(1).is_some_and(|shape| shape.len() == 2);
    let projections = if joint {
        2.0 * volume(Some(query)) * last(call.shape(1))
    } else {
        0.0
    };
    let keys = if joint || !call.has_input(1) { 0 } else { 1 };
    let length = match call.shape(keys) {
        Some([_, length, _] | [_, _, length, _]) => size(length),
        _ => 1.0,
    };
    projections + 4.0 * volume(Some(query)) * length
}
