//! Shapes with symbolic dimensions, and the check of a concrete tensor against them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::DType;

/// Whether an ONNX `dim_param` names nothing: exporters write an empty one, `?` or `-1` for that.
/// Two such dimensions need not be equal.
pub fn is_unnamed(dim_param: &str) -> bool {
    matches!(dim_param.trim(), "" | "?" | "-1" | "None")
}

/// One dimension of a shape: a number in JSON where fixed, a string where symbolic, `null` where
/// only the run knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Dim {
    /// Always this many.
    Fixed(u64),
    /// The same in every place where the symbol stands, within one request.
    Sym(String),
    /// Not known before the run.
    Unknown,
}

impl Dim {
    /// The size, where it is fixed.
    pub fn fixed(&self) -> Option<u64> {
        match self {
            Dim::Fixed(size) => Some(*size),
            Dim::Sym(_) | Dim::Unknown => None,
        }
    }
}

impl From<u64> for Dim {
    fn from(size: u64) -> Dim {
        Dim::Fixed(size)
    }
}

impl From<&str> for Dim {
    fn from(symbol: &str) -> Dim {
        Dim::Sym(symbol.to_owned())
    }
}

impl std::fmt::Display for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Dim::Fixed(size) => write!(f, "{size}"),
            Dim::Sym(symbol) => f.write_str(symbol),
            Dim::Unknown => f.write_str("?"),
        }
    }
}

/// Sizes that symbols took in one request.
pub type Bindings = BTreeMap<String, u64>;

/// A shape as users read it: `[2, N, ?]`.
pub fn format_shape<D: std::fmt::Display>(dims: &[D]) -> String {
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    format!("[{}]", dims.join(", "))
}

/// The product of the dimensions, or `None` where it passes `usize`.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    // A zero anywhere makes the tensor empty, even where the other dimensions overflow.
    if shape.contains(&0) {
        return Some(0);
    }
    shape
        .iter()
        .try_fold(1usize, |count, &dim| count.checked_mul(dim))
}

/// Name, dtype and shape of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// The value's name in the model.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first.
    pub shape: Vec<Dim>,
}

/// A tensor that does not fit its spec.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpecMismatch {
    /// Another element type.
    #[error(
        "`{name}` has dtype {got}; expected {expected} {}",
        format_shape(shape)
    )]
    DType {
        /// The value.
        name: String,
        /// What the spec says.
        expected: DType,
        /// The spec's shape.
        shape: Vec<Dim>,
        /// What came.
        got: DType,
    },
    /// Another rank, or a fixed dimension of another size.
    #[error(
        "`{name}` has shape {}; expected {}",
        format_shape(got),
        format_shape(expected)
    )]
    Shape {
        /// The value.
        name: String,
        /// What the spec says.
        expected: Vec<Dim>,
        /// What came.
        got: Vec<usize>,
    },
    /// A symbol that took two sizes in one request.
    #[error(
        "`{name}` has shape {}; its dimension {axis} is `{symbol}`, which is {bound} elsewhere in this request",
        format_shape(got)
    )]
    Symbol {
        /// The value.
        name: String,
        /// The dimension's index.
        axis: usize,
        /// The symbol.
        symbol: String,
        /// The size that it has elsewhere.
        bound: u64,
        /// What came.
        got: Vec<usize>,
    },
}

impl TensorSpec {
    /// Checks `dtype` and `shape` against this spec; symbols must agree with `bindings` and are
    /// added to it.
    ///
    /// # Errors
    /// [`SpecMismatch`], which names the value and says what was expected and what came.
    pub fn check(
        &self,
        dtype: DType,
        shape: &[usize],
        bindings: &mut Bindings,
    ) -> Result<(), SpecMismatch> {
        if dtype != self.dtype {
            return Err(SpecMismatch::DType {
                name: self.name.clone(),
                expected: self.dtype,
                shape: self.shape.clone(),
                got: dtype,
            });
        }
        let mismatch = || SpecMismatch::Shape {
            name: self.name.clone(),
            expected: self.shape.clone(),
            got: shape.to_vec(),
        };
        if shape.len() != self.shape.len() {
            return Err(mismatch());
        }
        for (axis, (dim, &got)) in self.shape.iter().zip(shape).enumerate() {
            match dim {
                Dim::Fixed(size) if *size != got as u64 => return Err(mismatch()),
                Dim::Fixed(_) | Dim::Unknown => {}
                Dim::Sym(symbol) => match bindings.get(symbol) {
                    Some(&bound) if bound != got as u64 => {
                        return Err(SpecMismatch::Symbol {
                            name: self.name.clone(),
                            axis,
                            symbol: symbol.clone(),
                            bound,
                            got: shape.to_vec(),
                        });
                    }
                    Some(_) => {}
                    None => {
                        bindings.insert(symbol.clone(), got as u64);
                    }
                },
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {} {}",
            self.name,
            self.dtype,
            format_shape(&self.shape)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(shape: Vec<Dim>) -> TensorSpec {
        TensorSpec {
            name: "x".into(),
            dtype: DType::F32,
            shape,
        }
    }

    #[test]
    fn dims_are_numbers_strings_and_null_in_json() {
        let shape = vec![Dim::Fixed(3), Dim::Sym("N".into()), Dim::Unknown];
        let json = serde_json::to_string(&shape).unwrap();
        assert_eq!(json, r#"[3,"N",null]"#);
        assert_eq!(serde_json::from_str::<Vec<Dim>>(&json).unwrap(), shape);
    }

    #[test]
    fn a_symbol_keeps_its_size_within_a_request() {
        let mut bindings = Bindings::new();
        let spec = spec(vec!["N".into(), 4.into()]);
        spec.check(DType::F32, &[2, 4], &mut bindings).unwrap();
        let error = spec.check(DType::F32, &[3, 4], &mut bindings).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`x` has shape [3, 4]; its dimension 0 is `N`, which is 2 elsewhere in this request"
        );
    }

    #[test]
    fn a_mismatch_says_what_was_expected_and_what_came() {
        let spec = spec(vec!["N".into(), 4.into()]);
        let shape = spec
            .check(DType::F32, &[2, 5], &mut Bindings::new())
            .unwrap_err();
        assert_eq!(shape.to_string(), "`x` has shape [2, 5]; expected [N, 4]");
        let dtype = spec
            .check(DType::I64, &[2, 4], &mut Bindings::new())
            .unwrap_err();
        assert_eq!(dtype.to_string(), "`x` has dtype i64; expected f32 [N, 4]");
    }

    #[test]
    fn element_counts_do_not_overflow() {
        assert_eq!(element_count(&[usize::MAX, 2]), None);
        assert_eq!(element_count(&[usize::MAX, 2, 0]), Some(0));
        assert_eq!(element_count(&[]), Some(1));
    }
}
