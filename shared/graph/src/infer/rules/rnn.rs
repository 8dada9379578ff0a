//! Recurrent layers.

use seamline_plan::Dim;

use super::super::known::Elem;
use super::{Call, Out, Rule};

pub(super) const RULES: &[(&str, Rule)] =
    &[("GRU", recurrent), ("LSTM", recurrent), ("RNN", recurrent)];

/// X is `[time, batch, features]`, or `[batch, time, features]` where `layout` is 1. R, the
/// recurrent weights at input 2, is `[directions, gates * hidden, hidden]`.
fn recurrent(call: &Call<'_>, out: &mut Out) -> Option<()> {
    for output in 0..3 {
        out.dtype(output, call.dtype(0));
    }
    let batch_first = call.int("layout").unwrap_or(0) != 0;
    let open = [Dim::Unknown, Dim::Unknown, Dim::Unknown];
    let input = call
        .shape(0)
        .filter(|shape| shape.len() == 3)
        .unwrap_or(&open);
    let (time, batch) = if batch_first {
        (input[1].clone(), input[0].clone())
    } else {
        (input[0].clone(), input[1].clone())
    };
    let weights = call.shape(2).filter(|shape| shape.len() == 3);
    let directions = match call.string("direction").as_deref() {
        Some("bidirectional") => Dim::Fixed(2),
        _ => Dim::Fixed(1),
    };
    let hidden = match (call.int("hidden_size"), weights) {
        (Some(size), _) => Elem::Int(size).to_dim(),
        (None, Some(weights)) => weights[2].clone(),
        (None, None) => Dim::Unknown,
    };
    let (sequence, state) = if batch_first {
        (
            vec![batch.clone(), time, directions.clone(), hidden.clone()],
            vec![batch, directions, hidden],
        )
    } else {
        (
            vec![time, directions.clone(), batch.clone(), hidden.clone()],
            vec![directions, batch, hidden],
        )
    };
    out.shape(0, sequence);
    out.shape(1, state.clone());
    out.shape(2, state);
    Some(())
}
