//! Indexing: gathers, scatters, and what depends on the data for its size.

use seamline_plan::{DType, Dim};

use super::super::known::{Elem, Known};
use super::elementwise::same;
use super::{Call, Out, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("Compress", compress),
    ("Gather", gather),
    ("GatherElements", gather_elements),
    ("GatherND", gather_nd),
    ("NonZero", nonzero),
    ("Scatter", same),
    ("ScatterElements", same),
    ("ScatterND", same),
    ("TensorScatter", same),
    ("Unique", unique),
];

pub(super) fn gather(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let (data, indices) = (call.shape(0)?, call.shape(1)?);
    let axis = call.axis(call.int("axis").unwrap_or(0), data.len())?;
    let mut shape = data[..axis].to_vec();
    shape.extend_from_slice(indices);
    shape.extend_from_slice(&data[axis + 1..]);
    out.shape(0, shape);
    let (known, indices) = (call.known(0)?, call.known(1)?);
    let mut dims = known.dims()[..axis].to_vec();
    dims.extend_from_slice(indices.dims());
    dims.extend_from_slice(&known.dims()[axis + 1..]);
    let size = i64::try_from(known.dims()[axis]).ok()?;
    let inner = indices.dims().len();
    let picked = Known::generate(dims, |index| {
        let (before, rest) = index.split_at(axis);
        let (which, after) = rest.split_at(inner);
        let Elem::Int(at) = indices.at(which)? else {
            return Some(Elem::Unknown);
        };
        let at = if *at < 0 { at.checked_add(size)? } else { *at };
        let mut source = before.to_vec();
        source.push(usize::try_from(at).ok()?);
        source.extend_from_slice(after);
        known.at(&source).cloned()
    })?;
    out.known(0, picked);
    Some(())
}

fn gather_elements(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    out.shape(0, call.shape(1)?.to_vec());
    Some(())
}

fn gather_nd(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let (data, indices) = (call.shape(0)?, call.shape(1)?);
    let batch = usize::try_from(call.int("batch_dims").unwrap_or(0)).ok()?;
    let (tuple, outer) = indices.split_last()?;
    let tuple = usize::try_from(tuple.fixed()?).ok()?;
    let mut shape = outer.to_vec();
    shape.extend_from_slice(data.get(batch.checked_add(tuple)?..)?);
    out.shape(0, shape);
    Some(())
}

fn nonzero(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, Some(DType::I64));
    let rank = call.shape(0)?.len();
    out.shape(0, vec![Dim::Fixed(rank as u64), Dim::Unknown]);
    let known = call.known(0).filter(|known| known.dims().len() == 1)?;
    let mut found = Vec::new();
    for (at, value) in known.numbers()?.into_iter().enumerate() {
        if value != 0.0 {
            found.push(Elem::Int(i64::try_from(at).ok()?));
        }
    }
    out.shape(0, vec![Dim::Fixed(1), Dim::Fixed(found.len() as u64)]);
    out.known(0, Known::new(vec![1, found.len()], found)?);
    Some(())
}

fn compress(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    let input = call.shape(0)?;
    let kept = call
        .known(1)
        .and_then(Known::ints)
        .map_or(Dim::Unknown, |flags| {
            Dim::Fixed(flags.iter().filter(|&&flag| flag != 0).count() as u64)
        });
    let shape = match call.int("axis") {
        Some(axis) => {
            let mut shape = input.to_vec();
            shape[call.axis(axis, input.len())?] = kept;
            shape
        }
        None => vec![kept],
    };
    out.shape(0, shape);
    Some(())
}

fn unique(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    for i in 1..4 {
        out.dtype(i, Some(DType::I64));
        out.shape(i, vec![Dim::Unknown]);
    }
    let input = call.shape(0)?;
    let shape = match call.int("axis") {
        Some(axis) => {
            let mut shape = input.to_vec();
            shape[call.axis(axis, input.len())?] = Dim::Unknown;
            shape
        }
        None => vec![Dim::Unknown],
    };
    out.shape(0, shape);
    Some(())
}
