//! `Einsum`.

use std::collections::BTreeMap;

use seamline_plan::Dim;

use super::super::dims::broadcast_dim;
use super::{Call, Out, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[("Einsum", einsum)];

fn einsum(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let equation: String = call
        .string("equation")?
        .chars()
        .filter(|c| !c.is_whitespace())
        .collect();
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation.as_str(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    let labels = Labels::of(call, &terms)?;
    let implicit;
    let right = match right {
        Some(right) => right,
        None => {
            implicit = implicit_output(left);
            &implicit
        }
    };
    let (before, after) = match right.split_once("...") {
        Some((before, after)) => (before, Some(after)),
        None => (right, None),
    };
    let mut shape: Vec<Dim> = Vec::new();
    for label in before.chars() {
        shape.push(labels.named.get(&label)?.clone());
    }
    if let Some(after) = after {
        shape.extend(labels.ellipsis.iter().cloned());
        for label in after.chars() {
            shape.push(labels.named.get(&label)?.clone());
        }
    }
    out.shape(0, shape);
    Some(())
}

/// Without `->`: the ellipsis, then the labels that occur once, in alphabetical order.
fn implicit_output(left: &str) -> String {
    let mut counts: BTreeMap<char, usize> = BTreeMap::new();
    for label in left.chars().filter(|c| c.is_alphabetic()) {
        *counts.entry(label).or_default() += 1;
    }
    let once = counts.iter().filter(|(_, count)| **count == 1);
    let dots = if left.contains("...") { "..." } else { "" };
    dots.chars().chain(once.map(|(label, _)| *label)).collect()
}

/// The dimension behind every label of an equation.
pub(in crate::infer) struct Labels {
    pub(in crate::infer) named: BTreeMap<char, Dim>,
    pub(in crate::infer) ellipsis: Vec<Dim>,
}

impl Labels {
    /// `None` where a term does not fit its input's rank or a rank is not known.
    pub(in crate::infer) fn of(call: &Call<'_>, terms: &[&str]) -> Option<Labels> {
        let mut named: BTreeMap<char, Dim> = BTreeMap::new();
        let mut ellipsis: Vec<Dim> = Vec::new();
        for (i, term) in terms.iter().enumerate() {
            let shape = call.shape(i)?;
            let (before, after) = term.split_once("...").unwrap_or((term, ""));
            let (head, tail) = (before.chars().count(), after.chars().count());
            let middle = shape.len().checked_sub(head.checked_add(tail)?)?;
            if middle > 0 && !term.contains("...") {
                return None;
            }
            let (front, rest) = shape.split_at(head);
            let (dots, back) = rest.split_at(middle);
            let pairs = before.chars().zip(front).chain(after.chars().zip(back));
            for (label, dim) in pairs {
                named
                    .entry(label)
                    .and_modify(|known| *known = broadcast_dim(known, dim))
                    .or_insert_with(|| dim.clone());
            }
            ellipsis = super::super::dims::broadcast(&[&ellipsis, dots]);
        }
        Some(Labels { named, ellipsis })
    }
}
