//! Integers in as few bytes each as their range needs, booleans as bits.

use bytemuck::Pod;
use seamline_kernels as kernels;
use seamline_plan::DType;

use crate::blocks;
use crate::error::CodecError;

/// Bytes before the offsets: base and width.
pub(crate) const HEADER: usize = 9;

/// Appends the payload of the integers `src`.
pub(crate) fn encode(dtype: DType, src: &[u8], out: &mut Vec<u8>) {
    match dtype {
        DType::I8 => encode_as::<i8>(src, out),
        DType::I16 => encode_as::<i16>(src, out),
        DType::I32 => encode_as::<i32>(src, out),
        DType::I64 => encode_as::<i64>(src, out),
        DType::U8 => encode_as::<u8>(src, out),
        DType::U16 => encode_as::<u16>(src, out),
        DType::U32 => encode_as::<u32>(src, out),
        DType::U64 => encode_as::<u64>(src, out),
        // Not accepted by the codec: checked by the caller.
        DType::F32 | DType::F64 | DType::F16 | DType::BF16 | DType::Bool => {}
    }
}

/// Decodes a payload whose length is checked into `dst`.
pub(crate) fn decode(dtype: DType, payload: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    match dtype {
        DType::I8 => decode_as::<i8>(dtype, payload, dst),
        DType::I16 => decode_as::<i16>(dtype, payload, dst),
        DType::I32 => decode_as::<i32>(dtype, payload, dst),
        DType::I64 => decode_as::<i64>(dtype, payload, dst),
        DType::U8 => decode_as::<u8>(dtype, payload, dst),
        DType::U16 => decode_as::<u16>(dtype, payload, dst),
        DType::U32 => decode_as::<u32>(dtype, payload, dst),
        DType::U64 => decode_as::<u64>(dtype, payload, dst),
        // Not accepted by the codec: checked by the caller.
        DType::F32 | DType::F64 | DType::F16 | DType::BF16 | DType::Bool => Ok(()),
    }
}

/// The length that the payload's own header gives to a payload of `count` elements.
pub(crate) fn payload_len(dtype: DType, count: usize, payload: &[u8]) -> Result<u64, CodecError> {
    let Some(&width) = payload.get(HEADER - 1) else {
        return Ok(HEADER as u64);
    };
    let most = dtype.size();
    if !matches!(width, 0 | 1 | 2 | 4 | 8) || usize::from(width) > most {
        return Err(CodecError::Width {
            dtype,
            most,
            got: width,
        });
    }
    // At most the tensor's own bytes, which are counted already, and a header.
    let offsets = (count as u64).saturating_mul(u64::from(width));
    Ok(offsets.saturating_add(HEADER as u64))
}

/// The smallest width in bytes for offsets up to `largest`.
fn width_for(largest: u64) -> u8 {
    match largest {
        0 => 0,
        1..=0xff => 1,
        0x100..=0xffff => 2,
        0x1_0000..=0xffff_ffff => 4,
        _ => 8,
    }
}

/// An integer dtype, and the unsigned type of its size that its offsets are computed in.
trait Integer: Pod + Ord + Into<i128> + TryFrom<i128> {
    type Unsigned: Pod;
    fn min_max(src: &[Self]) -> Option<(Self, Self)>;
    fn narrow(src: &[Self::Unsigned], base: Self, width: u8, dst: &mut [u8]);
    /// Gives the largest offset.
    fn widen(src: &[u8], base: Self, width: u8, dst: &mut [Self::Unsigned]) -> u64;
}

macro_rules! integers {
    ($($int:ident as $unsigned:ident, $min_max:ident: $($width:literal $narrow:ident $widen:ident),+;)*) => {$(
        impl Integer for $int {
            type Unsigned = $unsigned;

            fn min_max(src: &[Self]) -> Option<(Self, Self)> {
                kernels::$min_max(src)
            }

            fn narrow(src: &[$unsigned], base: Self, width: u8, dst: &mut [u8]) {
                let base: $unsigned = bytemuck::cast(base);
                match width {
                    $($width => kernels::$narrow(src, base, dst.as_chunks_mut().0),)+
                    _ => {}
                }
            }

            fn widen(src: &[u8], base: Self, width: u8, dst: &mut [$unsigned]) -> u64 {
                let base: $unsigned = bytemuck::cast(base);
                match width {
                    $($width => kernels::$widen(src.as_chunks().0, base, dst),)+
                    _ => {
                        dst.fill(base);
                        0
                    }
                }
            }
        }
    )*};
}

