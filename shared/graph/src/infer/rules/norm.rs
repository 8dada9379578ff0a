//! Normalisations. The main output has the input's shape; the rest are statistics.

use seamline_plan::{DType, Dim};

use super::elementwise::same;
use super::{Call, Out, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("BatchNormalization", batch),
    ("GroupNormalization", same),
    ("InstanceNormalization", same),
    ("LayerNormalization", layer),
    ("RMSNormalization", same),
    ("SimplifiedLayerNormalization", layer),
];

fn batch(call: &Call<'_>, out: &mut Out) -> Option<()> {
    // In training, running mean and variance follow.
    for (output, input) in [(1, 3), (2, 4), (3, 3), (4, 4)] {
        out.dtype(output, call.dtype(input));
        if let Some(shape) = call.shape(input) {
            out.shape(output, shape.to_vec());
        }
    }
    same(call, out)
}

/// Outputs 1 and 2 are the mean and the inverse standard deviation of each normalised slice.
pub(super) fn layer(call: &Call<'_>, out: &mut Out) -> Option<()> {
    let statistics = match call.dtype(0) {
        Some(DType::F64) => DType::F64,
        _ => DType::F32,
    };
    out.dtype(1, Some(statistics));
    out.dtype(2, Some(statistics));
    same(call, out)?;
    let shape = call.shape(0)?;
    let axis = call.axis(call.int("axis").unwrap_or(-1), shape.len())?;
    let reduced: Vec<Dim> = shape
        .iter()
        .enumerate()
        .map(|(i, dim)| if i < axis { dim.clone() } else { Dim::Fixed(1) })
        .collect();
    out.shape(1, reduced.clone());
    out.shape(2, reduced);
    Some(())
}
