//! Ridge regression (Hoerl and Kennard, 1970), its strength chosen by cross-validation.
//!
//! The systems here have at most some hundred unknowns: a Cholesky factorisation in plain loops
//! solves one in milliseconds, and a linear algebra crate would cost every build more than that.

/// Strengths that are tried, as a share of the mean variance of a feature.
const STRENGTHS: [f64; 5] = [1e-6, 1e-4, 1e-2, 1e-1, 1.0];

/// Sums over rows of features `x` and targets `y`, from which a regression is solved.
#[derive(Clone)]
pub(super) struct Moments {
    features: usize,
    targets: usize,
    rows: f64,
    x: Vec<f64>,
    y: Vec<f64>,
    /// xᵀx, the upper triangle.
    xx: Vec<f64>,
    /// xᵀy, a row for each feature.
    xy: Vec<f64>,
    yy: f64,
}

/// A regression: `y = mean_y + (x − mean_x) · weights`.
pub(super) struct Regression {
    mean_x: Vec<f64>,
    mean_y: Vec<f64>,
    /// A row for each feature.
    weights: Vec<f64>,
}

impl Moments {
    pub(super) fn new(features: usize, targets: usize) -> Moments {
        Moments {
            features,
            targets,
            rows: 0.0,
            x: vec![0.0; features],
            y: vec![0.0; targets],
            xx: vec![0.0; features * features],
            xy: vec![0.0; features * targets],
            yy: 0.0,
        }
    }

    /// Adds a row.
    pub(super) fn add(&mut self, x: &[f64], y: &[f64]) {
        self.rows += 1.0;
        for (i, &value) in x.iter().enumerate() {
            self.x[i] += value;
            if value == 0.0 {
                continue;
            }
            let row = &mut self.xx[i * self.features + i..(i + 1) * self.features];
            axpy(value, &x[i..], row);
            axpy(
                value,
                y,
                &mut self.xy[i * self.targets..(i + 1) * self.targets],
            );
        }
        axpy(1.0, y, &mut self.y);
        self.yy += dot(y, y);
    }

    /// Adds the rows of `other`, `sign` times.
    fn merge(&mut self, other: &Moments, sign: f64) {
        self.rows += sign * other.rows;
        axpy(sign, &other.x, &mut self.x);
        axpy(sign, &other.y, &mut self.y);
        axpy(sign, &other.xx, &mut self.xx);
        axpy(sign, &other.xy, &mut self.xy);
        self.yy += sign * other.yy;
    }

    /// The regression of strength `strength`.
    fn solve(&self, strength: f64) -> Option<Regression> {
        let (d, t) = (self.features, self.targets);
        let mean = |sum: &[f64]| sum.iter().map(|s| s / self.rows).collect::<Vec<f64>>();
        let (mean_x, mean_y) = (mean(&self.x), mean(&self.y));
        // Lower triangle of the centred products.
        let mut a = vec![0.0; d * d];
        let mut trace = 0.0;
        for i in 0..d {
            for j in 0..=i {
                a[i * d + j] = self.xx[j * d + i] - self.x[i] * mean_x[j];
            }
            trace += a[i * d + i].max(0.0);
        }
        let ridge = strength * trace / d as f64;
        if ridge == 0.0 {
            // Features that never change tell nothing.
            return Some(Regression {
                mean_x,
                mean_y,
                weights: vec![0.0; d * t],
            });
        }
        for i in 0..d {
            a[i * d + i] += ridge;
        }
        let mut weights = self.xy.clone();
        for i in 0..d {
            axpy(-self.x[i], &mean_y, &mut weights[i * t..(i + 1) * t]);
        }
        cholesky(&mut a, d)?;
        substitute(&a, d, &mut weights, t);
        Some(Regression {
            mean_x,
            mean_y,
            weights,
        })
    }

