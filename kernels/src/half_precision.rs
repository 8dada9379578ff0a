//! f32 to IEEE 754 half precision and back.

#[cfg(test)]
use crate::frames;
#[cfg(test)]
use crate::registry::Tolerance;
use crate::registry::kernel;

kernel! {
    /// Each f32 of `src` as a half-precision number, little-endian.
    ///
    /// Rounds to nearest, ties to even; from 65,520 up it gives infinity. NaN stays NaN: made
    /// quiet, its sign and the top of its payload kept. Bit-exact on every variant.
    ///
    /// # Panics
    /// Where the lengths differ.
    pub fn f32_to_f16(src: &[f32], dst: &mut [[u8; 2]]);
    require: assert_eq!(src.len(), dst.len(), "f32_to_f16: lengths of src and dst differ");
    reference: reference::f32_to_f16;
    variants: {
        Avx512 => crate::x86_64::avx512::f32_to_f16,
        Avx2F16c => crate::x86_64::avx2::f32_to_f16,
        Neon => crate::aarch64::f32_to_f16,
    };
    tolerance: Tolerance::BitExact;
    frame: frames::Map::<f32, [u8; 2]>::new();
}

kernel! {
    /// Each half-precision number of `src`, little-endian, as f32. Exact; a signalling NaN becomes
    /// quiet. Bit-exact on every variant.
    ///
    /// # Panics
    /// Where the lengths differ.
    pub fn f16_to_f32(src: &[[u8; 2]], dst: &mut [f32]);
    require: assert_eq!(src.len(), dst.len(), "f16_to_f32: lengths of src and dst differ");
    reference: reference::f16_to_f32;
    variants: {
        Avx512 => crate::x86_64::avx512::f16_to_f32,
        Avx2F16c => crate::x86_64::avx2::f16_to_f32,
        Neon => crate::aarch64::f16_to_f32,
    };
    tolerance: Tolerance::BitExact;
    frame: frames::Map::<[u8; 2], f32>::new();
}

pub(crate) mod reference {
    /// Scalar reference of [`crate::f32_to_f16`].
    pub fn f32_to_f16(src: &[f32], dst: &mut [[u8; 2]]) {
        for (half, &single) in dst.iter_mut().zip(src) {
            *half = narrow(single).to_le_bytes();
        }
    }

    /// Scalar reference of [`crate::f16_to_f32`].
    pub fn f16_to_f32(src: &[[u8; 2]], dst: &mut [f32]) {
        for (single, &half) in dst.iter_mut().zip(src) {
            *single = widen(u16::from_le_bytes(half));
        }
    }

    /// f16 has 10 bits of mantissa, f32 has 23.
    const SHIFT: u32 = 13;

    #[allow(
        clippy::cast_possible_truncation,
        reason = "each value is shifted into the 16 bits of a half before the cast"
    )]
    fn narrow(single: f32) -> u16 {
        let bits = single.to_bits();
        let sign = (bits >> 16) as u16 & 0x8000;
        let magnitude = bits & 0x7fff_ffff;
        if magnitude > 0x7f80_0000 {
            return sign | 0x7e00 | ((magnitude >> SHIFT) as u16 & 0x03ff);
        }
        if magnitude >= 0x4780_0000 {
            // 65,536 and more, and infinity.
            return sign | 0x7c00;
        }
        if magnitude >= 0x3880_0000 {
            // Normal in both: rebias the exponent from 127 to 15. Rounding may carry into it, up to
            // infinity, which is what 65,520 and more shall become.
            return sign | round_ties_even(magnitude - (112 << 23), SHIFT) as u16;
        }
        if magnitude < 0x3300_0000 {
            // Less than half of the smallest subnormal, 2⁻²⁴.
            return sign;
        }
        // Subnormal half: the mantissa with its leading one, in units of 2⁻²⁴.
        let exponent = magnitude >> 23;
        let mantissa = (magnitude & 0x007f_ffff) | 0x0080_0000;
        sign | round_ties_even(mantissa, 126 - exponent) as u16
    }

    /// `value >> shift`, rounded to nearest, ties to even; `shift` in 1..=24.
    fn round_ties_even(value: u32, shift: u32) -> u32 {
        let odd = (value >> shift) & 1;
        (value + (1 << (shift - 1)) - 1 + odd) >> shift
    }

    fn widen(half: u16) -> f32 {
        let sign = u32::from(half & 0x8000) << 16;
        let exponent = u32::from(half >> 10) & 0x1f;
        let mantissa = u32::from(half & 0x03ff);
        let magnitude = match exponent {
            0 => {
                // Zero or subnormal: an integer times 2⁻²⁴, exact in f32.
                let unit = f32::from_bits((127 - 24) << 23);
                return f32::from_bits(sign | (f32::from(half & 0x03ff) * unit).to_bits());
            }
            0x1f if mantissa == 0 => 0x7f80_0000,
            0x1f => 0x7fc0_0000 | (mantissa << SHIFT),
            _ => ((exponent + 112) << 23) | (mantissa << SHIFT),
        };
        f32::from_bits(sign | magnitude)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_as_the_half_crate_does_and_comes_back() {
        let halves: Vec<[u8; 2]> = (0..=u16::MAX).map(u16::to_le_bytes).collect();
        let mut singles = vec![0.0; halves.len()];
        f16_to_f32(&halves, &mut singles);
        let mut back = vec![[0; 2]; halves.len()];
        f32_to_f16(&singles, &mut back);
        for ((half, single), back) in halves.iter().zip(&singles).zip(&back) {
            let bits = u16::from_le_bytes(*half);
            let expected = half::f16::from_bits(bits).to_f32_const();
            assert_eq!(single.to_bits(), expected.to_bits(), "half {bits:#06x}");
            let quiet = if expected.is_nan() { 0x0200 } else { 0 };
            assert_eq!(u16::from_le_bytes(*back), bits | quiet, "half {bits:#06x}");
        }
    }

    #[test]
    fn narrowing_is_right_around_every_half_and_every_midpoint() {
        for bits in 0..0x7c00u16 {
            let low = half::f16::from_bits(bits).to_f32_const();
            let high = half::f16::from_bits(bits + 1).to_f32_const();
            let high = if high.is_finite() { high } else { 65_536.0 };
            let middle = low + (high - low) / 2.0;
            for value in [
                low,
                low.next_up(),
                middle.next_down(),
                middle,
                middle.next_up(),
            ] {
                for value in [value, -value] {
                    let mut got = [[0; 2]];
                    reference::f32_to_f16(&[value], &mut got);
                    let expected = half::f16::from_f32_const(value).to_bits();
                    assert_eq!(u16::from_le_bytes(got[0]), expected, "{value:e}");
                }
            }
        }
    }
}
