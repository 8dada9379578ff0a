//! Variants for aarch64 with Advanced SIMD.
//!
//! Functions here are compiled for no more features than the `Neon` token proves; that is the
//! contract of `kernel!`. The loops over integers have no variant here: Advanced SIMD is in the
//! baseline, so that the reference is vectorised already.

use std::arch::aarch64::*;
use std::arch::asm;

use crate::{half_precision, int8, magnitude};

/// f32 lanes of a register.
const LANES: usize = 4;

#[inline]
#[target_feature(enable = "neon")]
fn load(src: &[f32; LANES]) -> float32x4_t {
    // SAFETY: the array is as long as the register; the load needs no alignment beyond f32's.
    unsafe { vld1q_f32(src.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store(dst: &mut [f32; LANES], value: float32x4_t) {
    // SAFETY: the array is as long as the register; the store needs no alignment beyond f32's.
    unsafe { vst1q_f32(dst.as_mut_ptr(), value) }
}

/// `fcvtn`, whose intrinsic wants the unstable type `f16` in the oldest Rust supported.
#[inline]
#[target_feature(enable = "neon")]
fn narrow(value: float32x4_t) -> uint16x4_t {
    let halves: uint16x4_t;
    // SAFETY: one register to another; the instruction is in the baseline of Advanced SIMD.
    unsafe {
        asm!(
            "fcvtn {halves:v}.4h, {value:v}.4s",
            value = in(vreg) value,
            halves = lateout(vreg) halves,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    halves
}

/// `fcvtl`: see [`narrow`].
#[inline]
#[target_feature(enable = "neon")]
fn widen(halves: uint16x4_t) -> float32x4_t {
    let value: float32x4_t;
    // SAFETY: one register to another; the instruction is in the baseline of Advanced SIMD.
    unsafe {
        asm!(
            "fcvtl {value:v}.4s, {halves:v}.4h",
            halves = in(vreg) halves,
            value = lateout(vreg) value,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    value
}

#[target_feature(enable = "neon")]
pub(crate) fn f32_to_f16(src: &[f32], dst: &mut [[u8; 2]]) {
    let (chunks, rest) = src.as_chunks::<LANES>();
    let (halves, halves_rest) = dst.as_chunks_mut::<LANES>();
    for (chunk, half) in chunks.iter().zip(halves) {
        let bytes = vreinterpret_u8_u16(narrow(load(chunk)));
        // SAFETY: the array is the 8 bytes that are written; bytes need no alignment.
        unsafe { vst1_u8(half.as_mut_ptr().cast(), bytes) };
    }
    half_precision::reference::f32_to_f16(rest, halves_rest);
}

#[target_feature(enable = "neon")]
pub(crate) fn f16_to_f32(src: &[[u8; 2]], dst: &mut [f32]) {
    let (halves, halves_rest) = src.as_chunks::<LANES>();
    let (chunks, rest) = dst.as_chunks_mut::<LANES>();
    for (half, chunk) in halves.iter().zip(chunks) {
        // SAFETY: the array is the 8 bytes that are read; bytes need no alignment.
        let bytes = unsafe { vld1_u8(half.as_ptr().cast()) };
        store(chunk, widen(vreinterpret_u16_u8(bytes)));
    }
    half_precision::reference::f16_to_f32(halves_rest, rest);
}

#[target_feature(enable = "neon")]
pub(crate) fn abs_max(src: &[f32]) -> f32 {
    let (groups, rest) = src.as_chunks::<{ 4 * LANES }>();
    let mask = vdupq_n_u32(magnitude::reference::MAGNITUDE);
    // Four chains, as one alone would wait for each maximum.
    let mut acc = [vdupq_n_u32(0); 4];
    for group in groups {
        for (acc, chunk) in acc.iter_mut().zip(group.as_chunks::<LANES>().0) {
            let magnitude = vandq_u32(vreinterpretq_u32_f32(load(chunk)), mask);
            *acc = vmaxq_u32(*acc, magnitude);
        }
    }
    let acc = vmaxq_u32(vmaxq_u32(acc[0], acc[1]), vmaxq_u32(acc[2], acc[3]));
    let rest = magnitude::reference::abs_max(rest);
    f32::from_bits(vmaxvq_u32(acc).max(rest.to_bits()))
}

#[target_feature(enable = "neon")]
pub(crate) fn quantize_i8(src: &[f32], reciprocal: f32, dst: &mut [i8]) {
    let (chunks, rest) = src.as_chunks::<{ 4 * LANES }>();
    let (groups, groups_rest) = dst.as_chunks_mut::<{ 4 * LANES }>();
    for (chunk, group) in chunks.iter().zip(groups) {
        let (parts, _) = chunk.as_chunks::<LANES>();
        // The conversion rounds to even, saturates, and turns NaN into 0; what is left is to hold
        // the narrowed value to -127.
        let level = |at: usize| vcvtnq_s32_f32(vmulq_n_f32(load(&parts[at]), reciprocal));
        let low = vcombine_s16(vqmovn_s32(level(0)), vqmovn_s32(level(1)));
        let high = vcombine_s16(vqmovn_s32(level(2)), vqmovn_s32(level(3)));
        let levels = vcombine_s8(vqmovn_s16(low), vqmovn_s16(high));
        // SAFETY: the array is as long as the register; bytes need no alignment.
        unsafe { vst1q_s8(group.as_mut_ptr(), vmaxq_s8(levels, vdupq_n_s8(-127))) };
    }
    int8::reference::quantize_i8(rest, reciprocal, groups_rest);
}

#[target_feature(enable = "neon")]
pub(crate) fn dequantize_i8(src: &[i8], scale: f32, dst: &mut [f32]) {
    let (groups, groups_rest) = src.as_chunks::<{ 2 * LANES }>();
    let (chunks, rest) = dst.as_chunks_mut::<{ 2 * LANES }>();
    for (group, chunk) in groups.iter().zip(chunks) {
        // SAFETY: the array is the 8 bytes that are read; bytes need no alignment.
        let levels = vmovl_s8(unsafe { vld1_s8(group.as_ptr()) });
        let (parts, _) = chunk.as_chunks_mut::<LANES>();
        let low = vcvtq_f32_s32(vmovl_s16(vget_low_s16(levels)));
        let high = vcvtq_f32_s32(vmovl_s16(vget_high_s16(levels)));
        store(&mut parts[0], vmulq_n_f32(low, scale));
        store(&mut parts[1], vmulq_n_f32(high, scale));
    }
    int8::reference::dequantize_i8(groups_rest, scale, rest);
}
