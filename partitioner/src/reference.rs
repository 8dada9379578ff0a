//! Sizes for the symbols of a model's inputs, where numbers are needed.

use seamline_graph::Graph;
use seamline_graph::infer::{input_symbol, is_unnamed};
use seamline_plan::{Bindings, DType, Dim};

use crate::model::ModelError;

/// A size for every symbol of the inputs: what the user gave, or one that is usual at its place.
///
/// # Errors
/// [`ModelError::UnknownSymbol`].
pub(crate) fn reference_bindings(
    graph: &Graph,
    batch: Option<&str>,
    shapes: &Bindings,
) -> Result<Bindings, ModelError> {
    let mut reference = Bindings::new();
    for &id in &graph.inputs {
        let value = graph.value(id);
        let dims = value.shape.as_deref().unwrap_or_default();
        for (axis, dim) in dims.iter().enumerate() {
            let symbol = match dim {
                Dim::Sym(symbol) if !is_unnamed(symbol) => symbol.clone(),
                Dim::Sym(_) | Dim::Unknown => input_symbol(&value.name, axis),
                Dim::Fixed(_) => continue,
            };
            let usual = usual_size(value.dtype, dims.len(), axis);
            let size = if batch == Some(symbol.as_str()) {
                1
            } else {
                usual
            };
            reference.entry(symbol).or_insert(size);
        }
    }
    for (symbol, &size) in shapes {
        match reference.get_mut(symbol) {
            Some(slot) => *slot = size,
            None => {
                return Err(ModelError::UnknownSymbol {
                    symbol: symbol.clone(),
                    size,
                    known: reference.into_keys().collect(),
                });
            }
        }
    }
    Ok(reference)
}

/// A size that occurs in practice: pictures of 224 × 224, 32 tokens, one row.
fn usual_size(dtype: Option<DType>, rank: usize, axis: usize) -> u64 {
    const PICTURE: u64 = 224;
    const LENGTH: u64 = 32;
    let channels_last = dtype == Some(DType::U8);
    match (rank, axis) {
        (_, 0) => 1,
        (4, 1 | 2) if channels_last => PICTURE,
        (4, 2 | 3) if !channels_last => PICTURE,
        (4, _) => 3,
        _ => LENGTH,
    }
}
