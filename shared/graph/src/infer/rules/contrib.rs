//! Operators of `com.microsoft`, which ONNX Runtime's optimisers and quantisers emit.

use seamline_plan::{DType, Dim};

use super::super::dims::{map_fixed, quotient, sum};
use super::super::known::Elem;
use super::conv::convolved;
use super::elementwise::same;
use super::matmul::product_shape;
use super::norm::layer;
use super::{Call, Out, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("Attention", attention),
    ("BiasAdd", same),
    ("BiasGelu", same),
    ("BiasSplitGelu", bias_split_gelu),
    ("DequantizeLinear", super::quant::dequantize),
    ("DynamicQuantizeMatMul", float_product),
    ("EmbedLayerNormalization", embed),
    ("FastGelu", same),
    ("FusedConv", fused_conv),
    ("FusedGemm", fused_gemm),
    ("FusedMatMul", fused_matmul),
    ("GatherBlockQuantized", gather_block),
    ("Gelu", same),
    ("GroupNorm", same),
    ("GroupQueryAttention", group_query_attention),
    ("Inverse", same),
    ("MatMulBnb4", matmul_nbits),
    ("MatMulInteger16", integer_product),
    ("MatMulIntegerToFloat", float_product),
    ("MatMulNBits", matmul_nbits),
    ("MultiHeadAttention", multi_head_attention),
    ("QGemm", qgemm),
    ("QLinearAdd", qlinear_binary),
    ("QLinearConcat", qlinear_concat),
    ("QLinearGlobalAveragePool", super::pool::global),
    ("QLinearLeakyRelu", same),
    ("QLinearMul", qlinear_binary),
    ("QLinearSigmoid", same),
    ("QLinearSoftmax", same),
    ("QuantizeLinear", super::quant::quantize),
    ("QuickGelu", same),
    ("RotaryEmbedding", same),
    ("SkipGroupNorm", skip_normalization),
    ("SkipLayerNormalization", skip_normalization),
    ("SkipSimplifiedLayerNormalization", skip_normalization),
    ("SimplifiedLayerNormalization", layer),
    ("TransposeMatMul", fused_matmul),
];

/// The rule's output has input 0's shape, save the last dimension.
fn with_last(call: &Call<'_>, out: &mut Out, last: Dim) -> Option<()> {
    let mut shape = call.shape(0)?.to_vec();
    *shape.last_mut()? = last;
    out.shape(0, shape);
    Some(())
}

fn matmul_nbits(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let columns = call
        .int("N")
        .map_or(Dim::Unknown, |n| Elem::Int(n).to_dim());
    with_last(call, out, columns)
}

fn fused_matmul(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let flag = |name: &str| call.int(name).unwrap_or(0) != 0;
    if flag("transBatchA") || flag("transBatchB") {
        return None;
    }
    let flipped = |input: usize, flip: bool| -> Option<Vec<Dim>> {
        let mut shape = call.shape(input)?.to_vec();
        let rank = shape.len();
        if flip && rank >= 2 {
            shape.swap(rank - 1, rank - 2);
        }
        Some(shape)
    };
    let (a, b) = (flipped(0, flag("transA"))?, flipped(1, flag("transB"))?);
    out.shape(0, product_shape(&a, &b)?);
    Some(())
}

fn integer_product(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, Some(DType::I32));
    out.shape(0, product_shape(call.shape(0)?, call.shape(1)?)?);
    Some(())
}

fn float_product(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, Some(DType::F32));
    out.shape(0, product_shape(call.shape(0)?, call.shape(1)?)?);
    Some(())
}

fn fused_conv(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    convolved(call, out, 1)
}

fn gemm_shape(call: &Call<'_>, out: &mut Out, b: usize) -> Option<()> {
    let side = |input: usize, name: &str, axis: usize| {
        let flip = call.int(name).unwrap_or(0) != 0;
        let axis = if flip { 1 - axis } else { axis };
        call.shape(input)
            .and_then(|shape| shape.get(axis))
            .cloned()
            .unwrap_or(Dim::Unknown)
    };
    out.shape(0, vec![side(0, "transA", 0), side(b, "transB", 1)]);
    Some(())
}

fn fused_gemm(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    gemm_shape(call, out, 1)
}

