//! How long payloads are, known before anything is allocated.

use seamline_plan::{CodecSpec, DType, Tensor};

use crate::error::{self, CodecError};
use crate::packed;

/// The exact payload length in bytes, where codec, dtype and shape alone give it: all but `packed`
/// integers, whose width depends on the values (an empty tensor has 0 all the same). `None` also
/// where [`max_encoded_len`] is.
pub fn expected_len<D: Copy + TryInto<u64>>(
    spec: &CodecSpec,
    dtype: DType,
    shape: &[D],
) -> Option<u64> {
    let length = encoded_len(spec, dtype, shape)?;
    length.exact.then_some(length.most)
}

/// The largest payload length in bytes that a tensor of `dtype` and `shape` can have. `None` where
/// the codec does not take the dtype or has no such axis, or where tensor or payload pass 2^64
/// bytes. `shape` is of `usize`, or of `u64` as it came from a peer.
pub fn max_encoded_len<D: Copy + TryInto<u64>>(
    spec: &CodecSpec,
    dtype: DType,
    shape: &[D],
) -> Option<u64> {
    encoded_len(spec, dtype, shape).map(|length| length.most)
}

/// The least payload length in bytes that a tensor of `dtype` and `shape` can have; `None` where
/// [`max_encoded_len`] is.
pub fn min_encoded_len<D: Copy + TryInto<u64>>(
    spec: &CodecSpec,
    dtype: DType,
    shape: &[D],
) -> Option<u64> {
    let length = encoded_len(spec, dtype, shape)?;
    // Integers that are all equal need no offsets.
    Some(if length.exact {
        length.most
    } else {
        packed::HEADER as u64
    })
}

struct EncodedLen {
    most: u64,
    exact: bool,
}

fn encoded_len<D: Copy + TryInto<u64>>(
    spec: &CodecSpec,
    dtype: DType,
    shape: &[D],
) -> Option<EncodedLen> {
    let dim = |dim: D| dim.try_into().ok();
    let mut count = 1u64;
    let mut empty = false;
    for &size in shape {
        let size = dim(size)?;
        empty |= size == 0;
        // A zero anywhere makes the tensor empty, even where the other dimensions overflow.
        count = if empty { 0 } else { count.checked_mul(size)? };
    }
    let bytes = count.checked_mul(u64::try_from(dtype.size()).ok()?)?;
    if !spec.accepts(dtype) {
        return None;
    }
    let (most, exact) = match spec {
        CodecSpec::Raw => (bytes, true),
        CodecSpec::F16 => (bytes / 2, true),
        CodecSpec::Int8 { axis } => {
            let channels = dim(*shape.get(*axis)?)?;
            let channels = if empty { 0 } else { channels };
            (channels.checked_mul(4)?.checked_add(count)?, true)
        }
        CodecSpec::Packed if dtype == DType::Bool => (count.div_ceil(8), true),
        CodecSpec::Packed if empty => (0, true),
        CodecSpec::Packed => (bytes.checked_add(packed::HEADER as u64)?, false),
    };
    Some(EncodedLen { most, exact })
}

/// Bytes of the tensor, once codec, dtype and shape fit each other.
pub(crate) fn tensor_bytes(
    spec: &CodecSpec,
    dtype: DType,
    shape: &[usize],
) -> Result<usize, CodecError> {
    if !spec.accepts(dtype) {
        let codec = spec.clone();
        return Err(CodecError::DType { codec, got: dtype });
    }
    if let CodecSpec::Int8 { axis } = *spec
        && axis >= shape.len()
    {
        let shape = shape.to_vec();
        return Err(CodecError::Axis { axis, shape });
    }
    Tensor::byte_len(dtype, shape).ok_or_else(|| error::overflow(spec, dtype, shape))
}

/// [`max_encoded_len`] as a size in memory.
pub(crate) fn max_bytes(
    spec: &CodecSpec,
    dtype: DType,
    shape: &[usize],
) -> Result<usize, CodecError> {
    tensor_bytes(spec, dtype, shape)?;
    max_encoded_len(spec, dtype, shape)
        .and_then(|len| usize::try_from(len).ok())
        .ok_or_else(|| error::overflow(spec, dtype, shape))
}

/// Checks the payload's length, and what its header says of it.
pub(crate) fn check_payload(
    spec: &CodecSpec,
    dtype: DType,
    shape: &[usize],
    payload: &[u8],
) -> Result<(), CodecError> {
    let bytes = tensor_bytes(spec, dtype, shape)?;
    let length = encoded_len(spec, dtype, shape);
    let length = length.ok_or_else(|| error::overflow(spec, dtype, shape))?;
    let expected = if length.exact {
        length.most
    } else {
        packed::payload_len(dtype, bytes / dtype.size(), payload)?
    };
    let got = payload.len() as u64;
    if got == expected {
        return Ok(());
    }
    Err(CodecError::Length {
        codec: spec.clone(),
        dtype,
        shape: shape.to_vec(),
        expected,
        got,
    })
}
