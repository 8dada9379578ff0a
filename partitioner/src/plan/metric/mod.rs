//! End metrics: how good a candidate's answers are, against labels or the whole model's answers.

mod choose;
mod command;
mod scores;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;

use seamline_plan::{DType, Tensor};
use thiserror::Error;

use super::calibration::{Calibration, Sample};

pub use choose::{MetricChoice, MetricName};
use command::Command;

/// The outputs of one request, by name.
pub type Answer = BTreeMap<String, Tensor>;

/// A metric that cannot be used.
#[derive(Debug, Error)]
pub enum MetricError {
    /// No metric of that name.
    #[error("there is no metric `{name}`; there are {known}")]
    Name {
        /// As given.
        name: String,
        /// All names.
        known: String,
    },
    /// The metric does not fit the model or the calibration data.
    #[error("metric `{metric}`: {problem}")]
    Unfit {
        /// The metric.
        metric: &'static str,
        /// What it needs, what there is, and what to do.
        problem: String,
    },
    /// A label that the metric cannot read.
    #[error("label of `{sample}`: {problem}")]
    Label {
        /// The request.
        sample: String,
        /// What was expected and what came.
        problem: String,
    },
    /// An output that the metric cannot read.
    #[error("output `{output}`: {problem}")]
    Output {
        /// The output.
        output: String,
        /// What was expected and what came.
        problem: String,
    },
    /// The user's command failed.
    #[error("--metric-command `{command}`: {problem}")]
    Command {
        /// The command.
        command: String,
        /// Why.
        problem: String,
    },
}

/// What is measured.
#[derive(Clone, Debug)]
enum Kind {
    /// Share of positions whose largest score is at the whole model's place.
    Top1 { output: String },
    /// Share of requests whose largest score is at the label.
    Accuracy { output: String },
    /// Mean cosine between an output and the whole model's.
    Cosine { output: String },
    /// Edits to get from what is read to the label, for each character of the labels.
    CharacterError {
        output: String,
        charset: Vec<String>,
    },
    /// e to the mean of −ln p(next token).
    Perplexity { logits: String, ids: String },
    /// The largest |difference| / max(1, |whole|) of any output.
    MaxRelativeError,
    /// What the user's command says.
    Command(Command),
}

/// An end metric.
#[derive(Clone, Debug)]
pub struct Metric {
    kind: Kind,
}

/// What a candidate's answers are worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The metric; finite.
    pub value: f64,
    /// How much worse than the whole model, in the metric's own unit: below 0 where it is better.
    pub loss: f64,
}

impl Metric {
    /// What users see.
    pub fn name(&self) -> &str {
        match &self.kind {
            Kind::Top1 { .. } => "top-1 agreement",
            Kind::Accuracy { .. } => "accuracy",
            Kind::Cosine { .. } => "cosine",
            Kind::CharacterError { .. } => "character error",
            Kind::Perplexity { .. } => "perplexity",
            Kind::MaxRelativeError => "maximum relative error",
            Kind::Command(command) => command.name(),
        }
    }

    /// Whether more is better.
    pub fn higher_is_better(&self) -> bool {
        match &self.kind {
            Kind::Top1 { .. } | Kind::Accuracy { .. } | Kind::Cosine { .. } => true,
            Kind::CharacterError { .. } | Kind::Perplexity { .. } | Kind::MaxRelativeError => false,
            Kind::Command(command) => command.higher_is_better,
        }
    }

    /// The output that is looked at; all of them without one.
    pub fn output(&self) -> Option<&str> {
        match &self.kind {
            Kind::Top1 { output }
            | Kind::Accuracy { output }
            | Kind::Cosine { output }
            | Kind::CharacterError { output, .. }
            | Kind::Perplexity { logits: output, .. } => Some(output),
            Kind::MaxRelativeError | Kind::Command(_) => None,
        }
    }

    /// The part of `answer` that the metric looks at.
    #[must_use]
    pub fn reads(&self, answer: &Answer) -> Answer {
        let read = |name: &&String| self.output().is_none_or(|output| output == name.as_str());
        let names = answer.keys().filter(read);
        names
            .filter_map(|name| Some((name.clone(), answer.get(name)?.clone())))
            .collect()
    }

    /// How much worse `value` is than `baseline`.
    pub fn loss(&self, baseline: f64, value: f64) -> f64 {
        if self.higher_is_better() {
            baseline - value
        } else {
            value - baseline
        }
    }

    /// Measures a candidate's answers: the whole model's in `whole`, in the order of the requests.
    ///
    /// # Errors
    /// [`MetricError`].
    pub fn measure(
        &self,
        calibration: &Calibration,
        whole: &[Answer],
        candidate: &[Answer],
    ) -> Result<f64, MetricError> {
        let mut tally = self.tally();
        for ((sample, whole), candidate) in calibration.samples.iter().zip(whole).zip(candidate) {
            tally.add(sample, whole, candidate)?;
        }
        tally.finish()
    }

