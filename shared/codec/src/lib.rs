//! Activations to bytes and back, by codec spec.
//!
//! # Byte layout
//!
//! Everything is little-endian, row-major, without padding or alignment. dtype, shape and codec are
//! not in the payload: both sides know them. A tensor of `n` elements with `n = 0` has an empty
//! payload in every codec.
//!
//! | codec | dtypes | payload |
//! |---|---|---|
//! | `raw` | all | the elements as they are; a boolean is one byte, 0 or 1 |
//! | `f16` | f32 | `n` × IEEE 754 binary16, rounded to nearest even, beyond ±65,504 (from 65,520) ±∞; NaN stays NaN |
//! | `int8` | f32 | `C` × f32 scale, one a channel of the axis, then `n` × i8 level in the tensor's own order |
//! | `packed` | integers | base (8 bytes), width `w` (1 byte: 0, 1, 2, 4 or 8), then `n` × unsigned offset of `w` bytes |
//! | `packed` | bool | ⌈`n` / 8⌉ bytes, element `i` in bit `i mod 8` of byte `i / 8`; the bits after the last are 0 |
//! | `png`, `jpeg`, `webp` | u8 \[N, H, W, C\] | for each picture the length of its file (u32) and the file; `C` is 1 or 3, for `webp` 3 |
//! | `zstd` | all | one Zstandard frame of the elements' bytes: all first bytes, then all second ones, … |
//!
//! **int8.** An element is `level × scale`, one f32 multiplication, with the scale of its index
//! along the axis. Levels lie in −127..=127; a scale is finite, not negative and not −0, and at
//! most the f32 0x7C010203, about 2.679e36 (so that every element is finite). The encoder takes
//! `scale = max|x| / 127`, not below the smallest normal f32, or 0 for a channel of zeros, and
//! `level = x × (1 / scale)` rounded to nearest even. A tensor with NaN or infinity is refused.
//!
//! **packed.** The base is the smallest element, sign-extended (signed dtypes) or zero-extended to
//! 8 bytes; an element is base + offset. `w` is the smallest of 0, 1, 2, 4, 8 that holds the
//! largest offset, and at most the size of the dtype; with 0 all elements equal the base. A
//! decoder checks that base and all sums lie in the dtype.
//!
//! **png, jpeg, webp.** A file holds one picture of `H` × `W` pixels and `C` channels of 8 bits: a
//! PNG of colour type 0 or 2 that is neither interlaced nor animated; a baseline JPEG with all
//! components in one scan; a WebP in the simple lossy form, without metadata. Nothing follows its end. A file has at
//! most `r + r/64 + 1024` bytes, `r = H × (W × C + 1)`: where noise makes a lossy one longer, the
//! encoder lowers the quality in steps of 10.
//!
//! **zstd.** The frame states its content's size, and needs no dictionary.
//!
//! A payload of the first four has exactly the length that its codec, dtype and shape (and width)
//! give; that of the others lies between [`min_encoded_len`] and [`max_encoded_len`].
//!
//! # Costs
//!
//! [`encode`] appends to the caller's buffer and [`decode_into`] writes to the caller's slice: no
//! allocation when buffers are reused, of the first four codecs. Both take bytes at any address;
//! where f32 or integers are not aligned they go through a small block on the stack. Compressed
//! payloads need working memory, whatever they hold: `zstd` as much as the tensor, pictures at most
//! twice one picture and 160 KiB.

#![forbid(unsafe_code)]

mod blocks;
mod error;
mod int8;
mod length;
mod packed;
mod picture;
mod shuffled;

use bytes::Bytes;
use seamline_kernels as kernels;
use seamline_plan::{CodecSpec, DType, Tensor};

pub use error::{CodecError, CodecErrorKind};
pub use length::{expected_len, max_encoded_len, min_encoded_len};

/// Whether this program can encode by `spec`: all but `webp` where the feature `webp` is off.
/// Decoding needs no feature.
pub const fn can_encode(spec: &CodecSpec) -> bool {
    picture::CAN_ENCODE_WEBP || !matches!(spec, CodecSpec::Webp { .. })
}

