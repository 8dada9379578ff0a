//! One batch: decode every request into the joined values, run the tail, split and encode.

use std::time::{Duration, Instant};

use bytes::Bytes;
use seamline_codec as codec;
use seamline_plan::{CodecSpec, Cut, DType, Joiner, Tensor, split_rows};
use seamline_wire::{ErrorCode, TensorHeader, Timings};

use crate::contract::{CheckedRequest, Contract};
use crate::tail::{StateSlot, Tail, Values};

/// A request that an executor is to run.
#[derive(Debug)]
pub struct Input<'a> {
    /// What was checked.
    pub request: &'a CheckedRequest,
    /// The values' payloads, in the cut's order.
    pub payloads: &'a [Bytes],
}

/// The answer to one request.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// Where the time went; the queue's is the caller's to add.
    pub timings: Timings,
    /// The outputs, in the cut's order of replies.
    pub outputs: Vec<(TensorHeader, Bytes)>,
}

/// A request that failed, or failed its whole batch. The message goes to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What failed.
    pub code: ErrorCode,
    /// For a person; nothing private.
    pub message: String,
    /// For the log, where there is more to say.
    pub detail: Option<String>,
}

impl Failure {
    pub(crate) fn internal(detail: impl ToString) -> Failure {
        Failure {
            code: ErrorCode::Internal,
            message: "the service could not run this request".into(),
            detail: Some(detail.to_string()),
        }
    }
}

