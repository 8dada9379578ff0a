//! How far two tensors are apart.

use half::{bf16, f16};
use seamline_plan::{DType, Tensor};

/// The largest differences between two tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// The largest |difference|; infinite where shapes or dtypes differ, or other than floating
    /// values do.
    pub max_abs: f64,
    /// The largest |difference| / max(1, |whole|).
    pub max_rel: f64,
}

impl Difference {
    const TOTAL: Difference = Difference {
        max_abs: f64::INFINITY,
        max_rel: f64::INFINITY,
    };

    /// The larger of both, part by part.
    #[must_use]
    pub fn max(self, other: Difference) -> Difference {
        Difference {
            max_abs: self.max_abs.max(other.max_abs),
            max_rel: self.max_rel.max(other.max_rel),
        }
    }
}

/// Compares `split` with `whole`. Equal infinities, and NaN on both sides, are no difference.
pub fn compare(whole: &Tensor, split: &Tensor) -> Difference {
    if whole.dtype() != split.dtype() || whole.shape() != split.shape() {
        return Difference::TOTAL;
    }
    if whole.bytes() == split.bytes() {
        return Difference::default();
    }
    macro_rules! floats {
        ($element:ty) => {
            match (whole.as_slice::<$element>(), split.as_slice::<$element>()) {
                (Ok(whole), Ok(split)) => whole
                    .iter()
                    .zip(split)
                    .map(|(&whole, &split)| element(f64::from(whole), f64::from(split)))
                    .fold(Difference::default(), Difference::max),
                _ => Difference::TOTAL,
            }
        };
    }
    match whole.dtype() {
        DType::F32 => floats!(f32),
        DType::F64 => floats!(f64),
        DType::F16 => floats!(f16),
        DType::BF16 => floats!(bf16),
        _ => Difference::TOTAL,
    }
}

fn element(whole: f64, split: f64) -> Difference {
    if whole == split || (whole.is_nan() && split.is_nan()) {
        return Difference::default();
    }
    let difference = (whole - split).abs();
    if difference.is_nan() {
        return Difference::TOTAL;
    }
    Difference {
        max_abs: difference,
        max_rel: difference / whole.abs().max(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(elements: &[f32]) -> Tensor {
        Tensor::from_vec(vec![elements.len()], elements.to_vec()).unwrap()
    }

    #[test]
    fn relative_differences_are_bounded_by_one_below() {
        let difference = compare(&tensor(&[0.5, 100.0]), &tensor(&[0.6, 101.0]));
        assert!((difference.max_abs - 1.0).abs() < 1e-6);
        assert!((difference.max_rel - 0.1).abs() < 1e-6);
    }

    #[test]
    fn a_nan_on_one_side_only_is_a_total_difference() {
        assert_eq!(
            compare(&tensor(&[f32::NAN]), &tensor(&[f32::NAN])),
            Difference::default()
        );
        assert_eq!(
            compare(&tensor(&[f32::NAN]), &tensor(&[1.0])),
            Difference::TOTAL
        );
        let infinite = tensor(&[f32::INFINITY]);
        assert_eq!(compare(&infinite, &infinite), Difference::default());
    }

    #[test]
    fn other_shapes_and_unequal_integers_are_total() {
        assert_eq!(
            compare(&tensor(&[1.0]), &tensor(&[1.0, 1.0])),
            Difference::TOTAL
        );
        let integers = |value: i64| Tensor::from_vec(vec![1], vec![value]).unwrap();
        assert_eq!(compare(&integers(1), &integers(2)), Difference::TOTAL);
        assert_eq!(compare(&integers(1), &integers(1)), Difference::default());
    }
}
