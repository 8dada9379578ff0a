//! Variants for AVX-512 F, BW, DQ and VL. Tails are masked, so that short slices are vector work too.

use std::arch::x86_64::*;

use crate::{bools, magnitude};

/// f32 lanes of a register.
const LANES: usize = 16;

/// The lanes that `len` elements fill, all of them from [`LANES`] up.
fn lanes(len: usize) -> __mmask16 {
    u16::MAX
        .checked_shr(u32::try_from(LANES.saturating_sub(len)).unwrap_or(0))
        .unwrap_or(0)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn load(src: &[f32]) -> __m512 {
    // SAFETY: only as many lanes as `src` has elements are read; the load needs no alignment.
    unsafe { _mm512_maskz_loadu_ps(lanes(src.len()), src.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn store(dst: &mut [f32], value: __m512) {
    // SAFETY: only as many lanes as `dst` has elements are written; the store needs no alignment.
    unsafe { _mm512_mask_storeu_ps(dst.as_mut_ptr(), lanes(dst.len()), value) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn load_i8(src: &[i8]) -> __m512 {
    // SAFETY: only as many bytes as `src` has elements are read; the load needs no alignment.
    let levels = unsafe { _mm_maskz_loadu_epi8(lanes(src.len()), src.as_ptr()) };
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(levels))
}

/// Stores products as levels: NaN to 0, held to ±127, rounded to even.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn store_levels(dst: &mut [i8], products: __m512) {
    let number = _mm512_cmp_ps_mask::<_CMP_ORD_Q>(products, products);
    let held = _mm512_max_ps(
        _mm512_min_ps(products, _mm512_set1_ps(127.0)),
        _mm512_set1_ps(-127.0),
    );
    let levels = _mm512_cvtepi32_epi8(_mm512_maskz_cvtps_epi32(number, held));
    // SAFETY: only as many bytes as `dst` has elements are written; no alignment is needed.
    unsafe { _mm_mask_storeu_epi8(dst.as_mut_ptr(), lanes(dst.len()), levels) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn f32_to_f16(src: &[f32], dst: &mut [[u8; 2]]) {
    for (chunk, half) in src.chunks(LANES).zip(dst.chunks_mut(LANES)) {
        let value = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(load(chunk));
        // SAFETY: only as many halves as `half` has elements are written; no alignment is needed.
        unsafe { _mm256_mask_storeu_epi16(half.as_mut_ptr().cast(), lanes(half.len()), value) };
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn f16_to_f32(src: &[[u8; 2]], dst: &mut [f32]) {
    for (half, chunk) in src.chunks(LANES).zip(dst.chunks_mut(LANES)) {
        // SAFETY: only as many halves as `half` has elements are read; no alignment is needed.
        let value = unsafe { _mm256_maskz_loadu_epi16(lanes(half.len()), half.as_ptr().cast()) };
        store(chunk, _mm512_cvtph_ps(value));
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn magnitude(value: __m512) -> __m512i {
    let mask = _mm512_set1_epi32(i32::MAX);
    _mm512_and_si512(_mm512_castps_si512(value), mask)
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn abs_max(src: &[f32]) -> f32 {
    // Four chains, as one alone would wait for each maximum.
    let mut acc = [_mm512_setzero_si512(); 4];
    let (groups, rest) = src.as_chunks::<{ 4 * LANES }>();
    for group in groups {
        for (acc, chunk) in acc.iter_mut().zip(group.chunks_exact(LANES)) {
            *acc = _mm512_max_epu32(*acc, magnitude(load(chunk)));
        }
    }
    for (acc, chunk) in acc.iter_mut().zip(rest.chunks(LANES)) {
        *acc = _mm512_max_epu32(*acc, magnitude(load(chunk)));
    }
    let acc = _mm512_max_epu32(
        _mm512_max_epu32(acc[0], acc[1]),
        _mm512_max_epu32(acc[2], acc[3]),
    );
    f32::from_bits(_mm512_reduce_max_epu32(acc))
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn abs_max_each(src: &[f32], acc: &mut [f32]) {
    magnitude::reference::abs_max_each(src, acc);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn quantize_i8(src: &[f32], reciprocal: f32, dst: &mut [i8]) {
    let factor = _mm512_set1_ps(reciprocal);
    for (chunk, group) in src.chunks(LANES).zip(dst.chunks_mut(LANES)) {
        store_levels(group, _mm512_mul_ps(load(chunk), factor));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn quantize_i8_each(src: &[f32], reciprocals: &[f32], dst: &mut [i8]) {
    let factors = reciprocals.chunks(LANES);
    for ((chunk, factor), group) in src.chunks(LANES).zip(factors).zip(dst.chunks_mut(LANES)) {
        store_levels(group, _mm512_mul_ps(load(chunk), load(factor)));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn dequantize_i8(src: &[i8], scale: f32, dst: &mut [f32]) {
    let factor = _mm512_set1_ps(scale);
    for (group, chunk) in src.chunks(LANES).zip(dst.chunks_mut(LANES)) {
        store(chunk, _mm512_mul_ps(load_i8(group), factor));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn dequantize_i8_each(src: &[i8], scales: &[f32], dst: &mut [f32]) {
    let factors = scales.chunks(LANES);
    for ((group, factor), chunk) in src.chunks(LANES).zip(factors).zip(dst.chunks_mut(LANES)) {
        store(chunk, _mm512_mul_ps(load_i8(group), load(factor)));
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn pack_bools(src: &[u8], dst: &mut [u8]) {
    let (chunks, rest) = src.as_chunks::<64>();
    let whole = dst.len().min(chunks.len() * 8);
    let (bits, bits_rest) = dst.split_at_mut(whole);
    for (chunk, bits) in chunks.iter().zip(bits.as_chunks_mut::<8>().0) {
        // SAFETY: the array is as long as the register; the load needs no alignment.
        let bools = unsafe { _mm512_loadu_si512(chunk.as_ptr().cast()) };
        *bits = _mm512_test_epi8_mask(bools, bools).to_le_bytes();
    }
    bools::reference::pack_bools(rest, bits_rest);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn unpack_bools(src: &[u8], dst: &mut [u8]) {
    let (chunks, rest) = dst.as_chunks_mut::<64>();
    let whole = src.len().min(chunks.len() * 8);
    let (bits, bits_rest) = src.split_at(whole);
    for (chunk, bits) in chunks.iter_mut().zip(bits.as_chunks::<8>().0) {
        let bools = _mm512_maskz_set1_epi8(u64::from_le_bytes(*bits), 1);
        // SAFETY: the array is as long as the register; the store needs no alignment.
        unsafe { _mm512_storeu_si512(chunk.as_mut_ptr().cast(), bools) };
    }
    bools::reference::unpack_bools(bits_rest, rest);
}

integer_kernels!("avx512f,avx512bw,avx512dq,avx512vl");
