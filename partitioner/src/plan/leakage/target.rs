//! What is to be recovered: pictures, sequences, tokens, vectors.

use std::collections::BTreeMap;

use seamline_graph::infer::InputDomain;
use seamline_graph::{Graph, ValueId};
use seamline_ort::Runtime;
use seamline_plan::{DType, Tensor};

use super::field::{Field, elements};
use super::{LeakageError, LeakageOptions, Outcome, Split, no_figure};
use crate::model::Model;
use crate::plan::calibration::{Calibration, Sample};
use crate::plan::record::Leakage;

/// Most elements of an embedding table that is searched.
const MAX_TABLE: u64 = 1 << 26;

/// Most tokens that are looked up in the table.
const MAX_LOOKED_UP: usize = 512;

/// The input of every request.
pub(super) struct Target {
    /// The graph's input that it comes from.
    pub(super) input: String,
    /// For people.
    pub(super) about: String,
    /// By request, reduced.
    pub(super) fields: Vec<Field>,
    /// By how much on each side.
    pub(super) reduction: usize,
    /// The input as it was given, by request.
    given: Vec<Tensor>,
    /// The span of a picture's values.
    pub(super) range: Option<f64>,
    pub(super) tokens: Option<Tokens>,
}

/// Token ids, recovered by their embeddings.
pub(super) struct Tokens {
    /// By request.
    ids: Vec<Vec<i64>>,
    /// Rows of embeddings.
    table: Vec<f32>,
    width: usize,
}

enum Kind {
    Picture,
    Tokens,
    Other,
}

impl Target {
    pub(super) fn new(
        runtime: &Runtime,
        model: &Model,
        calibration: &Calibration,
        options: &LeakageOptions,
    ) -> Result<Target, LeakageError> {
        let (input, kind) = main_input(model)?;
        let name = model.graph.value(input).name.clone();
        let given = values_of(calibration, &name);
        let asked = match &options.target {
            Some(asked) if *asked != name => Some(asked.clone()),
            Some(_) => None,
            None if is_byte_picture(model, input) => seen_by_the_net(model),
            None => None,
        };
        let values = match &asked {
            Some(value) => inner_values(runtime, model, calibration, value)?,
            None => given.clone(),
        };
        let shown = asked.as_deref().unwrap_or(&name).to_owned();
        match kind {
            Kind::Picture => Target::pictures(name, &shown, given, &values),
            Kind::Tokens => Target::tokens(model, input, name, given),
            Kind::Other => Target::sequences(name, given, &values),
        }
    }

    pub(super) fn pictures(
        input: String,
        shown: &str,
        given: Vec<Tensor>,
        values: &[Tensor],
    ) -> Result<Target, LeakageError> {
        let fields: Option<Vec<Field>> = values.iter().map(Field::of_picture).collect();
        let Some(fields) = fields else {
            return no_figure(format!(
                "`{shown}` is no picture [1, C, H, W] or [1, H, W, C]"
            ));
        };
        let reduction = fields
            .first()
            .map_or(1, |f| Field::reduction(f.height, f.width));
        let all = || fields.iter().flat_map(|field| &field.values).copied();
        let range = f64::from(all().fold(f32::MIN, f32::max) - all().fold(f32::MAX, f32::min));
        let fields: Vec<Field> = fields
            .into_iter()
            .map(|field| field.pooled(reduction, reduction))
            .collect();
        let about = match fields.first() {
            Some(first) => format!("`{shown}` at {} × {}", first.height, first.width),
            None => format!("`{shown}`"),
        };
        Ok(Target {
            input,
            about,
            fields,
            reduction,
            given,
            range: Some(range),
            tokens: None,
        })
    }

