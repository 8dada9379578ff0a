//! Proof that requests may be joined: two rows computed together equal the same rows computed
//! apart.

use std::collections::BTreeMap;

use seamline_ort::{ModelSource, RunError, Runtime, Session, SessionOptions};
use seamline_plan::{BundleWriter, Cut, Dim, Manifest, Tensor, concat_rows, split_rows};

use crate::compare::{Difference, compare};
use crate::model::{Model, ModelError};
use crate::probe::Prober;
use crate::split::SplitError;

/// The largest |difference| / max(1, |apart|) between rows together and rows apart. Kernels block
/// their sums by batch size, which moves the last bits.
pub const BATCH_TOLERANCE: f64 = 1e-5;

/// Whether requests at a cut may be joined, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchProof {
    /// The cut.
    pub cut: String,
    /// What was found.
    pub verdict: BatchVerdict,
}

/// What was found about a cut.
#[derive(Clone, Debug, PartialEq)]
pub enum BatchVerdict {
    /// Rows may be joined.
    Proven {
        /// The largest relative difference between rows together and apart.
        max_rel: f64,
    },
    /// No output is left for the service.
    NoTail,
    /// Shapes alone rule it out.
    NoAxis {
        /// The value that has no batch axis.
        value: String,
    },
    /// The rows came out different.
    Refuted {
        /// The output.
        output: String,
        /// Its largest relative difference.
        max_rel: f64,
    },
    /// The joined rows do not run.
    Fails {
        /// What the runtime said.
        problem: String,
    },
}

type Values = BTreeMap<String, Tensor>;

/// Probes every cut of `manifest` whose shapes allow joining, and takes the batch axes of the
/// others away.
pub(crate) fn prove(
    model: &Model,
    runtime: &Runtime,
    writer: &BundleWriter,
    manifest: &mut Manifest,
    seed: u64,
) -> Result<Vec<BatchProof>, SplitError> {
    let mut sessions = Vec::new();
    for stage in &manifest.stages {
        let file = stage.edge.as_ref().or(stage.cloud.as_ref());
        let path = file.map(|file| writer.path(file)).unwrap_or_default();
        sessions.push(runtime.session(ModelSource::File(&path), &SessionOptions::default())?);
    }
    let [first, second] = draw_rows(model, seed)?;
    let rows = [
        Row::compute(model, &mut sessions, first)?,
        Row::compute(model, &mut sessions, second)?,
    ];
    let mut proofs = Vec::new();
    for cut in &mut manifest.cuts {
        let verdict = match missing_axis(cut) {
            _ if cut.replies.is_empty() => BatchVerdict::NoTail,
            Some(value) => BatchVerdict::NoAxis { value },
            None => probe(cut, &mut sessions, &rows),
        };
        if !matches!(verdict, BatchVerdict::Proven { .. }) {
            cut.crossing
                .iter_mut()
                .for_each(|crossing| crossing.batch_axis = None);
            cut.replies
                .iter_mut()
                .for_each(|reply| reply.batch_axis = None);
        }
        proofs.push(BatchProof {
            cut: cut.id.clone(),
            verdict,
        });
    }
    Ok(proofs)
}

/// A request computed alone.
struct Row {
    inputs: Values,
    /// Every value that crosses a cut, and every output; inputs too.
    values: Values,
}

impl Row {
    /// A model that does not run at its reference sizes would not warm up in a service either.
    fn compute(model: &Model, sessions: &mut [Session], inputs: Values) -> Result<Row, ModelError> {
        let mut values = inputs.clone();
        run(sessions, &mut values).map_err(|error| ModelError::Run {
            error,
            reference: model.reference.clone(),
        })?;
        Ok(Row { inputs, values })
    }
}

