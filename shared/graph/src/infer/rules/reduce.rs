//! Reductions and what else shrinks or scans one axis.

use seamline_plan::{DType, Dim};

use super::super::arith;
use super::super::known::{Elem, Known};
use super::elementwise::same;
use super::{Call, Out, Param, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("ArgMax", arg),
    ("ArgMin", arg),
    ("CumProd", same),
    ("CumSum", cumsum),
    ("ReduceL1", reduce),
    ("ReduceL2", reduce),
    ("ReduceLogSum", reduce),
    ("ReduceLogSumExp", reduce),
    ("ReduceMax", reduce),
    ("ReduceMean", reduce),
    ("ReduceMin", reduce),
    ("ReduceProd", reduce),
    ("ReduceSum", reduce),
    ("ReduceSumSquare", reduce),
    ("TopK", topk),
];

/// The axes that a reduction reduces, as a flag an axis; `None` where they are not known.
fn reduced_axes(call: &Call<'_>, rank: usize) -> Option<Vec<bool>> {
    let axes = match call.attribute_or_input("axes", 1) {
        Param::Is(axes) => axes,
        Param::Absent => Vec::new(),
        Param::Unknown => return None,
    };
    if axes.is_empty() {
        let noop = call.int("noop_with_empty_axes").unwrap_or(0) != 0;
        return Some(vec![!noop; rank]);
    }
    let mut flags = vec![false; rank];
    for axis in axes {
        flags[call.axis(axis, rank)?] = true;
    }
    Some(flags)
}

fn reduce(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let keep = call.int("keepdims").unwrap_or(1) != 0;
    let shape = call.shape(0)?;
    let Some(reduced) = reduced_axes(call, shape.len()) else {
        if keep {
            out.shape(0, vec![Dim::Unknown; shape.len()]);
        }
        return None;
    };
    out.shape(0, reduced_shape(shape, &reduced, keep));
    // Shape arithmetic reduces whole vectors: the number of elements, the larger side.
    let known = call.known(0)?;
    if reduced.iter().all(|&flag| flag) {
        let elem = fold(call.op, call.dtype(0)?, known.elems())?;
        let dims = if keep {
            vec![1; shape.len()]
        } else {
            Vec::new()
        };
        out.known(0, Known::new(dims, vec![elem])?);
    } else if reduced.iter().all(|&flag| !flag) {
        out.known(0, known.clone());
    }
    Some(())
}

fn reduced_shape(shape: &[Dim], reduced: &[bool], keep: bool) -> Vec<Dim> {
    shape
        .iter()
        .zip(reduced)
        .filter_map(|(dim, &gone)| match (gone, keep) {
            (false, _) => Some(dim.clone()),
            (true, true) => Some(Dim::Fixed(1)),
            (true, false) => None,
        })
        .collect()
}

fn fold(op: &str, dtype: DType, elems: &[Elem]) -> Option<Elem> {
    let step = match op {
        "ReduceProd" => "Mul",
        "ReduceSum" => "Add",
        "ReduceMax" => "Max",
        "ReduceMin" => "Min",
        _ => return None,
    };
    let (first, rest) = elems.split_first()?;
    Some(rest.iter().fold(first.clone(), |total, elem| {
        arith::binary(step, dtype, &total, elem)
    }))
}

fn arg(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, Some(DType::I64));
    let shape = call.shape(0)?;
    let axis = call.axis(call.int("axis").unwrap_or(0), shape.len())?;
    let keep = call.int("keepdims").unwrap_or(1) != 0;
    let reduced: Vec<bool> = (0..shape.len()).map(|i| i == axis).collect();
    out.shape(0, reduced_shape(shape, &reduced, keep));
    Some(())
}

fn cumsum(call: &Call<'_>, out: &mut Out) -> Option<()> {
    same(call, out)?;
    let plain = call.int("exclusive").unwrap_or(0) == 0 && call.int("reverse").unwrap_or(0) == 0;
    let known = call.known(0)?;
    if plain && known.dims().len() == 1 {
        let dtype = call.dtype(0)?;
        let mut total = Elem::Int(0);
        if dtype.is_float() {
            total = Elem::Float(0.0);
        }
        let elems = known
            .elems()
            .iter()
            .map(|elem| {
                total = arith::binary("Add", dtype, &total, elem);
                total.clone()
            })
            .collect();
        out.known(0, Known::vector(elems)?);
    }
    Some(())
}

fn topk(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    out.dtype(1, Some(DType::I64));
    let mut shape = call.shape(0)?.to_vec();
    let axis = call.axis(call.int("axis").unwrap_or(-1), shape.len())?;
    shape[axis] = match call.int("k").map(Elem::Int) {
        Some(k) => k.to_dim(),
        None => call
            .known(1)
            .and_then(Known::single)
            .map_or(Dim::Unknown, Elem::to_dim),
    };
    out.shape(1, shape.clone());
    out.shape(0, shape);
    Some(())
}
