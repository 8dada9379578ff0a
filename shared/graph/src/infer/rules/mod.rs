//! One rule an operator: from the types (and small values) of its inputs to those of its outputs.

mod contrib;
mod conv;
mod einsum;
mod elementwise;
mod gather;
mod generators;
mod layout;
mod matmul;
mod norm;
mod pool;
mod quant;
mod reduce;
mod resize;
mod rnn;
mod signal;
mod slice;
mod vision;

use std::collections::HashMap;
use std::sync::LazyLock;

use super::call::{Call, Out, Param};
pub(super) use einsum::Labels;

/// Fills in what it can of the outputs; `None` where nothing more can be said.
pub(super) type Rule = fn(&Call<'_>, &mut Out) -> Option<()>;

static STANDARD: LazyLock<HashMap<&'static str, Rule>> = LazyLock::new(|| {
    [
        conv::RULES,
        einsum::RULES,
        elementwise::RULES,
        gather::RULES,
        generators::RULES,
        layout::RULES,
        matmul::RULES,
        norm::RULES,
        pool::RULES,
        quant::RULES,
        reduce::RULES,
        resize::RULES,
        rnn::RULES,
        signal::RULES,
        slice::RULES,
        vision::RULES,
    ]
    .into_iter()
    .flatten()
    .copied()
    .chain(elementwise::unary_rules())
    .collect()
});

static CONTRIB: LazyLock<HashMap<&'static str, Rule>> =
    LazyLock::new(|| contrib::RULES.iter().copied().collect());

/// The rule of an operator, where there is one.
pub(super) fn find(domain: &str, op: &str) -> Option<Rule> {
    match domain {
        "" | "ai.onnx" => STANDARD.get(op).copied(),
        // ONNX Runtime also takes some standard operators under its own domain.
        "com.microsoft" => CONTRIB.get(op).or_else(|| STANDARD.get(op)).copied(),
        _ => None,
    }
}

/// Domain and name of every operator that has a rule.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let standard = STANDARD.keys().map(|&op| ("", op));
    standard.chain(CONTRIB.keys().map(|&op| ("com.microsoft", op)))
}
