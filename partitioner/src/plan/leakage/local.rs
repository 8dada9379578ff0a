//! Recovery place by place: from what is sent around a place to the part of the input there.
//!
//! Every place of every picture is a row to learn from, so that a few pictures are enough; this is
//! what makes the attack strong.

use super::field::Field;
use super::{Outcome, Split};
use crate::plan::ridge::Moments;

/// Most features of a row; the values of more channels are folded into fewer.
const MAX_FEATURES: usize = 480;

/// Most rows to learn from, and most to try on.
const MAX_ROWS: usize = 4096;

const FOLDS: usize = 3;

/// A request: what was sent of it, and its target.
pub(super) struct Pair<'a> {
    pub(super) sent: Vec<Field>,
    pub(super) target: &'a Field,
}

/// Learns on the requests of `split.train`, tries on those of `split.test`. `None` where requests
/// differ in what is sent. `visit` is given each held-out place: the target and its recovery.
pub(super) fn attack(
    pairs: &[Pair<'_>],
    split: &Split,
    mut visit: impl FnMut(&[f64], &[f64]),
) -> Option<Outcome> {
    let shape = Shape::of(pairs)?;
    let mut random = fastrand::Rng::with_seed(split.seed);
    let mut folds = vec![Moments::new(shape.features, shape.targets); FOLDS];
    let each = MAX_ROWS.div_ceil(split.train.len().max(1));
    for (order, &index) in split.train.iter().enumerate() {
        for place in shape.places(&pairs[index], each, &mut random) {
            folds[order % FOLDS].add(
                &shape.features(&pairs[index], place),
                &shape.target(&pairs[index], place),
            );
        }
    }
    let (learnt, validation) = Moments::cross_validated(&folds)?;
    let guess = Guess::of(pairs, split, &shape);
    let mut outcome = Outcome::default();
    let each = MAX_ROWS.div_ceil(split.test.len().max(1));
    for &index in &split.test {
        for place in shape.places(&pairs[index], each, &mut random) {
            let truth = shape.target(&pairs[index], place);
            let got = learnt.predict(&shape.features(&pairs[index], place));
            outcome.add(&truth, &got, guess.at(place), &guess.anywhere);
            visit(&truth, &got);
        }
    }
    outcome.validation = validation / shape.targets.max(1) as f64;
    Some(outcome)
}

/// How rows are made: the same for all requests.
struct Shape {
    /// The side of a target's part, in places of the target.
    block: [usize; 2],
    /// By value that is sent.
    values: Vec<ValueShape>,
    features: usize,
    targets: usize,
}

/// How many features a value gives.
struct ValueShape {
    channels: usize,
    /// Features of the place itself.
    centre: usize,
    /// Features of each of its neighbours.
    around: usize,
    /// Where they are, in a square of 3 × 3 around the place.
    neighbours: &'static [[usize; 2]],
}

impl Shape {
    fn of(pairs: &[Pair<'_>]) -> Option<Shape> {
        let first = pairs.first()?;
        let channels = |pair: &Pair<'_>| pair.sent.iter().map(|f| f.channels).collect::<Vec<_>>();
        let expected = channels(first);
        if expected.is_empty() || pairs.iter().any(|pair| channels(pair) != expected) {
            return None;
        }
        let budget = MAX_FEATURES / expected.len();
        let values: Vec<ValueShape> = first
            .sent
            .iter()
            .map(|field| ValueShape::new(field, budget))
            .collect();
        // The finest grid decides.
        let side = |of: fn(&Field) -> usize| {
            let finest = first.sent.iter().map(of).max().unwrap_or(1).max(1);
            ((of(first.target) + finest / 2) / finest).max(1)
        };
        let block = [side(|field| field.height), side(|field| field.width)];
        Some(Shape {
            features: values.iter().map(ValueShape::features).sum(),
            targets: block[0] * block[1] * first.target.channels,
            block,
            values,
        })
    }

    /// At most `count` places of a request, drawn at random.
    fn places(&self, pair: &Pair<'_>, count: usize, random: &mut fastrand::Rng) -> Vec<[usize; 2]> {
        let [rows, columns] = self.grid(pair.target);
        let mut places: Vec<[usize; 2]> = (0..rows)
            .flat_map(|y| (0..columns).map(move |x| [y, x]))
            .collect();
        if places.len() > count {
            random.shuffle(&mut places);
            places.truncate(count);
        }
        places
    }

    fn grid(&self, target: &Field) -> [usize; 2] {
        [target.height / self.block[0], target.width / self.block[1]]
    }

    fn target(&self, pair: &Pair<'_>, [y, x]: [usize; 2]) -> Vec<f64> {
        part(pair.target, self.block, [y, x])
    }

    fn features(&self, pair: &Pair<'_>, place: [usize; 2]) -> Vec<f64> {
        let mut features = vec![0.0; self.features];
        let mut rest = features.as_mut_slice();
        for (field, value) in pair.sent.iter().zip(&self.values) {
            let centre = |axis: usize, length: usize, all: usize| {
                let middle = place[axis] * self.block[axis] * 2 + self.block[axis];
                (middle * length / (2 * all.max(1))).min(length.saturating_sub(1))
            };
            let y = centre(0, field.height, pair.target.height);
            let x = centre(1, field.width, pair.target.width);
            let (own, behind) = rest.split_at_mut(value.features());
            value.fill(field, [y, x], own);
            rest = behind;
        }
        features
    }
}

impl ValueShape {
    fn new(field: &Field, budget: usize) -> ValueShape {
        const IN_A_ROW: &[[usize; 2]] = &[[1, 0], [1, 2]];
        const IN_A_GRID: &[[usize; 2]] = &[
            [0, 0],
            [0, 1],
            [0, 2],
            [1, 0],
            [1, 2],
            [2, 0],
            [2, 1],
            [2, 2],
        ];
        let (channels, budget) = (field.channels, budget.max(9));
        // Of a sequence the place itself says most: a token's embedding.
        let (neighbours, own) = match field.height {
            1 => (IN_A_ROW, budget * 4 / 5),
            _ => (IN_A_GRID, budget / 2),
        };
        let [centre, around] = if channels * (1 + neighbours.len()) <= budget {
            [channels; 2]
        } else {
            let centre = channels.min(own);
            [centre, ((budget - centre) / neighbours.len()).min(channels)]
        };
        ValueShape {
            channels,
            centre,
            around,
            neighbours,
        }
    }

    fn features(&self) -> usize {
        self.centre + self.neighbours.len() * self.around
    }

    fn fill(&self, field: &Field, [y, x]: [usize; 2], out: &mut [f64]) {
        let (centre, mut around) = out.split_at_mut(self.centre);
        self.fold(field.at(y, x), centre);
        for [down, right] in self.neighbours {
            let (own, rest) = around.split_at_mut(self.around);
            around = rest;
            // Beyond the edge there is nothing: zeros.
            let (y, x) = ((y + down).wrapping_sub(1), (x + right).wrapping_sub(1));
            if y < field.height && x < field.width {
                self.fold(field.at(y, x), own);
            }
        }
    }

    /// `values` in as many numbers as `out` has: as they are, or each added with random sign to two
    /// of them (a count sketch: Charikar, Chen and Farach-Colton, 2002).
    fn fold(&self, values: &[f32], out: &mut [f64]) {
        if out.len() >= self.channels {
            out.iter_mut()
                .zip(values)
                .for_each(|(out, &value)| *out = value.into());
            return;
        }
        if out.is_empty() {
            return;
        }
        for (channel, &value) in values.iter().enumerate() {
            let hash = mixed(channel as u64);
            let len = out.len() as u64;
            for part in [hash & 0xffff_ffff, hash >> 32] {
                let sign = if part & 1 == 0 { 1.0 } else { -1.0 };
                // Below the length of a slice.
                let slot = usize::try_from((part >> 1) % len).unwrap_or(0);
                out[slot] += sign * f64::from(value);
            }
        }
    }
}

/// A hash of a small number (SplitMix64: Steele, Lea and Flood, 2014).
fn mixed(number: u64) -> u64 {
    let z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The values of the target's part at a place of the grid of parts.
fn part(target: &Field, [tall, wide]: [usize; 2], [y, x]: [usize; 2]) -> Vec<f64> {
    let rows = y * tall..(y + 1) * tall;
    let places = rows.flat_map(|y| (x * wide..(x + 1) * wide).map(move |x| (y, x)));
    places
        .flat_map(|(y, x)| target.at(y, x).iter().map(|&value| f64::from(value)))
        .collect()
}

/// The best guess without looking: the mean of what was learnt from.
struct Guess {
    /// The same everywhere.
    anywhere: Vec<f64>,
    /// By place, where all targets have one size.
    by_place: Vec<Vec<f64>>,
    columns: usize,
}

impl Guess {
    fn of(pairs: &[Pair<'_>], split: &Split, shape: &Shape) -> Guess {
        let first = pairs[split.train[0]].target;
        let [rows, columns] = shape.grid(first);
        let size = |field: &Field| (field.height, field.width);
        let same = pairs.iter().all(|pair| size(pair.target) == size(first));
        let mut by_place = vec![vec![0.0; shape.targets]; if same { rows * columns } else { 0 }];
        let mut anywhere = vec![0.0; shape.targets];
        let mut count = 0.0;
        for pair in split.train.iter().map(|&index| &pairs[index]) {
            let [rows, columns] = shape.grid(pair.target);
            for place in 0..rows * columns {
                let part = shape.target(pair, [place / columns, place % columns]);
                let add = |sums: &mut [f64]| sums.iter_mut().zip(&part).for_each(|(s, v)| *s += v);
                add(&mut anywhere);
                count += 1.0;
                by_place
                    .get_mut(place)
                    .into_iter()
                    .for_each(|sums| add(sums));
            }
        }
        anywhere
            .iter_mut()
            .for_each(|sum| *sum /= f64::max(count, 1.0));
        let pictures = split.train.len() as f64;
        by_place
            .iter_mut()
            .flatten()
            .for_each(|sum| *sum /= pictures);
        Guess {
            anywhere,
            by_place,
            columns,
        }
    }

    fn at(&self, [y, x]: [usize; 2]) -> &[f64] {
        self.by_place
            .get(y * self.columns + x)
            .unwrap_or(&self.anywhere)
    }
}
