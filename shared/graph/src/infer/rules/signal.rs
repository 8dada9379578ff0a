//! Signal processing: transforms, windows, mel weights.

use seamline_plan::{DType, Dim};

use super::super::arith;
use super::super::dims::map_fixed;
use super::super::known::{Elem, Known};
use super::{Call, Out, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("BlackmanWindow", window),
    ("DFT", dft),
    ("HammingWindow", window),
    ("HannWindow", window),
    ("MelWeightMatrix", mel),
    ("STFT", stft),
];

fn scalar(call: &Call<'_>, input: usize) -> Option<i64> {
    match call.known(input)?.single()? {
        Elem::Int(value) => Some(*value),
        Elem::Float(value) => arith::whole(*value),
        Elem::Sym(_) | Elem::Unknown => None,
    }
}

fn window(call: &Call<'_>, out: &mut Out) -> Option<()> {
    let dtype = call.dtype_attribute("output_datatype");
    out.dtype(0, dtype.or(Some(DType::F32)));
    let size = call.known(0).and_then(Known::single);
    out.shape(0, vec![size.map_or(Dim::Unknown, Elem::to_dim)]);
    Some(())
}

fn mel(call: &Call<'_>, out: &mut Out) -> Option<()> {
    let dtype = call.dtype_attribute("output_datatype");
    out.dtype(0, dtype.or(Some(DType::F32)));
    let bins = scalar(call, 0).map_or(Dim::Unknown, |bins| Elem::Int(bins).to_dim());
    let spectrum = scalar(call, 1).and_then(|length| (length / 2).checked_add(1));
    let spectrum = spectrum.map_or(Dim::Unknown, |size| Elem::Int(size).to_dim());
    out.shape(0, vec![spectrum, bins]);
    Some(())
}

/// The bins that a transform of `length` points gives.
fn bins(length: Dim, onesided: bool) -> Dim {
    if onesided {
        map_fixed(&length, |size| Some(size / 2 + 1))
    } else {
        length
    }
}

fn dft(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let mut shape = call.shape(0)?.to_vec();
    let rank = shape.len();
    // The axis became an input in opset 20, and its default the last but one.
    let axis = match (call.version < 20, call.has_input(2)) {
        (true, _) => call.int("axis").unwrap_or(1),
        (false, false) => -2,
        (false, true) => scalar(call, 2)?,
    };
    let axis = call.axis(axis, rank)?;
    let inverse = call.int("inverse").unwrap_or(0) != 0;
    let onesided = call.int("onesided").unwrap_or(0) != 0;
    let length = match call.has_input(1) {
        true => call
            .known(1)
            .and_then(Known::single)
            .map_or(Dim::Unknown, Elem::to_dim),
        false => shape[axis].clone(),
    };
    if inverse && onesided {
        shape[axis] = match call.has_input(1) {
            true => length,
            false => map_fixed(&length, |size| size.checked_sub(1)?.checked_mul(2)),
        };
        shape[rank.checked_sub(1)?] = Dim::Fixed(1);
    } else {
        shape[axis] = bins(length, onesided);
        shape[rank.checked_sub(1)?] = Dim::Fixed(2);
    }
    out.shape(0, shape);
    Some(())
}

fn stft(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let batch = call.shape(0)?.first()?.clone();
    let onesided = call.int("onesided").unwrap_or(1) != 0;
    let length = match (call.has_input(3), call.shape(2)) {
        (true, _) => call
            .known(3)
            .and_then(Known::single)
            .map_or(Dim::Unknown, Elem::to_dim),
        (false, Some([window])) => window.clone(),
        _ => Dim::Unknown,
    };
    let frames = match (
        scalar(call, 1),
        length.fixed().and_then(|l| i64::try_from(l).ok()),
    ) {
        (Some(step), Some(length)) if step > 0 => map_fixed(call.shape(0)?.get(1)?, |size| {
            let room = size.checked_sub(length)?;
            (room >= 0).then_some(room / step + 1)
        }),
        _ => Dim::Unknown,
    };
    out.shape(
        0,
        vec![batch, frames, bins(length, onesided), Dim::Fixed(2)],
    );
    Some(())
}