    /// A float input of another kind: places along its first axis that is longer than 1, where it
    /// has two, else a vector.
    pub(super) fn sequences(
        input: String,
        given: Vec<Tensor>,
        values: &[Tensor],
    ) -> Result<Target, LeakageError> {
        let field = |tensor: &Tensor| {
            let values = elements(tensor)?;
            let dims: Vec<usize> = tensor.shape().iter().copied().filter(|&d| d != 1).collect();
            let [width, channels] = match dims.as_slice() {
                [first, rest @ ..] if !rest.is_empty() => [*first, rest.iter().product()],
                _ => [1, values.len()],
            };
            Some(Field {
                height: 1,
                width,
                channels,
                values,
            })
        };
        let fields: Option<Vec<Field>> = values.iter().map(field).collect();
        let Some(fields) = fields.filter(|fields| fields.iter().all(|f| !f.values.is_empty()))
        else {
            return no_figure(format!("`{input}` is empty or holds no numbers"));
        };
        let about = format!("`{input}`");
        Ok(Target {
            input,
            about,
            fields,
            reduction: 1,
            given,
            range: None,
            tokens: None,
        })
    }

    fn tokens(
        model: &Model,
        input: ValueId,
        name: String,
        given: Vec<Tensor>,
    ) -> Result<Target, LeakageError> {
        let ids: Option<Vec<Vec<i64>>> = given.iter().map(integers).collect();
        let Some(ids) = ids else {
            return no_figure(format!("`{name}` holds no integers"));
        };
        let (table, width) = match embedding_table(&model.graph, input) {
            Some(found) => found,
            None => return no_figure(format!("the model has no table of embeddings for `{name}`")),
        };
        let row = |id: &i64| {
            let start = usize::try_from(*id).ok()?.checked_mul(width)?;
            table.get(start..start + width)
        };
        let field = |ids: &Vec<i64>| {
            let rows: Option<Vec<&[f32]>> = ids.iter().map(row).collect();
            let values = rows?.concat();
            Some(Field {
                height: 1,
                width: ids.len(),
                channels: width,
                values,
            })
        };
        let fields: Option<Vec<Field>> = ids.iter().map(field).collect();
        let Some(fields) = fields else {
            return no_figure(format!(
                "`{name}` holds tokens that the embeddings do not have"
            ));
        };
        Ok(Target {
            about: format!("the tokens of `{name}`"),
            input: name,
            fields,
            reduction: 1,
            given,
            range: None,
            tokens: Some(Tokens { ids, table, width }),
        })
    }

    /// The input itself as if it were sent: no finer than the target.
    pub(super) fn whole(&self) -> &[Field] {
        &self.fields
    }

    /// What is recovered where the input itself is sent, as `sent` after its codec.
    pub(super) fn compare(&self, sent: &[&Tensor], split: &Split) -> Leakage {
        if self.tokens.is_some() {
            let same = |&index: &usize| {
                let pair = sent.get(index).zip(self.given.get(index));
                pair.is_some_and(|(sent, given)| sent.bytes() == given.bytes())
            };
            let share = split.test.iter().filter(|index| same(index)).count() as f64;
            return Leakage {
                recovered: share / split.test.len().max(1) as f64,
                psnr_db: None,
            };
        }
        let values = |tensor: &Tensor| -> Vec<f64> {
            elements(tensor)
                .unwrap_or_default()
                .into_iter()
                .map(f64::from)
                .collect()
        };
        let (mut sum, mut count) = (0.0, 0.0);
        for tensor in split
            .train
            .iter()
            .filter_map(|&index| self.given.get(index))
        {
            let values = values(tensor);
            sum += values.iter().sum::<f64>();
            count += values.len() as f64;
        }
        let mean = sum / f64::max(count, 1.0);
        let mut outcome = Outcome::default();
        let mut span: [f64; 2] = [f64::INFINITY, f64::NEG_INFINITY];
        for &index in &split.test {
            let Some((sent, given)) = sent.get(index).zip(self.given.get(index)) else {
                continue;
            };
            let (truth, got) = (values(given), values(sent));
            span = truth
                .iter()
                .fold(span, |[low, high], &v| [low.min(v), high.max(v)]);
            let guess = vec![mean; truth.len()];
            outcome.add(&truth, &got, &guess, &guess);
        }
        Leakage {
            recovered: outcome.recovered(),
            psnr_db: self.range.map(|_| outcome.psnr_db(span[1] - span[0])),
        }
    }
}

