//! What a candidate's answers are worth, and what it sends, measured on the calibration requests.
//!
//! A head runs once for a request; what crosses is then encoded and decoded by each codec, and the
//! tail runs on what comes out. Codecs that lose nothing share one run of the tail.

use std::collections::BTreeMap;

use seamline_codec as codec;
use seamline_codec::CodecError;
use seamline_ort::{Optimization, RunError, Runtime, Session};
use seamline_plan::{CodecSpec, Crossing, Tensor};
use thiserror::Error;

use super::calibration::{Calibration, Sample};
use super::metric::{Answer, Figure, Metric, MetricChoice, MetricError, Tally};
use super::record::MetricRecord;
use super::sessions::{SeamSessions, SessionsError};
use crate::contract::reply_codec;
use crate::model::{Model, ModelError};

/// The most bytes of the whole model's answers that are kept; others are made again when needed.
const MAX_ANSWERS: usize = 1 << 30;

/// A candidate that cannot be measured.
#[derive(Debug, Error)]
pub enum EvaluateError {
    /// The whole model does not run.
    #[error("`{sample}`: {error}")]
    Model {
        /// The request.
        sample: String,
        /// Why.
        #[source]
        error: Box<ModelError>,
    },
    /// The whole model does not load.
    #[error(transparent)]
    Session(Box<ModelError>),
    /// A half does not run.
    #[error("`{sample}`: the {half} of `{seam}`: {error}")]
    Half {
        /// The request.
        sample: String,
        /// The cut.
        seam: String,
        /// `head` or `tail`.
        half: &'static str,
        /// Why.
        #[source]
        error: Box<RunError>,
    },
    /// A half needs a value that nobody made.
    #[error("`{sample}`: the {half} of `{seam}` needs `{name}`, which is not there")]
    Missing {
        /// The request.
        sample: String,
        /// The cut.
        seam: String,
        /// `head` or `tail`.
        half: &'static str,
        /// The value.
        name: String,
    },
    /// A value does not survive its codec.
    #[error("`{sample}`: value `{name}`: {error}")]
    Codec {
        /// The request.
        sample: String,
        /// The value.
        name: String,
        /// Why.
        #[source]
        error: Box<CodecError>,
    },
    /// The halves cannot be made.
    #[error(transparent)]
    Sessions(Box<SessionsError>),
    /// The metric does not fit.
    #[error(transparent)]
    Metric(#[from] MetricError),
}

impl From<ModelError> for EvaluateError {
    fn from(error: ModelError) -> EvaluateError {
        EvaluateError::Session(Box::new(error))
    }
}

impl From<SessionsError> for EvaluateError {
    fn from(error: SessionsError) -> EvaluateError {
        EvaluateError::Sessions(Box::new(error))
    }
}

/// One cut with one codec, measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// As asked for.
    pub codec: String,
    /// What the answers are worth, or why they could not be had with this codec.
    pub figure: Result<Figure, String>,
    /// Mean bytes to the service; of the requests before the first that failed.
    pub up_bytes: u64,
    /// Mean bytes of the answer.
    pub down_bytes: u64,
}

/// Measures candidates against the whole model on calibration requests.
pub struct Evaluator<'a> {
    model: &'a Model,
    calibration: &'a Calibration,
    metric: Metric,
    session: Session,
    /// What the metric reads of the whole model's answers, by request.
    whole: Vec<Option<Answer>>,
    kept_bytes: usize,
    baseline: f64,
}

