//! f32 as signed 8-bit levels with one scale a channel.
//!
//! A tensor is `outer × channels × inner`, where `inner` is what follows the channel axis. Where
//! `inner` is long, each run of it is work for one kernel call with one scale. Where it is short
//! (channels last: 1), rows of `channels × inner` are cut into tiles of some columns, and a call
//! takes a row of a tile with a scale for each column.

use seamline_kernels as kernels;

use crate::blocks;
use crate::error::CodecError;

/// Bytes of a scale.
const SCALE: usize = 4;

/// The largest level.
const LEVELS: f32 = 127.0;

/// The largest scale whose every level is a finite f32: the f32 below f32::MAX / 127, where 127
/// times f32::MAX / 127 rounds up to infinity, else that itself.
const MAX_SCALE: f32 = {
    let scale = f32::MAX / LEVELS;
    if (scale * LEVELS).is_finite() {
        scale
    } else {
        scale.next_down()
    }
};

/// Columns of a tile: scales and maxima of one lie on the stack.
const TILE: usize = 512;

/// From this `inner` up, a kernel call a run costs less than the expanded scales of a tile.
const LONG: usize = 64;

/// A tensor cut at its channel axis.
#[derive(Clone, Copy)]
struct Layout {
    channels: usize,
    inner: usize,
}

impl Layout {
    /// `None` where the tensor is empty. The shape is that of a tensor that exists, so that its
    /// products are in range.
    fn of(shape: &[usize], axis: usize) -> Option<Layout> {
        let (&channels, inner) = shape.get(axis..)?.split_first()?;
        if shape.contains(&0) {
            return None;
        }
        // One channel is one run, whatever its axis.
        let run = if channels == 1 { shape } else { inner };
        let inner = run.iter().product();
        Some(Layout { channels, inner })
    }

    /// Elements of a row.
    fn row(self) -> usize {
        self.channels * self.inner
    }

    /// Ranges of channels, as many as a tile has columns for.
    fn tiles(self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let each = TILE / self.inner.max(1);
        let starts = (0..self.channels).step_by(each.max(1));
        starts.map(move |start| start..self.channels.min(start + each.max(1)))
    }
}

/// The scale of a channel whose largest magnitude is `max`. Not below the smallest normal number,
/// as the reciprocal of less is infinite.
fn scale_for(max: f32) -> f32 {
    if max == 0.0 {
        return 0.0;
    }
    (max / LEVELS).clamp(f32::MIN_POSITIVE, MAX_SCALE)
}

/// The factor from values to levels.
fn reciprocal(scale: f32) -> f32 {
    if scale == 0.0 { 0.0 } else { 1.0 / scale }
}

/// Appends the payload of the f32 `src`.
pub(crate) fn encode(
    shape: &[usize],
    axis: usize,
    src: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    let Some(layout) = Layout::of(shape, axis) else {
        return Ok(());
    };
    let start = out.len();
    let head = layout.channels * SCALE;
    out.resize(start + head + src.len() / SCALE, 0);
    let (scales, levels) = out[start..].split_at_mut(head);
    let (scales, _) = scales.as_chunks_mut::<SCALE>();
    let levels: &mut [i8] = bytemuck::cast_slice_mut(levels);
    let found = if layout.inner >= LONG {
        encode_runs(layout, src, scales, levels)
    } else {
        encode_tiles(layout, src, scales, levels)
    };
    found.map_err(|(channel, value)| CodecError::NonFinite {
        axis,
        channel,
        value,
    })
}

/// A channel that is not finite, and its largest magnitude.
type NonFinite = (usize, f32);

fn encode_runs(
    layout: Layout,
    src: &[u8],
    scales: &mut [[u8; SCALE]],
    levels: &mut [i8],
) -> Result<(), NonFinite> {
    for (channel, scale) in scales.iter_mut().enumerate() {
        let mut max = 0.0f32;
        for row in src.chunks_exact(layout.row() * SCALE) {
            let run = &row[channel * layout.inner * SCALE..][..layout.inner * SCALE];
            blocks::read::<f32>(run, |_, values| {
                let of_run = kernels::abs_max(values);
                // In the order of the bits, in which NaN and infinity are above all numbers.
                max = f32::from_bits(max.to_bits().max(of_run.to_bits()));
            });
        }
        if !max.is_finite() {
            return Err((channel, max));
        }
        *scale = scale_for(max).to_le_bytes();
    }
    let runs = src.chunks_exact(layout.inner * SCALE);
    let channels = scales.iter().cycle();
    for ((run, levels), scale) in runs
        .zip(levels.chunks_exact_mut(layout.inner))
        .zip(channels)
    {
        let factor = reciprocal(f32::from_le_bytes(*scale));
        blocks::read::<f32>(run, |at, values| {
            kernels::quantize_i8(values, factor, &mut levels[at..at + values.len()]);
        });
    }
    Ok(())
}

