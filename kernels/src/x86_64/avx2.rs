//! Variants for AVX2 and F16C.

use std::arch::x86_64::*;

use crate::{bools, half_precision, int8, magnitude};

/// f32 lanes of a register.
const LANES: usize = 8;

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load(src: &[f32; LANES]) -> __m256 {
    // SAFETY: the array is as long as the register; the load needs no alignment.
    unsafe { _mm256_loadu_ps(src.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn store(dst: &mut [f32; LANES], value: __m256) {
    // SAFETY: the array is as long as the register; the store needs no alignment.
    unsafe { _mm256_storeu_ps(dst.as_mut_ptr(), value) }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load_i8(src: &[i8; LANES]) -> __m256 {
    // SAFETY: the array is the 8 bytes that are read; the load needs no alignment.
    let levels = unsafe { _mm_loadl_epi64(src.as_ptr().cast()) };
    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(levels))
}

#[target_feature(enable = "avx2,f16c")]
pub(crate) fn f32_to_f16(src: &[f32], dst: &mut [[u8; 2]]) {
    let (chunks, rest) = src.as_chunks::<LANES>();
    let (halves, halves_rest) = dst.as_chunks_mut::<LANES>();
    for (chunk, half) in chunks.iter().zip(halves) {
        let value = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(load(chunk));
        // SAFETY: the array is the 16 bytes that are written; the store needs no alignment.
        unsafe { _mm_storeu_si128(half.as_mut_ptr().cast(), value) };
    }
    half_precision::reference::f32_to_f16(rest, halves_rest);
}

#[target_feature(enable = "avx2,f16c")]
pub(crate) fn f16_to_f32(src: &[[u8; 2]], dst: &mut [f32]) {
    let (halves, halves_rest) = src.as_chunks::<LANES>();
    let (chunks, rest) = dst.as_chunks_mut::<LANES>();
    for (half, chunk) in halves.iter().zip(chunks) {
        // SAFETY: the array is the 16 bytes that are read; the load needs no alignment.
        let value = unsafe { _mm_loadu_si128(half.as_ptr().cast()) };
        store(chunk, _mm256_cvtph_ps(value));
    }
    half_precision::reference::f16_to_f32(halves_rest, rest);
}

/// Magnitudes are positive, so that their bits compare as signed integers too.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn magnitude(value: __m256) -> __m256i {
    let mask = _mm256_set1_epi32(i32::MAX);
    _mm256_and_si256(_mm256_castps_si256(value), mask)
}

#[target_feature(enable = "avx2,f16c")]
pub(crate) fn abs_max(src: &[f32]) -> f32 {
    let (chunks, rest) = src.as_chunks::<LANES>();
    let (groups, chunks_rest) = chunks.as_chunks::<4>();
    // Four chains, as one alone would wait for each maximum.
    let mut acc = [_mm256_setzero_si256(); 4];
    for group in groups {
        for (acc, chunk) in acc.iter_mut().zip(group) {
            *acc = _mm256_max_epi32(*acc, magnitude(load(chunk)));
        }
    }
    for (acc, chunk) in acc.iter_mut().zip(chunks_rest) {
        *acc = _mm256_max_epi32(*acc, magnitude(load(chunk)));
    }
    let acc = _mm256_max_epi32(
        _mm256_max_epi32(acc[0], acc[1]),
        _mm256_max_epi32(acc[2], acc[3]),
    );
    let mut lanes = [0.0; LANES];
    store(&mut lanes, _mm256_castsi256_ps(acc));
    let lanes = magnitude::reference::abs_max(&lanes);
    let rest = magnitude::reference::abs_max(rest);
    f32::from_bits(lanes.to_bits().max(rest.to_bits()))
}

#[target_feature(enable = "avx2,f16c")]
pub(crate) fn abs_max_each(src: &[f32], acc: &mut [f32]) {
    magnitude::reference::abs_max_each(src, acc);
}

/// Four registers of products as 32 levels: NaN to 0, held to ±127, rounded to even.
#[inline]
#[target_feature(enable = "avx2,f16c")]
fn levels(products: [__m256; 4]) -> __m256i {
    let limit = _mm256_set1_ps(127.0);
    let lowest = _mm256_set1_ps(-127.0);
    let [a, b, c, d] = products.map(|x| {
        let number = _mm256_and_ps(x, _mm256_cmp_ps::<_CMP_ORD_Q>(x, x));
        _mm256_cvtps_epi32(_mm256_max_ps(_mm256_min_ps(number, limit), lowest))
    });
    // Packing works within halves of a register, which leaves groups of four levels out of order.
    let packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn store_levels(dst: &mut [i8; 32], levels: __m256i) {
    // SAFETY: the array is as long as the register; the store needs no alignment.
    unsafe { _mm256_storeu_si256(dst.as_mut_ptr().cast(), levels) }
}

#[target_feature(enable = "avx2,f16c")]
pub(crate) fn quantize_i8(src: &[f32], reciprocal: f32, dst: &mut [i8]) {
    let factor = _mm256_set1_ps(reciprocal);
    let (chunks, rest) = src.as_chunks::<32>();
    let (groups, groups_rest) = dst.as_chunks_mut::<32>();
    for (chunk, group) in chunks.iter().zip(groups) {
        let (parts, _) = chunk.as_chunks::<LANES>();
        let product = |at: usize| _mm256_mul_ps(load(&parts[at]), factor);
        store_levels(
            group,
            levels([product(0), product(1), product(2), product(3)]),
        );
    }
    int8::reference::quantize_i8(rest, reciprocal, groups_rest);
}

#[target_feature(enable = "avx2,f16c")]
pub(crate) fn quantize_i8_each(src: &[f32], reciprocals: &[f32], dst: &mut [i8]) {
    let (chunks, rest) = src.as_chunks::<32>();
    let (factors, factors_rest) = reciprocals.as_chunks::<32>();
    let (groups, groups_rest) = dst.as_chunks_mut::<32>();
    for ((chunk, factor), group) in chunks.iter().zip(factors).zip(groups) {
        let (parts, _) = chunk.as_chunks::<LANES>();
        let (factor, _) = factor.as_chunks::<LANES>();
        let product = |at: usize| _mm256_mul_ps(load(&parts[at]), load(&factor[at]));
        store_levels(
            group,
            levels([product(0), product(1), product(2), product(3)]),
        );
    }
    int8::reference::quantize_i8_each(rest, factors_rest, groups_rest);
}

#[target_feature(enable = "avx2,f16c")]
pub(crate) fn dequantize_i8(src: &[i8], scale: f32, dst: &mut [f32]) {
    let factor = _mm256_set1_ps(scale);
    let (groups, groups_rest) = src.as_chunks::<LANES>();
    let (chunks, rest) = dst.as_chunks_mut::<LANES>();
    for (group, chunk) in groups.iter().zip(chunks) {
        store(chunk, _mm256_mul_ps(load_i8(group), factor));
    }
    int8::reference::dequantize_i8(groups_rest, scale, rest);
}

#[target_feature(enable = "avx2,f16c")]
pub(crate) fn dequantize_i8_each(src: &[i8], scales: &[f32], dst: &mut [f32]) {
    let (groups, groups_rest) = src.as_chunks::<LANES>();
    let (factors, factors_rest) = scales.as_chunks::<LANES>();
    let (chunks, rest) = dst.as_chunks_mut::<LANES>();
    for ((group, factor), chunk) in groups.iter().zip(factors).zip(chunks) {
        store(chunk, _mm256_mul_ps(load_i8(group), load(factor)));
    }
    int8::reference::dequantize_i8_each(groups_rest, factors_rest, rest);
}

#[target_feature(enable = "avx2,f16c")]
pub(crate) fn pack_bools(src: &[u8], dst: &mut [u8]) {
    let (chunks, rest) = src.as_chunks::<32>();
    let (bits, bits_rest) = dst.as_chunks_mut::<4>();
    let whole = chunks.len();
    for (chunk, bits) in chunks.iter().zip(bits.iter_mut()) {
        // SAFETY: the array is as long as the register; the load needs no alignment.
        let bools = unsafe { _mm256_loadu_si256(chunk.as_ptr().cast()) };
        let zero = _mm256_cmpeq_epi8(bools, _mm256_setzero_si256());
        *bits = (!_mm256_movemask_epi8(zero)).to_le_bytes();
    }
    // 25 to 31 booleans take four bytes too: then one group of bits is left over.
    let bits_rest = bits
        .get_mut(whole)
        .map_or(bits_rest, |group| group.as_mut_slice());
    bools::reference::pack_bools(rest, bits_rest);
}

#[target_feature(enable = "avx2,f16c")]
pub(crate) fn unpack_bools(src: &[u8], dst: &mut [u8]) {
    bools::reference::unpack_bools(src, dst);
}

integer_kernels!("avx2,f16c");