    /// An empty tally of a candidate's answers.
    pub fn tally(&self) -> Tally<'_> {
        Tally {
            metric: self,
            sum: 0.0,
            weight: 0.0,
            command: None,
        }
    }
}

/// A candidate's answers so far.
pub struct Tally<'a> {
    metric: &'a Metric,
    sum: f64,
    weight: f64,
    command: Option<command::Run>,
}

impl Tally<'_> {
    /// Adds the candidate's answer to `sample`, whose answer by the whole model is `whole`.
    ///
    /// # Errors
    /// [`MetricError`] where an output or a label is not what the metric takes.
    pub fn add(
        &mut self,
        sample: &Sample,
        whole: &Answer,
        candidate: &Answer,
    ) -> Result<(), MetricError> {
        let (sum, weight) = match &self.metric.kind {
            Kind::Top1 { output } => scores::agreement(
                scores::named(whole, output)?,
                scores::named(candidate, output)?,
            ),
            Kind::Accuracy { output } => {
                let scores = scores::named(candidate, output)?;
                let label = scores::class(sample, scores.width)?;
                (
                    f64::from(scores.row(0).and_then(scores::argmax) == Some(label)),
                    1.0,
                )
            }
            Kind::Cosine { output } => {
                let (whole, split) = (
                    scores::named(whole, output)?,
                    scores::named(candidate, output)?,
                );
                (scores::cosine(&whole.values, &split.values), 1.0)
            }
            Kind::CharacterError { output, charset } => {
                let read = text::read(&scores::named(candidate, output)?, charset);
                let label = sample.label.as_deref().unwrap_or_default();
                text::errors(&read, label)
            }
            Kind::Perplexity { logits, ids } => {
                scores::surprise(sample, &scores::named(candidate, logits)?, ids)?
            }
            Kind::MaxRelativeError => {
                let worst = scores::max_relative(whole, candidate);
                self.sum = self.sum.max(worst);
                (0.0, 1.0)
            }
            Kind::Command(command) => {
                let run = match &mut self.command {
                    Some(run) => run,
                    none => none.insert(command.begin()?),
                };
                run.add(sample, whole, candidate)?;
                (0.0, 1.0)
            }
        };
        self.sum += sum;
        self.weight += weight;
        Ok(())
    }

    /// The metric of all answers.
    ///
    /// # Errors
    /// [`MetricError::Command`] where the user's command fails, [`MetricError::Unfit`] where the
    /// figure is no finite number: an answer holds NaN or infinity, or there was nothing to count.
    pub fn finish(self) -> Result<f64, MetricError> {
        let value = match (&self.metric.kind, self.command) {
            (Kind::Command(command), Some(run)) => return command.end(run),
            (Kind::MaxRelativeError, _) => self.sum,
            (Kind::Perplexity { .. }, _) => (self.sum / self.weight).exp(),
            _ => self.sum / self.weight,
        };
        if value.is_finite() {
            return Ok(value);
        }
        Err(MetricError::Unfit {
            metric: self.metric.kind_name(),
            problem: if self.weight == 0.0 {
                "nothing could be counted: labels or inputs are empty".into()
            } else {
                "the answers hold NaN or infinity where the whole model's are finite".into()
            },
        })
    }
}

impl Metric {
    fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Top1 { .. } => "top1",
            Kind::Accuracy { .. } => "accuracy",
            Kind::Cosine { .. } => "cosine",
            Kind::CharacterError { .. } => "cer",
            Kind::Perplexity { .. } => "perplexity",
            Kind::MaxRelativeError => "max-rel",
            Kind::Command(_) => "command",
        }
    }
}

/// Elements as f64, of any dtype that is a number.
pub(super) fn numbers(tensor: &Tensor) -> Option<Vec<f64>> {
    let tensor = tensor.clone().aligned();
    macro_rules! read {
        ($element:ty, $convert:expr) => {
            tensor
                .as_slice::<$element>()
                .ok()
                .map(|all| all.iter().map($convert).collect())
        };
    }
    #[allow(
        clippy::cast_precision_loss,
        reason = "indices and counts, far below 2^53"
    )]
    match tensor.dtype() {
        DType::F32 => read!(f32, |&e| f64::from(e)),
        DType::F64 => read!(f64, |&e| e),
        DType::F16 => read!(half::f16, |&e| f64::from(e)),
        DType::BF16 => read!(half::bf16, |&e| f64::from(e)),
        DType::I8 => read!(i8, |&e| f64::from(e)),
        DType::I16 => read!(i16, |&e| f64::from(e)),
        DType::I32 => read!(i32, |&e| f64::from(e)),
        DType::I64 => read!(i64, |&e| e as f64),
        DType::U8 | DType::Bool => read!(u8, |&e| f64::from(e)),
        DType::U16 => read!(u16, |&e| f64::from(e)),
        DType::U32 => read!(u32, |&e| f64::from(e)),
        DType::U64 => read!(u64, |&e| e as f64),
    }
}