fn encode_tiles(
    layout: Layout,
    src: &[u8],
    scales: &mut [[u8; SCALE]],
    levels: &mut [i8],
) -> Result<(), NonFinite> {
    let mut columns = [0.0f32; TILE];
    for tile in layout.tiles() {
        let first = tile.start * layout.inner;
        let columns = &mut columns[..tile.len() * layout.inner];
        columns.fill(0.0);
        let bytes = first * SCALE..(first + columns.len()) * SCALE;
        for row in src.chunks_exact(layout.row() * SCALE) {
            blocks::read::<f32>(&row[bytes.clone()], |at, values| {
                kernels::abs_max_each(values, &mut columns[at..at + values.len()]);
            });
        }
        for (channel, columns) in tile.zip(columns.chunks_exact_mut(layout.inner)) {
            let max = kernels::abs_max(columns);
            if !max.is_finite() {
                return Err((channel, max));
            }
            let scale = scale_for(max);
            scales[channel] = scale.to_le_bytes();
            columns.fill(reciprocal(scale));
        }
        let rows = src.chunks_exact(layout.row() * SCALE);
        for (row, levels) in rows.zip(levels.chunks_exact_mut(layout.row())) {
            let levels = &mut levels[first..first + columns.len()];
            blocks::read::<f32>(&row[bytes.clone()], |at, values| {
                let end = at + values.len();
                kernels::quantize_i8_each(values, &columns[at..end], &mut levels[at..end]);
            });
        }
    }
    Ok(())
}

/// Decodes a payload whose length is checked into `dst`.
pub(crate) fn decode(
    shape: &[usize],
    axis: usize,
    payload: &[u8],
    dst: &mut [u8],
) -> Result<(), CodecError> {
    let Some(layout) = Layout::of(shape, axis) else {
        return Ok(());
    };
    let (scales, levels) = payload.split_at(layout.channels * SCALE);
    let (scales, _) = scales.as_chunks::<SCALE>();
    let levels: &[i8] = bytemuck::cast_slice(levels);
    check(scales, levels)?;
    if layout.inner >= LONG {
        decode_runs(layout, scales, levels, dst);
    } else {
        decode_tiles(layout, scales, levels, dst);
    }
    Ok(())
}

fn check(scales: &[[u8; SCALE]], levels: &[i8]) -> Result<(), CodecError> {
    for (channel, scale) in scales.iter().enumerate() {
        let value = f32::from_le_bytes(*scale);
        // NaN is in no range.
        if value.is_sign_negative() || !(0.0..=MAX_SCALE).contains(&value) {
            return Err(CodecError::Scale {
                channel,
                value,
                limit: MAX_SCALE,
            });
        }
    }
    if kernels::min_max_i8(levels).is_none_or(|(min, _)| min > i8::MIN) {
        return Ok(());
    }
    let element = levels.iter().position(|&level| level == i8::MIN);
    Err(CodecError::Level {
        element: element.unwrap_or(0),
    })
}

fn decode_runs(layout: Layout, scales: &[[u8; SCALE]], levels: &[i8], dst: &mut [u8]) {
    let runs = dst.chunks_exact_mut(layout.inner * SCALE);
    let channels = scales.iter().cycle();
    for ((run, levels), scale) in runs.zip(levels.chunks_exact(layout.inner)).zip(channels) {
        let scale = f32::from_le_bytes(*scale);
        blocks::write::<f32>(run, |at, values| {
            kernels::dequantize_i8(&levels[at..at + values.len()], scale, values);
        });
    }
}

fn decode_tiles(layout: Layout, scales: &[[u8; SCALE]], levels: &[i8], dst: &mut [u8]) {
    let mut columns = [0.0f32; TILE];
    for tile in layout.tiles() {
        let first = tile.start * layout.inner;
        let columns = &mut columns[..tile.len() * layout.inner];
        for (columns, scale) in columns.chunks_exact_mut(layout.inner).zip(&scales[tile]) {
            columns.fill(f32::from_le_bytes(*scale));
        }
        let bytes = first * SCALE..(first + columns.len()) * SCALE;
        let rows = dst.chunks_exact_mut(layout.row() * SCALE);
        for (row, levels) in rows.zip(levels.chunks_exact(layout.row())) {
            let levels = &levels[first..first + columns.len()];
            blocks::write::<f32>(&mut row[bytes.clone()], |at, values| {
                let end = at + values.len();
                kernels::dequantize_i8_each(&levels[at..end], &columns[at..end], values);
            });
        }
    }
}
