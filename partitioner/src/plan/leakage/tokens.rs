//! Token ids, looked up by the embeddings that an attack recovers.

use std::collections::BTreeMap;

use seamline_graph::{Graph, Initializer, ValueId};
use seamline_plan::{DType, Tensor};

use super::Split;

/// Most elements of an embedding table that is searched.
const MAX_TABLE: u64 = 1 << 26;

/// Most tokens that are looked up in the table.
const MAX_LOOKED_UP: usize = 512;

/// Token ids, recovered by their embeddings.
pub(super) struct Tokens {
    /// By request.
    pub(super) ids: Vec<Vec<i64>>,
    /// Rows of embeddings.
    pub(super) table: Vec<f32>,
    pub(super) width: usize,
}

impl Tokens {
    /// The share of held-out tokens whose own embedding is the nearest to what was recovered,
    /// beyond the share that the commonest token guesses.
    pub(super) fn recovered(&self, guesses: &[(Vec<f64>, Vec<f64>)], split: &Split) -> f64 {
        let step = guesses.len().div_ceil(MAX_LOOKED_UP).max(1);
        let tried: Vec<&(Vec<f64>, Vec<f64>)> = guesses.iter().step_by(step).collect();
        let right = tried
            .iter()
            .filter(|(truth, got)| self.is_nearest(truth, got))
            .count();
        let share = right as f64 / tried.len().max(1) as f64;
        let guess = self.commonest_share(split);
        if guess < 1.0 {
            ((share - guess) / (1.0 - guess)).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Whether no row of the table is nearer to `got` than `truth` is.
    fn is_nearest(&self, truth: &[f64], got: &[f64]) -> bool {
        // A table has rows that are the same, and `truth` went through f32.
        const SLACK: f64 = 1.0 - 1e-6;
        let limit = SLACK
            * truth
                .iter()
                .zip(got)
                .map(|(t, g)| (t - g).powi(2))
                .sum::<f64>();
        let is_nearer = |row: &[f32]| {
            let mut sum = 0.0;
            for (row, got) in row.chunks(32).zip(got.chunks(32)) {
                sum += row
                    .iter()
                    .zip(got)
                    .map(|(r, g)| (f64::from(*r) - g).powi(2))
                    .sum::<f64>();
                if sum >= limit {
                    return false;
                }
            }
            true
        };
        !self.table.chunks_exact(self.width.max(1)).any(is_nearer)
    }

    /// How often the commonest token of the requests that are learnt from is in the others.
    fn commonest_share(&self, split: &Split) -> f64 {
        let ids = |indices: &[usize]| -> Vec<i64> {
            indices
                .iter()
                .flat_map(|&index| self.ids[index].iter().copied())
                .collect()
        };
        let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
        ids(&split.train)
            .into_iter()
            .for_each(|id| *counts.entry(id).or_default() += 1);
        let commonest = counts
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .map(|(id, _)| id);
        let tried = ids(&split.test);
        let hits = tried.iter().filter(|id| Some(**id) == commonest).count();
        hits as f64 / tried.len().max(1) as f64
    }
}

pub(super) fn integers(tensor: &Tensor) -> Option<Vec<i64>> {
    match tensor.dtype() {
        DType::I64 => tensor.as_slice::<i64>().ok().map(<[i64]>::to_vec),
        DType::I32 => tensor
            .as_slice::<i32>()
            .ok()
            .map(|ids| ids.iter().map(|&id| id.into()).collect()),
        _ => None,
    }
}

/// The constant `id`, or the levels that it is dequantised from.
fn constant_or_levels(graph: &Graph, id: ValueId) -> Option<Initializer> {
    let levels = || {
        let node = graph.node(graph.value(id).producer?);
        let levels = node.input(0).filter(|_| node.is("DequantizeLinear"))?;
        graph.constant(levels)
    };
    graph.constant(id).or_else(levels)
}

/// The table that `Gather` reads at the input `ids`, and the length of its rows. Of a quantised one
/// the levels, which are as good to tell tokens by.
pub(super) fn embedding_table(graph: &Graph, ids: ValueId) -> Option<(Vec<f32>, usize)> {
    let mut open = vec![ids];
    let mut best: Option<(Vec<f32>, usize)> = None;
    while let Some(value) = open.pop() {
        for node in graph
            .value(value)
            .consumers
            .iter()
            .map(|&id| graph.node(id))
        {
            if node.is("Cast") || node.is("Identity") {
                open.extend(node.makes());
            }
            let is_lookup = node.is("Gather") && node.input(1) == Some(value);
            let table = node.input(0).filter(|_| is_lookup);
            let table = table.and_then(|id| constant_or_levels(graph, id));
            let Some(table) = table else { continue };
            let [rows, width] = *table.dims().ok()?.as_slice() else {
                continue;
            };
            if rows < 2 || rows.checked_mul(width).is_none_or(|all| all > MAX_TABLE) {
                continue;
            }
            #[allow(clippy::cast_precision_loss, reason = "levels of at most 8 bits")]
            let levels = || {
                Some(
                    table
                        .to_i64s()
                        .ok()?
                        .into_iter()
                        .map(|level| level as f32)
                        .collect(),
                )
            };
            let Some(values) = table.to_f32s().ok().or_else(levels) else {
                continue;
            };
            let width = usize::try_from(width).ok()?;
            if best
                .as_ref()
                .is_none_or(|(found, _)| found.len() < values.len())
            {
                best = Some((values, width));
            }
        }
    }
    best
}
