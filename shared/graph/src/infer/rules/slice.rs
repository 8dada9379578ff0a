//! `Slice` and `Pad`.

use seamline_plan::Dim;

use super::super::dims::map_fixed;
use super::super::known::{Elem, Known};
use super::layout::fixed_sizes;
use super::{Call, Out, Param, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("CenterCropPad", center_crop_pad),
    ("Pad", pad),
    ("Slice", slice),
];

/// What is cut along one axis.
struct Cut {
    axis: usize,
    start: Elem,
    end: Elem,
    step: Elem,
}

fn slice(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let input = call.shape(0)?;
    let Some(cuts) = cuts(call, input.len()) else {
        out.shape(0, vec![Dim::Unknown; input.len()]);
        return None;
    };
    let mut shape = input.to_vec();
    for cut in &cuts {
        shape[cut.axis] = cut.length(&input[cut.axis]);
    }
    let sizes = fixed_sizes(&shape);
    out.shape(0, shape);
    let (known, sizes) = (call.known(0)?, sizes?);
    let mut from = vec![0i64; sizes.len()];
    let mut by = vec![1i64; sizes.len()];
    for cut in &cuts {
        let size = i64::try_from(known.dims()[cut.axis]).ok()?;
        (from[cut.axis], _) = cut.clamped(size)?;
        by[cut.axis] = cut.step.int()?;
    }
    let taken = known.remap(sizes, |index| {
        index
            .iter()
            .zip(from.iter().zip(&by))
            .map(|(&at, (&from, &by))| {
                let at = i64::try_from(at).ok()?;
                usize::try_from(from.checked_add(at.checked_mul(by)?)?).ok()
            })
            .collect()
    })?;
    out.known(0, taken);
    Some(())
}

/// The cuts, from attributes (opset 1) or inputs; `None` where the axes are not known.
fn cuts(call: &Call<'_>, rank: usize) -> Option<Vec<Cut>> {
    let list = |name: &str, input: usize| -> Param<Vec<Elem>> {
        if call.version < 10 {
            return match call.ints(name) {
                Some(list) => Param::Is(list.into_iter().map(Elem::Int).collect()),
                None => Param::Absent,
            };
        }
        match (call.has_input(input), call.known(input)) {
            (false, _) => Param::Absent,
            (true, Some(known)) => Param::Is(known.elems().to_vec()),
            (true, None) => match call.vector_length(input).filter(|&count| count <= rank) {
                Some(count) => Param::Is(vec![Elem::Unknown; count]),
                None => Param::Unknown,
            },
        }
    };
    let Param::Is(starts) = list("starts", 1) else {
        return None;
    };
    let Param::Is(ends) = list("ends", 2) else {
        return None;
    };
    let axes: Vec<usize> = match list("axes", 3) {
        Param::Absent => (0..starts.len()).collect(),
        Param::Is(axes) => axes
            .iter()
            .map(|axis| call.axis(axis.int()?, rank))
            .collect::<Option<_>>()?,
        Param::Unknown => return None,
    };
    let steps = match list("steps", 4) {
        Param::Is(steps) => steps,
        Param::Absent => vec![Elem::Int(1); starts.len()],
        Param::Unknown => vec![Elem::Unknown; starts.len()],
    };
    let fits = [ends.len(), axes.len(), steps.len()] == [starts.len(); 3]
        && axes.iter().all(|&axis| axis < rank);
    if !fits {
        return None;
    }
    let cuts = axes.into_iter().zip(starts).zip(ends).zip(steps);
    Some(
        cuts.map(|(((axis, start), end), step)| Cut {
            axis,
            start,
            end,
            step,
        })
        .collect(),
    )
}

