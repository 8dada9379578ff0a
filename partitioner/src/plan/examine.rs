//! Examining places with calibration data: what each codec does to the answers, how many bytes it
//! makes, and what an attacker recovers. Figures are kept in a file by content, place by place, so
//! that an interrupted plan goes on where it was.

use std::path::{Path, PathBuf};

use seamline_ort::Runtime;
use seamline_plan::write_atomic;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::calibration::Calibration;
use super::evaluate::{EvaluateError, Evaluation, Evaluator};
use super::findings::{Findings, FoundCodec};
use super::leakage::{Attacker, LeakageError, LeakageOptions, leakage};
use super::metric::MetricChoice;
use super::places::Place;
use super::record::{AttackRecord, Leakage, MetricRecord};
use super::sessions::{SeamSessions, SessionsError};
use crate::model::Model;

/// A place that cannot be examined.
#[derive(Debug, Error)]
pub enum ExamineError {
    /// A half fails, or the metric does not fit.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// The halves cannot be made.
    #[error(transparent)]
    Sessions(#[from] SessionsError),
}

/// What to find out.
#[derive(Clone, Debug, Default)]
pub struct ExamineOptions {
    /// How answers are judged.
    pub metric: MetricChoice,
    /// The attack; none leaves leakage out.
    pub leakage: Option<LeakageOptions>,
    /// A folder for what was found; none keeps nothing.
    pub folder: Option<PathBuf>,
}

/// What was found, as it is kept.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    metric: Option<MetricRecord>,
    attack: Option<AttackRecord>,
    no_attack: Option<String>,
    places: Vec<(Vec<String>, Vec<FoundCodec>)>,
}

/// Examines places of one model on one calibration set.
pub struct Examiner<'a> {
    runtime: &'a Runtime,
    model: &'a Model,
    calibration: &'a Calibration,
    options: ExamineOptions,
    /// Made when the first place is examined that no file tells of.
    evaluator: Option<Evaluator<'a>>,
    attacker: Option<Attacker>,
    file: Option<PathBuf>,
    kept: Kept,
    findings: Findings,
}

