//! `Resize` and `Upsample`.

use seamline_plan::Dim;

use super::super::arith;
use super::super::dims::map_fixed;
use super::super::known::{Elem, Known};
use super::{Call, Out, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[("Resize", resize), ("Upsample", upsample)];

fn upsample(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let input = call.shape(0)?;
    let scales: Option<Vec<f64>> = match call.floats("scales") {
        Some(scales) if call.version < 9 => Some(scales.iter().map(|&s| f64::from(s)).collect()),
        _ => call.known(1).and_then(Known::numbers),
    };
    let axes: Vec<usize> = (0..input.len()).collect();
    out.shape(0, scaled(input, &axes, scales));
    Some(())
}

fn resize(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let input = call.shape(0)?;
    // Opset 10 has scales at 1; later ones roi at 1, scales at 2 and sizes at 3.
    let (scales, sizes) = if call.version < 11 { (1, 3) } else { (2, 3) };
    let axes: Vec<usize> = match call.ints("axes").filter(|axes| !axes.is_empty()) {
        Some(axes) => axes
            .iter()
            .map(|&axis| call.axis(axis, input.len()))
            .collect::<Option<_>>()?,
        None => (0..input.len()).collect(),
    };
    let shape = if call.has_input(sizes) {
        sized(call, input, &axes, sizes)
    } else {
        scaled(input, &axes, call.known(scales).and_then(Known::numbers))
    };
    out.shape(0, shape);
    Some(())
}

fn scaled(input: &[Dim], axes: &[usize], scales: Option<Vec<f64>>) -> Vec<Dim> {
    let Some(scales) = scales.filter(|scales| scales.len() == axes.len()) else {
        return vec![Dim::Unknown; input.len()];
    };
    let mut shape = input.to_vec();
    for (&axis, &scale) in axes.iter().zip(&scales) {
        shape[axis] = if scale == 1.0 {
            input[axis].clone()
        } else {
            // Sizes stay far below 2^53.
            map_fixed(&input[axis], |size| {
                arith::whole((size as f64 * scale).floor())
            })
        };
    }
    shape
}

fn sized(call: &Call<'_>, input: &[Dim], axes: &[usize], sizes: usize) -> Vec<Dim> {
    let mut shape = input.to_vec();
    let sizes = call
        .known(sizes)
        .map(Known::elems)
        .filter(|elems| elems.len() == axes.len());
    let stretch = matches!(
        call.string("keep_aspect_ratio_policy").as_deref(),
        None | Some("stretch")
    );
    let Some(sizes) = sizes else {
        for &axis in axes {
            shape[axis] = Dim::Unknown;
        }
        return shape;
    };
    if stretch {
        for (&axis, size) in axes.iter().zip(sizes) {
            shape[axis] = size.to_dim();
        }
        return shape;
    }
    let not_larger = call.string("keep_aspect_ratio_policy").as_deref() == Some("not_larger");
    let ratio = common_ratio(input, axes, sizes, not_larger);
    for &axis in axes {
        shape[axis] = match ratio {
            Some(ratio) => map_fixed(&input[axis], |size| {
                arith::whole((size as f64 * ratio).round())
            }),
            None => Dim::Unknown,
        };
    }
    shape
}

/// The one ratio by which all `axes` grow, so that none passes (or none stays below) its size.
fn common_ratio(input: &[Dim], axes: &[usize], sizes: &[Elem], not_larger: bool) -> Option<f64> {
    let mut ratio: Option<f64> = None;
    for (&axis, size) in axes.iter().zip(sizes) {
        let own = size.number()? / input[axis].fixed()? as f64;
        ratio = Some(match ratio {
            None => own,
            Some(ratio) if not_larger => ratio.min(own),
            Some(ratio) => ratio.max(own),
        });
    }
    ratio
}