impl<'a> Evaluator<'a> {
    /// Chooses the metric, runs the whole model on every request and measures its baseline.
    ///
    /// # Errors
    /// [`EvaluateError`].
    pub fn new(
        runtime: &Runtime,
        model: &'a Model,
        calibration: &'a Calibration,
        choice: &MetricChoice,
    ) -> Result<Evaluator<'a>, EvaluateError> {
        let metric = Metric::choose(model, calibration, choice)?;
        let mut evaluator = Evaluator {
            model,
            calibration,
            session: model.session(runtime, Optimization::All)?,
            whole: vec![None; calibration.samples.len()],
            kept_bytes: 0,
            baseline: 0.0,
            metric: metric.clone(),
        };
        let mut tally = metric.tally();
        for (index, sample) in calibration.samples.iter().enumerate() {
            let whole = evaluator.whole(index)?;
            tally.add(sample, &whole, &whole)?;
        }
        evaluator.baseline = tally.finish()?;
        Ok(evaluator)
    }

    /// The metric.
    pub fn metric(&self) -> &Metric {
        &self.metric
    }

    /// The metric as `plan.json` has it.
    pub fn record(&self) -> MetricRecord {
        MetricRecord {
            name: self.metric.name().to_owned(),
            higher_is_better: self.metric.higher_is_better(),
            baseline: self.baseline,
            samples: self.calibration.samples.len(),
        }
    }

    /// What the metric reads of the whole model's answer to the request at `index`.
    fn whole(&mut self, index: usize) -> Result<Answer, EvaluateError> {
        if let Some(answer) = &self.whole[index] {
            return Ok(answer.clone());
        }
        let sample = &self.calibration.samples[index];
        let outputs = self
            .model
            .run(&mut self.session, &sample.values)
            .map_err(|error| EvaluateError::Model {
                sample: sample.name.clone(),
                error: Box::new(error),
            })?;
        let names = self.session.outputs().iter().map(|spec| spec.name.clone());
        let answer = self.metric.reads(&names.zip(outputs).collect());
        let bytes: usize = answer.values().map(|tensor| tensor.bytes().len()).sum();
        if self.kept_bytes + bytes <= MAX_ANSWERS {
            self.kept_bytes += bytes;
            self.whole[index] = Some(answer.clone());
        }
        Ok(answer)
    }

    /// Measures a cut with each of `codecs` (`raw`, `f16`, `int8`, …); values that do not take a
    /// codec cross by their default. What the head made stays in `sessions` for the leakage.
    ///
    /// # Errors
    /// [`EvaluateError`] where a half fails; a codec that fails is in its own [`Evaluation`].
    pub fn seam(
        &mut self,
        sessions: &mut SeamSessions,
        codecs: &[&str],
    ) -> Result<Vec<Evaluation>, EvaluateError> {
        let metric = self.metric.clone();
        let mut trials: Vec<Trial<'_>> = codecs
            .iter()
            .map(|name| Trial::new(name, sessions.crossing(), &metric))
            .collect();
        let calibration = self.calibration;
        for (index, sample) in calibration.samples.iter().enumerate() {
            let whole = self.whole(index)?;
            // Answers by what was decoded: the codecs that lose something.
            let mut answers: BTreeMap<Vec<Option<String>>, (Answer, u64)> = BTreeMap::new();
            for trial in &mut trials {
                if trial.problem.is_some() {
                    continue;
                }
                let sent = match sessions.sent(index, sample, &trial.specs) {
                    Ok(sent) => sent,
                    Err(error @ EvaluateError::Codec { .. }) => {
                        trial.problem = Some(error.to_string());
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                trial.up_bytes += sent.bytes;
                let key = trial.losses();
                let (answer, bytes) = match answers.get(&key) {
                    Some(known) => known,
                    None => {
                        let made = self.finish(sessions, index, sample, &sent.values)?;
                        answers.entry(key).or_insert(made)
                    }
                };
                trial.down_bytes += bytes;
                trial.requests += 1;
                trial.tally.add(sample, &whole, answer)?;
            }
        }
        Ok(trials
            .into_iter()
            .map(|trial| trial.end(self.baseline, &metric))
            .collect())
    }

    /// Runs the tail on what was `sent`; what the metric reads, and the bytes of the reply.
    fn finish(
        &self,
        sessions: &mut SeamSessions,
        index: usize,
        sample: &Sample,
        sent: &[Tensor],
    ) -> Result<(Answer, u64), EvaluateError> {
        let replies = sessions.run_tail(sample, sent)?;
        let is_output = |name: &str| {
            let mut outputs = self.model.graph.outputs.iter();
            outputs.any(|&id| self.model.graph.value(id).name == name)
        };
        let mut bytes = 0;
        for (name, tensor) in replies.iter().filter(|(name, _)| is_output(name)) {
            let payload = codec::encode_bytes(&reply_codec(tensor.dtype()), tensor);
            bytes += payload.map_err(|error| failed(sample, name, error))?.len() as u64;
        }
        let mut answer = sessions.made_by_head(index, sample)?;
        answer.extend(replies);
        Ok((self.metric.reads(&answer), bytes))
    }
}

pub(super) fn failed(sample: &Sample, name: &str, error: CodecError) -> EvaluateError {
    EvaluateError::Codec {
        sample: sample.name.clone(),
        name: name.to_owned(),
        error: Box::new(error),
    }
}

/// A codec on its way through the requests.
struct Trial<'a> {
    name: String,
    /// For each value that crosses.
    specs: Vec<CodecSpec>,
    tally: Tally<'a>,
    up_bytes: u64,
    down_bytes: u64,
    requests: u64,
    problem: Option<String>,
}

impl<'a> Trial<'a> {
    fn new(name: &str, crossing: &[Crossing], metric: &'a Metric) -> Trial<'a> {
        Trial {
            name: name.to_owned(),
            specs: crossing
                .iter()
                .map(|crossing| crossing.codec(Some(name)).clone())
                .collect(),
            tally: metric.tally(),
            up_bytes: 0,
            down_bytes: 0,
            requests: 0,
            problem: None,
        }
    }

    /// What each value loses: nothing, or what its codec does.
    fn losses(&self) -> Vec<Option<String>> {
        let loss = |spec: &CodecSpec| (!spec.is_lossless()).then(|| format!("{spec:?}"));
        self.specs.iter().map(loss).collect()
    }

    fn end(self, baseline: f64, metric: &Metric) -> Evaluation {
        let figure = match self.problem {
            Some(problem) => Err(problem),
            None => self.tally.finish().map_err(|error| error.to_string()),
        };
        let requests = self.requests.max(1);
        Evaluation {
            codec: self.name,
            figure: figure.map(|value| Figure {
                value,
                loss: metric.loss(baseline, value),
            }),
            up_bytes: self.up_bytes.div_ceil(requests),
            down_bytes: self.down_bytes.div_ceil(requests),
        }
    }
}
