//! Tensors as values on a grid, so that what is sent and what it was made from have places in
//! common.

use seamline_plan::Tensor;

use crate::plan::metric::numbers;

/// Most places of a target: larger ones are averaged over squares of 2, 4, 8 … to a side.
const MAX_PLACES: usize = 4096;

/// Tokens without a place in the picture, in front of the others: a class token, registers.
const MAX_EXTRA_TOKENS: usize = 8;

/// How far the proportions of two grids may differ, as a ratio.
const PROPORTION: f64 = 1.1;

/// `channels` values at each place of a grid, row by row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    pub(super) values: Vec<f32>,
}

impl Field {
    /// The values at (`y`, `x`).
    pub(super) fn at(&self, y: usize, x: usize) -> &[f32] {
        let start = (y * self.width + x) * self.channels;
        &self.values[start..start + self.channels]
    }

    /// Means over rectangles of `tall` × `wide` places, smaller ones at the far edges.
    #[must_use]
    pub(super) fn pooled(self, tall: usize, wide: usize) -> Field {
        if tall <= 1 && wide <= 1 {
            return self;
        }
        let (tall, wide) = (tall.max(1), wide.max(1));
        let (height, width) = (self.height.div_ceil(tall), self.width.div_ceil(wide));
        let mut values = vec![0.0f32; height * width * self.channels];
        let mut counts = vec![0u32; height * width];
        for y in 0..self.height {
            for x in 0..self.width {
                let place = y / tall * width + x / wide;
                counts[place] += 1;
                let sums = &mut values[place * self.channels..(place + 1) * self.channels];
                sums.iter_mut()
                    .zip(self.at(y, x))
                    .for_each(|(sum, value)| *sum += value);
            }
        }
        for (sums, count) in values.chunks_exact_mut(self.channels.max(1)).zip(counts) {
            sums.iter_mut().for_each(|sum| *sum /= count.max(1) as f32);
        }
        Field {
            height,
            width,
            values,
            ..self
        }
    }

    /// By how much a target of this size is reduced on each side.
    pub(super) fn reduction(height: usize, width: usize) -> usize {
        let mut factor = 1;
        while height.div_ceil(factor) * width.div_ceil(factor) > MAX_PLACES {
            factor *= 2;
        }
        factor
    }

    /// From `values` of which place `place` and channel `channel` have the index that `at` gives.
    fn gather(
        [height, width, channels]: [usize; 3],
        values: &[f32],
        at: impl Fn(usize, usize) -> usize,
    ) -> Field {
        let places = height * width;
        let mut gathered = Vec::with_capacity(places * channels);
        for place in 0..places {
            gathered.extend((0..channels).filter_map(|channel| values.get(at(place, channel))));
        }
        Field {
            height,
            width,
            channels,
            values: gathered,
        }
    }

    /// A picture: [1, C, H, W], or [1, H, W, C] with 1, 3 or 4 channels last.
    pub(super) fn of_picture(tensor: &Tensor) -> Option<Field> {
        let values = elements(tensor)?;
        match *tensor.shape() {
            [1, h, w, c @ (1 | 3 | 4)] if h > 4 => Some(Field {
                height: h,
                width: w,
                channels: c,
                values,
            }),
            [1, c, h, w] if h * w > 1 => {
                Some(Field::gather([h, w, c], &values, |place, channel| {
                    channel * h * w + place
                }))
            }
            _ => None,
        }
    }

    /// What is sent, on a grid that goes with one of `height` × `width`; `None` where it has none.
    pub(super) fn of_sent(tensor: &Tensor, height: usize, width: usize) -> Option<Field> {
        let values = elements(tensor)?;
        if values.is_empty() {
            return None;
        }
        let rows = |[h, w]: [usize; 2], channels, skip: usize| {
            let at = |place: usize, channel: usize| (place + skip) * channels + channel;
            Field::gather([h, w, channels], &values, at)
        };
        let columns = |[h, w]: [usize; 2], channels, count: usize, skip: usize| {
            let at = |place: usize, channel: usize| channel * count + place + skip;
            Field::gather([h, w, channels], &values, at)
        };
        let tokens = |count: usize| grid_of_tokens(count, height, width);
        match *tensor.shape() {
            [n, c] if height == 1 && n == width && n > 1 => Some(rows([1, n], c, 0)),
            [1, n] if height == 1 && n == width => Some(rows([1, n], 1, 0)),
            [1, t, c] if tokens(t).is_some() => tokens(t).map(|(grid, skip)| rows(grid, c, skip)),
            [1, c, t] if tokens(t).is_some() => {
                tokens(t).map(|(grid, skip)| columns(grid, c, t, skip))
            }
            [t, 1, c] if height == 1 && t == width => Some(rows([1, t], c, 0)),
            [1, c, h, w] if h * w > 1 && in_proportion(h, w, height, width) => {
                Some(columns([h, w], c, h * w, 0))
            }
            [1, h, w, c] if h * w > 1 && in_proportion(h, w, height, width) => {
                Some(rows([h, w], c, 0))
            }
            // Strides that differ between the sides.
            [1, c, h, w] if h * w > 1 && divides(h, height) && divides(w, width) => {
                Some(columns([h, w], c, h * w, 0))
            }
            // Heads of attention: [1, heads, tokens, d].
            [1, heads, t, d] if tokens(t).is_some() => tokens(t).map(|(grid, skip)| {
                let at = |place: usize, channel: usize| {
                    (channel / d * t + place + skip) * d + channel % d
                };
                Field::gather([grid[0], grid[1], heads * d], &values, at)
            }),
            // Strides that leave a rest.
            [1, c, h, w] if h * w > 1 && h <= height && w <= width => {
                Some(columns([h, w], c, h * w, 0))
            }
            _ => None,
        }
    }
}

