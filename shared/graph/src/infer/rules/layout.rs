//! Operators that move elements without changing them: reshapes, transposes, joins, splits.

use seamline_plan::Dim;

use super::super::dims::{self, map_fixed, product, quotient};
use super::super::known::{Elem, Known, MAX_RANK};
use super::{Call, Out, Param, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("Concat", concat),
    ("DepthToSpace", depth_to_space),
    ("Expand", expand),
    ("Flatten", flatten),
    ("Reshape", reshape),
    ("SpaceToDepth", space_to_depth),
    ("Split", split),
    ("Squeeze", squeeze),
    ("Tile", tile),
    ("Transpose", transpose),
    ("Unsqueeze", unsqueeze),
];

/// Sizes of a shape whose dimensions are all fixed.
pub(super) fn fixed_sizes(shape: &[Dim]) -> Option<Vec<usize>> {
    shape
        .iter()
        .map(|dim| usize::try_from(dim.fixed()?).ok())
        .collect()
}

/// Output 0 carries input 0's elements under its own shape.
fn keep_elements(call: &Call<'_>, out: &mut Out, shape: Vec<Dim>) -> Option<()> {
    let known = call
        .known(0)
        .and_then(|known| known.reshaped(fixed_sizes(&shape)?));
    out.shape(0, shape);
    out.known(0, known?);
    Some(())
}

fn reshape(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let target = match call.ints("shape") {
        Some(list) if call.version < 5 => list.into_iter().map(Elem::Int).collect(),
        _ => match call.known(1) {
            Some(known) => known.elems().to_vec(),
            None => {
                vec![Elem::Unknown; call.vector_length(1)?]
            }
        },
    };
    let keeps_zero = call.int("allowzero").unwrap_or(0) == 0;
    let shape = reshaped(call.shape(0), &target, keeps_zero)?;
    keep_elements(call, out, shape)
}

/// The shape that `Reshape` gives: 0 copies the input's dimension, -1 takes what is left.
fn reshaped(input: Option<&[Dim]>, target: &[Elem], zero_copies: bool) -> Option<Vec<Dim>> {
    if target.len() > MAX_RANK {
        return None;
    }
    let mut shape = Vec::with_capacity(target.len());
    let mut open = Vec::new();
    for (i, elem) in target.iter().enumerate() {
        shape.push(match elem {
            Elem::Int(0) if zero_copies => input
                .and_then(|dims| dims.get(i))
                .cloned()
                .unwrap_or(Dim::Unknown),
            Elem::Int(size) if *size < 0 => {
                open.push(i);
                Dim::Unknown
            }
            Elem::Unknown | Elem::Float(_) => {
                open.push(i);
                Dim::Unknown
            }
            known => known.to_dim(),
        });
    }
    // Whatever the one open element is, the number of elements stays.
    if let ([open], Some(input)) = (open.as_slice(), input) {
        let rest: Vec<Dim> = shape
            .iter()
            .enumerate()
            .filter(|(i, _)| i != open)
            .map(|(_, dim)| dim.clone())
            .collect();
        shape[*open] = quotient(input, &rest);
    }
    Some(shape)
}

fn flatten(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let Some(input) = call.shape(0) else {
        out.shape(0, vec![Dim::Unknown, Dim::Unknown]);
        return None;
    };
    let rank = input.len();
    let axis = match call.int("axis").unwrap_or(1) {
        axis if axis == i64::try_from(rank).ok()? => rank,
        axis => call.axis(axis, rank)?,
    };
    let shape = vec![product(&input[..axis]), product(&input[axis..])];
    keep_elements(call, out, shape)
}

fn transpose(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let input = call.shape(0)?;
    let rank = input.len();
    let order: Vec<usize> = match call.ints("perm") {
        Some(perm) if !perm.is_empty() => perm
            .iter()
            .map(|&axis| usize::try_from(axis).ok().filter(|&axis| axis < rank))
            .collect::<Option<_>>()?,
        _ => (0..rank).rev().collect(),
    };
    if order.len() != rank {
        return None;
    }
    out.shape(0, order.iter().map(|&axis| input[axis].clone()).collect());
    let known = call.known(0)?;
    let dims = order.iter().map(|&axis| known.dims()[axis]).collect();
    let moved = known.remap(dims, |index| {
        let mut source = vec![0; rank];
        for (&axis, &at) in order.iter().zip(index) {
            source[axis] = at;
        }
        Some(source)
    })?;
    out.known(0, moved);
    Some(())
}

