//! What inference found: dtype and shape of every value.

use std::collections::BTreeMap;

use seamline_plan::{DType, Dim};

use super::known::{Elem, Fact};
use crate::{NodeId, ValueId};

/// Dtypes and shapes of a graph's values.
#[derive(Clone, Debug, Default)]
pub struct Types {
    pub(super) facts: Vec<Fact>,
    /// FLOPs inside the bodies of control-flow nodes and of model-local functions.
    pub(super) body_flops: BTreeMap<NodeId, f64>,
}

impl Types {
    /// The value's element type; `None` where it is unknown, or not a dense tensor of a type
    /// that Seamline carries.
    pub fn dtype(&self, id: ValueId) -> Option<DType> {
        self.fact(id)?.dtype
    }

    /// The value's shape, outermost first; `None` where not even the rank is known.
    pub fn shape(&self, id: ValueId) -> Option<&[Dim]> {
        self.fact(id)?.shape.as_deref()
    }

    /// The shape, where every dimension is fixed.
    pub fn fixed_shape(&self, id: ValueId) -> Option<Vec<u64>> {
        self.shape(id)?.iter().map(Dim::fixed).collect()
    }

    /// Number of elements, where every dimension is fixed and the product fits.
    pub fn elements(&self, id: ValueId) -> Option<u64> {
        let shape = self.fixed_shape(id)?;
        if shape.contains(&0) {
            return Some(0);
        }
        shape
            .into_iter()
            .try_fold(1u64, |count, dim| count.checked_mul(dim))
    }

    /// Size in bytes, where dtype and every dimension are known.
    pub fn bytes(&self, id: ValueId) -> Option<u64> {
        self.elements(id)?
            .checked_mul(self.dtype(id)?.size() as u64)
    }

    /// The elements of an integer tensor that is the same in every run, row-major.
    pub(crate) fn known_integers(&self, id: ValueId) -> Option<Vec<i64>> {
        self.fact(id)?.known.as_ref()?.ints()
    }

    /// The symbol whose size is the value's only element.
    pub(crate) fn symbol(&self, id: ValueId) -> Option<&str> {
        let fact = self
            .fact(id)
            .filter(|fact| fact.dtype == Some(DType::I64))?;
        match fact.known.as_ref()?.single()? {
            Elem::Sym(symbol) => Some(symbol),
            _ => None,
        }
    }

    pub(super) fn fact(&self, id: ValueId) -> Option<&Fact> {
        self.facts.get(id.index())
    }
}
