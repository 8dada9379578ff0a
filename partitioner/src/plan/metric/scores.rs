//! Figures of scores: an output seen as rows of its last axis.

use seamline_plan::{Tensor, format_shape};

use super::{Answer, MetricError, numbers};
use crate::compare::compare;
use crate::plan::calibration::Sample;

/// An output as rows.
pub(super) struct Scores {
    /// All elements, row by row.
    pub(super) values: Vec<f64>,
    /// Elements of a row.
    pub(super) width: usize,
}

impl Scores {
    /// The row at `index`.
    pub(super) fn row(&self, index: usize) -> Option<&[f64]> {
        self.values.chunks_exact(self.width.max(1)).nth(index)
    }

    /// Every row.
    pub(super) fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.width.max(1))
    }
}

/// The output `name` of `answer`.
pub(super) fn named(answer: &Answer, name: &str) -> Result<Scores, MetricError> {
    let wrong = |problem: String| MetricError::Output {
        output: name.to_owned(),
        problem,
    };
    let tensor = answer
        .get(name)
        .ok_or_else(|| wrong("the answer lacks it".into()))?;
    let values = numbers(tensor)
        .ok_or_else(|| wrong(format!("{} cannot be read as numbers", tensor.dtype())))?;
    Ok(Scores {
        values,
        width: tensor.shape().last().copied().unwrap_or(1),
    })
}

/// The index of the largest score; none where any is NaN, or there are none.
pub(super) fn argmax(row: &[f64]) -> Option<usize> {
    if row.iter().any(|score| score.is_nan()) {
        return None;
    }
    // The first of equals, as NumPy has it.
    let best = row
        .iter()
        .enumerate()
        .rev()
        .max_by(|a, b| a.1.total_cmp(b.1));
    best.map(|(index, _)| index)
}

/// Rows whose largest score is at the same place, and rows. Answers of another number of rows agree
/// in none.
pub(super) fn agreement(whole: Scores, split: Scores) -> (f64, f64) {
    let rows = whole.rows().count();
    let same = if whole.width == split.width && whole.values.len() == split.values.len() {
        let pairs = whole.rows().zip(split.rows());
        pairs
            .filter(|(whole, split)| argmax(whole).is_some() && argmax(whole) == argmax(split))
            .count()
    } else {
        0
    };
    (same as f64, rows as f64)
}

/// The class that the label names, of `classes`.
pub(super) fn class(sample: &Sample, classes: usize) -> Result<usize, MetricError> {
    let wrong = |problem: String| MetricError::Label {
        sample: sample.name.clone(),
        problem,
    };
    let label = sample.label.as_deref().unwrap_or_default().trim();
    let class: usize = label
        .parse()
        .map_err(|_| wrong(format!("expected the index of a class, got `{label}`")))?;
    if class < classes {
        return Ok(class);
    }
    Err(wrong(format!(
        "class {class} of {classes}, which are counted from 0"
    )))
}

/// The cosine of two vectors; 1 for two of zeros, 0 where one is zero or they cannot be compared.
pub(super) fn cosine(whole: &[f64], split: &[f64]) -> f64 {
    if whole.len() != split.len() {
        return 0.0;
    }
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (a, b) = (dot(whole, whole), dot(split, split));
    if a == 0.0 && b == 0.0 {
        return 1.0;
    }
    let cosine = dot(whole, split) / (a * b).sqrt();
    if cosine.is_finite() { cosine } else { 0.0 }
}

/// Σ −ln p(token at t + 1 | up to t) and how many, where `logits` are [1, T, V] and the input `ids`
/// holds the tokens. Tokens whose `attention_mask` is 0 are passed over.
pub(super) fn surprise(
    sample: &Sample,
    logits: &Scores,
    ids: &str,
) -> Result<(f64, f64), MetricError> {
    let wrong = |problem: String| MetricError::Output {
        output: "logits".into(),
        problem,
    };
    let input = |name: &str| sample.values.get(name).and_then(numbers);
    let tokens = input(ids).ok_or_else(|| wrong(format!("there is no input `{ids}`")))?;
    let mask = input("attention_mask").filter(|mask| mask.len() == tokens.len());
    let rows = logits.rows().count();
    if rows != tokens.len() {
        let shape = |t: &Tensor| format_shape(t.shape());
        let given = sample.values.get(ids).map(shape).unwrap_or_default();
        return Err(wrong(format!(
            "{rows} rows of scores for {ids} {given}; expected one a token"
        )));
    }
    let length = sample
        .values
        .get(ids)
        .and_then(|ids| ids.shape().last().copied())
        .unwrap_or(1);
    let (mut sum, mut count) = (0.0, 0.0);
    for (at, row) in logits.rows().enumerate() {
        let next = at + 1;
        let is_masked = |at: usize| mask.as_ref().is_some_and(|mask| mask[at] == 0.0);
        if next % length.max(1) == 0 || is_masked(at) || is_masked(next) {
            continue;
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "token ids are small whole numbers; others are refused below"
        )]
        let score = row
            .get(tokens[next] as usize)
            .filter(|_| tokens[next] >= 0.0);
        let score = score.ok_or_else(|| {
            wrong(format!(
                "token {} has no score among {}",
                tokens[next],
                row.len()
            ))
        })?;
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log_sum = top
            + row
                .iter()
                .map(|score| (score - top).exp())
                .sum::<f64>()
                .ln();
        sum += log_sum - score;
        count += 1.0;
    }
    Ok((sum, count))
}

/// The largest |difference| / max(1, |whole|) of any output.
pub(super) fn max_relative(whole: &Answer, split: &Answer) -> f64 {
    let difference = |(name, whole): (&String, &Tensor)| match split.get(name) {
        Some(split) => compare(whole, split).max_rel,
        None => f64::INFINITY,
    };
    whole.iter().map(difference).fold(0.0, f64::max)
}
