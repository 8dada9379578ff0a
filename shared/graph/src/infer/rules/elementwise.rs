//! Operators that work element by element, with numpy broadcasting.

use seamline_plan::{DType, Dim};

use super::super::arith;
use super::super::dims::broadcast;
use super::super::known::{Elem, Known};
use super::{Call, Out, Rule};

/// One input, same shape and dtype.
const UNARY: &[&str] = &[
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitwiseNot",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "Elu",
    "Erf",
    "Exp",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Hardmax",
    "LRN",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "MeanVarianceNormalization",
    "Mish",
    "Relu",
    "ReverseSequence",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sin",
    "Sinh",
    "Softmax",
    "Softplus",
    "Softsign",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Trilu",
];

pub(super) const RULES: &[(&str, Rule)] = &[
    ("Abs", mapped_unary),
    ("Add", binary),
    ("And", comparison),
    ("Bernoulli", typed_same),
    ("BitCast", cast),
    ("BitShift", binary),
    ("BitwiseAnd", binary),
    ("BitwiseOr", binary),
    ("BitwiseXor", binary),
    ("Cast", cast),
    ("CastLike", cast_like),
    ("Ceil", mapped_unary),
    ("Div", binary),
    ("Dropout", dropout),
    ("Equal", comparison),
    ("Floor", mapped_unary),
    ("Greater", comparison),
    ("GreaterOrEqual", comparison),
    ("Identity", identity),
    ("IsInf", predicate),
    ("IsNaN", predicate),
    ("Less", comparison),
    ("LessOrEqual", comparison),
    ("Max", variadic),
    ("Mean", variadic),
    ("Min", variadic),
    ("Mod", binary),
    ("Mul", binary),
    ("Neg", mapped_unary),
    ("Not", mapped_unary),
    ("Or", comparison),
    ("Pow", binary),
    ("PRelu", same),
    ("Reciprocal", mapped_unary),
    ("Round", mapped_unary),
    ("Sign", mapped_unary),
    ("Sqrt", mapped_unary),
    ("Sub", binary),
    ("Sum", variadic),
    ("Where", select),
    ("Xor", comparison),
];

/// The rule of `op` where it is a plain unary one.
pub(super) fn unary_rules() -> impl Iterator<Item = (&'static str, Rule)> {
    UNARY.iter().map(|&op| (op, same as Rule))
}

/// Output 0 has the shape and dtype of input 0.
pub(super) fn same(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(0));
    out.shape(0, call.shape(0)?.to_vec());
    Some(())
}

fn identity(call: &Call<'_>, out: &mut Out) -> Option<()> {
    same(call, out)?;
    out.known(0, call.known(0)?.clone());
    Some(())
}

fn mapped_unary(call: &Call<'_>, out: &mut Out) -> Option<()> {
    same(call, out)?;
    let dtype = call.dtype(0)?;
    out.known(
        0,
        call.known(0)?
            .map(|elem| arith::unary(call.op, dtype, elem)),
    );
    Some(())
}

fn predicate(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, Some(DType::Bool));
    out.shape(0, call.shape(0)?.to_vec());
    Some(())
}

fn cast(call: &Call<'_>, out: &mut Out) -> Option<()> {
    let to = call.dtype_attribute("to");
    cast_to(call, out, to)
}

fn cast_like(call: &Call<'_>, out: &mut Out) -> Option<()> {
    cast_to(call, out, call.dtype(1))
}

/// The shape of input 0, the dtype of the attribute `dtype` where it is given.
pub(super) fn typed_same(call: &Call<'_>, out: &mut Out) -> Option<()> {
    same(call, out)?;
    if let Some(dtype) = call.dtype_attribute("dtype") {
        out.dtype(0, Some(dtype));
    }
    Some(())
}

fn cast_to(call: &Call<'_>, out: &mut Out, to: Option<DType>) -> Option<()> {
    out.dtype(0, to);
    out.shape(0, call.shape(0)?.to_vec());
    let to = to.filter(|_| call.op != "BitCast")?;
    out.known(0, call.known(0)?.map(|elem| arith::cast(to, elem)));
    Some(())
}