/// a, its scale and zero point, b, its scale and zero point, bias, output scale, zero point.
fn qgemm(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(8).or(Some(DType::F32)));
    gemm_shape(call, out, 3)
}

fn qlinear_binary(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    out.shape(
        0,
        super::super::dims::broadcast(&[call.shape(0)?, call.shape(3)?]),
    );
    Some(())
}

/// Output scale and zero point, then tensor, scale, zero point of each part.
fn qlinear_concat(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(1));
    let parts: Vec<&[Dim]> = (2..call.input_count())
        .step_by(3)
        .map(|i| call.shape(i))
        .collect::<Option<_>>()?;
    let mut shape = parts.first()?.to_vec();
    let axis = call.axis(call.int("axis")?, shape.len())?;
    let along: Vec<&Dim> = parts
        .iter()
        .map(|part| part.get(axis))
        .collect::<Option<_>>()?;
    shape[axis] = sum(along);
    out.shape(0, shape);
    Some(())
}

/// Outputs: the normalised sum, mean, inverse standard deviation, the sum itself.
fn skip_normalization(call: &Call<'_>, out: &mut Out) -> Option<()> {
    let sum_output = if call.op == "SkipGroupNorm" { 1 } else { 3 };
    out.dtype(sum_output, call.dtype(0));
    same(call, out)?;
    out.shape(sum_output, call.shape(0)?.to_vec());
    Some(())
}

/// Word ids, segment ids, then the tables of words, positions and segments.
fn embed(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(2));
    out.dtype(1, Some(DType::I32));
    out.dtype(2, call.dtype(2));
    let mut shape = call.shape(0)?.to_vec();
    out.shape(1, vec![shape.first()?.clone()]);
    shape.push(call.shape(2)?.get(1)?.clone());
    out.shape(2, shape.clone());
    out.shape(0, shape);
    Some(())
}

fn bias_split_gelu(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let half = map_fixed(call.shape(0)?.last()?, |size| Some(size / 2));
    with_last(call, out, half)
}

/// Input `[batch, length, hidden]`, weights `[hidden, q + k + v]`.
fn attention(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    out.dtype(1, call.dtype(0));
    let width = match call
        .ints("qkv_hidden_sizes")
        .filter(|sizes| sizes.len() == 3)
    {
        Some(sizes) => Elem::Int(sizes[2]).to_dim(),
        None => map_fixed(call.shape(1)?.get(1)?, |size| {
            (size % 3 == 0).then_some(size / 3)
        }),
    };
    with_last(call, out, width)
}

/// Query `[batch, length, hidden]`, key and value likewise; packed forms are not followed.
fn multi_head_attention(call: &Call<'_>, out: &mut Out) -> Option<()> {
    for output in 0..3 {
        out.dtype(output, call.dtype(0));
    }
    let value = call.shape(2).filter(|shape| shape.len() == 3);
    let query = call.shape(0).filter(|shape| shape.len() == 3)?;
    let width = value?.get(2)?.clone();
    out.shape(0, vec![query[0].clone(), query[1].clone(), width]);
    Some(())
}

/// Query `[batch, length, heads * size]`; past keys and values `[batch, heads, past, size]`.
fn group_query_attention(call: &Call<'_>, out: &mut Out) -> Option<()> {
    for output in 0..3 {
        out.dtype(output, call.dtype(0));
    }
    let query = call.shape(0)?.to_vec();
    if call.has_input(1) {
        out.shape(0, query.clone());
    }
    for (output, past) in [(1, 3), (2, 4)] {
        if let Some([batch, heads, _, size]) = call.shape(past) {
            let shape = vec![batch.clone(), heads.clone(), Dim::Unknown, size.clone()];
            out.shape(output, shape);
        }
    }
    if !call.has_input(1) {
        // Query, key and value lie packed in one tensor.
        let heads = call.int("num_heads")?;
        let all = heads.checked_add(call.int("kv_num_heads")?.checked_mul(2)?)?;
        let each = quotient(query.get(2..3)?, &[Elem::Int(all).to_dim()]);
        let width = map_fixed(&each, |size| size.checked_mul(heads));
        with_last(call, out, width)?;
    }
    Some(())
}

/// A table of packed rows at 0, indices at 1, scales at 2.
fn gather_block(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(2));
    None
}