    /// Σ|y − prediction|² over the rows of these moments.
    fn error(&self, regression: &Regression) -> f64 {
        let (d, t) = (self.features, self.targets);
        let w = &regression.weights;
        // y − offset − x·w, with offset = mean_y − mean_x·w.
        let mut offset = regression.mean_y.clone();
        for i in 0..d {
            axpy(-regression.mean_x[i], &w[i * t..(i + 1) * t], &mut offset);
        }
        let mut quadratic = 0.0;
        let mut row = vec![0.0; t];
        let mut xw = vec![0.0; t];
        for i in 0..d {
            row.fill(0.0);
            axpy(0.5 * self.xx[i * d + i], &w[i * t..(i + 1) * t], &mut row);
            for j in i + 1..d {
                axpy(self.xx[i * d + j], &w[j * t..(j + 1) * t], &mut row);
            }
            quadratic += 2.0 * dot(&row, &w[i * t..(i + 1) * t]);
            axpy(self.x[i], &w[i * t..(i + 1) * t], &mut xw);
        }
        self.yy + quadratic + self.rows * dot(&offset, &offset)
            - 2.0 * dot(&self.xy, w)
            - 2.0 * dot(&self.y, &offset)
            + 2.0 * dot(&xw, &offset)
    }

    /// The regression over all `folds`, of the strength with the least error on each fold when
    /// learnt from the others; and that error by row.
    pub(super) fn cross_validated(folds: &[Moments]) -> Option<(Regression, f64)> {
        let mut all = folds.first()?.clone();
        folds[1..].iter().for_each(|fold| all.merge(fold, 1.0));
        let error = |strength: f64| -> f64 {
            let error = |fold: &Moments| {
                let mut others = all.clone();
                others.merge(fold, -1.0);
                others
                    .solve(strength)
                    .map_or(f64::INFINITY, |learnt| fold.error(&learnt))
            };
            folds.iter().map(error).sum()
        };
        let errors = STRENGTHS.map(|strength| (strength, error(strength)));
        let (strength, error) = errors.into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some((all.solve(strength)?, error / all.rows))
    }
}

impl Regression {
    /// The targets of `x`.
    pub(super) fn predict(&self, x: &[f64]) -> Vec<f64> {
        let mut y = self.mean_y.clone();
        let t = y.len();
        for (i, value) in x.iter().enumerate() {
            axpy(
                value - self.mean_x[i],
                &self.weights[i * t..(i + 1) * t],
                &mut y,
            );
        }
        y
    }
}

/// A ridge regression by the products of rows with each other: for fewer rows than features.
pub(super) struct DualRegression {
    /// A row of targets for each row that it learnt from.
    pub(super) weights: Vec<f64>,
    /// Mean squared error when a row is left out, by row.
    pub(super) error: f64,
}

impl DualRegression {
    /// From `products` of centred rows (n × n) and their centred `targets` (n × t). The strength is
    /// chosen by leaving each row out, in closed form.
    pub(super) fn fit(products: &[f64], targets: &[f64], rows: usize) -> Option<DualRegression> {
        let t = targets.len().checked_div(rows)?;
        let trace: f64 = (0..rows).map(|i| products[i * rows + i]).sum();
        let mut best: Option<DualRegression> = None;
        for strength in STRENGTHS {
            let mut a = products.to_vec();
            let ridge = (strength * trace / rows as f64).max(f64::MIN_POSITIVE);
            (0..rows).for_each(|i| a[i * rows + i] += ridge);
            cholesky(&mut a, rows)?;
            let mut weights = targets.to_vec();
            substitute(&a, rows, &mut weights, t);
            let mut inverse = vec![0.0; rows * rows];
            (0..rows).for_each(|i| inverse[i * rows + i] = 1.0);
            substitute(&a, rows, &mut inverse, rows);
            let left_out = |i: usize| {
                let row = &weights[i * t..(i + 1) * t];
                dot(row, row) / inverse[i * rows + i].powi(2)
            };
            let error = (0..rows).map(left_out).sum::<f64>() / rows as f64;
            if best.as_ref().is_none_or(|best| error < best.error) {
                best = Some(DualRegression { weights, error });
            }
        }
        best
    }
}

/// Replaces the lower triangle of the positive definite `a` (n × n) by its Cholesky factor; `None`
/// where `a` is not positive definite.
fn cholesky(a: &mut [f64], n: usize) -> Option<()> {
    for i in 0..n {
        let (above, row) = a.split_at_mut(i * n);
        for j in 0..=i {
            let other = if j == i {
                None
            } else {
                Some(&above[j * n..j * n + j])
            };
            let sum = row[j] - dot(&row[..j], other.unwrap_or(&row[..j]));
            if j == i {
                if sum.is_nan() || sum <= 0.0 {
                    return None;
                }
                row[i] = sum.sqrt();
            } else {
                row[j] = sum / above[j * n + j];
            }
        }
    }
    Some(())
}