fn dropout(call: &Call<'_>, out: &mut Out) -> Option<()> {
    let mask = if call.version < 10 {
        call.dtype(0)
    } else {
        Some(DType::Bool)
    };
    out.dtype(1, mask);
    if let Some(shape) = call.shape(0) {
        out.shape(1, shape.to_vec());
    }
    same(call, out)
}

/// Operators of two inputs: the dtype is the first one's.
fn binary(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(
        0,
        call.dtype(0).or(match call.op {
            "Pow" | "BitShift" => None,
            _ => call.dtype(1),
        }),
    );
    binary_shape(call, out)?;
    let dtype = call.dtype(0)?;
    out.known(0, zip(call, |a, b| arith::binary(call.op, dtype, a, b))?);
    Some(())
}

fn comparison(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, Some(DType::Bool));
    binary_shape(call, out)?;
    out.known(0, zip(call, |a, b| arith::compare(call.op, a, b))?);
    Some(())
}

fn binary_shape(call: &Call<'_>, out: &mut Out) -> Option<()> {
    // Before opset 7 broadcasting was one-sided, by attribute.
    if call.version < 7 {
        out.shape(0, call.shape(0)?.to_vec());
        return Some(());
    }
    out.shape(0, broadcast(&[call.shape(0)?, call.shape(1)?]));
    Some(())
}

fn variadic(call: &Call<'_>, out: &mut Out) -> Option<()> {
    let count = call.input_count();
    out.dtype(0, (0..count).find_map(|i| call.dtype(i)));
    let shapes: Vec<&[Dim]> = (0..count).map(|i| call.shape(i)).collect::<Option<_>>()?;
    out.shape(0, broadcast(&shapes));
    let dtype = call.dtype(0)?;
    match count {
        1 => out.known(0, call.known(0)?.clone()),
        2 => out.known(0, zip(call, |a, b| arith::binary(call.op, dtype, a, b))?),
        _ => return None,
    }
    Some(())
}

/// `f` over two inputs broadcast against each other, of which one at least is followed: what only
/// the run knows still gives a known result where the other absorbs it, as 0 does in a product.
fn zip(call: &Call<'_>, f: impl Fn(&Elem, &Elem) -> Elem) -> Option<Known> {
    let open = |input| {
        let dims = call.shape(input)?.iter();
        let dims = dims.map(|dim| usize::try_from(dim.fixed()?).ok());
        Known::filled(dims.collect::<Option<_>>()?, Elem::Unknown)
    };
    let (a, b) = match (call.known(0), call.known(1)) {
        (Some(a), Some(b)) => (a, b),
        (Some(a), None) => (a, &open(1)?),
        (None, Some(b)) => (&open(0)?, b),
        (None, None) => return None,
    };
    let dims = broadcast_sizes(&[a.dims(), b.dims()])?;
    Known::generate(dims, |index| {
        Some(f(a.at_broadcast(index)?, b.at_broadcast(index)?))
    })
}

/// The sizes that several broadcast against each other give; `None` where they do not fit.
pub(super) fn broadcast_sizes(shapes: &[&[usize]]) -> Option<Vec<usize>> {
    let rank = shapes.iter().map(|dims| dims.len()).max()?;
    let mut result = vec![1usize; rank];
    for dims in shapes {
        for (size, &dim) in result.iter_mut().skip(rank - dims.len()).zip(*dims) {
            match (*size, dim) {
                (_, 1) => {}
                (1, _) => *size = dim,
                (a, b) if a == b => {}
                _ => return None,
            }
        }
    }
    Some(result)
}

fn select(call: &Call<'_>, out: &mut Out) -> Option<()> {
    out.dtype(0, call.dtype(1).or(call.dtype(2)));
    out.shape(
        0,
        broadcast(&[call.shape(0)?, call.shape(1)?, call.shape(2)?]),
    );
    let (condition, yes, no) = (call.known(0)?, call.known(1)?, call.known(2)?);
    let dims = broadcast_sizes(&[condition.dims(), yes.dims(), no.dims()])?;
    let known = Known::generate(dims, |index| {
        let (yes, no) = (yes.at_broadcast(index)?, no.at_broadcast(index)?);
        Some(match condition.at_broadcast(index)? {
            Elem::Int(0) => no.clone(),
            Elem::Int(_) => yes.clone(),
            _ if yes == no => yes.clone(),
            _ => Elem::Unknown,
        })
    })?;
    out.known(0, known);
    Some(())
}
