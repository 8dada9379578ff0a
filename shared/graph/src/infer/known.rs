//! Small tensors whose elements are followed through the graph: shape arithmetic, axes, scales.

use seamline_plan::{DType, Dim};

/// Tensors of more elements than this are not followed.
pub(super) const MAX_ELEMENTS: usize = 256;

/// A shape of more dimensions than this is hostile, not a tensor; it is dropped.
pub(super) const MAX_RANK: usize = 32;

/// One element of a followed tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Elem {
    /// An integer, or a boolean as 0 or 1.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// The size that a symbol stands for, whatever the dtype.
    Sym(String),
    /// Only the run knows it.
    Unknown,
}

impl Elem {
    /// A dimension as an element of the tensor that `Shape` gives.
    pub(super) fn of_dim(dim: &Dim) -> Elem {
        match dim {
            Dim::Fixed(size) => i64::try_from(*size).map_or(Elem::Unknown, Elem::Int),
            Dim::Sym(symbol) => Elem::Sym(symbol.clone()),
            Dim::Unknown => Elem::Unknown,
        }
    }

    /// This element as a dimension; negative and fractional ones are unknown.
    pub(super) fn to_dim(&self) -> Dim {
        match self {
            Elem::Int(size) => u64::try_from(*size).map_or(Dim::Unknown, Dim::Fixed),
            Elem::Sym(symbol) => Dim::Sym(symbol.clone()),
            Elem::Float(_) | Elem::Unknown => Dim::Unknown,
        }
    }

    /// The integer, where it is one.
    pub(super) fn int(&self) -> Option<i64> {
        match self {
            Elem::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The number, where it is one.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            // Sizes stay far below 2^53.
            Elem::Int(value) => Some(*value as f64),
            Elem::Float(value) => Some(*value),
            Elem::Sym(_) | Elem::Unknown => None,
        }
    }
}

/// A followed tensor, row-major. `elems.len()` is the product of `dims` and at most
/// [`MAX_ELEMENTS`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    dims: Vec<usize>,
    elems: Vec<Elem>,
}

impl Known {
    /// A tensor of these dimensions; `None` where elements do not fill them or are too many.
    pub(super) fn new(dims: Vec<usize>, elems: Vec<Elem>) -> Option<Known> {
        let count = seamline_plan::element_count(&dims)?;
        (count == elems.len() && count <= MAX_ELEMENTS).then_some(Known { dims, elems })
    }

    /// A tensor of rank 0.
    pub(super) fn scalar(elem: Elem) -> Known {
        Known {
            dims: Vec::new(),
            elems: vec![elem],
        }
    }

    /// A tensor of rank 1.
    pub(super) fn vector(elems: Vec<Elem>) -> Option<Known> {
        Known::new(vec![elems.len()], elems)
    }

    /// A tensor filled with one element.
    pub(super) fn filled(dims: Vec<usize>, elem: Elem) -> Option<Known> {
        let count = seamline_plan::element_count(&dims)?;
        if count > MAX_ELEMENTS {
            return None;
        }
        Known::new(dims, vec![elem; count])
    }

    /// The dimensions.
    pub(super) fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The elements, row-major.
    pub(super) fn elems(&self) -> &[Elem] {
        &self.elems
    }

    /// The only element.
    pub(super) fn single(&self) -> Option<&Elem> {
        match self.elems.as_slice() {
            [elem] => Some(elem),
            _ => None,
        }
    }

    /// All elements as integers, if all are.
    pub(super) fn ints(&self) -> Option<Vec<i64>> {
        self.elems.iter().map(Elem::int).collect()
    }

    /// All elements as numbers, if all are.
    pub(super) fn numbers(&self) -> Option<Vec<f64>> {
        self.elems.iter().map(Elem::number).collect()
    }

    /// The same elements under other dimensions.
    pub(super) fn reshaped(&self, dims: Vec<usize>) -> Option<Known> {
        Known::new(dims, self.elems.clone())
    }

    /// Each element changed by `f`.
    pub(super) fn map(&self, f: impl Fn(&Elem) -> Elem) -> Known {
        Known {
            dims: self.dims.clone(),
            elems: self.elems.iter().map(f).collect(),
        }
    }

    /// The tensor of `dims` whose element at each index is this one's at `source(index)`.
    /// `None` where a source index is out of range.
    pub(super) fn remap(
        &self,
        dims: Vec<usize>,
        source: impl Fn(&[usize]) -> Option<Vec<usize>>,
    ) -> Option<Known> {
        Known::generate(dims, |index| {
            let at = source(index)?;
            self.at(&at).cloned()
        })
    }

    /// The tensor of `dims` with `element(index)` at each index.
    pub(super) fn generate(
        dims: Vec<usize>,
        element: impl Fn(&[usize]) -> Option<Elem>,
    ) -> Option<Known> {
        let count = seamline_plan::element_count(&dims)?;
        if count > MAX_ELEMENTS {
            return None;
        }
        let mut index = vec![0usize; dims.len()];
        let mut elems = Vec::with_capacity(count);
        for _ in 0..count {
            elems.push(element(&index)?);
            advance(&mut index, &dims);
        }
        Known::new(dims, elems)
    }

    /// The element at an index of full rank.
    pub(super) fn at(&self, index: &[usize]) -> Option<&Elem> {
        if index.len() != self.dims.len() {
            return None;
        }
        let mut flat = 0usize;
        for (&at, &dim) in index.iter().zip(&self.dims) {
            if at >= dim {
                return None;
            }
            flat = flat * dim + at;
        }
        self.elems.get(flat)
    }

    /// The element that broadcasting to `index` (of the broadcast result) reads.
    pub(super) fn at_broadcast(&self, index: &[usize]) -> Option<&Elem> {
        let skipped = index.len().checked_sub(self.dims.len())?;
        let own: Vec<usize> = index
            .iter()
            .skip(skipped)
            .zip(&self.dims)
            .map(|(&at, &dim)| if dim == 1 { 0 } else { at })
            .collect();
        self.at(&own)
    }
}

/// Steps a row-major index to the next one.
fn advance(index: &mut [usize], dims: &[usize]) {
    for (at, &dim) in index.iter_mut().zip(dims).rev() {
        *at += 1;
        if *at < dim {
            return;
        }
        *at = 0;
    }
}

/// What inference knows of one value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fact {
    pub(super) dtype: Option<DType>,
    pub(super) shape: Option<Vec<Dim>>,
    pub(super) known: Option<Known>,
}
