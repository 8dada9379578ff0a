//! The largest magnitude, in the order of the bits: NaN above infinity above all numbers.

#[cfg(test)]
use crate::frames;
#[cfg(test)]
use crate::registry::Tolerance;
use crate::registry::kernel;

kernel! {
    /// max|x| over `src`; 0 where it is empty. NaN where any element is NaN, else infinity where
    /// any is infinite: all elements are finite exactly where the result is. Bit-exact on every
    /// variant, whatever the order of the elements.
    pub fn abs_max(src: &[f32]) -> f32;
    require: {};
    reference: reference::abs_max;
    variants: {
        Avx512 => crate::x86_64::avx512::abs_max,
        Avx2F16c => crate::x86_64::avx2::abs_max,
        Neon => crate::aarch64::abs_max,
    };
    tolerance: Tolerance::BitExact;
    frame: frames::Reduce::<f32, f32>::new();
}

kernel! {
    /// `acc[i] = max(acc[i], |src[i]|)`, where `acc` holds magnitudes (no sign); NaN and infinity
    /// as for [`abs_max`]. Bit-exact on every variant.
    ///
    /// # Panics
    /// Where the lengths differ.
    pub fn abs_max_each(src: &[f32], acc: &mut [f32]);
    require: assert_eq!(src.len(), acc.len(), "abs_max_each: lengths of src and acc differ");
    reference: reference::abs_max_each;
    variants: {
        Avx512 => crate::x86_64::avx512::abs_max_each,
        Avx2F16c => crate::x86_64::avx2::abs_max_each,
    };
    tolerance: Tolerance::BitExact;
    frame: frames::Map::<f32, f32>::with_destination(f32::abs);
}

pub(crate) mod reference {
    /// All but the sign.
    pub(crate) const MAGNITUDE: u32 = 0x7fff_ffff;

    /// Scalar reference of [`crate::abs_max`].
    pub fn abs_max(src: &[f32]) -> f32 {
        let largest = src.iter().map(|x| x.to_bits() & MAGNITUDE).max();
        f32::from_bits(largest.unwrap_or(0))
    }

    /// Scalar reference of [`crate::abs_max_each`].
    #[inline(always)]
    pub fn abs_max_each(src: &[f32], acc: &mut [f32]) {
        for (acc, x) in acc.iter_mut().zip(src) {
            *acc = f32::from_bits(acc.to_bits().max(x.to_bits() & MAGNITUDE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_tells_both_the_maximum_and_whether_all_are_finite() {
        assert_eq!(abs_max(&[]), 0.0);
        assert_eq!(abs_max(&[1.0, -3.0, 2.0, -0.0]), 3.0);
        assert_eq!(abs_max(&[1.0, f32::NEG_INFINITY]), f32::INFINITY);
        assert!(abs_max(&[f32::INFINITY, -f32::NAN, 1.0]).is_nan());
    }
}
