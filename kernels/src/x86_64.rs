//! Variants for x86-64.
//!
//! Functions here are compiled for no more features than the token of their instruction set proves
//! (see `detect/x86_64.rs`); that is the contract of `kernel!`.

/// The integer kernels: the reference, inlined into a function with `$features`, which is enough
/// for the compiler to vectorise these loops well.
macro_rules! integer_kernels {
    ($features:literal) => {
        integer_kernels!(@min_max $features:
            min_max_i8: i8, min_max_i16: i16, min_max_i32: i32, min_max_i64: i64,
            min_max_u8: u8, min_max_u16: u16, min_max_u32: u32, min_max_u64: u64
        );
        integer_kernels!(@packing $features:
            narrow_u8_to_1, widen_1_to_u8: u8, 1;
            narrow_u16_to_1, widen_1_to_u16: u16, 1;
            narrow_u16_to_2, widen_2_to_u16: u16, 2;
            narrow_u32_to_1, widen_1_to_u32: u32, 1;
            narrow_u32_to_2, widen_2_to_u32: u32, 2;
            narrow_u32_to_4, widen_4_to_u32: u32, 4;
            narrow_u64_to_1, widen_1_to_u64: u64, 1;
            narrow_u64_to_2, widen_2_to_u64: u64, 2;
            narrow_u64_to_4, widen_4_to_u64: u64, 4;
            narrow_u64_to_8, widen_8_to_u64: u64, 8
        );
    };
    (@min_max $features:literal: $($name:ident: $int:ty),*) => {$(
        #[target_feature(enable = $features)]
        pub(crate) fn $name(src: &[$int]) -> Option<($int, $int)> {
            crate::range::reference::min_max(src)
        }
    )*};
    (@packing $features:literal: $($narrow:ident, $widen:ident: $int:ty, $bytes:literal);*) => {$(
        #[target_feature(enable = $features)]
        pub(crate) fn $narrow(src: &[$int], base: $int, dst: &mut [[u8; $bytes]]) {
            crate::packing::reference::$narrow(src, base, dst);
        }

        #[target_feature(enable = $features)]
        pub(crate) fn $widen(src: &[[u8; $bytes]], base: $int, dst: &mut [$int]) -> u64 {
            crate::packing::reference::$widen(src, base, dst)
        }
    )*};
}

pub(crate) mod avx2;
pub(crate) mod avx512;