/// Solves L·Lᵀ·x = b for each of the `t` columns of `b` in place.
fn substitute(l: &[f64], n: usize, b: &mut [f64], t: usize) {
    for i in 0..n {
        let (done, row) = b.split_at_mut(i * t);
        let row = &mut row[..t];
        for j in 0..i {
            axpy(-l[i * n + j], &done[j * t..(j + 1) * t], row);
        }
        row.iter_mut().for_each(|value| *value /= l[i * n + i]);
    }
    for i in (0..n).rev() {
        let (rest, done) = b.split_at_mut((i + 1) * t);
        let row = &mut rest[i * t..];
        for j in i + 1..n {
            axpy(-l[j * n + i], &done[(j - i - 1) * t..(j - i) * t], row);
        }
        row.iter_mut().for_each(|value| *value /= l[i * n + i]);
    }
}

/// Σ a·b, in four sums so that the processor need not wait for each addition.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (mut sums, len) = ([0.0; 4], a.len().min(b.len()));
    let (a, a_rest) = a[..len].as_chunks::<4>();
    let (b, b_rest) = b[..len].as_chunks::<4>();
    for (a, b) in a.iter().zip(b) {
        for lane in 0..4 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

/// y += factor · x.
fn axpy(factor: f64, x: &[f64], y: &mut [f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += factor * x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(seed: u64, count: usize, d: usize) -> Vec<Vec<f64>> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..count)
            .map(|_| (0..d).map(|_| random.f64() - 0.5).collect())
            .collect()
    }

    fn target(x: &[f64]) -> Vec<f64> {
        vec![3.0 * x[0] - x[1] + 2.0, x[2] - 1.0]
    }

    #[test]
    fn a_linear_map_is_found_and_its_error_is_that_of_the_rows() {
        let all = rows(1, 60, 3);
        let mut folds = vec![Moments::new(3, 2); 3];
        for (index, x) in all.iter().enumerate() {
            folds[index % 3].add(x, &target(x));
        }
        let (found, error) = Moments::cross_validated(&folds).unwrap();
        assert!(error < 1e-9, "{error}");
        for x in rows(2, 5, 3) {
            let (got, expected) = (found.predict(&x), target(&x));
            assert!(got.iter().zip(&expected).all(|(g, e)| (g - e).abs() < 1e-4));
        }
        // The closed form against the rows themselves, of a regression that is off.
        let off = folds[1].solve(1.0).unwrap();
        let direct: f64 = all
            .iter()
            .step_by(3)
            .map(|x| {
                let pairs = off.predict(x).into_iter().zip(target(x));
                pairs.map(|(p, y)| (p - y).powi(2)).sum::<f64>()
            })
            .sum();
        assert!((folds[0].error(&off) - direct).abs() < 1e-9 * direct.max(1.0));
    }

    #[test]
    fn features_that_never_change_give_the_mean() {
        let mut folds = vec![Moments::new(2, 1); 2];
        for index in 0..6 {
            folds[index % 2].add(&[1.0, 5.0], &[index as f64]);
        }
        let (found, _) = Moments::cross_validated(&folds).unwrap();
        assert_eq!(found.predict(&[1.0, 5.0]), [2.5]);
    }

    #[test]
    fn the_dual_form_leaves_rows_out_as_fitting_without_them_does() {
        let all = rows(5, 12, 3);
        let y: Vec<f64> = all.iter().map(|x| 3.0 * x[0] - x[1]).collect();
        let products: Vec<f64> = all
            .iter()
            .flat_map(|a| all.iter().map(move |b| dot(a, b)))
            .collect();
        let fitted = DualRegression::fit(&products, &y, 12).unwrap();
        assert!(fitted.error < 1e-6, "{}", fitted.error);
        let noise: Vec<f64> = rows(6, 12, 1).concat();
        let fitted = DualRegression::fit(&products, &noise, 12).unwrap();
        let variance = dot(&noise, &noise) / 12.0;
        assert!(
            fitted.error > 0.5 * variance,
            "noise is not learnt: {}",
            fitted.error
        );
    }
}
