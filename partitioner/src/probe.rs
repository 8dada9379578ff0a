//! Random inputs that a model can take: indices within their table, masks as masks.

use std::collections::BTreeMap;

use half::{bf16, f16};
use seamline_graph::infer::InputDomain;
use seamline_plan::{DType, Tensor, TensorError};

/// Most elements of an input that is drawn: 2 GiB of f32, which no input that is run here nears.
const MAX_ELEMENTS: usize = 1 << 29;

/// Draws probe inputs. The same seed draws the same values.
pub struct Prober {
    random: fastrand::Rng,
}

impl Prober {
    /// A prober that draws from `seed`.
    pub fn new(seed: u64) -> Prober {
        Prober {
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// One tensor for each input, of its reference shape.
    ///
    /// # Errors
    /// [`TensorError::Overflow`] where a shape is too large.
    pub fn draw(&mut self, inputs: &[ProbeInput]) -> Result<BTreeMap<String, Tensor>, TensorError> {
        inputs
            .iter()
            .map(|input| Ok((input.name.clone(), self.tensor(input)?)))
            .collect()
    }

    fn tensor(&mut self, input: &ProbeInput) -> Result<Tensor, TensorError> {
        let shape = input.shape.clone();
        let count = seamline_plan::element_count(&shape).filter(|&count| count <= MAX_ELEMENTS);
        let Some(count) = count else {
            return Err(TensorError::Overflow {
                dtype: input.dtype,
                shape,
            });
        };
        if input.dtype == DType::Bool {
            let elements: Vec<bool> = (0..count).map(|_| self.random.bool()).collect();
            return Tensor::from_bools(shape, &elements);
        }
        if input.dtype.is_float() {
            return self.floats(input.dtype, shape, count);
        }
        let draw = |prober: &mut Prober| prober.integer(&input.domain);
        let elements: Vec<i64> = (0..count).map(|_| draw(self)).collect();
        integers(input.dtype, shape, &elements)
    }

    fn floats(
        &mut self,
        dtype: DType,
        shape: Vec<usize>,
        count: usize,
    ) -> Result<Tensor, TensorError> {
        let elements: Vec<f32> = (0..count).map(|_| self.normal()).collect();
        match dtype {
            DType::F64 => Tensor::from_vec(shape, elements.into_iter().map(f64::from).collect()),
            DType::F16 => {
                Tensor::from_vec(shape, elements.into_iter().map(f16::from_f32).collect())
            }
            DType::BF16 => {
                Tensor::from_vec(shape, elements.into_iter().map(bf16::from_f32).collect())
            }
            _ => Tensor::from_vec(shape, elements),
        }
    }

    /// Standard normal, by Box and Muller.
    fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.random.f32()).ln()).sqrt();
        radius * (std::f32::consts::TAU * self.random.f32()).cos()
    }

    fn integer(&mut self, domain: &InputDomain) -> i64 {
        match domain {
            InputDomain::Bytes => self.random.i64(0..256),
            InputDomain::Indices { upper } => self
                .random
                .i64(0..i64::try_from(*upper).unwrap_or(i64::MAX).max(1)),
            InputDomain::Mask => self.random.i64(0..2),
            InputDomain::OneOf(choices) => self.random.choice(choices).copied().unwrap_or(0),
            InputDomain::SmallInt { lo, hi } => self.random.i64(*lo.min(hi)..=*hi.max(lo)),
            InputDomain::Normal => 0,
        }
    }
}

/// An input to be drawn.
#[derive(Clone, Debug)]
pub struct ProbeInput {
    /// Its name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: Vec<usize>,
    /// Values that it can take.
    pub domain: InputDomain,
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "domains are drawn from what the graph indexes or compares, and wrap only where a \
              table has more rows than the index's dtype can name"
)]
fn integers(dtype: DType, shape: Vec<usize>, elements: &[i64]) -> Result<Tensor, TensorError> {
    macro_rules! cast {
        ($element:ty) => {
            Tensor::from_vec(shape, elements.iter().map(|&e| e as $element).collect())
        };
    }
    match dtype {
        DType::I8 => cast!(i8),
        DType::I16 => cast!(i16),
        DType::I32 => cast!(i32),
        DType::U8 => cast!(u8),
        DType::U16 => cast!(u16),
        DType::U32 => cast!(u32),
        DType::U64 => cast!(u64),
        _ => cast!(i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(dtype: DType, domain: InputDomain) -> ProbeInput {
        ProbeInput {
            name: "x".into(),
            dtype,
            shape: vec![1000],
            domain,
        }
    }

    #[test]
    fn indices_stay_within_their_table_and_masks_are_masks() {
        let mut prober = Prober::new(1);
        let indices = input(DType::I64, InputDomain::Indices { upper: 7 });
        let mask = ProbeInput {
            name: "m".into(),
            ..input(DType::I64, InputDomain::Mask)
        };
        let values = prober.draw(&[indices, mask]).unwrap();
        let indices = values["x"].as_slice::<i64>().unwrap();
        assert!(indices.iter().all(|index| (0..7).contains(index)));
        assert!(
            (0..7).all(|row| indices.contains(&row)),
            "every row is drawn in 1000"
        );
        assert!(
            values["m"]
                .as_slice::<i64>()
                .unwrap()
                .iter()
                .all(|&m| m == 0 || m == 1)
        );
    }

    #[test]
    fn a_seed_draws_the_same_values_again() {
        let inputs = [input(DType::F32, InputDomain::Normal)];
        let draw = |seed| {
            Prober::new(seed).draw(&inputs).unwrap()["x"]
                .bytes()
                .clone()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }

    #[test]
    fn floats_are_standard_normal() {
        let values = Prober::new(5)
            .draw(&[input(DType::F32, InputDomain::Normal)])
            .unwrap();
        let elements = values["x"].as_slice::<f32>().unwrap();
        let mean = elements.iter().sum::<f32>() / 1000.0;
        let variance = elements.iter().map(|e| (e - mean).powi(2)).sum::<f32>() / 1000.0;
        assert!(elements.iter().all(|e| e.is_finite()));
        assert!(
            mean.abs() < 0.15 && (variance - 1.0).abs() < 0.2,
            "{mean} {variance}"
        );
    }

    #[test]
    fn inputs_of_an_enormous_size_are_refused_before_anything_is_allocated() {
        for size in [usize::MAX, usize::MAX / 2, 1_000_000_000_000] {
            for dtype in [DType::F32, DType::I64, DType::Bool] {
                let mut input = input(dtype, InputDomain::Mask);
                input.shape = vec![size];
                let error = Prober::new(0).draw(&[input]).unwrap_err();
                assert!(matches!(error, TensorError::Overflow { .. }), "{error}");
            }
        }
    }
}
