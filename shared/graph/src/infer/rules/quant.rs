//! Quantisation.

use seamline_plan::DType;

use super::{Call, Out, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("DequantizeLinear", dequantize),
    ("DynamicQuantizeLinear", dynamic),
    ("QuantizeLinear", quantize),
];

pub(super) fn quantize(call: &Call<'_>, out: &mut Out) -> Option<()> {
    let declared = call.int("output_dtype").filter(|&code| code != 0);
    let dtype = match (declared, call.has_input(2)) {
        (_, true) => call.dtype(2),
        (Some(_), false) => call.dtype_attribute("output_dtype"),
        (None, false) => Some(DType::U8),
    };
    out.dtype(0, dtype);
    out.shape(0, call.shape(0)?.to_vec());
    Some(())
}

pub(super) fn dequantize(call: &Call<'_>, out: &mut Out) -> Option<()> {
    let declared = call.int("output_dtype").filter(|&code| code != 0);
    let dtype = match declared {
        Some(_) => call.dtype_attribute("output_dtype"),
        None => call.dtype(1),
    };
    out.dtype(0, dtype);
    out.shape(0, call.shape(0)?.to_vec());
    Some(())
}

fn dynamic(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, Some(DType::U8));
    out.dtype(1, Some(DType::F32));
    out.dtype(2, Some(DType::U8));
    out.shape(1, Vec::new());
    out.shape(2, Vec::new());
    out.shape(0, call.shape(0)?.to_vec());
    Some(())
}