/// Runs `inputs` together, at the cut with index `cut`, and returns an answer for each.
///
/// A payload that does not decode fails its own request only. Where the tail fails on a batch of
/// several, each is run again alone, so that one request with, say, an index out of range does
/// not take its batch-mates with it.
pub fn run_batch(
    contract: &Contract,
    cut: usize,
    tail: &mut dyn Tail,
    inputs: &[Input<'_>],
    state: Option<&mut StateSlot>,
) -> Vec<Result<Answer, Failure>> {
    let mut answers: Vec<Option<Result<Answer, Failure>>> = inputs.iter().map(|_| None).collect();
    let mut live: Vec<usize> = (0..inputs.len()).collect();
    let cut = &contract.manifest().cuts[cut];
    let started = Instant::now();
    // Each turn either decodes all that is left or takes one request out.
    let values = loop {
        if live.is_empty() {
            break Values::new();
        }
        let rows: Vec<&Input<'_>> = live.iter().map(|&index| &inputs[index]).collect();
        match decode(cut, &rows) {
            Ok(values) => break values,
            Err((row, failure)) => {
                answers[live.remove(row)] = Some(Err(failure));
            }
        }
    };
    let decode_time = started.elapsed();
    if !live.is_empty() {
        let rows: Vec<&Input<'_>> = live.iter().map(|&index| &inputs[index]).collect();
        let results = match finish(contract, cut, tail, &rows, values, state) {
            Ok(results) => results,
            Err(failure) if rows.len() == 1 => vec![Err(failure)],
            Err(failure) => {
                tracing::warn!(
                    ?failure,
                    requests = rows.len(),
                    "batch failed; running each alone"
                );
                rows.iter()
                    .map(|row| run_alone(contract, cut, tail, row))
                    .collect()
            }
        };
        for (&index, mut result) in live.iter().zip(results) {
            if let Ok(answer) = &mut result {
                answer.timings.decode_us = micros(decode_time);
            }
            answers[index] = Some(result);
        }
    }
    answers
        .into_iter()
        .map(|answer| answer.unwrap_or_else(|| Err(Failure::internal("no answer was made"))))
        .collect()
}

fn run_alone(
    contract: &Contract,
    cut: &Cut,
    tail: &mut dyn Tail,
    row: &Input<'_>,
) -> Result<Answer, Failure> {
    let rows = [row];
    let values = decode(cut, &rows).map_err(|(_, failure)| failure)?;
    let mut answers = finish(contract, cut, tail, &rows, values, None)?;
    answers
        .pop()
        .unwrap_or_else(|| Err(Failure::internal("no answer was made")))
}

/// The joined values, or the row that does not decode and why.
fn decode(cut: &Cut, rows: &[&Input<'_>]) -> Result<Values, (usize, Failure)> {
    let mut values = Values::new();
    for (index, crossing) in cut.crossing.iter().enumerate() {
        let tensor = match (rows, crossing.batch_axis) {
            ([row], _) => decode_alone(cut, index, row).map_err(|failure| (0, failure))?,
            (_, Some(axis)) => decode_joined(cut, index, axis, rows)?,
            // The batcher joins only requests whose every value has a batch axis.
            (_, None) => return Err((0, Failure::internal("joined without a batch axis"))),
        };
        values.insert(crossing.spec.name.clone(), tensor);
    }
    Ok(values)
}

fn decode_alone(cut: &Cut, index: usize, row: &Input<'_>) -> Result<Tensor, Failure> {
    let spec = &cut.crossing[index].spec;
    let value = &row.request.values[index];
    let payload = &row.payloads[index];
    // A boolean's bytes must be looked at; everything else is taken as it came.
    if value.codec == CodecSpec::Raw && spec.dtype != DType::Bool {
        return Tensor::new(spec.dtype, value.shape.clone(), payload.clone())
            .map_err(|error| invalid(&spec.name, &error));
    }
    codec::decode(&value.codec, spec.dtype, &value.shape, payload)
        .map_err(|error| invalid(&spec.name, &error))
}

fn decode_joined(
    cut: &Cut,
    index: usize,
    axis: usize,
    rows: &[&Input<'_>],
) -> Result<Tensor, (usize, Failure)> {
    let spec = &cut.crossing[index].spec;
    let total = rows.iter().map(|row| row.request.rows).sum();
    let mut joiner = Joiner::new(
        spec.dtype,
        &rows[0].request.values[index].shape,
        axis,
        total,
    )
    .map_err(|error| (0, Failure::internal(error)))?;
    for (position, row) in rows.iter().enumerate() {
        let value = &row.request.values[index];
        joiner
            .add(row.request.rows, |out| {
                codec::decode_into(
                    &value.codec,
                    spec.dtype,
                    &value.shape,
                    &row.payloads[index],
                    out,
                )
            })
            .map_err(|error| (position, invalid(&spec.name, &error)))?;
    }
    joiner
        .finish()
        .map_err(|error| (0, Failure::internal(error)))
}

fn invalid(name: &str, error: &dyn std::error::Error) -> Failure {
    Failure {
        code: ErrorCode::InvalidTensor,
        message: format!("`{name}`: {error}"),
        detail: None,
    }
}

/// Runs the tail and encodes each row's outputs; an error concerns the whole batch.
fn finish(
    contract: &Contract,
    cut: &Cut,
    tail: &mut dyn Tail,
    rows: &[&Input<'_>],
    mut values: Values,
    state: Option<&mut StateSlot>,
) -> Result<Vec<Result<Answer, Failure>>, Failure> {
    let started = Instant::now();
    let stages = cut.stage..contract.manifest().stages.len();
    tail.run(stages, &mut values, state)
        .map_err(Failure::internal)?;
    let run_time = started.elapsed();
    let started = Instant::now();
    let counts: Vec<usize> = rows.iter().map(|row| row.request.rows).collect();
    let mut outputs: Vec<Vec<(TensorHeader, Bytes)>> = rows.iter().map(|_| Vec::new()).collect();
    for reply in &cut.replies {
        let name = &reply.spec.name;
        let tensor = values
            .get(name)
            .ok_or_else(|| Failure::internal(format!("the tail made no `{name}`")))?;
        let parts = match (rows, reply.batch_axis) {
            ([_], _) => vec![tensor.clone()],
            (_, Some(axis)) => split_rows(tensor, axis, &counts).map_err(Failure::internal)?,
            (_, None) => return Err(Failure::internal("split without a batch axis")),
        };
        for (outputs, part) in outputs.iter_mut().zip(parts) {
            let payload = codec::encode_bytes(&reply.codec, &part).map_err(Failure::internal)?;
            outputs.push((tensor_header(&reply.codec, &part, &payload), payload));
        }
    }
    let timings = Timings {
        run_us: micros(run_time),
        encode_us: micros(started.elapsed()),
        batch_size: u32::try_from(rows.len()).unwrap_or(u32::MAX),
        ..Timings::default()
    };
    Ok(outputs
        .into_iter()
        .map(|outputs| Ok(Answer { timings, outputs }))
        .collect())
}

fn tensor_header(codec: &CodecSpec, tensor: &Tensor, payload: &Bytes) -> TensorHeader {
    TensorHeader {
        codec: codec.id(),
        dtype: tensor.dtype().code(),
        shape: tensor.shape().iter().map(|&dim| dim as u64).collect(),
        bytes: payload.len() as u64,
    }
}

pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