impl<'a> Examiner<'a> {
    /// Chooses the metric and the attacker and tries both on the whole model, or takes what an
    /// earlier examination with the same model, data and options kept.
    ///
    /// # Errors
    /// [`ExamineError`].
    pub fn new(
        runtime: &'a Runtime,
        model: &'a Model,
        calibration: &'a Calibration,
        options: ExamineOptions,
    ) -> Result<Examiner<'a>, ExamineError> {
        // What a command of the user's says may change without any text that is seen here.
        let folder = options
            .folder
            .clone()
            .filter(|_| options.metric.command.is_none());
        let file = folder.map(|folder| folder.join(file_name(model, calibration, &options)));
        let kept = file.as_deref().and_then(read_kept).unwrap_or_default();
        let mut examiner = Examiner {
            runtime,
            model,
            calibration,
            options,
            evaluator: None,
            attacker: None,
            file,
            kept,
            findings: Findings::default(),
        };
        if examiner.kept.metric.is_none() {
            examiner.prepare()?;
        }
        let Examiner { kept, findings, .. } = &mut examiner;
        findings.metric.clone_from(&kept.metric);
        findings.attack.clone_from(&kept.attack);
        findings.no_attack.clone_from(&kept.no_attack);
        for (values, found) in &kept.places {
            findings.add(values.clone(), found.clone());
        }
        Ok(examiner)
    }

    /// What was found so far.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// Examines `place` with every codec that its values allow.
    ///
    /// # Errors
    /// [`ExamineError`]; what was found of other places is kept.
    pub fn examine(&mut self, place: &Place) -> Result<(), ExamineError> {
        let values = place.values();
        if values.is_empty() || self.findings.has(&values) {
            return Ok(());
        }
        self.prepare()?;
        let mut sessions = match &place.seam {
            Some(seam) => SeamSessions::of_seam(self.runtime, self.model, seam)?,
            None => SeamSessions::of_input(self.runtime, self.model)?,
        };
        let names: Vec<&str> = place
            .codecs()
            .into_iter()
            .filter(|name| place.can_encode(name))
            .collect();
        let Some(evaluator) = &mut self.evaluator else {
            return Ok(());
        };
        let evaluations = evaluator.seam(&mut sessions, &names)?;
        let mut found: Vec<FoundCodec> = Vec::new();
        for evaluation in evaluations {
            let known = found.iter().find(|other| {
                place.is_lossless(&evaluation.codec) && place.is_lossless(&other.codec)
            });
            // What arrives unchanged gives away the same, however it was packed.
            let leaks = match known {
                Some(other) => (other.leakage, other.no_leakage.clone()),
                None => self.attack(&mut sessions, &evaluation)?,
            };
            found.push(entry(evaluation, leaks));
        }
        self.findings.add(values.clone(), found.clone());
        self.kept.places.push((values, found));
        self.keep();
        Ok(())
    }

    /// Runs the whole model on the data, where that is still to be done.
    fn prepare(&mut self) -> Result<(), ExamineError> {
        if self.evaluator.is_some() {
            return Ok(());
        }
        let metric = &self.options.metric;
        let evaluator = Evaluator::new(self.runtime, self.model, self.calibration, metric)?;
        self.kept.metric = Some(evaluator.record());
        self.evaluator = Some(evaluator);
        if let Some(options) = &self.options.leakage {
            match Attacker::new(self.runtime, self.model, self.calibration, options) {
                Ok(attacker) => {
                    self.kept.attack = Some(attacker.record());
                    self.attacker = Some(attacker);
                }
                Err(LeakageError::NoFigure(why)) => self.kept.no_attack = Some(why),
                Err(LeakageError::Evaluate(error)) => return Err(error.into()),
            }
        }
        self.keep();
        Ok(())
    }

    fn attack(
        &self,
        sessions: &mut SeamSessions,
        evaluation: &Evaluation,
    ) -> Result<(Option<Leakage>, Option<String>), ExamineError> {
        let (Some(attacker), Ok(_)) = (&self.attacker, &evaluation.figure) else {
            return Ok((None, None));
        };
        match leakage(attacker, sessions, self.calibration, &evaluation.codec) {
            Ok(leakage) => Ok((Some(leakage), None)),
            Err(LeakageError::NoFigure(why)) => Ok((None, Some(why))),
            Err(LeakageError::Evaluate(error)) => Err(error.into()),
        }
    }

    /// Writes what is kept. A full disk costs the next plan time, and this one nothing.
    fn keep(&self) {
        let Some(file) = &self.file else { return };
        let written = file
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| write_atomic(file, &serde_json::to_vec(&self.kept)?));
        if let Err(error) = written {
            tracing::warn!("{}: figures are not kept: {error}", file.display());
        }
    }
}

fn entry(
    evaluation: Evaluation,
    (leakage, no_leakage): (Option<Leakage>, Option<String>),
) -> FoundCodec {
    let (accuracy, problem) = match evaluation.figure {
        Ok(figure) => (Some(figure.value), None),
        Err(problem) => (None, Some(problem)),
    };
    FoundCodec {
        codec: evaluation.codec,
        accuracy,
        problem,
        up_bytes: evaluation.up_bytes,
        down_bytes: evaluation.down_bytes,
        leakage,
        no_leakage,
    }
}

fn read_kept(file: &Path) -> Option<Kept> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// A name by everything that the figures depend on.
fn file_name(model: &Model, calibration: &Calibration, options: &ExamineOptions) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    part(env!("CARGO_PKG_VERSION").as_bytes());
    part(&model.hash.0);
    part(format!("{:?}{:?}", options.metric, options.leakage).as_bytes());
    for sample in &calibration.samples {
        part(sample.name.as_bytes());
        part(format!("{:?}", sample.label).as_bytes());
        for (name, tensor) in &sample.values {
            part(name.as_bytes());
            part(format!("{:?}{:?}", tensor.dtype(), tensor.shape()).as_bytes());
            part(tensor.bytes());
        }
    }
    format!("findings-{}.json", &hasher.finalize().to_hex()[..16])
}
