//! How long payloads are, known before anything is allocated.

use seamline_plan::{CodecSpec, DType, Tensor};

use crate::error::{self, CodecError};
use crate::{packed, picture, shuffled};

/// The exact payload length in bytes, where codec, dtype and shape alone give it: not for `packed`
/// integers, whose width depends on the values, nor for compressed ones (an empty tensor has 0 all
/// the same). `None` also where [`max_encoded_len`] is.
pub fn expected_len<D: Copy + TryInto<u64>>(
    spec: &CodecSpec,
    dtype: DType,
    shape: &[D],
) -> Option<u64> {
    let length = encoded_len(spec, dtype, shape)?;
    (length.least == length.most).then_some(length.most)
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
    encoded_len(spec, dtype, shape).map(|length| length.least)
}

struct EncodedLen {
    least: u64,
    most: u64,
}

impl EncodedLen {
    fn exactly(length: u64) -> EncodedLen {
        EncodedLen {
            least: length,
            most: length,
        }
    }
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
    let last = shape.last().copied().and_then(dim);
    if !spec.accepts(dtype) || !spec.takes_shape(shape.len(), last) {
        return None;
    }
    Some(match spec {
        CodecSpec::Raw => EncodedLen::exactly(bytes),
        CodecSpec::F16 => EncodedLen::exactly(bytes / 2),
        CodecSpec::Int8 { axis } => {
            let channels = dim(*shape.get(*axis)?)?;
            let channels = if empty { 0 } else { channels };
            EncodedLen::exactly(channels.checked_mul(4)?.checked_add(count)?)
        }
        CodecSpec::Packed if dtype == DType::Bool => EncodedLen::exactly(count.div_ceil(8)),
        _ if empty => EncodedLen::exactly(0),
        CodecSpec::Packed => EncodedLen {
            // Integers that are all equal need no offsets.
            least: packed::HEADER as u64,
            most: bytes.checked_add(packed::HEADER as u64)?,
        },
        CodecSpec::Png | CodecSpec::Jpeg { .. } | CodecSpec::Webp { .. } => {
            let (count, size) = picture::pictures(shape)?;
            let (least, most) = picture::payload_range(count, size)?;
            EncodedLen { least, most }
        }
        CodecSpec::Zstd => EncodedLen {
            least: shuffled::LEAST,
            most: shuffled::most(bytes)?,
        },
    })
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
    if let Some(quality) = spec.bad_quality() {
        let codec = spec.clone();
        return Err(CodecError::Quality { codec, quality });
    }
    let last = shape.last().and_then(|&last| last.try_into().ok());
    if !spec.takes_shape(shape.len(), last) {
        let (codec, shape) = (spec.clone(), shape.to_vec());
        return Err(CodecError::Shape { codec, shape });
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
    let got = payload.len() as u64;
    let EncodedLen { least, most } = length;
    let expected = match spec {
        CodecSpec::Packed if least < most => {
            packed::payload_len(dtype, bytes / dtype.size(), payload)?
        }
        _ if least == most => most,
        _ if (least..=most).contains(&got) => return check_content(spec, bytes, shape, payload),
        _ => {
            return Err(CodecError::LengthRange {
                codec: spec.clone(),
                dtype,
                shape: shape.to_vec(),
                least,
                most,
                got,
            });
        }
    };
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

/// Checks that a compressed payload stands for the tensor's bytes, and for no more.
fn check_content(
    spec: &CodecSpec,
    bytes: usize,
    shape: &[usize],
    payload: &[u8],
) -> Result<(), CodecError> {
    match picture::pictures(shape) {
        Some((count, size)) if spec.is_picture() => picture::check(spec, count, size, payload),
        _ => shuffled::check(bytes as u64, payload),
    }
}