/// A tensor's elements; what is not finite counts as 0.
pub(super) fn elements(tensor: &Tensor) -> Option<Vec<f32>> {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the nearest f32 is what is asked for"
    )]
    let finite = |value: f64| if value.is_finite() { value as f32 } else { 0.0 };
    Some(numbers(tensor)?.into_iter().map(finite).collect())
}

fn divides(part: usize, whole: usize) -> bool {
    part > 0 && part <= whole && whole.is_multiple_of(part)
}

fn in_proportion(h: usize, w: usize, height: usize, width: usize) -> bool {
    let ratio = (h * width) as f64 / (w * height).max(1) as f64;
    ratio < PROPORTION && ratio > 1.0 / PROPORTION
}

/// The grid that `count` tokens of a grid of `height` × `width` stand for, and how many tokens come
/// before it.
fn grid_of_tokens(count: usize, height: usize, width: usize) -> Option<([usize; 2], usize)> {
    if height == 1 {
        return (count == width && count > 1).then_some(([1, count], 0));
    }
    let exact = |skip: usize| {
        let places = count.checked_sub(skip).filter(|&places| places > 1)?;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the side of a grid, rounded"
        )]
        let h = (places as f64 * height as f64 / width as f64)
            .sqrt()
            .round() as usize;
        let w = places.checked_div(h)?;
        (h * w == places && in_proportion(h, w, height, width)).then_some(([h, w], skip))
    };
    let is_a_row = height < width && count > 1 && width.is_multiple_of(count);
    let row = || is_a_row.then_some(([1, count], 0));
    exact(0)
        .or_else(row)
        .or_else(|| (1..=MAX_EXTRA_TOKENS).find_map(exact))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize]) -> Tensor {
        let count: usize = shape.iter().product();
        Tensor::from_vec(shape.to_vec(), (0..count).map(|i| i as f32).collect()).unwrap()
    }

    fn grid(shape: &[usize], height: usize, width: usize) -> Option<[usize; 3]> {
        let field = Field::of_sent(&tensor(shape), height, width)?;
        assert_eq!(
            field.values.len(),
            field.height * field.width * field.channels
        );
        Some([field.height, field.width, field.channels])
    }

    #[test]
    fn what_is_sent_finds_its_grid() {
        assert_eq!(
            grid(&[1, 64, 14, 14], 224, 224),
            Some([14, 14, 64]),
            "feature maps"
        );
        assert_eq!(
            grid(&[1, 14, 14, 64], 224, 224),
            Some([14, 14, 64]),
            "channels last"
        );
        assert_eq!(
            grid(&[1, 257, 384], 224, 224),
            Some([16, 16, 384]),
            "patches, a class token"
        );
        assert_eq!(
            grid(&[1, 6, 257, 64], 224, 224),
            Some([16, 16, 384]),
            "heads"
        );
        assert_eq!(
            grid(&[1, 40, 120], 48, 320),
            Some([1, 40, 120]),
            "columns of a line"
        );
        assert_eq!(
            grid(&[1, 480, 1, 40], 48, 320),
            Some([1, 40, 480]),
            "unequal strides"
        );
        assert_eq!(
            grid(&[1, 24, 12, 96], 48, 192),
            Some([12, 96, 24]),
            "unequal strides, no heads of 12 tokens"
        );
        assert_eq!(grid(&[1, 12, 384], 1, 12), Some([1, 12, 384]), "a sequence");
        assert_eq!(grid(&[1, 512, 1, 1], 224, 224), None, "pooled");
        assert_eq!(grid(&[1, 512], 224, 224), None, "a vector");
        assert_eq!(grid(&[1, 12, 384], 1, 9), None, "another length");
    }

    #[test]
    fn every_layout_keeps_place_and_channel() {
        let picture = Field::of_picture(&tensor(&[1, 3, 2, 4])).unwrap();
        assert_eq!(picture.at(1, 2), [6.0, 14.0, 22.0]);
        let heads = Field::of_sent(&tensor(&[1, 2, 5, 3]), 8, 8).unwrap();
        // The class token is left out: place (0, 0) is token 1, of each head.
        assert_eq!(heads.at(0, 0), [3.0, 4.0, 5.0, 18.0, 19.0, 20.0]);
    }

    #[test]
    fn pooling_takes_means() {
        let field = Field::of_picture(&tensor(&[1, 1, 2, 3]))
            .unwrap()
            .pooled(2, 2);
        assert_eq!((field.height, field.width), (1, 2));
        assert_eq!(field.values, [2.0, 3.5]);
        assert_eq!(
            (Field::reduction(224, 224), Field::reduction(48, 320)),
            (4, 2)
        );
    }
}
