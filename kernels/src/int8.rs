//! f32 to signed 8-bit levels and back.

#[cfg(test)]
use crate::frames;
#[cfg(test)]
use crate::registry::Tolerance;
use crate::registry::kernel;

/// Scales that a test tries besides ordinary ones.
#[cfg(test)]
const SCALES: [f32; 8] = [
    1.0,
    0.0,
    -0.3,
    127.5,
    1e-30,
    f32::INFINITY,
    f32::NAN,
    f32::MIN_POSITIVE,
];

kernel! {
    /// `dst[i] = round(src[i] × reciprocal)`, ties to even, held to ±127; `reciprocal` is 1 / scale.
    /// A product that is NaN gives 0. Bit-exact on every variant.
    ///
    /// # Panics
    /// Where the lengths differ.
    pub fn quantize_i8(src: &[f32], reciprocal: f32, dst: &mut [i8]);
    require: assert_eq!(src.len(), dst.len(), "quantize_i8: lengths of src and dst differ");
    reference: reference::quantize_i8;
    variants: {
        Avx512 => crate::x86_64::avx512::quantize_i8,
        Avx2F16c => crate::x86_64::avx2::quantize_i8,
        Neon => crate::aarch64::quantize_i8,
    };
    tolerance: Tolerance::BitExact;
    frame: frames::MapWith::<f32, f32, i8>::new(&SCALES);
}

kernel! {
    /// [`quantize_i8`] with a reciprocal for each element.
    ///
    /// # Panics
    /// Where the lengths differ.
    pub fn quantize_i8_each(src: &[f32], reciprocals: &[f32], dst: &mut [i8]);
    require: assert!(
        src.len() == dst.len() && src.len() == reciprocals.len(),
        "quantize_i8_each: lengths of src, reciprocals and dst differ"
    );
    reference: reference::quantize_i8_each;
    variants: {
        Avx512 => crate::x86_64::avx512::quantize_i8_each,
        Avx2F16c => crate::x86_64::avx2::quantize_i8_each,
    };
    tolerance: Tolerance::BitExact;
    frame: frames::Each::<f32, f32, i8>::new();
}

kernel! {
    /// `dst[i] = src[i] × scale`, one f32 multiplication. Bit-exact on every variant.
    ///
    /// # Panics
    /// Where the lengths differ.
    pub fn dequantize_i8(src: &[i8], scale: f32, dst: &mut [f32]);
    require: assert_eq!(src.len(), dst.len(), "dequantize_i8: lengths of src and dst differ");
    reference: reference::dequantize_i8;
    variants: {
        Avx512 => crate::x86_64::avx512::dequantize_i8,
        Avx2F16c => crate::x86_64::avx2::dequantize_i8,
        Neon => crate::aarch64::dequantize_i8,
    };
    tolerance: Tolerance::BitExact;
    frame: frames::MapWith::<i8, f32, f32>::new(&SCALES);
}

kernel! {
    /// [`dequantize_i8`] with a scale for each element.
    ///
    /// # Panics
    /// Where the lengths differ.
    pub fn dequantize_i8_each(src: &[i8], scales: &[f32], dst: &mut [f32]);
    require: assert!(
        src.len() == dst.len() && src.len() == scales.len(),
        "dequantize_i8_each: lengths of src, scales and dst differ"
    );
    reference: reference::dequantize_i8_each;
    variants: {
        Avx512 => crate::x86_64::avx512::dequantize_i8_each,
        Avx2F16c => crate::x86_64::avx2::dequantize_i8_each,
    };
    tolerance: Tolerance::BitExact;
    frame: frames::Each::<i8, f32, f32>::new();
}

pub(crate) mod reference {
    /// The largest level. −128 is not used, so that levels are symmetric.
    const LIMIT: f32 = 127.0;

    /// 1.5 × 2²³: near it, f32 are whole numbers, so that adding it rounds to nearest, ties to even,
    /// as every f32 addition does. `round_ties_even` is a slow library call where the baseline has
    /// no instruction for it.
    const ROUNDER: f32 = 12_582_912.0;

    #[allow(
        clippy::cast_possible_truncation,
        reason = "the value is held to ±127 first, and a cast turns NaN into 0"
    )]
    #[inline]
    fn level(product: f32) -> i8 {
        (product.clamp(-LIMIT, LIMIT) + ROUNDER - ROUNDER) as i8
    }

    /// Scalar reference of [`crate::quantize_i8`].
    #[inline(always)]
    pub fn quantize_i8(src: &[f32], reciprocal: f32, dst: &mut [i8]) {
        for (dst, &x) in dst.iter_mut().zip(src) {
            *dst = level(x * reciprocal);
        }
    }

    /// Scalar reference of [`crate::quantize_i8_each`].
    #[inline(always)]
    pub fn quantize_i8_each(src: &[f32], reciprocals: &[f32], dst: &mut [i8]) {
        for ((dst, &x), &reciprocal) in dst.iter_mut().zip(src).zip(reciprocals) {
            *dst = level(x * reciprocal);
        }
    }

    /// Scalar reference of [`crate::dequantize_i8`].
    #[inline(always)]
    pub fn dequantize_i8(src: &[i8], scale: f32, dst: &mut [f32]) {
        for (dst, &level) in dst.iter_mut().zip(src) {
            *dst = f32::from(level) * scale;
        }
    }

    /// Scalar reference of [`crate::dequantize_i8_each`].
    #[inline(always)]
    pub fn dequantize_i8_each(src: &[i8], scales: &[f32], dst: &mut [f32]) {
        for ((dst, &level), &scale) in dst.iter_mut().zip(src).zip(scales) {
            *dst = f32::from(level) * scale;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_even_and_levels_stay_symmetric() {
        let src = [
            0.5,
            1.5,
            -0.5,
            -2.5,
            126.5,
            127.5,
            1e9,
            -1e9,
            f32::NAN,
            -0.0,
        ];
        let mut levels = [9; 10];
        quantize_i8(&src, 1.0, &mut levels);
        assert_eq!(levels, [0, 2, 0, -2, 126, 127, 127, -127, 0, 0]);
    }

    #[test]
    fn levels_round_as_the_standard_library_does() {
        for quarter in -600i16..=600 {
            let x = f32::from(quarter) / 4.0;
            for x in [x.next_down(), x, x.next_up()] {
                let mut level = [0];
                reference::quantize_i8(&[x], 1.0, &mut level);
                let expected = x.clamp(-127.0, 127.0).round_ties_even();
                assert_eq!(f32::from(level[0]), expected, "{x}");
            }
        }
    }

    #[test]
    fn every_level_comes_back() {
        let levels: Vec<i8> = (-127..=127).collect();
        let scale = 0.037f32;
        let mut values = vec![0.0; levels.len()];
        dequantize_i8(&levels, scale, &mut values);
        let mut back = vec![0; levels.len()];
        quantize_i8(&values, 1.0 / scale, &mut back);
        assert_eq!(back, levels);
    }
}