impl Tokens {
    /// The share of held-out tokens whose own embedding is the nearest to what was recovered,
    /// beyond the share that the commonest token guesses.
    pub(super) fn recovered(&self, guesses: &[(Vec<f64>, Vec<f64>)], split: &Split) -> f64 {
        let step = guesses.len().div_ceil(MAX_LOOKED_UP).max(1);
        let tried: Vec<&(Vec<f64>, Vec<f64>)> = guesses.iter().step_by(step).collect();
        let right = tried
            .iter()
            .filter(|(truth, got)| self.is_nearest(truth, got))
            .count();
        let share = right as f64 / tried.len().max(1) as f64;
        let guess = self.commonest_share(split);
        if guess < 1.0 {
            ((share - guess) / (1.0 - guess)).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    /// Whether no row of the table is nearer to `got` than `truth` is.
    fn is_nearest(&self, truth: &[f64], got: &[f64]) -> bool {
        // A table has rows that are the same, and `truth` went through f32.
        const SLACK: f64 = 1.0 - 1e-6;
        let limit = SLACK
            * truth
                .iter()
                .zip(got)
                .map(|(t, g)| (t - g).powi(2))
                .sum::<f64>();
        let is_nearer = |row: &[f32]| {
            let mut sum = 0.0;
            for (row, got) in row.chunks(32).zip(got.chunks(32)) {
                sum += row
                    .iter()
                    .zip(got)
                    .map(|(r, g)| (f64::from(*r) - g).powi(2))
                    .sum::<f64>();
                if sum >= limit {
                    return false;
                }
            }
            true
        };
        !self.table.chunks_exact(self.width.max(1)).any(is_nearer)
    }

    /// How often the commonest token of the requests that are learnt from is in the others.
    fn commonest_share(&self, split: &Split) -> f64 {
        let ids = |indices: &[usize]| -> Vec<i64> {
            indices
                .iter()
                .flat_map(|&index| self.ids[index].iter().copied())
                .collect()
        };
        let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
        ids(&split.train)
            .into_iter()
            .for_each(|id| *counts.entry(id).or_default() += 1);
        let commonest = counts
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .map(|(id, _)| id);
        let tried = ids(&split.test);
        let hits = tried.iter().filter(|id| Some(**id) == commonest).count();
        hits as f64 / tried.len().max(1) as f64
    }
}

/// The input that says most: a picture, or tokens, or else the largest.
fn main_input(model: &Model) -> Result<(ValueId, Kind), LeakageError> {
    let rank = |id: ValueId| model.facts(id).reference.as_ref().map_or(0, Vec::len);
    let size = |id: ValueId| model.facts(id).elements().unwrap_or(0);
    let is_float = |id: ValueId| model.facts(id).dtype.is_some_and(DType::is_float);
    let inputs = || model.graph.inputs.iter().copied();
    let is_picture = |id: &ValueId| {
        rank(*id) == 4 && size(*id) > 64 && (is_float(*id) || is_byte_picture(model, *id))
    };
    if let Some(id) = inputs().filter(is_picture).max_by_key(|&id| size(id)) {
        return Ok((id, Kind::Picture));
    }
    let is_tokens = |id: &ValueId| {
        matches!(model.domain(*id), Some(InputDomain::Indices { .. }))
            && embedding_table(&model.graph, *id).is_some()
    };
    // Of several (token types, positions) the one with most to choose from.
    let rows = |id: ValueId| {
        embedding_table(&model.graph, id).map_or(0, |(table, w)| table.len() / w.max(1))
    };
    if let Some(id) = inputs().filter(is_tokens).max_by_key(|&id| rows(id)) {
        return Ok((id, Kind::Tokens));
    }
    match inputs()
        .filter(|&id| is_float(id))
        .max_by_key(|&id| size(id))
    {
        Some(id) => Ok((id, Kind::Other)),
        None => no_figure("the model has no input of pictures, numbers or tokens"),
    }
}

fn is_byte_picture(model: &Model, id: ValueId) -> bool {
    let facts = model.facts(id);
    let channels = facts
        .reference
        .as_ref()
        .and_then(|shape| shape.get(3).copied());
    facts.dtype == Some(DType::U8) && channels == Some(3)
}

/// The value that preprocessing nodes make of a picture: the last float [N, 3, H, W] in front of the
/// first operator with trained weights.
fn seen_by_the_net(model: &Model) -> Option<String> {
    const TRAINED: &[&str] = &["Conv", "MatMul", "Gemm", "ConvInteger", "QLinearConv"];
    let nodes = model.graph.nodes.iter();
    let before = nodes.take_while(|node| !TRAINED.contains(&node.op_type.as_str()));
    let is_seen = |id: &ValueId| {
        let facts = model.facts(*id);
        let shape = facts.reference.as_deref().unwrap_or_default();
        facts.dtype.is_some_and(DType::is_float) && shape.len() == 4 && shape[1] == 3
    };
    let seen = before
        .flat_map(|node| node.makes().collect::<Vec<_>>())
        .filter(is_seen)
        .last();
    seen.map(|id| model.graph.value(id).name.clone())
}

fn values_of(calibration: &Calibration, name: &str) -> Vec<Tensor> {
    let value = |sample: &Sample| sample.values.get(name).cloned();
    calibration.samples.iter().filter_map(value).collect()
}

/// The value `name` of every request.
fn inner_values(
    runtime: &Runtime,
    model: &Model,
    calibration: &Calibration,
    name: &str,
) -> Result<Vec<Tensor>, LeakageError> {
    let failed = |error: crate::ModelError| LeakageError::NoFigure(format!("`{name}`: {error}"));
    let names = [name.to_owned()];
    let mut session = model
        .session_with_outputs(runtime, &names)
        .map_err(failed)?;
    let mut values = Vec::with_capacity(calibration.samples.len());
    for sample in &calibration.samples {
        values.extend(model.run(&mut session, &sample.values).map_err(failed)?);
    }
    Ok(values)
}

fn integers(tensor: &Tensor) -> Option<Vec<i64>> {
    match tensor.dtype() {
        DType::I64 => tensor.as_slice::<i64>().ok().map(<[i64]>::to_vec),
        DType::I32 => tensor
            .as_slice::<i32>()
            .ok()
            .map(|ids| ids.iter().map(|&id| id.into()).collect()),
        _ => None,
    }
}

/// The table that `Gather` reads at the input `ids`, and the length of its rows. Of a quantised one
/// the levels, which are as good to tell tokens by.
fn embedding_table(graph: &Graph, ids: ValueId) -> Option<(Vec<f32>, usize)> {
    let mut open = vec![ids];
    let mut best: Option<(Vec<f32>, usize)> = None;
    while let Some(value) = open.pop() {
        for node in graph
            .value(value)
            .consumers
            .iter()
            .map(|&id| graph.node(id))
        {
            if node.is("Cast") || node.is("Identity") {
                open.extend(node.makes());
            }
            let is_lookup = node.is("Gather") && node.input(1) == Some(value);
            let table = node
                .input(0)
                .filter(|_| is_lookup)
                .and_then(|id| graph.constant(id));
            let Some(table) = table else { continue };
            let [rows, width] = *table.dims().ok()?.as_slice() else {
                continue;
            };
            if rows < 2 || rows.checked_mul(width).is_none_or(|all| all > MAX_TABLE) {
                continue;
            }
            #[allow(clippy::cast_precision_loss, reason = "levels of at most 8 bits")]
            let levels = || {
                Some(
                    table
                        .to_i64s()
                        .ok()?
                        .into_iter()
                        .map(|level| level as f32)
                        .collect(),
                )
            };
            let Some(values) = table.to_f32s().ok().or_else(levels) else {
                continue;
            };
            let width = usize::try_from(width).ok()?;
            if best
                .as_ref()
                .is_none_or(|(found, _)| found.len() < values.len())
            {
                best = Some((values, width));
            }
        }
    }
    best
}