/// Two requests that differ in every input with a batch axis; what has none is the same in both,
/// as it would have to be in a batch.
fn draw_rows(model: &Model, seed: u64) -> Result<[Values; 2], SplitError> {
    let inputs = model.probe_inputs(Some(1))?;
    let first = Prober::new(seed).draw(&inputs)?;
    let mut second = Prober::new(seed.wrapping_add(1)).draw(&inputs)?;
    for &id in &model.graph.inputs {
        let name = &model.graph.value(id).name;
        let symbolic = model.facts(id).symbolic.as_deref().unwrap_or_default();
        let batched = symbolic.iter().any(
            |dim| matches!(dim, Dim::Sym(symbol) if Some(symbol) == model.batch_symbol.as_ref()),
        );
        if let (false, Some(tensor)) = (batched, first.get(name)) {
            second.insert(name.clone(), tensor.clone());
        }
    }
    Ok([first, second])
}

/// The first value without a batch axis.
fn missing_axis(cut: &Cut) -> Option<String> {
    let crossing = cut
        .crossing
        .iter()
        .map(|crossing| (&crossing.spec, crossing.batch_axis));
    let replies = cut
        .replies
        .iter()
        .map(|reply| (&reply.spec, reply.batch_axis));
    crossing
        .chain(replies)
        .find(|(_, axis)| axis.is_none())
        .map(|(spec, _)| spec.name.clone())
}

fn probe(cut: &Cut, sessions: &mut [Session], rows: &[Row; 2]) -> BatchVerdict {
    match joined_difference(cut, sessions, rows) {
        Ok((output, max_rel)) if max_rel > BATCH_TOLERANCE => {
            BatchVerdict::Refuted { output, max_rel }
        }
        Ok((_, max_rel)) => BatchVerdict::Proven { max_rel },
        Err(problem) => BatchVerdict::Fails { problem },
    }
}

/// The output that differs most between the rows together and apart.
fn joined_difference(
    cut: &Cut,
    sessions: &mut [Session],
    rows: &[Row; 2],
) -> Result<(String, f64), String> {
    // What does not cross (state that stays in the service) is the first row's for both.
    let mut together = rows[0].inputs.clone();
    for value in &cut.crossing {
        let name = &value.spec.name;
        let parts: Vec<&Tensor> = rows.iter().filter_map(|row| row.values.get(name)).collect();
        let axis = value.batch_axis.unwrap_or_default();
        let joined = concat_rows(&parts, axis).map_err(|error| error.to_string())?;
        together.insert(name.clone(), joined);
    }
    run(&mut sessions[cut.stage..], &mut together).map_err(|error| error.to_string())?;
    let mut worst = (String::new(), 0.0);
    for reply in &cut.replies {
        let name = &reply.spec.name;
        let absent = || format!("the tail made no `{name}`");
        let joined = together.get(name).ok_or_else(absent)?;
        let axis = reply.batch_axis.unwrap_or_default();
        let sizes: Vec<usize> = rows
            .iter()
            .map(|row| {
                row.values
                    .get(name)
                    .and_then(|tensor| tensor.shape().get(axis).copied())
            })
            .collect::<Option<_>>()
            .ok_or_else(absent)?;
        let parts = split_rows(joined, axis, &sizes).map_err(|error| error.to_string())?;
        for (row, part) in rows.iter().zip(parts) {
            let alone = row.values.get(name).ok_or_else(absent)?;
            let Difference { max_rel, .. } = compare(alone, &part);
            if max_rel >= worst.1 {
                worst = (name.clone(), max_rel);
            }
        }
    }
    Ok(worst)
}

/// Runs stages one after the other on named values.
fn run(sessions: &mut [Session], values: &mut Values) -> Result<(), RunError> {
    for session in sessions {
        let inputs: Vec<&Tensor> = session
            .inputs()
            .iter()
            .filter_map(|spec| values.get(&spec.name))
            .collect();
        let outputs = session.run(&inputs)?;
        let names: Vec<String> = session
            .outputs()
            .iter()
            .map(|spec| spec.name.clone())
            .collect();
        values.extend(names.into_iter().zip(outputs));
    }
    Ok(())
}