fn squeeze(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let input = call.shape(0)?;
    let rank = input.len();
    let mut gone = vec![false; rank];
    match call.attribute_or_input("axes", 1) {
        Param::Is(axes) => {
            for axis in axes {
                gone[call.axis(axis, rank)?] = true;
            }
        }
        // All axes of size 1, which can be told only where every size is known.
        Param::Absent => {
            for (flag, dim) in gone.iter_mut().zip(input) {
                *flag = dim.fixed()? == 1;
            }
        }
        Param::Unknown => return None,
    }
    let shape = input
        .iter()
        .zip(gone)
        .filter(|(_, gone)| !gone)
        .map(|(dim, _)| dim.clone())
        .collect();
    keep_elements(call, out, shape)
}

fn unsqueeze(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let input = call.shape(0)?;
    let Param::Is(axes) = call.attribute_or_input("axes", 1) else {
        return None;
    };
    let rank = input.len().checked_add(axes.len())?;
    let mut added = vec![false; rank];
    for axis in axes {
        added[call.axis(axis, rank)?] = true;
    }
    let mut rest = input.iter();
    let shape = added
        .into_iter()
        .map(|added| match added {
            true => Some(Dim::Fixed(1)),
            false => rest.next().cloned(),
        })
        .collect::<Option<Vec<Dim>>>()?;
    keep_elements(call, out, shape)
}

fn concat(call: &Call<'_>, out: &mut Out) -> Option<()> {
    let count = call.input_count();
    out.dtype(0, (0..count).find_map(|i| call.dtype(i)));
    let shapes: Vec<&[Dim]> = (0..count).filter_map(|i| call.shape(i)).collect();
    let first = *shapes.first()?;
    let rank = first.len();
    let axis = call.axis(call.int("axis").unwrap_or(1), rank)?;
    if shapes.iter().any(|shape| shape.len() != rank) {
        return None;
    }
    let mut result = first.to_vec();
    for shape in &shapes[1..] {
        for (dim, other) in result.iter_mut().zip(*shape) {
            if !matches!(dim, Dim::Fixed(_)) && *dim != *other {
                // The inputs agree outside the axis, so the most precise statement holds.
                *dim = match (&*dim, other) {
                    (_, Dim::Fixed(_)) | (Dim::Unknown, _) => other.clone(),
                    _ => dim.clone(),
                };
            }
        }
    }
    result[axis] = if shapes.len() == count {
        dims::sum(shapes.iter().map(|shape| &shape[axis]))
    } else {
        Dim::Unknown
    };
    out.shape(0, result);
    let parts: Vec<&Known> = (0..count).map(|i| call.known(i)).collect::<Option<_>>()?;
    if rank == 1 {
        let elems = parts
            .iter()
            .flat_map(|part| part.elems().to_vec())
            .collect();
        out.known(0, Known::vector(elems)?);
    }
    Some(())
}

fn split(call: &Call<'_>, out: &mut Out) -> Option<()> {
    let count = call.output_count();
    for i in 0..count {
        out.dtype(i, call.dtype(0));
    }
    let input = call.shape(0)?;
    let axis = call.axis(call.int("axis").unwrap_or(0), input.len())?;
    let sizes = split_sizes(call, &input[axis], count);
    let mut start = Some(0usize);
    for (i, size) in sizes.into_iter().enumerate() {
        let mut shape = input.to_vec();
        shape[axis] = size;
        let length = shape[axis]
            .fixed()
            .and_then(|size| usize::try_from(size).ok());
        out.shape(i, shape);
        let known = call.known(0).filter(|known| known.dims().len() == 1);
        if let (Some(known), Some(from), Some(length)) = (known, start, length) {
            let part = from
                .checked_add(length)
                .and_then(|to| known.elems().get(from..to));
            if let Some(known) = part.and_then(|part| Known::vector(part.to_vec())) {
                out.known(i, known);
            }
        }
        start = start.zip(length).and_then(|(a, b)| a.checked_add(b));
    }
    Some(())
}

