//! Which symbol is the batch, and where it stands.

use seamline_plan::{Bindings, Dim};

use super::input_fact;
use super::types::Types;
use crate::{Graph, ValueId};

/// The symbol that looks like the batch: the one that a dimension of the inputs has, by these
/// rules in order. It is a candidate only; joining rows is proven elsewhere.
/// 1. A symbol whose name says so (`batch`, `N`, …), where every input that has it has it once.
/// 2. The symbol on axis 0 of every input of rank 1 or more. With one input that is any symbol on
///    its axis 0 that does not name a length (`sequence_length`, `time`, …).
pub fn batch_symbol(graph: &Graph) -> Option<String> {
    let shapes: Vec<Vec<Dim>> = graph
        .inputs
        .iter()
        .filter_map(|&input| input_fact(graph.value(input), &Bindings::new()).shape)
        .filter(|shape| !shape.is_empty())
        .collect();
    let at_most_once = |symbol: &str| {
        shapes
            .iter()
            .all(|shape| symbols(shape).filter(|own| *own == symbol).count() <= 1)
    };
    let named = shapes
        .iter()
        .flat_map(|shape| symbols(shape))
        .find(|symbol| names_batch(symbol) && at_most_once(symbol));
    if let Some(symbol) = named {
        return Some(symbol.to_owned());
    }
    let (first, rest) = shapes.split_first()?;
    let Some(Dim::Sym(symbol)) = first.first() else {
        return None;
    };
    let shared = rest.iter().all(|shape| shape.first() == first.first());
    (shared && at_most_once(symbol) && !names_length(symbol)).then(|| symbol.clone())
}

fn symbols(shape: &[Dim]) -> impl Iterator<Item = &str> {
    shape.iter().filter_map(|dim| match dim {
        Dim::Sym(symbol) => Some(symbol.as_str()),
        Dim::Fixed(_) | Dim::Unknown => None,
    })
}

fn names_batch(symbol: &str) -> bool {
    let lower = symbol.to_ascii_lowercase();
    lower.starts_with("batch") || matches!(lower.as_str(), "n" | "b" | "bs")
}

fn names_length(symbol: &str) -> bool {
    let lower = symbol.to_ascii_lowercase();
    [
        "seq", "len", "time", "frame", "step", "token", "height", "width",
    ]
    .iter()
    .any(|part| lower.contains(part))
}

/// The only axis of `value` that has `symbol`; `None` where no axis or several have it.
pub fn axis_of(types: &Types, value: ValueId, symbol: &str) -> Option<usize> {
    let shape = types.shape(value)?;
    let mut axes = shape
        .iter()
        .enumerate()
        .filter(|(_, dim)| matches!(dim, Dim::Sym(own) if own == symbol))
        .map(|(axis, _)| axis);
    let axis = axes.next()?;
    axes.next().is_none().then_some(axis)
}
