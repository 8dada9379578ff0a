//! Facts about tensors that the file holds.

use seamline_plan::{DType, Dim};

use super::known::{Elem, Fact, Known, MAX_ELEMENTS};
use crate::Initializer;
use crate::proto::TensorProto;

/// The fact about a weight; small ones are followed by value.
pub(super) fn fact_of(weight: &Initializer) -> Fact {
    let shape = weight
        .dims()
        .ok()
        .map(|dims| dims.into_iter().map(Dim::Fixed).collect());
    Fact {
        dtype: weight.dtype(),
        shape,
        known: known(weight),
    }
}

/// The fact about a tensor that an attribute holds.
pub(super) fn fact_of_tensor(tensor: &TensorProto) -> Fact {
    let count = tensor
        .dims
        .iter()
        .try_fold(1i64, |count, &dim| count.checked_mul(dim));
    if count.is_some_and(|count| count.unsigned_abs() <= MAX_ELEMENTS as u64) {
        return fact_of(&Initializer::from(tensor.clone()));
    }
    let dims = tensor.dims.iter().map(|&dim| Elem::Int(dim).to_dim());
    Fact {
        dtype: DType::from_code(tensor.data_type()),
        shape: Some(dims.collect()),
        known: None,
    }
}

fn known(weight: &Initializer) -> Option<Known> {
    if weight.elements().ok()? > MAX_ELEMENTS as u64 {
        return None;
    }
    let dims = weight
        .dims()
        .ok()?
        .into_iter()
        .map(|dim| usize::try_from(dim).ok())
        .collect::<Option<Vec<usize>>>()?;
    let elems = match weight.dtype()? {
        DType::F64 => return None,
        dtype if dtype.is_float() => weight
            .to_f32s()
            .ok()?
            .into_iter()
            .map(|value| Elem::Float(f64::from(value)))
            .collect(),
        _ => weight.to_i64s().ok()?.into_iter().map(Elem::Int).collect(),
    };
    Known::new(dims, elems)
}
