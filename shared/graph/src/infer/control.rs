//! `If`, `Loop` and `Scan`.

use seamline_plan::{DType, Dim};

use super::body::{Context, Operator, Parent, Result, run_body};
use super::dims;
use super::known::{Elem, Fact, Known};

/// Rounds in which a loop's state is widened before its shape is given up.
const LOOP_ROUNDS: usize = 3;

/// What holds of a value that is either of two.
fn join(a: &Fact, b: &Fact) -> Fact {
    Fact {
        dtype: a.dtype.filter(|dtype| Some(*dtype) == b.dtype),
        shape: match (&a.shape, &b.shape) {
            (Some(a), Some(b)) => dims::join(a, b),
            _ => None,
        },
        known: a
            .known
            .clone()
            .filter(|known| Some(known) == b.known.as_ref()),
    }
}

fn join_all(a: &[Fact], b: &[Fact]) -> Vec<Fact> {
    a.iter().zip(b).map(|(a, b)| join(a, b)).collect()
}

/// `If`: the branch that a known condition takes, or what both branches have in common.
pub(super) fn branch(
    context: &Context<'_>,
    operator: &Operator<'_>,
    inputs: &[Option<&Fact>],
    outputs: usize,
    parent: &Parent<'_>,
) -> Result {
    let run = |name: &str| match operator.body(name) {
        Some(body) => run_body(context, body, Vec::new(), parent),
        None => Result::default(),
    };
    let condition = inputs
        .first()
        .copied()
        .flatten()
        .and_then(|fact| fact.known.as_ref()?.single()?.int());
    let mut result = match condition {
        Some(0) => run("else_branch"),
        Some(_) => run("then_branch"),
        None => {
            let (yes, no) = (run("then_branch"), run("else_branch"));
            let flops = yes
                .body_flops
                .unwrap_or(0.0)
                .max(no.body_flops.unwrap_or(0.0));
            Result {
                outputs: join_all(&yes.outputs, &no.outputs),
                body_flops: Some(flops),
            }
        }
    };
    result.outputs.resize(outputs, Fact::default());
    result
}

/// State for which only dtype and, where `rounds` allow to prove it, shape hold in every round.
fn opaque(fact: &Fact, keep_shape: bool) -> Fact {
    Fact {
        dtype: fact.dtype,
        shape: fact.shape.clone().filter(|_| keep_shape),
        known: None,
    }
}