/// Appends the payload of `tensor` to `out`, which is left as it was on an error.
///
/// # Errors
/// [`CodecError::DType`], [`CodecError::Axis`], [`CodecError::Shape`] and [`CodecError::Quality`]
/// where the codec does not fit the tensor, [`CodecError::NonFinite`] where `int8` meets NaN or
/// infinity, [`CodecError::Boolean`] where a boolean is neither 0 nor 1, [`CodecError::Encode`]
/// where a picture is too large for its format or the encoder is absent, [`CodecError::OutOfMemory`].
pub fn encode(spec: &CodecSpec, tensor: &Tensor, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let start = out.len();
    let mut limit = length::max_bytes(spec, tensor.dtype(), tensor.shape())?;
    if spec.is_picture() {
        // Of many small pictures the bound is far above what they take.
        limit = limit.min(tensor.bytes().len());
    }
    out.try_reserve(limit)
        .map_err(|_| error::out_of_memory(tensor.dtype(), tensor.shape()))?;
    let result = append(spec, tensor, out);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

fn append(spec: &CodecSpec, tensor: &Tensor, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let src: &[u8] = tensor.bytes();
    match spec {
        CodecSpec::Raw => {
            check_booleans(tensor.dtype(), src)?;
            out.extend_from_slice(src);
        }
        CodecSpec::F16 => {
            let start = out.len();
            out.resize(start + src.len() / 2, 0);
            let (halves, _) = out[start..].as_chunks_mut::<2>();
            blocks::read::<f32>(src, |at, singles| {
                kernels::f32_to_f16(singles, &mut halves[at..at + singles.len()]);
            });
        }
        CodecSpec::Int8 { axis } => int8::encode(tensor.shape(), *axis, src, out)?,
        CodecSpec::Packed if tensor.dtype() == DType::Bool => {
            check_booleans(DType::Bool, src)?;
            packed::encode_bools(src, out);
        }
        CodecSpec::Packed => packed::encode(tensor.dtype(), src, out),
        CodecSpec::Png | CodecSpec::Jpeg { .. } | CodecSpec::Webp { .. } => {
            let (_, size) = picture::pictures(tensor.shape())
                .ok_or_else(|| error::overflow(spec, tensor.dtype(), tensor.shape()))?;
            picture::encode(spec, size, src, out)?;
        }
        CodecSpec::Zstd => {
            check_booleans(tensor.dtype(), src)?;
            shuffled::encode(tensor.dtype().size(), src, out)
                .map_err(|problem| error::encoding(spec, problem))?;
        }
    }
    Ok(())
}

/// The payload of `tensor`. For `raw` it is the tensor's own bytes, shared, not copied.
///
/// # Errors
/// As [`encode`].
pub fn encode_bytes(spec: &CodecSpec, tensor: &Tensor) -> Result<Bytes, CodecError> {
    if matches!(spec, CodecSpec::Raw) {
        check_booleans(tensor.dtype(), tensor.bytes())?;
        return Ok(tensor.bytes().clone());
    }
    let mut out = Vec::new();
    encode(spec, tensor, &mut out)?;
    Ok(Bytes::from(out))
}

/// The tensor of `dtype` and `shape` that `payload` holds.
///
/// Nothing is allocated before the payload's length is checked, and what a compressed one states of
/// its content; then only the tensor, and working memory (see the crate's Costs). A `packed` or
/// `zstd` payload of a few bytes can stand for a tensor of any size: check the shape against a limit
/// first.
///
/// # Errors
/// As [`decode_into`], and [`CodecError::OutOfMemory`].
pub fn decode(
    spec: &CodecSpec,
    dtype: DType,
    shape: &[usize],
    payload: &[u8],
) -> Result<Tensor, CodecError> {
    let len = length::tensor_bytes(spec, dtype, shape)?;
    length::check_payload(spec, dtype, shape, payload)?;
    let out_of_memory = |_| error::out_of_memory(dtype, shape);
    // Words, so that the tensor is aligned for every dtype.
    let mut words: Vec<u64> = Vec::new();
    words
        .try_reserve_exact(len.div_ceil(8))
        .map_err(out_of_memory)?;
    words.resize(len.div_ceil(8), 0);
    decode_into(
        spec,
        dtype,
        shape,
        payload,
        &mut bytemuck::cast_slice_mut(&mut words)[..len],
    )?;
    let overflow = |_| error::overflow(spec, dtype, shape);
    let words = Tensor::from_vec(vec![words.len()], words).map_err(overflow)?;
    Tensor::new(dtype, shape.to_vec(), words.bytes().slice(..len)).map_err(overflow)
}

/// As [`decode`]; a `raw` payload becomes the tensor's bytes without a copy (they may then be
/// unaligned: see [`Tensor::aligned`]).
///
/// # Errors
/// As [`decode`].
pub fn decode_bytes(
    spec: &CodecSpec,
    dtype: DType,
    shape: &[usize],
    payload: Bytes,
) -> Result<Tensor, CodecError> {
    if !matches!(spec, CodecSpec::Raw) {
        return decode(spec, dtype, shape, &payload);
    }
    length::check_payload(spec, dtype, shape, &payload)?;
    check_booleans(dtype, &payload)?;
    Tensor::new(dtype, shape.to_vec(), payload).map_err(|_| error::overflow(spec, dtype, shape))
}

/// Decodes `payload` into `dst`: exactly the bytes of a tensor of `dtype` and `shape`,
/// little-endian, at any address; a range of rows of a batch, for instance. The qualities of `jpeg`
/// and `webp` make no difference.
///
/// # Errors
/// - [`CodecError::DType`], [`CodecError::Axis`], [`CodecError::Shape`], [`CodecError::Quality`],
///   [`CodecError::Overflow`] where codec, dtype and shape do not fit each other;
/// - [`CodecError::Destination`] where `dst` has another length;
/// - [`CodecError::Length`], [`CodecError::LengthRange`], [`CodecError::Picture`],
///   [`CodecError::Zstd`], [`CodecError::Scale`], [`CodecError::Level`], [`CodecError::Width`],
///   [`CodecError::Range`], [`CodecError::Padding`], [`CodecError::Boolean`] where the payload is
///   not one that the codec gives. What `dst` then holds is not specified.
pub fn decode_into(
    spec: &CodecSpec,
    dtype: DType,
    shape: &[usize],
    payload: &[u8],
    dst: &mut [u8],
) -> Result<(), CodecError> {
    let expected = length::tensor_bytes(spec, dtype, shape)?;
    if dst.len() != expected {
        return Err(error::destination(dtype, shape, expected, dst.len()));
    }
    length::check_payload(spec, dtype, shape, payload)?;
    match spec {
        CodecSpec::Raw => {
            check_booleans(dtype, payload)?;
            dst.copy_from_slice(payload);
            Ok(())
        }
        CodecSpec::F16 => {
            let (halves, _) = payload.as_chunks::<2>();
            blocks::write::<f32>(dst, |at, singles| {
                kernels::f16_to_f32(&halves[at..at + singles.len()], singles);
            });
            Ok(())
        }
        CodecSpec::Int8 { axis } => int8::decode(shape, *axis, payload, dst),
        CodecSpec::Packed if dtype == DType::Bool => packed::decode_bools(payload, dst),
        CodecSpec::Packed => packed::decode(dtype, payload, dst),
        CodecSpec::Png | CodecSpec::Jpeg { .. } | CodecSpec::Webp { .. } => {
            let (_, size) =
                picture::pictures(shape).ok_or_else(|| error::overflow(spec, dtype, shape))?;
            picture::decode(spec, size, payload, dst)
        }
        CodecSpec::Zstd => {
            shuffled::decode(dtype.size(), payload, dst)
                .map_err(|problem| CodecError::Zstd { problem })?;
            check_booleans(dtype, dst)
        }
    }
}

/// Booleans are 0 or 1, as runtimes take other bytes for undefined behaviour.
fn check_booleans(dtype: DType, bytes: &[u8]) -> Result<(), CodecError> {
    if dtype != DType::Bool || kernels::min_max_u8(bytes).is_none_or(|(_, max)| max <= 1) {
        return Ok(());
    }
    let element = bytes.iter().position(|&byte| byte > 1).unwrap_or(0);
    let value = bytes.get(element).copied().unwrap_or(0);
    Err(CodecError::Boolean { element, value })
}