fn split_sizes(call: &Call<'_>, dim: &Dim, count: usize) -> Vec<Dim> {
    match call.attribute_or_input("split", 1) {
        Param::Is(sizes) if sizes.len() >= count => sizes
            .iter()
            .take(count)
            .map(|&size| Elem::Int(size).to_dim())
            .collect(),
        Param::Absent => {
            let parts = i64::try_from(count).unwrap_or(1).max(1);
            let rounded_up = |size: i64| (size / parts).checked_add(i64::from(size % parts != 0));
            let each = map_fixed(dim, rounded_up);
            let last = map_fixed(dim, |size| {
                let before = rounded_up(size)?.checked_mul(parts.checked_sub(1)?)?;
                Some(size.checked_sub(before)?.max(0))
            });
            let mut sizes = vec![each; count];
            if let Some(size) = sizes.last_mut() {
                *size = last;
            }
            if count == 1 {
                sizes = vec![dim.clone()];
            }
            sizes
        }
        _ => vec![Dim::Unknown; count],
    }
}

fn expand(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let target: Vec<Dim> = match call.known(1) {
        Some(known) => known.elems().iter().map(Elem::to_dim).collect(),
        None => vec![Dim::Unknown; call.vector_length(1)?],
    };
    if target.len() > MAX_RANK {
        return None;
    }
    let shape = dims::broadcast(&[call.shape(0)?, &target]);
    let sizes = fixed_sizes(&shape);
    out.shape(0, shape);
    let (known, sizes) = (call.known(0)?, sizes?);
    let grown = Known::generate(sizes, |index| known.at_broadcast(index).cloned())?;
    out.known(0, grown);
    Some(())
}

fn tile(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let input = call.shape(0)?;
    let repeats: Vec<Dim> = match call.known(1) {
        Some(known) if known.elems().len() == input.len() => {
            known.elems().iter().map(Elem::to_dim).collect()
        }
        _ => vec![Dim::Unknown; input.len()],
    };
    let shape: Vec<Dim> = input
        .iter()
        .zip(&repeats)
        .map(|(dim, times)| product([dim, times]))
        .collect();
    let sizes = fixed_sizes(&shape);
    out.shape(0, shape);
    let (known, sizes) = (call.known(0)?, sizes?);
    let tiled = known.remap(sizes, |index| {
        index
            .iter()
            .zip(known.dims())
            .map(|(&at, &dim)| at.checked_rem(dim))
            .collect()
    })?;
    out.known(0, tiled);
    Some(())
}

fn depth_to_space(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let block = call.int("blocksize").filter(|&block| block > 0)?;
    let [n, c, h, w] = call.shape(0)? else {
        return None;
    };
    let square = block.checked_mul(block)?;
    let shape = vec![
        n.clone(),
        scaled(
            c,
            |size| (size % square == 0).then_some(size / square),
            block,
        ),
        scaled(h, |size| size.checked_mul(block), block),
        scaled(w, |size| size.checked_mul(block), block),
    ];
    out.shape(0, shape);
    Some(())
}

fn space_to_depth(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let block = call.int("blocksize").filter(|&block| block > 0)?;
    let [n, c, h, w] = call.shape(0)? else {
        return None;
    };
    let square = block.checked_mul(block)?;
    let shape = vec![
        n.clone(),
        scaled(c, |size| size.checked_mul(square), block),
        scaled(h, |size| (size % block == 0).then_some(size / block), block),
        scaled(w, |size| (size % block == 0).then_some(size / block), block),
    ];
    out.shape(0, shape);
    Some(())
}

fn scaled(dim: &Dim, f: impl FnOnce(i64) -> Option<i64>, block: i64) -> Dim {
    if block == 1 {
        dim.clone()
    } else {
        map_fixed(dim, f)
    }
}
