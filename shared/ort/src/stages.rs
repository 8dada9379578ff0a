//! A bundle's stages as a chain of sessions: run any range of them on named values.

use std::collections::BTreeMap;
use std::path::PathBuf;

use seamline_plan::{Bundle, Tensor};
use thiserror::Error;

use crate::{ModelSource, RunError, Runtime, Session, SessionError, SessionOptions, memory};

/// Stages that cannot be loaded or run.
#[derive(Debug, Error)]
pub enum StageError {
    /// This side of the bundle does not hold the stage.
    #[error("{}: stage {stage} is not in the {side} half of this bundle", bundle.display())]
    Absent {
        /// The bundle.
        bundle: PathBuf,
        /// The stage's index.
        stage: usize,
        /// `edge` or `cloud`.
        side: &'static str,
    },
    /// The session cannot be made.
    #[error("stage {stage}: {error}")]
    Session {
        /// The stage's index.
        stage: usize,
        /// Why.
        #[source]
        error: SessionError,
    },
    /// A value that no earlier stage made and nobody gave.
    #[error("stage {stage} needs `{name}`, which was not given; there are {available}")]
    Missing {
        /// The stage's index.
        stage: usize,
        /// The value.
        name: String,
        /// What there is.
        available: String,
    },
    /// The run failed.
    #[error("stage {stage}: {error}")]
    Run {
        /// The stage's index.
        stage: usize,
        /// Why.
        #[source]
        error: RunError,
    },
}

/// Values by name.
pub(crate) type Values = BTreeMap<String, Tensor>;

/// The stages that one side of a bundle holds, one session each. One worker uses a chain at a
/// time.
#[derive(Debug)]
pub struct StageChain {
    bundle: PathBuf,
    side: &'static str,
    stages: Vec<Option<Session>>,
}

impl StageChain {
    /// Makes a session for each stage that the bundle's side holds.
    ///
    /// # Errors
    /// [`StageError::Session`].
    pub fn load(
        runtime: &Runtime,
        bundle: &Bundle,
        options: &SessionOptions,
    ) -> Result<StageChain, StageError> {
        let stages = (0..bundle.manifest().stages.len()).map(|stage| {
            bundle
                .stage_file(stage)
                .map(|path| runtime.session(ModelSource::File(&path), options))
                .transpose()
                .map_err(|error| StageError::Session { stage, error })
        });
        let stages = stages.collect::<Result<_, _>>()?;
        memory::release_freed();
        Ok(StageChain {
            bundle: bundle.root().to_owned(),
            side: bundle.side().folder(),
            stages,
        })
    }

    /// Whether every stage of `range` is here.
    pub fn holds(&self, range: std::ops::Range<usize>) -> bool {
        self.stages
            .get(range)
            .is_some_and(|stages| stages.iter().all(Option::is_some))
    }

    /// The sessions of the stages that are here, with their indices.
    pub fn sessions(&self) -> impl Iterator<Item = (usize, &Session)> {
        self.stages
            .iter()
            .enumerate()
            .filter_map(|(index, stage)| Some((index, stage.as_ref()?)))
    }

    /// Runs the stages of `range` in order. Each takes its inputs from `values` and adds its
    /// outputs to it.
    ///
    /// # Errors
    /// [`StageError`]; `values` then holds what was made so far.
    pub fn run(
        &mut self,
        range: std::ops::Range<usize>,
        values: &mut BTreeMap<String, Tensor>,
    ) -> Result<(), StageError> {
        for stage in range {
            let session = self
                .stages
                .get_mut(stage)
                .and_then(Option::as_mut)
                .ok_or_else(|| StageError::Absent {
                    bundle: self.bundle.clone(),
                    stage,
                    side: self.side,
                })?;
            let outputs = run_stage(stage, session, values)?;
            for (spec, tensor) in session.outputs().iter().zip(outputs) {
                values.insert(spec.name.clone(), tensor);
            }
        }
        Ok(())
    }
}

fn run_stage(
    stage: usize,
    session: &mut Session,
    values: &Values,
) -> Result<Vec<Tensor>, StageError> {
    let inputs = session.inputs().iter().map(|spec| {
        values.get(&spec.name).ok_or_else(|| StageError::Missing {
            stage,
            name: spec.name.clone(),
            available: values
                .keys()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", "),
        })
    });
    let inputs: Vec<&Tensor> = inputs.collect::<Result<_, _>>()?;
    session
        .run(&inputs)
        .map_err(|error| StageError::Run { stage, error })
}
