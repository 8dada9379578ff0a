//! Recovery of the whole input from all that is sent, for what has no places.

use super::{Outcome, Split};
use crate::plan::ridge::{DualRegression, dot};

/// Most features of a request; more are averaged over neighbours.
const MAX_FEATURES: usize = 16_384;

/// Learns on the requests of `split.train`, tries on those of `split.test`; `None` where requests
/// differ in size, or where there are none.
pub(super) fn attack(sent: &[Vec<f32>], targets: &[Vec<f32>], split: &Split) -> Option<Outcome> {
    let equal = |rows: &[Vec<f32>]| rows.iter().all(|row| row.len() == rows[0].len());
    if sent.is_empty() || sent[0].is_empty() || !equal(sent) || !equal(targets) {
        return None;
    }
    let pick = |rows: &[Vec<f32>], indices: &[usize]| -> Vec<Vec<f64>> {
        indices.iter().map(|&index| folded(&rows[index])).collect()
    };
    let wide = |rows: &[Vec<f32>], indices: &[usize]| -> Vec<Vec<f64>> {
        indices
            .iter()
            .map(|&index| rows[index].iter().map(|&v| v.into()).collect())
            .collect()
    };
    let (mut train, mut test) = (pick(sent, &split.train), pick(sent, &split.test));
    let mean = mean(&train);
    train
        .iter_mut()
        .chain(&mut test)
        .for_each(|row| subtract(row, &mean));
    let guess = self::mean(&wide(targets, &split.train));
    let mut learnt_from = wide(targets, &split.train);
    learnt_from.iter_mut().for_each(|row| subtract(row, &guess));

    let rows = train.len();
    let products: Vec<f64> = train
        .iter()
        .flat_map(|a| train.iter().map(move |b| dot(a, b)))
        .collect();
    let fitted = DualRegression::fit(&products, &learnt_from.concat(), rows)?;
    let width = guess.len();
    let mut outcome = Outcome {
        validation: fitted.error / width.max(1) as f64,
        ..Outcome::default()
    };
    for (row, truth) in test.iter().zip(wide(targets, &split.test)) {
        let mut got = guess.clone();
        for (other, weights) in train.iter().zip(fitted.weights.chunks_exact(width.max(1))) {
            let product = dot(row, other);
            got.iter_mut()
                .zip(weights)
                .for_each(|(got, weight)| *got += product * weight);
        }
        outcome.add(&truth, &got, &guess, &guess);
    }
    Some(outcome)
}

/// Means over equally many neighbours, so that at most [`MAX_FEATURES`] are left.
fn folded(row: &[f32]) -> Vec<f64> {
    let each = row.len().div_ceil(MAX_FEATURES).max(1);
    let mean = |part: &[f32]| part.iter().map(|&v| f64::from(v)).sum::<f64>() / part.len() as f64;
    row.chunks(each).map(mean).collect()
}

fn mean(rows: &[Vec<f64>]) -> Vec<f64> {
    let mut mean = vec![0.0; rows.first().map_or(0, Vec::len)];
    for row in rows {
        mean.iter_mut()
            .zip(row)
            .for_each(|(mean, value)| *mean += value / rows.len() as f64);
    }
    mean
}

fn subtract(row: &mut [f64], mean: &[f64]) {
    row.iter_mut()
        .zip(mean)
        .for_each(|(value, mean)| *value -= mean);
}
