//! Integers as offsets from a base in fewer bytes, and back.
//!
//! Signed integers go through the unsigned type of their size: offsets are differences modulo the
//! size, which are the same bits.

use crate::registry::kernel;

macro_rules! packings {
    ($($narrow:ident, $widen:ident: $int:ident as $offset:ident, $bytes:literal;)*) => {$(
        kernel! {
            /// `dst[i]` = the low bytes of `src[i] − base`, little-endian. The caller knows from the
            /// range of `src` that the offsets fit.
            ///
            /// # Panics
            /// Where the lengths differ.
            pub fn $narrow(src: &[$int], base: $int, dst: &mut [[u8; $bytes]]);
            require: assert_eq!(src.len(), dst.len(), "lengths of src and dst differ");
            reference: reference::$narrow;
            variants: {
                Avx512 => crate::x86_64::avx512::$narrow,
                Avx2F16c => crate::x86_64::avx2::$narrow,
            };
            tolerance: crate::registry::Tolerance::BitExact;
            frame: crate::frames::MapWith::<$int, $int, [u8; $bytes]>::new(
                &[0, 1, 77, $int::MAX, $int::MAX / 2]
            );
        }

        kernel! {
            /// `dst[i] = base + src[i]` modulo the size of the type, where `src` holds offsets,
            /// little-endian. Gives the largest offset (0 where there is none), by which the caller
            /// knows whether any sum passed the type.
            ///
            /// # Panics
            /// Where the lengths differ.
            pub fn $widen(src: &[[u8; $bytes]], base: $int, dst: &mut [$int]) -> u64;
            require: assert_eq!(src.len(), dst.len(), "lengths of src and dst differ");
            reference: reference::$widen;
            variants: {
                Avx512 => crate::x86_64::avx512::$widen,
                Avx2F16c => crate::x86_64::avx2::$widen,
            };
            tolerance: crate::registry::Tolerance::BitExact;
            frame: crate::frames::MapWith::<[u8; $bytes], $int, $int>::new(
                &[0, 1, 77, $int::MAX, $int::MAX / 2]
            );
        }
    )*

    pub(crate) mod reference {$(
        /// Scalar reference of the kernel of the same name.
        #[inline(always)]
        #[allow(
            clippy::cast_possible_truncation,
            clippy::unnecessary_cast,
            reason = "keeping the low bytes is the operation"
        )]
        pub fn $narrow(src: &[$int], base: $int, dst: &mut [[u8; $bytes]]) {
            for (dst, &x) in dst.iter_mut().zip(src) {
                *dst = (x.wrapping_sub(base) as $offset).to_le_bytes();
            }
        }

        /// Scalar reference of the kernel of the same name.
        #[inline(always)]
        pub fn $widen(src: &[[u8; $bytes]], base: $int, dst: &mut [$int]) -> u64 {
            let mut largest: $offset = 0;
            for (dst, &bytes) in dst.iter_mut().zip(src) {
                let offset = $offset::from_le_bytes(bytes);
                largest = largest.max(offset);
                *dst = base.wrapping_add($int::from(offset));
            }
            u64::from(largest)
        }
    )*}
    };
}

packings! {
    narrow_u8_to_1, widen_1_to_u8: u8 as u8, 1;
    narrow_u16_to_1, widen_1_to_u16: u16 as u8, 1;
    narrow_u16_to_2, widen_2_to_u16: u16 as u16, 2;
    narrow_u32_to_1, widen_1_to_u32: u32 as u8, 1;
    narrow_u32_to_2, widen_2_to_u32: u32 as u16, 2;
    narrow_u32_to_4, widen_4_to_u32: u32 as u32, 4;
    narrow_u64_to_1, widen_1_to_u64: u64 as u8, 1;
    narrow_u64_to_2, widen_2_to_u64: u64 as u16, 2;
    narrow_u64_to_4, widen_4_to_u64: u64 as u32, 4;
    narrow_u64_to_8, widen_8_to_u64: u64 as u64, 8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_integers_pass_through_as_unsigned() {
        let base = -3i64;
        let src: Vec<u64> = (-3i64..=252).map(i64::cast_unsigned).collect();
        let mut packed = vec![[0u8; 1]; src.len()];
        narrow_u64_to_1(&src, base.cast_unsigned(), &mut packed);
        let mut back = vec![0u64; src.len()];
        let largest = widen_1_to_u64(&packed, base.cast_unsigned(), &mut back);
        assert_eq!((back, largest), (src, 255));
    }
}
