//! Vision operators: regions, grids, boxes.

use seamline_plan::{DType, Dim};

use super::super::dims::product;
use super::super::known::Elem;
use super::conv::listed_dims;
use super::{Call, Out, Param, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("AffineGrid", affine_grid),
    ("Attention", attention),
    ("Col2Im", col2im),
    ("FlexAttention", attention),
    ("GridSample", grid_sample),
    ("MaxRoiPool", roi_pool),
    ("NonMaxSuppression", non_max_suppression),
    ("RoiAlign", roi_align),
    ("RotaryEmbedding", super::elementwise::same),
];

fn affine_grid(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let size: Vec<Dim> = call.known(1)?.elems().iter().map(Elem::to_dim).collect();
    let mut shape = vec![size.first()?.clone()];
    shape.extend_from_slice(size.get(2..)?);
    shape.push(Dim::Fixed(size.len().checked_sub(2)? as u64));
    out.shape(0, shape);
    Some(())
}

fn grid_sample(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let (input, grid) = (call.shape(0)?, call.shape(1)?);
    let mut shape = input.get(..2)?.to_vec();
    shape.extend_from_slice(grid.get(1..grid.len().checked_sub(1)?)?);
    out.shape(0, shape);
    Some(())
}

fn col2im(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let input = call.shape(0)?;
    let block = product(&listed_dims(call.input_ints(2))?);
    let channels = super::super::dims::quotient(input.get(1..2)?, &[block]);
    let mut shape = vec![input.first()?.clone(), channels];
    shape.extend(listed_dims(call.input_ints(1))?);
    out.shape(0, shape);
    Some(())
}

fn roi_pool(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let pooled = listed_dims(Param::Is(call.ints("pooled_shape")?))?;
    let mut shape = vec![
        call.shape(1)?.first()?.clone(),
        call.shape(0)?.get(1)?.clone(),
    ];
    shape.extend(pooled);
    out.shape(0, shape);
    Some(())
}

fn roi_align(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let side = |name: &str| Elem::Int(call.int(name).unwrap_or(1)).to_dim();
    let shape = vec![
        call.shape(1)?.first()?.clone(),
        call.shape(0)?.get(1)?.clone(),
        side("output_height"),
        side("output_width"),
    ];
    out.shape(0, shape);
    Some(())
}

fn non_max_suppression(_: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, Some(DType::I64));
    out.shape(0, vec![Dim::Unknown, Dim::Fixed(3)]);
    Some(())
}

/// Inputs `[batch, heads, length, size]`, or `[batch, length, heads * size]` with the numbers of
/// heads as attributes; past keys and values at 4 and 5.
fn attention(call: &Call<'_>, out: &mut Out) -> Option<()> {
    for output in 0..4 {
        out.dtype(output, call.dtype(0));
    }
    let (query, key, value) = (call.shape(0)?, call.shape(1)?, call.shape(2)?);
    let (query_heads, heads) = (call.int("q_num_heads"), call.int("kv_num_heads"));
    let split = |shape: &[Dim], heads: Option<i64>| -> Option<Vec<Dim>> {
        match shape {
            [batch, length, width] => {
                let heads = Elem::Int(heads?).to_dim();
                let size = super::super::dims::quotient(
                    std::slice::from_ref(width),
                    std::slice::from_ref(&heads),
                );
                Some(vec![batch.clone(), heads, length.clone(), size])
            }
            [_, _, _, _] => Some(shape.to_vec()),
            _ => None,
        }
    };
    let q = split(query, query_heads)?;
    let (mut k, mut v) = (split(key, heads)?, split(value, heads)?);
    for (present, past) in [(&mut k, 4), (&mut v, 5)] {
        if call.has_input(past) {
            let before = call.shape(past).and_then(|shape| shape.get(2)).cloned();
            present[2] = super::super::dims::sum([&before.unwrap_or(Dim::Unknown), &present[2]]);
        }
    }
    let main = match query.len() {
        3 => vec![q[0].clone(), q[2].clone(), product([&q[1], &v[3]])],
        _ => vec![q[0].clone(), q[1].clone(), q[2].clone(), v[3].clone()],
    };
    out.shape(0, main);
    out.shape(
        3,
        vec![q[0].clone(), q[1].clone(), q[2].clone(), k[2].clone()],
    );
    out.shape(1, k);
    out.shape(2, v);
    Some(())
}
