//! Arithmetic on followed elements, as the operators of ONNX do it.

use seamline_plan::DType;

use super::known::Elem;

/// A unary operator, by its ONNX name.
pub(super) fn unary(op: &str, dtype: DType, elem: &Elem) -> Elem {
    match (op, elem) {
        // A size is a whole number of at least 0.
        ("Abs" | "Ceil" | "Floor" | "Round", Elem::Sym(_)) => elem.clone(),
        ("Abs", Elem::Int(x)) => checked(x.checked_abs()),
        ("Neg", Elem::Int(x)) => checked(x.checked_neg()),
        ("Sign", Elem::Int(x)) => Elem::Int(x.signum()),
        ("Not", Elem::Int(x)) => Elem::Int(i64::from(*x == 0)),
        ("Ceil" | "Floor" | "Round", Elem::Int(_)) => elem.clone(),
        (_, Elem::Float(x)) => float_unary(op, *x).map_or(Elem::Unknown, |y| rounded(dtype, y)),
        _ => Elem::Unknown,
    }
}

fn float_unary(op: &str, x: f64) -> Option<f64> {
    Some(match op {
        "Abs" => x.abs(),
        "Neg" => -x,
        "Ceil" => x.ceil(),
        "Floor" => x.floor(),
        "Round" => x.round_ties_even(),
        "Sqrt" => x.sqrt(),
        "Reciprocal" => 1.0 / x,
        "Sign" if x == 0.0 => 0.0,
        "Sign" => x.signum(),
        _ => return None,
    })
}

/// A binary operator of arithmetic, by its ONNX name; `dtype` is the first operand's.
pub(super) fn binary(op: &str, dtype: DType, a: &Elem, b: &Elem) -> Elem {
    match (a, b) {
        (Elem::Int(a), Elem::Int(b)) if !dtype.is_float() => integers(op, *a, *b),
        (Elem::Sym(_), _) | (_, Elem::Sym(_)) => symbols(op, a, b),
        (Elem::Unknown, _) | (_, Elem::Unknown) => symbols(op, a, b),
        _ => match (a.number(), b.number()) {
            (Some(a), Some(b)) if dtype.is_float() => {
                floats(op, a, b).map_or(Elem::Unknown, |y| rounded(dtype, y))
            }
            _ => Elem::Unknown,
        },
    }
}

fn integers(op: &str, a: i64, b: i64) -> Elem {
    checked(match op {
        "Add" | "Sum" => a.checked_add(b),
        "Sub" => a.checked_sub(b),
        "Mul" => a.checked_mul(b),
        "Div" => a.checked_div(b),
        // The sign of the result differs for negative operands by attribute `fmod`.
        "Mod" if a >= 0 && b > 0 => a.checked_rem(b),
        "Min" => Some(a.min(b)),
        "Max" => Some(a.max(b)),
        "Pow" => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
        _ => None,
    })
}

fn floats(op: &str, a: f64, b: f64) -> Option<f64> {
    Some(match op {
        "Add" | "Sum" => a + b,
        "Sub" => a - b,
        "Mul" => a * b,
        "Div" => a / b,
        "Min" => a.min(b),
        "Max" => a.max(b),
        "Pow" => a.powf(b),
        "Mean" => (a + b) / 2.0,
        _ => return None,
    })
}

/// What is left of a symbol: it survives neutral elements, and absorbing ones absorb it.
fn symbols(op: &str, a: &Elem, b: &Elem) -> Elem {
    let is = |elem: &Elem, value: f64| elem.number() == Some(value);
    match op {
        "Add" | "Sum" if is(b, 0.0) => a.clone(),
        "Add" | "Sum" if is(a, 0.0) => b.clone(),
        "Sub" if is(b, 0.0) => a.clone(),
        "Mul" | "Div" | "Pow" if is(b, 1.0) => a.clone(),
        "Mul" if is(a, 1.0) => b.clone(),
        "Mul" if matches!(a, Elem::Int(0)) || matches!(b, Elem::Int(0)) => Elem::Int(0),
        "Sub" if a == b && matches!(a, Elem::Sym(_)) => Elem::Int(0),
        "Min" | "Max" if a == b => a.clone(),
        "Max" if matches!(b, Elem::Int(i64::MIN..=0)) && matches!(a, Elem::Sym(_)) => a.clone(),
        "Max" if matches!(a, Elem::Int(i64::MIN..=0)) && matches!(b, Elem::Sym(_)) => b.clone(),
        _ => Elem::Unknown,
    }
}

