//! Between [`Tensor`] and ONNX Runtime's values.

use bytemuck::checked::try_cast_slice;
use ort::session::SessionInputValue;
use ort::value::{DynValue, TensorElementType, TensorRef, ValueType};
use seamline_plan::{DType, Dim, Tensor, TensorSpec, is_unnamed};

pub(crate) fn dtype_of(element: TensorElementType) -> Option<DType> {
    Some(match element {
        TensorElementType::Float32 => DType::F32,
        TensorElementType::Float64 => DType::F64,
        TensorElementType::Float16 => DType::F16,
        TensorElementType::Bfloat16 => DType::BF16,
        TensorElementType::Int8 => DType::I8,
        TensorElementType::Int16 => DType::I16,
        TensorElementType::Int32 => DType::I32,
        TensorElementType::Int64 => DType::I64,
        TensorElementType::Uint8 => DType::U8,
        TensorElementType::Uint16 => DType::U16,
        TensorElementType::Uint32 => DType::U32,
        TensorElementType::Uint64 => DType::U64,
        TensorElementType::Bool => DType::Bool,
        _ => return None,
    })
}

/// The spec of a session's input or output; an error text where it is no tensor that Seamline
/// carries.
pub(crate) fn spec_of(name: &str, value_type: &ValueType) -> Result<TensorSpec, String> {
    let ValueType::Tensor {
        ty,
        shape,
        dimension_symbols,
    } = value_type
    else {
        return Err(format!(
            "`{name}` is {value_type}; only tensors can be passed"
        ));
    };
    let dtype = dtype_of(*ty).ok_or_else(|| format!("`{name}` has element type {ty}"))?;
    let dims = shape
        .iter()
        .enumerate()
        .map(|(axis, &dim)| match u64::try_from(dim) {
            Ok(size) => Dim::Fixed(size),
            Err(_) => match dimension_symbols.get(axis) {
                Some(symbol) if !is_unnamed(symbol) => Dim::Sym(symbol.clone()),
                _ => Dim::Unknown,
            },
        });
    Ok(TensorSpec {
        name: name.to_owned(),
        dtype,
        shape: dims.collect(),
    })
}

macro_rules! for_dtype {
    ($dtype:expr, $element:ident => $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $element = f32;
                $body
            }
            DType::F64 => {
                type $element = f64;
                $body
            }
            DType::F16 => {
                type $element = half::f16;
                $body
            }
            DType::BF16 => {
                type $element = half::bf16;
                $body
            }
            DType::I8 => {
                type $element = i8;
                $body
            }
            DType::I16 => {
                type $element = i16;
                $body
            }
            DType::I32 => {
                type $element = i32;
                $body
            }
            DType::I64 => {
                type $element = i64;
                $body
            }
            DType::U8 => {
                type $element = u8;
                $body
            }
            DType::U16 => {
                type $element = u16;
                $body
            }
            DType::U32 => {
                type $element = u32;
                $body
            }
            DType::U64 => {
                type $element = u64;
                $body
            }
            DType::Bool => {
                type $element = bool;
                $body
            }
        }
    };
}

/// `tensor` as an input; its bytes are borrowed, not copied.
pub(crate) fn to_input(tensor: &Tensor) -> Result<SessionInputValue<'_>, String> {
    for_dtype!(tensor.dtype(), Element => {
        let elements: &[Element] = try_cast_slice(tensor.bytes()).map_err(|error| error.to_string())?;
        TensorRef::from_array_view((tensor.shape(), elements))
            .map(SessionInputValue::from)
            .map_err(|error| error.to_string())
    })
}

/// A tensor with a copy of `value`'s elements, which ONNX Runtime frees with the run.
pub(crate) fn from_output(value: &DynValue) -> Result<Tensor, String> {
    let ValueType::Tensor { ty, .. } = value.dtype() else {
        return Err(format!(
            "it is {}; only tensors can be passed",
            value.dtype()
        ));
    };
    let dtype = dtype_of(*ty).ok_or_else(|| format!("it has element type {ty}"))?;
    if dtype == DType::Bool {
        let (shape, elements) = value
            .try_extract_tensor::<bool>()
            .map_err(|error| error.to_string())?;
        return Tensor::from_bools(usize_shape(shape), elements).map_err(|error| error.to_string());
    }
    macro_rules! copy {
        ($element:ty) => {{
            let (shape, elements) = value
                .try_extract_tensor::<$element>()
                .map_err(|error| error.to_string())?;
            Tensor::from_vec(usize_shape(shape), elements.to_vec())
                .map_err(|error| error.to_string())
        }};
    }
    match dtype {
        DType::F32 => copy!(f32),
        DType::F64 => copy!(f64),
        DType::F16 => copy!(half::f16),
        DType::BF16 => copy!(half::bf16),
        DType::I8 => copy!(i8),
        DType::I16 => copy!(i16),
        DType::I32 => copy!(i32),
        DType::I64 => copy!(i64),
        DType::U8 | DType::Bool => copy!(u8),
        DType::U16 => copy!(u16),
        DType::U32 => copy!(u32),
        DType::U64 => copy!(u64),
    }
}

fn usize_shape(shape: &[i64]) -> Vec<usize> {
    // A value that exists has no negative dimension.
    shape
        .iter()
        .map(|&dim| usize::try_from(dim).unwrap_or(0))
        .collect()
}