integers! {
    i8 as u8, min_max_i8: 1 narrow_u8_to_1 widen_1_to_u8;
    u8 as u8, min_max_u8: 1 narrow_u8_to_1 widen_1_to_u8;
    i16 as u16, min_max_i16:
        1 narrow_u16_to_1 widen_1_to_u16, 2 narrow_u16_to_2 widen_2_to_u16;
    u16 as u16, min_max_u16:
        1 narrow_u16_to_1 widen_1_to_u16, 2 narrow_u16_to_2 widen_2_to_u16;
    i32 as u32, min_max_i32:
        1 narrow_u32_to_1 widen_1_to_u32, 2 narrow_u32_to_2 widen_2_to_u32,
        4 narrow_u32_to_4 widen_4_to_u32;
    u32 as u32, min_max_u32:
        1 narrow_u32_to_1 widen_1_to_u32, 2 narrow_u32_to_2 widen_2_to_u32,
        4 narrow_u32_to_4 widen_4_to_u32;
    i64 as u64, min_max_i64:
        1 narrow_u64_to_1 widen_1_to_u64, 2 narrow_u64_to_2 widen_2_to_u64,
        4 narrow_u64_to_4 widen_4_to_u64, 8 narrow_u64_to_8 widen_8_to_u64;
    u64 as u64, min_max_u64:
        1 narrow_u64_to_1 widen_1_to_u64, 2 narrow_u64_to_2 widen_2_to_u64,
        4 narrow_u64_to_4 widen_4_to_u64, 8 narrow_u64_to_8 widen_8_to_u64;
}

fn encode_as<T: Integer>(src: &[u8], out: &mut Vec<u8>) {
    let mut range: Option<(T, T)> = None;
    blocks::read::<T>(src, |_, elements| {
        range = match (range, T::min_max(elements)) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    });
    let Some((min, max)) = range else {
        return;
    };
    let (low, high): (i128, i128) = (min.into(), max.into());
    // The difference of two 64-bit integers, which u64 holds.
    let width = width_for(u64::try_from(high - low).unwrap_or(u64::MAX));
    // The low eight bytes of the two's complement: sign- or zero-extended.
    let base = low.to_le_bytes();
    out.extend_from_slice(&base[..HEADER - 1]);
    out.push(width);
    let start = out.len();
    let bytes = usize::from(width);
    out.resize(start + src.len() / std::mem::size_of::<T>() * bytes, 0);
    let offsets = &mut out[start..];
    blocks::read::<T::Unsigned>(src, |at, elements| {
        let end = at + elements.len();
        T::narrow(elements, min, width, &mut offsets[at * bytes..end * bytes]);
    });
}

fn decode_as<T: Integer>(dtype: DType, payload: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    // An empty tensor has an empty payload.
    let Some((header, offsets)) = payload.split_first_chunk::<HEADER>() else {
        return Ok(());
    };
    let [base @ .., width] = *header;
    let bits = u64::from_le_bytes(base);
    let signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    let base = if signed {
        i128::from(bits.cast_signed())
    } else {
        i128::from(bits)
    };
    let out_of_range = |offset| CodecError::Range {
        dtype,
        base,
        offset,
    };
    let first = T::try_from(base).map_err(|_| out_of_range(0))?;
    let bytes = usize::from(width);
    let mut largest = 0;
    blocks::write::<T::Unsigned>(dst, |at, elements| {
        let end = at + elements.len();
        let offsets = &offsets[at * bytes..end * bytes];
        largest = largest.max(T::widen(offsets, first, width, elements));
    });
    match T::try_from(base + i128::from(largest)) {
        Ok(_) => Ok(()),
        Err(_) => Err(out_of_range(largest)),
    }
}

/// Appends the payload of booleans, a byte each.
pub(crate) fn encode_bools(src: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + src.len().div_ceil(8), 0);
    kernels::pack_bools(src, &mut out[start..]);
}

/// Decodes booleans from a payload whose length is checked into `dst`, a byte each.
pub(crate) fn decode_bools(payload: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    let used = dst.len() % 8;
    if let Some(&got) = payload.last()
        && used != 0
        && got >> used != 0
    {
        return Err(CodecError::Padding { used, got });
    }
    kernels::unpack_bools(payload, dst);
    Ok(())
}
