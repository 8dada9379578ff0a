//! Slices in, slices out: the SIMD kernels of Seamline, each beside its scalar reference.
//!
//! A kernel is declared once, by the `kernel!` macro of [`registry`]: its documentation, its scalar
//! reference (which is the specification), its variants, and the frame and tolerance of its test.
//! The macro writes the public function, which picks the best variant of this machine at the first
//! call, and the test, which runs every variant that this machine can run. A kernel without a test
//! cannot be declared.
//!
//! Values on the wire's side are byte arrays, little-endian (`[u8; 2]` is a half-precision
//! number), since payloads lie at any address. Values on the tensor's side are typed slices.

#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    forbid(unsafe_code)
)]

#[cfg(target_endian = "big")]
compile_error!("Seamline's tensors are little-endian in memory; this target is big-endian");

mod bools;
mod half_precision;
mod int8;
pub mod isa;
mod magnitude;
mod packing;
mod range;
pub mod registry;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(test)]
mod frames;
#[cfg(test)]
mod harness;

pub use bools::{pack_bools, unpack_bools};
pub use half_precision::{f16_to_f32, f32_to_f16};
pub use int8::{dequantize_i8, dequantize_i8_each, quantize_i8, quantize_i8_each};
pub use isa::{Avx2F16c, Avx512, Isa, Neon};
pub use magnitude::{abs_max, abs_max_each};
pub use packing::{
    narrow_u8_to_1, narrow_u16_to_1, narrow_u16_to_2, narrow_u32_to_1, narrow_u32_to_2,
    narrow_u32_to_4, narrow_u64_to_1, narrow_u64_to_2, narrow_u64_to_4, narrow_u64_to_8,
    widen_1_to_u8, widen_1_to_u16, widen_1_to_u32, widen_1_to_u64, widen_2_to_u16, widen_2_to_u32,
    widen_2_to_u64, widen_4_to_u32, widen_4_to_u64, widen_8_to_u64,
};
pub use range::{
    min_max_i8, min_max_i16, min_max_i32, min_max_i64, min_max_u8, min_max_u16, min_max_u32,
    min_max_u64,
};

/// The scalar references: each is the specification of the kernel of the same name, and the peer
/// in benchmarks.
pub mod reference {
    pub use crate::bools::reference::*;
    pub use crate::half_precision::reference::*;
    pub use crate::int8::reference::*;
    pub use crate::magnitude::reference::*;
    pub use crate::packing::reference::*;
    pub use crate::range::reference::*;
}
