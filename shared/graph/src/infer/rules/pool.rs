//! Pooling.

use seamline_plan::{DType, Dim};

use super::conv::{Window, listed_dims};
use super::{Call, Out, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("AveragePool", pool),
    ("GlobalAveragePool", global),
    ("GlobalLpPool", global),
    ("GlobalMaxPool", global),
    ("LpPool", pool),
    ("MaxPool", pool),
    ("MaxUnpool", unpool),
];

fn pool(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    out.dtype(1, Some(DType::I64));
    let input = call.shape(0)?;
    let spatial = input.len().checked_sub(2)?;
    let mut shape = input[..2].to_vec();
    match Window::of(call, spatial, None) {
        Some(window) => {
            let ceil_mode = call.int("ceil_mode").unwrap_or(0) != 0;
            shape.extend(window.output(&input[2..], ceil_mode));
        }
        None => shape.extend(vec![Dim::Unknown; spatial]),
    }
    out.shape(1, shape.clone());
    out.shape(0, shape);
    Some(())
}

pub(super) fn global(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let input = call.shape(0)?;
    let spatial = input.len().checked_sub(2)?;
    let mut shape = input[..2].to_vec();
    shape.extend(vec![Dim::Fixed(1); spatial]);
    out.shape(0, shape);
    Some(())
}

fn unpool(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let input = call.shape(0)?;
    let spatial = input.len().checked_sub(2)?;
    let given = listed_dims(call.input_ints(2));
    let shape = match (given, call.has_input(2), Window::of(call, spatial, None)) {
        (Some(shape), _, _) => shape,
        (None, false, Some(window)) => {
            let mut shape = input[..2].to_vec();
            for (dim, axis) in input[2..].iter().zip(&window.axes) {
                shape.push(super::super::dims::map_fixed(dim, |size| {
                    size.checked_sub(1)?
                        .checked_mul(axis.stride)?
                        .checked_add(axis.kernel?)?
                        .checked_sub(axis.pad_begin.checked_add(axis.pad_end)?)
                }));
            }
            shape
        }
        _ => vec![Dim::Unknown; input.len()],
    };
    out.shape(0, shape);
    Some(())
}