/// Runs a loop's body until what is assumed of its state holds after a round as well.
fn settle_state(
    context: &Context<'_>,
    initial: &[Fact],
    mut body: impl FnMut(&Context<'_>, &[Fact]) -> Result,
    state_of: impl Fn(&Result) -> &[Fact],
) -> (Vec<Fact>, Result) {
    let inner = context.in_loop();
    let mut state: Vec<Fact> = initial.iter().map(|fact| opaque(fact, true)).collect();
    if context.loops == 0 {
        for _ in 0..LOOP_ROUNDS {
            let result = body(&inner, &state);
            let after = state_of(&result);
            let mut joined = join_all(&state, after);
            joined.resize(state.len(), Fact::default());
            for (fact, before) in joined.iter_mut().zip(&state) {
                fact.dtype = before.dtype;
                fact.known = None;
            }
            if joined == state {
                return (state, result);
            }
            state = joined;
        }
    }
    let state: Vec<Fact> = initial.iter().map(|fact| opaque(fact, false)).collect();
    let result = body(&inner, &state);
    (state, result)
}

/// `Loop`: trip count, condition, then the state; outputs are the final state, then what every
/// round adds to a stack.
pub(super) fn repeat(
    context: &Context<'_>,
    operator: &Operator<'_>,
    inputs: &[Option<&Fact>],
    outputs: usize,
    parent: &Parent<'_>,
) -> Result {
    let Some(body) = operator.body("body") else {
        return unknown(outputs);
    };
    let initial: Vec<Fact> = inputs
        .iter()
        .skip(2)
        .map(|fact| fact.cloned().unwrap_or_default())
        .collect();
    let scalar = |dtype| Fact {
        dtype: Some(dtype),
        shape: Some(Vec::new()),
        known: None,
    };
    let count = initial.len();
    let (state, result) = settle_state(
        context,
        &initial,
        |context, state| {
            let mut arguments = vec![scalar(DType::I64), scalar(DType::Bool)];
            arguments.extend_from_slice(state);
            run_body(context, body, arguments, parent)
        },
        |result| result.outputs.get(1..=count).unwrap_or(&[]),
    );
    let trips = inputs
        .first()
        .copied()
        .flatten()
        .and_then(|fact| fact.known.as_ref()?.single()?.number());
    let mut facts = state;
    for fact in result.outputs.iter().skip(count.saturating_add(1)) {
        facts.push(stacked(fact, Dim::Unknown, 0));
    }
    finish(facts, outputs, result.body_flops, trips)
}

/// `Scan`: state, then tensors that are read slice by slice; outputs likewise.
pub(super) fn scan(
    context: &Context<'_>,
    operator: &Operator<'_>,
    inputs: &[Option<&Fact>],
    outputs: usize,
    parent: &Parent<'_>,
) -> Result {
    let attribute = |name: &str| operator.attributes.iter().find(|attr| attr.name() == name);
    let scanned = attribute("num_scan_inputs")
        .and_then(|attr| usize::try_from(attr.i?).ok())
        .filter(|&count| count <= inputs.len());
    let (Some(body), Some(scanned)) = (operator.body("body"), scanned) else {
        return unknown(outputs);
    };
    // Opset 8 had another form, with a batch axis and lengths; exporters never took it up.
    if context.version("") < 9 {
        return unknown(outputs);
    }
    let axes = |name: &str| attribute(name).map_or(&[][..], |attr| &attr.ints);
    let facts: Vec<Fact> = inputs
        .iter()
        .map(|fact| fact.cloned().unwrap_or_default())
        .collect();
    let (initial, sequences) = facts.split_at(facts.len() - scanned);
    let mut length = Dim::Unknown;
    let mut slices = Vec::with_capacity(scanned);
    for (i, sequence) in sequences.iter().enumerate() {
        let axis = axes("scan_input_axes").get(i).copied().unwrap_or(0);
        let (slice, dim) = sliced(sequence, axis);
        length = dims::refine_dim(&length, &dim);
        slices.push(slice);
    }
    let count = initial.len();
    let (state, result) = settle_state(
        context,
        initial,
        |context, state| {
            let mut arguments = state.to_vec();
            arguments.extend_from_slice(&slices);
            run_body(context, body, arguments, parent)
        },
        |result| result.outputs.get(..count).unwrap_or(&[]),
    );
    let trips = Elem::of_dim(&length).number();
    let mut facts = state;
    for (i, fact) in result.outputs.iter().skip(count).enumerate() {
        let axis = axes("scan_output_axes").get(i).copied().unwrap_or(0);
        facts.push(stacked(fact, length.clone(), axis));
    }
    finish(facts, outputs, result.body_flops, trips)
}

fn unknown(outputs: usize) -> Result {
    Result {
        outputs: vec![Fact::default(); outputs],
        body_flops: None,
    }
}

fn finish(mut facts: Vec<Fact>, outputs: usize, flops: Option<f64>, trips: Option<f64>) -> Result {
    facts.resize(outputs, Fact::default());
    Result {
        outputs: facts,
        body_flops: flops.map(|flops| flops * trips.unwrap_or(1.0).max(0.0)),
    }
}

/// One slice of a sequence, and the sequence's length.
fn sliced(sequence: &Fact, axis: i64) -> (Fact, Dim) {
    let mut slice = opaque(sequence, true);
    let Some(shape) = &mut slice.shape else {
        return (slice, Dim::Unknown);
    };
    match place(axis, shape.len()) {
        Some(axis) => {
            let length = shape.remove(axis);
            (slice, length)
        }
        None => (opaque(sequence, false), Dim::Unknown),
    }
}

/// What the slices of `length` rounds make together.
fn stacked(slice: &Fact, length: Dim, axis: i64) -> Fact {
    let shape = slice.shape.as_ref().and_then(|shape| {
        let axis = place(axis, shape.len().checked_add(1)?)?;
        let mut shape = shape.clone();
        shape.insert(axis, length);
        Some(shape)
    });
    Fact {
        dtype: slice.dtype,
        shape,
        known: None::<Known>,
    }
}

fn place(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let axis = if axis < 0 {
        axis.checked_add(rank)?
    } else {
        axis
    };
    (axis >= 0 && axis < rank).then(|| usize::try_from(axis).ok())?
}
