//! Booleans, a byte each in a tensor, as bits.

#[cfg(test)]
use crate::frames;
#[cfg(test)]
use crate::registry::Tolerance;
use crate::registry::kernel;

kernel! {
    /// Bit `i % 8` of `dst[i / 8]` says whether `src[i]` is not zero; the bits after the last are
    /// zero. `dst` takes `src.len().div_ceil(8)` bytes.
    ///
    /// # Panics
    /// Where `dst` has another length.
    pub fn pack_bools(src: &[u8], dst: &mut [u8]);
    require: assert_eq!(src.len().div_ceil(8), dst.len(), "pack_bools: dst takes a bit an element");
    reference: reference::pack_bools;
    variants: {
        Avx512 => crate::x86_64::avx512::pack_bools,
        Avx2F16c => crate::x86_64::avx2::pack_bools,
    };
    tolerance: Tolerance::BitExact;
    frame: frames::Pack::new();
}

kernel! {
    /// `dst[i]` is bit `i % 8` of `src[i / 8]`, 0 or 1. `src` has `dst.len().div_ceil(8)` bytes;
    /// its bits after the last are ignored.
    ///
    /// # Panics
    /// Where `src` has another length.
    pub fn unpack_bools(src: &[u8], dst: &mut [u8]);
    require: assert_eq!(src.len(), dst.len().div_ceil(8), "unpack_bools: src has a bit an element");
    reference: reference::unpack_bools;
    variants: {
        Avx512 => crate::x86_64::avx512::unpack_bools,
        Avx2F16c => crate::x86_64::avx2::unpack_bools,
    };
    tolerance: Tolerance::BitExact;
    frame: frames::Unpack::new();
}

pub(crate) mod reference {
    /// Scalar reference of [`crate::pack_bools`].
    #[inline(always)]
    pub fn pack_bools(src: &[u8], dst: &mut [u8]) {
        for (byte, bools) in dst.iter_mut().zip(src.chunks(8)) {
            let bit = |(at, &x): (usize, &u8)| u8::from(x != 0) << at;
            *byte = bools.iter().enumerate().map(bit).fold(0, |a, b| a | b);
        }
    }

    /// Scalar reference of [`crate::unpack_bools`].
    #[inline(always)]
    pub fn unpack_bools(src: &[u8], dst: &mut [u8]) {
        for (bools, &byte) in dst.chunks_mut(8).zip(src) {
            for (at, x) in bools.iter_mut().enumerate() {
                *x = (byte >> at) & 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_boolean_is_the_lowest_bit() {
        let mut bits = [0xff; 2];
        pack_bools(&[1, 0, 0, 0, 0, 0, 0, 2, 0, 1], &mut bits);
        assert_eq!(bits, [0b1000_0001, 0b10]);
        let mut bools = [9; 10];
        unpack_bools(&bits, &mut bools);
        assert_eq!(bools, [1, 0, 0, 0, 0, 0, 0, 1, 0, 1]);
    }
}
