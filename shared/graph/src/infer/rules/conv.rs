//! Convolutions, and the window arithmetic that pooling shares.

use seamline_plan::{DType, Dim};

use super::super::dims::map_fixed;
use super::{Call, Out, Param, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("Conv", conv),
    ("ConvInteger", conv_integer),
    ("ConvTranspose", conv_transpose),
    ("DeformConv", conv),
    ("QLinearConv", qlinear_conv),
];

/// How a window moves along one axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    /// Elements of the window; `None` where the weights' shape is not known.
    pub(super) kernel: Option<i64>,
    pub(super) stride: i64,
    pub(super) dilation: i64,
    pub(super) pad_begin: i64,
    pub(super) pad_end: i64,
}

/// The attributes of a window over `rank` spatial axes.
pub(super) struct Window {
    pub(super) axes: Vec<Axis>,
    pub(super) auto_pad: AutoPad,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AutoPad {
    NotSet,
    Same,
    Valid,
}

impl Window {
    /// Reads `kernel_shape`, `strides`, `dilations`, `pads` and `auto_pad`; `None` where their
    /// lengths do not fit `rank` or a stride or dilation is not positive.
    pub(super) fn of(call: &Call<'_>, rank: usize, weights: Option<&[Dim]>) -> Option<Window> {
        let listed = |name: &str, default: i64, count: usize| match call.ints(name) {
            Some(list) if list.len() == count => Some(list),
            Some(list) if !list.is_empty() => None,
            _ => Some(vec![default; count]),
        };
        let kernels: Vec<Option<i64>> = match (call.ints("kernel_shape"), weights) {
            (Some(list), _) if list.len() == rank => list.into_iter().map(Some).collect(),
            (_, Some(weights)) => weights
                .iter()
                .map(|dim| dim.fixed().and_then(|size| i64::try_from(size).ok()))
                .collect(),
            _ => vec![None; rank],
        };
        let strides = listed("strides", 1, rank)?;
        let dilations = listed("dilations", 1, rank)?;
        let pads = listed("pads", 0, rank.checked_mul(2)?)?;
        if kernels.len() != rank || strides.iter().chain(&dilations).any(|&step| step < 1) {
            return None;
        }
        let axes = (0..rank)
            .map(|i| Axis {
                kernel: kernels[i],
                stride: strides[i],
                dilation: dilations[i],
                pad_begin: pads[i],
                pad_end: pads[rank + i],
            })
            .collect();
        let auto_pad = match call.string("auto_pad").as_deref() {
            Some("SAME_UPPER" | "SAME_LOWER") => AutoPad::Same,
            Some("VALID") => AutoPad::Valid,
            _ => AutoPad::NotSet,
        };
        Some(Window { axes, auto_pad })
    }

    /// The spatial dimensions after the window has passed over `input`.
    pub(super) fn output(&self, input: &[Dim], ceil_mode: bool) -> Vec<Dim> {
        input
            .iter()
            .zip(&self.axes)
            .map(|(dim, axis)| axis.output(dim, self.auto_pad, ceil_mode))
            .collect()
    }
}

impl Axis {
    /// Elements from the window's first to its last.
    fn extent(&self) -> Option<i64> {
        self.kernel?
            .checked_sub(1)?
            .checked_mul(self.dilation)?
            .checked_add(1)
    }

    fn output(&self, dim: &Dim, auto_pad: AutoPad, ceil_mode: bool) -> Dim {
        if auto_pad == AutoPad::Same {
            return match self.stride {
                1 => dim.clone(),
                stride => map_fixed(dim, |size| div_ceil(size, stride)),
            };
        }
        let Some(extent) = self.extent() else {
            return Dim::Unknown;
        };
        let (begin, end) = match auto_pad {
            AutoPad::Valid => (0, 0),
            _ => (self.pad_begin, self.pad_end),
        };
        if self.stride == 1 && begin.checked_add(end) == extent.checked_sub(1) {
            return dim.clone();
        }
        map_fixed(dim, |size| {
            let room = size
                .checked_add(begin)?
                .checked_add(end)?
                .checked_sub(extent)?;
            if room < 0 {
                return None;
            }
            if !ceil_mode {
                return (room / self.stride).checked_add(1);
            }
            let count = div_ceil(room, self.stride)?.checked_add(1)?;
            // A window that would start in the padding behind the input does not exist.
            let start = count.checked_sub(1)?.checked_mul(self.stride)?;
            Some(if start >= size.checked_add(begin)? {
                count - 1
            } else {
                count
            })
        })
    }
}

fn div_ceil(value: i64, divisor: i64) -> Option<i64> {
    Some(value.checked_add(divisor.checked_sub(1)?)? / divisor)
}

fn conv(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    convolved(call, out, 1)
}

fn conv_integer(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, Some(DType::I32));
    convolved(call, out, 1)
}