impl Cut {
    /// How many elements the cut leaves of an axis of `dim`.
    ///
    /// An end that is a symbol is taken to lie inside the axis, as a request whose position
    /// table is too short cannot run anyway.
    fn length(&self, dim: &Dim) -> Dim {
        if self.step == Elem::Int(1) && self.start == Elem::Int(0) {
            match &self.end {
                Elem::Int(end) if *end >= i64::from(i32::MAX) => return dim.clone(),
                Elem::Sym(symbol) => return Dim::Sym(symbol.clone()),
                _ => {}
            }
        }
        // Reversal of the whole axis.
        if self.step == Elem::Int(-1)
            && self.start == Elem::Int(-1)
            && self
                .end
                .int()
                .is_some_and(|end| end <= -i64::from(i32::MAX))
        {
            return dim.clone();
        }
        map_fixed(dim, |size| {
            let (start, end) = self.clamped(size)?;
            let step = self.step.int()?;
            let span = end.checked_sub(start)?;
            if step == 0 || span.signum() != step.signum() {
                return (step != 0).then_some(0);
            }
            let (span, step) = (span.checked_abs()?, step.checked_abs()?);
            Some(span / step + i64::from(span % step != 0))
        })
    }

    /// Start and end inside an axis of `size`, as numpy clamps them.
    fn clamped(&self, size: i64) -> Option<(i64, i64)> {
        let step = self.step.int()?;
        let place = |elem: &Elem| {
            let at = elem.int()?;
            Some(if at < 0 { at.saturating_add(size) } else { at })
        };
        let (start, end) = (place(&self.start)?, place(&self.end)?);
        Some(if step > 0 {
            (start.clamp(0, size), end.clamp(0, size))
        } else {
            let last = size.checked_sub(1)?.max(0);
            (start.clamp(0, last), end.clamp(-1, last))
        })
    }
}

fn pad(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let input = call.shape(0)?;
    let rank = input.len();
    let pads: Option<Vec<Elem>> = if call.version < 11 {
        call.ints("pads")
            .or_else(|| call.ints("paddings"))
            .map(|pads| pads.into_iter().map(Elem::Int).collect())
    } else {
        call.known(1).map(|known| known.elems().to_vec())
    };
    let axes = match call.input_ints(3) {
        Param::Is(axes) => axes
            .iter()
            .map(|&axis| call.axis(axis, rank))
            .collect::<Option<Vec<usize>>>(),
        Param::Absent => Some((0..rank).collect()),
        Param::Unknown => None,
    };
    let mut shape = input.to_vec();
    match (pads, axes) {
        (Some(pads), Some(axes)) if pads.len() == axes.len().checked_mul(2)? => {
            for (i, &axis) in axes.iter().enumerate() {
                shape[axis] = padded(&input[axis], &pads[i], &pads[axes.len() + i]);
            }
        }
        _ => shape = vec![Dim::Unknown; rank],
    }
    out.shape(0, shape);
    Some(())
}

fn padded(dim: &Dim, begin: &Elem, end: &Elem) -> Dim {
    match (begin, end) {
        (Elem::Int(begin), Elem::Int(end)) if begin.checked_add(*end) == Some(0) => dim.clone(),
        (Elem::Int(begin), Elem::Int(end)) => {
            map_fixed(dim, |size| size.checked_add(*begin)?.checked_add(*end))
        }
        _ => Dim::Unknown,
    }
}

fn center_crop_pad(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let input = call.shape(0)?;
    let axes: Vec<usize> = match call.ints("axes").filter(|axes| !axes.is_empty()) {
        Some(axes) => axes
            .iter()
            .map(|&axis| call.axis(axis, input.len()))
            .collect::<Option<_>>()?,
        None => (0..input.len()).collect(),
    };
    let mut shape = input.to_vec();
    let sizes = call.known(1).map(Known::elems).unwrap_or(&[]);
    for (i, &axis) in axes.iter().enumerate() {
        shape[axis] = sizes.get(i).map_or(Dim::Unknown, Elem::to_dim);
    }
    out.shape(0, shape);
    Some(())
}
