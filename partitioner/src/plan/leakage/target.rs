//! What is to be recovered: pictures, sequences, tokens, vectors.

use seamline_graph::ValueId;
use seamline_ort::Runtime;
use seamline_plan::Tensor;

use super::field::{Field, elements};
use super::subject::{Kind, inner_values, is_byte_picture, main_input, seen_by_the_net, values_of};
use super::tokens::{Tokens, embedding_table, integers};
use super::{LeakageError, LeakageOptions, Outcome, Split, no_figure};
use crate::model::Model;
use crate::plan::calibration::Calibration;
use crate::plan::record::Leakage;

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
    /// The inner value that `fields` are, where they are not the input itself.
    pub(super) inner: Option<String>,
    /// The span of a picture's values.
    pub(super) range: Option<f64>,
    pub(super) tokens: Option<Tokens>,
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
            None if is_byte_picture(model, input) => seen_by_the_net(model, input),
            None => None,
        };
        let values = match &asked {
            Some(value) => inner_values(runtime, model, calibration, value)?,
            None => given.clone(),
        };
        let shown = asked.as_deref().unwrap_or(&name).to_owned();
        let target = match kind {
            Kind::Picture => Target::pictures(name, &shown, given, &values),
            Kind::Tokens => Target::tokens(model, input, name, given),
            Kind::Other => Target::sequences(name, given, &values),
        };
        let inner = asked.filter(|_| !matches!(kind, Kind::Tokens));
        Ok(Target { inner, ..target? })
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
            inner: None,
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
            inner: None,
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
            inner: None,
            range: None,
            tokens: Some(Tokens { ids, table, width }),
        })
    }

    /// The input itself as if it were sent: no finer than the target.
    pub(super) fn whole(&self) -> &[Field] {
        &self.fields
    }

    /// What is recovered where the inner value that is looked for follows from what is sent:
    /// `values` is what it then is.
    pub(super) fn compare_inner(&self, values: &[Tensor], split: &Split) -> Option<Leakage> {
        let wide = |field: &Field| {
            field
                .values
                .iter()
                .map(|&v| f64::from(v))
                .collect::<Vec<_>>()
        };
        let learnt_from = || {
            split
                .train
                .iter()
                .filter_map(|&index| self.fields.get(index))
        };
        let count: usize = learnt_from().map(|field| field.values.len()).sum();
        let sum: f64 = learnt_from().flat_map(wide).sum();
        let mean = sum / count.max(1) as f64;
        let mut outcome = Outcome::default();
        for &index in &split.test {
            let truth = wide(self.fields.get(index)?);
            let value = values.get(index)?;
            let got = match self.range {
                Some(_) => wide(&Field::of_picture(value)?.pooled(self.reduction, self.reduction)),
                None => elements(value)?.into_iter().map(f64::from).collect(),
            };
            let guess = vec![mean; truth.len()];
            outcome.add(&truth, &got, &guess, &guess);
        }
        Some(Leakage {
            recovered: outcome.recovered(),
            psnr_db: self.range.map(|range| outcome.psnr_db(range)),
        })
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