fn qlinear_conv(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(7));
    convolved(call, out, 3)
}

/// The shape of a convolution of input 0 with the weights at input `weights`.
pub(super) fn convolved(call: &Call<'_>, out: &mut Out, weights: usize) -> Option<()> {
    let weights = call.shape(weights);
    let rank = call.rank(0).or(weights.map(<[Dim]>::len))?;
    let unknown = vec![Dim::Unknown; rank];
    let input = call.shape(0).unwrap_or(&unknown);
    let spatial = rank.checked_sub(2)?;
    let window = Window::of(call, spatial, weights.and_then(|dims| dims.get(2..)));
    let mut shape = vec![
        input[0].clone(),
        weights
            .and_then(|dims| dims.first())
            .cloned()
            .unwrap_or(Dim::Unknown),
    ];
    match window {
        Some(window) => shape.extend(window.output(&input[2..], false)),
        None => shape.extend(vec![Dim::Unknown; spatial]),
    }
    out.shape(0, shape);
    Some(())
}

fn conv_transpose(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let input = call.shape(0)?;
    let spatial = input.len().checked_sub(2)?;
    let weights = call.shape(1);
    let group = call.int("group").unwrap_or(1);
    let channels = match weights.and_then(|dims| dims.get(1)) {
        Some(dim) if group == 1 => dim.clone(),
        Some(dim) => map_fixed(dim, |size| size.checked_mul(group)),
        None => Dim::Unknown,
    };
    let mut shape = vec![input[0].clone(), channels];
    let window = Window::of(call, spatial, weights.and_then(|dims| dims.get(2..)));
    let output_shape = call.ints("output_shape").filter(|list| !list.is_empty());
    match (output_shape, window) {
        // Some exporters list the whole shape, some its spatial part.
        (Some(list), _) if list.len() >= spatial => {
            shape.extend(
                list[list.len() - spatial..]
                    .iter()
                    .map(|&size| u64::try_from(size).map_or(Dim::Unknown, Dim::Fixed)),
            );
        }
        (None, Some(window)) => {
            let extra = match call.ints("output_padding") {
                Some(list) if list.len() == spatial => list,
                _ => vec![0; spatial],
            };
            for ((dim, axis), extra) in input[2..].iter().zip(&window.axes).zip(extra) {
                shape.push(transposed(dim, axis, window.auto_pad, extra));
            }
        }
        _ => shape.extend(vec![Dim::Unknown; spatial]),
    }
    out.shape(0, shape);
    Some(())
}

fn transposed(dim: &Dim, axis: &Axis, auto_pad: AutoPad, extra: i64) -> Dim {
    if auto_pad == AutoPad::Same {
        return match axis.stride {
            1 => dim.clone(),
            stride => map_fixed(dim, |size| size.checked_mul(stride)),
        };
    }
    let Some(extent) = axis.extent() else {
        return Dim::Unknown;
    };
    let pads = match auto_pad {
        AutoPad::Valid => Some(0),
        _ => axis.pad_begin.checked_add(axis.pad_end),
    };
    let grown = pads.and_then(|pads| extent.checked_add(extra)?.checked_sub(pads));
    match (axis.stride, grown) {
        (_, None) => Dim::Unknown,
        (1, Some(1)) => dim.clone(),
        (stride, Some(grown)) => map_fixed(dim, |size| {
            size.checked_sub(1)?.checked_mul(stride)?.checked_add(grown)
        }),
    }
}

/// The sizes that an optional input of rank 1 lists, as dimensions.
pub(super) fn listed_dims(param: Param<Vec<i64>>) -> Option<Vec<Dim>> {
    match param {
        Param::Is(list) => Some(
            list.into_iter()
                .map(|size| u64::try_from(size).map_or(Dim::Unknown, Dim::Fixed))
                .collect(),
        ),
        Param::Absent | Param::Unknown => None,
    }
}