/// A comparison or logical operator, by its ONNX name; the result is 0 or 1.
pub(super) fn compare(op: &str, a: &Elem, b: &Elem) -> Elem {
    if let (Elem::Sym(x), Elem::Sym(y)) = (a, b) {
        return match op {
            "Equal" | "GreaterOrEqual" | "LessOrEqual" if x == y => Elem::Int(1),
            "Greater" | "Less" if x == y => Elem::Int(0),
            _ => Elem::Unknown,
        };
    }
    // A size is never negative.
    match (a, b) {
        (Elem::Sym(_), Elem::Int(value)) if *value < 0 => return sign_compare(op, true),
        (Elem::Int(value), Elem::Sym(_)) if *value < 0 => return sign_compare(op, false),
        _ => {}
    }
    let truth = match (a, b) {
        (Elem::Int(a), Elem::Int(b)) => ordering(op, a, b).or_else(|| logical(op, *a, *b)),
        _ => match (a.number(), b.number()) {
            (Some(a), Some(b)) => ordering(op, &a, &b),
            _ => None,
        },
    };
    truth.map_or(Elem::Unknown, |truth| Elem::Int(i64::from(truth)))
}

fn sign_compare(op: &str, first_is_greater: bool) -> Elem {
    match op {
        "Equal" => Elem::Int(0),
        "Greater" | "GreaterOrEqual" => Elem::Int(i64::from(first_is_greater)),
        "Less" | "LessOrEqual" => Elem::Int(i64::from(!first_is_greater)),
        _ => Elem::Unknown,
    }
}

fn ordering<T: PartialOrd>(op: &str, a: &T, b: &T) -> Option<bool> {
    Some(match op {
        "Equal" => a == b,
        "Greater" => a > b,
        "GreaterOrEqual" => a >= b,
        "Less" => a < b,
        "LessOrEqual" => a <= b,
        _ => return None,
    })
}

fn logical(op: &str, a: i64, b: i64) -> Option<bool> {
    Some(match op {
        "And" => a != 0 && b != 0,
        "Or" => a != 0 || b != 0,
        "Xor" => (a != 0) != (b != 0),
        _ => return None,
    })
}

/// The element as another dtype.
pub(super) fn cast(to: DType, elem: &Elem) -> Elem {
    match elem {
        Elem::Sym(_) if to == DType::Bool => Elem::Unknown,
        Elem::Sym(_) | Elem::Unknown => elem.clone(),
        Elem::Int(value) if to.is_float() => rounded(to, *value as f64),
        Elem::Int(value) if to == DType::Bool => Elem::Int(i64::from(*value != 0)),
        Elem::Int(value) => in_range(to, *value),
        Elem::Float(value) if to.is_float() => rounded(to, *value),
        Elem::Float(value) if to == DType::Bool => Elem::Int(i64::from(*value != 0.0)),
        Elem::Float(value) => whole(*value).map_or(Elem::Unknown, |value| in_range(to, value)),
    }
}

/// The number without its fraction, where an `i64` holds it.
pub(super) fn whole(value: f64) -> Option<i64> {
    // Sizes beyond 2^53 are not sizes.
    const LIMIT: f64 = 9_007_199_254_740_992.0;
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the range is checked, and dropping the fraction is what is asked"
    )]
    (value.abs() <= LIMIT).then_some(value as i64)
}

fn in_range(to: DType, value: i64) -> Elem {
    let fits = match to {
        DType::I8 => i8::try_from(value).is_ok(),
        DType::I16 => i16::try_from(value).is_ok(),
        DType::I32 => i32::try_from(value).is_ok(),
        DType::U8 => u8::try_from(value).is_ok(),
        DType::U16 => u16::try_from(value).is_ok(),
        DType::U32 => u32::try_from(value).is_ok(),
        DType::U64 => value >= 0,
        _ => true,
    };
    if fits {
        Elem::Int(value)
    } else {
        Elem::Unknown
    }
}

/// The number as `dtype` holds it.
pub(super) fn rounded(dtype: DType, value: f64) -> Elem {
    match dtype {
        DType::F64 => Elem::Float(value),
        #[allow(
            clippy::cast_possible_truncation,
            reason = "rounding to f32 is the purpose"
        )]
        DType::F32 => Elem::Float(f64::from(value as f32)),
        DType::F16 => Elem::Float(half::f16::from_f64(value).to_f64()),
        DType::BF16 => Elem::Float(half::bf16::from_f64(value).to_f64()),
        _ => Elem::Unknown,
    }
}

fn checked(value: Option<i64>) -> Elem {
    value.map_or(Elem::Unknown, Elem::Int)
}
