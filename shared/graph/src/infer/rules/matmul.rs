//! Matrix products.

use seamline_plan::{DType, Dim};

use super::super::dims::broadcast;
use super::{Call, Out, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("Det", det),
    ("Gemm", gemm),
    ("MatMul", matmul),
    ("MatMulInteger", matmul_integer),
    ("QLinearMatMul", qlinear_matmul),
];

fn matmul(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0).or(call.dtype(1)));
    out.shape(0, product_shape(call.shape(0)?, call.shape(1)?)?);
    Some(())
}

fn matmul_integer(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, Some(DType::I32));
    out.shape(0, product_shape(call.shape(0)?, call.shape(1)?)?);
    Some(())
}

fn qlinear_matmul(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(7));
    out.shape(0, product_shape(call.shape(0)?, call.shape(3)?)?);
    Some(())
}

/// numpy's `matmul` of two shapes: the last two axes multiply, those before broadcast, and a
/// vector counts as a row on the left and as a column on the right. `None` for scalars.
pub(super) fn product_shape(a: &[Dim], b: &[Dim]) -> Option<Vec<Dim>> {
    let (batch_a, rows) = match a {
        [] => return None,
        [_] => (&[][..], None),
        [batch @ .., rows, _] => (batch, Some(rows)),
    };
    let (batch_b, columns) = match b {
        [] => return None,
        [_] => (&[][..], None),
        [batch @ .., _, columns] => (batch, Some(columns)),
    };
    let mut shape = broadcast(&[batch_a, batch_b]);
    shape.extend(rows.cloned());
    shape.extend(columns.cloned());
    Some(shape)
}

fn gemm(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0).or(call.dtype(1)));
    let dim = |input: usize, transposed: &str, axis: usize| {
        let flip = call.int(transposed).unwrap_or(0) != 0;
        let axis = if flip { 1 - axis } else { axis };
        call.shape(input)
            .and_then(|shape| shape.get(axis))
            .cloned()
            .unwrap_or(Dim::Unknown)
    };
    out.shape(0, vec![dim(0, "transA", 0), dim(1, "transB", 1)]);
    Some(())
}

fn det(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let shape = call.shape(0)?;
    out.shape(0, shape[..shape.len().checked_sub(2)?].to_vec());
    Some(())
}
