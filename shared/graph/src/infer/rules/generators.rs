//! Operators that make tensors from attributes, shapes or scalars.

use seamline_plan::{DType, Dim};

use super::super::arith;
use super::super::dims::product;
use super::super::known::{Elem, Known, MAX_RANK};
use super::elementwise::typed_same;
use super::layout::fixed_sizes;
use super::{Call, Out, Rule};

pub(super) const RULES: &[(&str, Rule)] = &[
    ("Constant", constant),
    ("ConstantOfShape", constant_of_shape),
    ("EyeLike", typed_same),
    ("Multinomial", multinomial),
    ("OneHot", one_hot),
    ("RandomNormal", random),
    ("RandomNormalLike", typed_same),
    ("RandomUniform", random),
    ("RandomUniformLike", typed_same),
    ("Range", range),
    ("Shape", shape_of),
    ("Size", size_of),
];

fn constant(call: &Call<'_>, out: &mut Out) -> Option<()> {
    if let Some(fact) = call.tensor_attribute("value") {
        out.fact(0, fact);
        return Some(());
    }
    let vector = |elems: Vec<Elem>, dtype: DType, out: &mut Out| {
        out.dtype(0, Some(dtype));
        out.shape(0, vec![Dim::Fixed(elems.len() as u64)]);
        out.known(0, Known::vector(elems)?);
        Some(())
    };
    if let Some(value) = call.int("value_int") {
        out.dtype(0, Some(DType::I64));
        out.shape(0, Vec::new());
        out.known(0, Known::scalar(Elem::Int(value)));
    } else if let Some(value) = call.float("value_float") {
        out.dtype(0, Some(DType::F32));
        out.shape(0, Vec::new());
        out.known(0, Known::scalar(Elem::Float(f64::from(value))));
    } else if let Some(values) = call.ints("value_ints") {
        vector(values.into_iter().map(Elem::Int).collect(), DType::I64, out)?;
    } else if let Some(values) = call.floats("value_floats") {
        let elems = values.iter().map(|&v| Elem::Float(f64::from(v))).collect();
        vector(elems, DType::F32, out)?;
    }
    Some(())
}

/// The dimensions that the integer vector at `input` spells.
fn spelled(call: &Call<'_>, input: usize) -> Option<Vec<Dim>> {
    match call.known(input) {
        Some(known) => Some(known.elems().iter().map(Elem::to_dim).collect()),
        None => Some(vec![Dim::Unknown; call.vector_length(input)?]),
    }
    .filter(|shape: &Vec<Dim>| shape.len() <= MAX_RANK)
}

fn constant_of_shape(call: &Call<'_>, out: &mut Out) -> Option<()> {
    let value = call.tensor_attribute("value");
    out.dtype(
        0,
        value.as_ref().map_or(Some(DType::F32), |fact| fact.dtype),
    );
    let shape = spelled(call, 0)?;
    let sizes = fixed_sizes(&shape);
    out.shape(0, shape);
    let elem = match &value {
        Some(fact) => fact.known.as_ref()?.single()?.clone(),
        None => Elem::Float(0.0),
    };
    out.known(0, Known::filled(sizes?, elem)?);
    Some(())
}

fn shape_of(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, Some(DType::I64));
    let Some(input) = call.shape(0) else {
        out.shape(0, vec![Dim::Unknown]);
        return None;
    };
    let rank = i64::try_from(input.len()).ok()?;
    let place = |at: i64| {
        let at = if at < 0 { at.saturating_add(rank) } else { at };
        usize::try_from(at.clamp(0, rank)).unwrap_or(0)
    };
    let start = place(call.int("start").unwrap_or(0));
    let end = place(call.int("end").unwrap_or(rank)).max(start);
    let elems: Vec<Elem> = input[start..end].iter().map(Elem::of_dim).collect();
    out.shape(0, vec![Dim::Fixed(elems.len() as u64)]);
    out.known(0, Known::vector(elems)?);
    Some(())
}

fn size_of(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, Some(DType::I64));
    out.shape(0, Vec::new());
    out.known(0, Known::scalar(Elem::of_dim(&product(call.shape(0)?))));
    Some(())
}

fn range(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0).or(call.dtype(1)).or(call.dtype(2)));
    out.shape(0, vec![Dim::Unknown]);
    let [start, limit, delta] = [
        call.known(0)?.single()?,
        call.known(1)?.single()?,
        call.known(2)?.single()?,
    ];
    if let (Some(0.0), Elem::Sym(symbol), Some(1.0)) = (start.number(), limit, delta.number()) {
        out.shape(0, vec![Dim::Sym(symbol.clone())]);
        return Some(());
    }
    let (Elem::Int(start), Elem::Int(limit), Elem::Int(delta)) = (start, limit, delta) else {
        let (start, limit, delta) = (start.number()?, limit.number()?, delta.number()?);
        let count = arith::whole(((limit - start) / delta).ceil().max(0.0))?;
        out.shape(0, vec![Elem::Int(count).to_dim()]);
        return Some(());
    };
    let span = limit.checked_sub(*start)?;
    let quotient = span.checked_div(*delta)?;
    let exact = span.checked_rem(*delta)? == 0;
    let same_sign = span.signum() == delta.signum();
    let count = if same_sign {
        quotient.checked_add(i64::from(!exact))?
    } else {
        0
    };
    out.shape(0, vec![Elem::Int(count).to_dim()]);
    if call.dtype(0)?.is_float() {
        return None;
    }
    let count = usize::try_from(count).ok()?;
    let values = Known::generate(vec![count], |index| {
        let at = i64::try_from(*index.first()?).ok()?;
        Some(Elem::Int(start.checked_add(at.checked_mul(*delta)?)?))
    })?;
    out.known(0, values);
    Some(())
}

fn one_hot(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(2));
    let indices = call.shape(0)?;
    let rank = indices.len().checked_add(1)?;
    let axis = call.axis(call.int("axis").unwrap_or(-1), rank)?;
    let depth = call
        .known(1)
        .and_then(Known::single)
        .map_or(Dim::Unknown, |elem| match elem {
            Elem::Float(depth) => arith::whole(*depth)
                .map_or(Elem::Unknown, Elem::Int)
                .to_dim(),
            other => other.to_dim(),
        });
    let mut shape = indices.to_vec();
    shape.insert(axis, depth);
    out.shape(0, shape);
    Some(())
}

fn random(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype_attribute("dtype").or(Some(DType::F32)));
    let shape = call.ints("shape")?;
    out.shape(
        0,
        shape.into_iter().map(|s| Elem::Int(s).to_dim()).collect(),
    );
    Some(())
}

fn multinomial(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype_attribute("dtype").or(Some(DType::I32)));
    let rows = call.shape(0)?.first()?.clone();
    let samples = Elem::Int(call.int("sample_size").unwrap_or(1)).to_dim();
    out.shape(0, vec![rows, samples]);
    Some(())
}
