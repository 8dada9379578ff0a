//! Arithmetic on dimensions. A result that is no longer the same symbol is [`Dim::Unknown`].

use seamline_plan::{Bindings, Dim, is_unnamed};

/// The symbol that an unnamed dimension of a graph input gets: `<input>_dim<axis>`.
pub fn input_symbol(input: &str, axis: usize) -> String {
    format!("{input}_dim{axis}")
}

/// The dimension with its symbol replaced by the size that it is bound to.
pub(super) fn bind(dim: &Dim, bindings: &Bindings) -> Dim {
    match dim {
        Dim::Sym(symbol) if is_unnamed(symbol) => Dim::Unknown,
        Dim::Sym(symbol) => bindings
            .get(symbol)
            .map_or_else(|| dim.clone(), |&size| Dim::Fixed(size)),
        other => other.clone(),
    }
}

/// The dimension that two broadcast against each other give.
pub(super) fn broadcast_dim(a: &Dim, b: &Dim) -> Dim {
    match (a, b) {
        (Dim::Fixed(1), other) | (other, Dim::Fixed(1)) => other.clone(),
        // Whatever the other is, it must be 1 or this.
        (Dim::Fixed(size), _) | (_, Dim::Fixed(size)) => Dim::Fixed(*size),
        (Dim::Sym(x), Dim::Sym(y)) if x == y => a.clone(),
        _ => Dim::Unknown,
    }
}

/// The shape that several broadcast against each other give (numpy's rule).
pub(super) fn broadcast(shapes: &[&[Dim]]) -> Vec<Dim> {
    let rank = shapes.iter().map(|shape| shape.len()).max().unwrap_or(0);
    let mut result = vec![Dim::Fixed(1); rank];
    for shape in shapes {
        let skipped = rank - shape.len();
        for (dim, other) in result.iter_mut().skip(skipped).zip(*shape) {
            *dim = broadcast_dim(dim, other);
        }
    }
    result
}

/// What holds of a value that is either of two.
pub(super) fn join_dim(a: &Dim, b: &Dim) -> Dim {
    if a == b { a.clone() } else { Dim::Unknown }
}

/// What holds of a shape that is either of two: `None` where the ranks differ.
pub(super) fn join(a: &[Dim], b: &[Dim]) -> Option<Vec<Dim>> {
    (a.len() == b.len()).then(|| a.iter().zip(b).map(|(a, b)| join_dim(a, b)).collect())
}

/// An inferred dimension, or the declared one where inference knows nothing. A declared size
/// does not replace an inferred symbol: exporters leave sizes of the traced example behind.
pub(super) fn refine_dim(inferred: &Dim, declared: &Dim) -> Dim {
    match inferred {
        Dim::Unknown => declared.clone(),
        _ => inferred.clone(),
    }
}

/// The product; a symbol survives where all other factors are 1.
pub(super) fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
    let mut fixed = Some(1u64);
    let mut open: Vec<&Dim> = Vec::new();
    for dim in dims {
        match dim {
            Dim::Fixed(0) => return Dim::Fixed(0),
            Dim::Fixed(size) => fixed = fixed.and_then(|product| product.checked_mul(*size)),
            other => open.push(other),
        }
    }
    match (fixed, open.as_slice()) {
        (Some(size), []) => Dim::Fixed(size),
        (Some(1), [only]) => (*only).clone(),
        _ => Dim::Unknown,
    }
}

/// The sum; a symbol survives where all other terms are 0.
pub(super) fn sum<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Dim {
    let mut total = Dim::Fixed(0);
    for dim in dims {
        total = match (total, dim) {
            (Dim::Fixed(a), Dim::Fixed(b)) => a.checked_add(*b).map_or(Dim::Unknown, Dim::Fixed),
            (Dim::Fixed(0), other) => other.clone(),
            (open, Dim::Fixed(0)) => open,
            _ => return Dim::Unknown,
        };
    }
    total
}

/// `total / part` where it is certain: common symbols cancel, the rest must divide.
pub(super) fn quotient(total: &[Dim], part: &[Dim]) -> Dim {
    let mut rest: Vec<&Dim> = total.iter().collect();
    let mut divisor = Some(1u64);
    for dim in part {
        match dim {
            Dim::Fixed(size) => divisor = divisor.and_then(|d| d.checked_mul(*size)),
            Dim::Sym(_) => match rest.iter().position(|other| *other == dim) {
                Some(at) => {
                    rest.swap_remove(at);
                }
                None => return Dim::Unknown,
            },
            Dim::Unknown => return Dim::Unknown,
        }
    }
    match (divisor, product(rest.iter().copied())) {
        (Some(0), _) | (None, _) => Dim::Unknown,
        (Some(1), dim) => dim,
        (Some(divisor), Dim::Fixed(size)) if size % divisor == 0 => Dim::Fixed(size / divisor),
        (Some(divisor), _) => scaled_symbol(&rest, divisor),
    }
}

/// The symbol among `dims` where the fixed ones multiply to exactly `divisor`.
fn scaled_symbol(dims: &[&Dim], divisor: u64) -> Dim {
    let mut fixed = 1u64;
    let mut symbol = None;
    for dim in dims {
        match dim {
            Dim::Fixed(size) => match fixed.checked_mul(*size) {
                Some(product) => fixed = product,
                None => return Dim::Unknown,
            },
            Dim::Sym(_) if symbol.is_none() => symbol = Some((*dim).clone()),
            _ => return Dim::Unknown,
        }
    }
    match symbol {
        Some(symbol) if fixed == divisor => symbol,
        _ => Dim::Unknown,
    }
}

/// A fixed dimension changed by `f` (where it has a result of at least 0), else unknown.
pub(super) fn map_fixed(dim: &Dim, f: impl FnOnce(i64) -> Option<i64>) -> Dim {
    dim.fixed()
        .and_then(|size| i64::try_from(size).ok())
        .and_then(f)
        .and_then(|size| u64::try_from(size).ok())
        .map_or(Dim::Unknown, Dim::Fixed)
}
