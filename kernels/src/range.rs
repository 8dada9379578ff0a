//! The smallest and the largest integer of a slice.

use crate::registry::kernel;

macro_rules! min_max {
    ($($name:ident: $ty:ty;)*) => {$(
        kernel! {
            /// The smallest and the largest element, or `None` where there is none.
            pub fn $name(src: &[$ty]) -> Option<($ty, $ty)>;
            require: {};
            reference: reference::min_max;
            variants: {
                Avx512 => crate::x86_64::avx512::$name,
                Avx2F16c => crate::x86_64::avx2::$name,
            };
            tolerance: crate::registry::Tolerance::BitExact;
            frame: crate::frames::Reduce::<$ty, Option<($ty, $ty)>>::new();
        }
    )*};
}

min_max! {
    min_max_i8: i8;
    min_max_i16: i16;
    min_max_i32: i32;
    min_max_i64: i64;
    min_max_u8: u8;
    min_max_u16: u16;
    min_max_u32: u32;
    min_max_u64: u64;
}

pub(crate) mod reference {
    /// Scalar reference of [`crate::min_max_i64`] and its like.
    #[inline(always)]
    pub fn min_max<T: Ord + Copy>(src: &[T]) -> Option<(T, T)> {
        let &first = src.first()?;
        let widen = |(min, max): (T, T), &x: &T| (min.min(x), max.max(x));
        Some(src.iter().fold((first, first), widen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extremes_of_a_type_are_found_wherever_they_lie() {
        assert_eq!(min_max_i64(&[]), None);
        for at in 0..100 {
            let mut src = vec![5i64; 100];
            src[at] = i64::MIN;
            src[99 - at] = i64::MAX;
            assert_eq!(min_max_i64(&src), Some((i64::MIN, i64::MAX)));
        }
    }
}
