//! One visit of a head or a tail: it is loaded, run, weighed, and given up again.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use seamline_ort::{
    ModelSource, NodeProfile, RunError, Runtime, Session, SessionOptions, ThreadPool, profile,
    release_freed,
};
use seamline_plan::{KitSeam, Side, Tensor, WHOLE, concat_rows};

use crate::codecs::codecs;
use crate::error::MeasureError;
use crate::machine::resident_bytes;
use crate::options::MeasureOptions;
use crate::partial::{BatchTimes, CodecTimes, Visit};
use crate::timing::{PAUSE, timed};

/// Values by name.
pub(crate) type Values = BTreeMap<String, Tensor>;

/// What a visit needs.
pub(crate) struct Visitor<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) folder: &'a Path,
    pub(crate) options: &'a MeasureOptions,
    pub(crate) samples: &'a [Values],
}

/// Which visit.
#[derive(Clone, Copy)]
pub(crate) struct Which {
    pub(crate) pass: u32,
    /// Index among the kit's seams.
    pub(crate) seam: usize,
    pub(crate) threads: usize,
}

/// `head of s12`, `tail of whole`.
pub(crate) fn part_name(side: Side, seam: &KitSeam) -> String {
    let half = match side {
        Side::Edge => "head",
        Side::Cloud => "tail",
    };
    if seam.seam == WHOLE {
        return "the whole model".to_owned();
    }
    format!("{half} of {}", seam.seam)
}

pub(crate) fn open(
    runtime: &Runtime,
    model: &Path,
    options: &SessionOptions,
    part: &str,
) -> Result<Session, MeasureError> {
    runtime
        .session(ModelSource::File(model), options)
        .map_err(|error| MeasureError::Session {
            part: part.to_owned(),
            error,
        })
}

/// The inputs of `session` among `values`, in its order.
pub(crate) fn inputs_of<'a>(
    session: &Session,
    values: &'a Values,
    part: &str,
) -> Result<Vec<&'a Tensor>, MeasureError> {
    let inputs = session.inputs().iter().map(|spec| {
        values.get(&spec.name).ok_or_else(|| MeasureError::Run {
            part: part.to_owned(),
            error: RunError::Value {
                name: spec.name.clone(),
                problem: format!("no sample or head of the kit has it; expected {spec}"),
            },
        })
    });
    inputs.collect()
}

impl Visitor<'_> {
    pub(crate) fn visit(&self, which: Which, seam: &KitSeam) -> Result<Visit, MeasureError> {
        match self.options.side {
            Side::Edge => self.head(which, seam),
            Side::Cloud => self.tail(which, seam),
        }
    }

    fn session_options(&self, threads: usize) -> SessionOptions {
        SessionOptions {
            providers: self.options.providers.clone(),
            threads: ThreadPool::Own(threads),
            ..SessionOptions::default()
        }
    }

    /// Whether this visit is the one that measures what does not depend on threads.
    fn is_first_of_pass(&self, which: Which) -> bool {
        self.options.threads.first() == Some(&which.threads)
    }

    fn head(&self, which: Which, seam: &KitSeam) -> Result<Visit, MeasureError> {
        let part = &part_name(Side::Edge, seam);
        let model = self.folder.join(&seam.head);
        let before = self.resident(which);
        let mut session = self.load(&model, which.threads, part)?;
        let inputs = self.inputs(&session, self.samples, part)?;
        let us = self.times(&mut session, &inputs, PAUSE, part)?;
        let times = BatchTimes {
            rows: 1,
            us,
            resident_bytes: grown(before),
        };
        let codecs = if self.is_first_of_pass(which) {
            let rows = self.crossing(&mut session, seam, part)?;
            drop(session);
            self.codecs(seam, &rows, part)?
        } else {
            Vec::new()
        };
        Ok(Visit {
            pass: which.pass,
            seam: which.seam,
            threads: which.threads,
            batches: vec![times],
            codecs,
            ran_on: self.ran_on(which, &model, &inputs, part)?,
        })
    }

    fn tail(&self, which: Which, seam: &KitSeam) -> Result<Visit, MeasureError> {
        let part = &part_name(Side::Cloud, seam);
        let rows = self.made_by_head(which, seam)?;
        let model = self.folder.join(&seam.tail);
        let names = || seam.crossing.iter().map(|crossing| &crossing.spec.name);
        // State that stays in the service does not cross; a sample may have it.
        let given = |(row, sample): (&Vec<Tensor>, &Values)| {
            let mut values = sample.clone();
            values.extend(names().cloned().zip(row.iter().cloned()));
            values
        };
        let values: Vec<Values> = rows.iter().zip(self.samples).map(given).collect();
        let before = self.resident(which);
        let mut session = self.load(&model, which.threads, part)?;
        let inputs = self.inputs(&session, &values, part)?;
        let us = self.times(&mut session, &inputs, PAUSE, part)?;
        let mut batches = vec![BatchTimes {
            rows: 1,
            us,
            resident_bytes: grown(before),
        }];
        for &rows in self.options.batches.iter().filter(|rows| **rows > 1) {
            let Some(joined) = self.joined(seam, &session, &values, rows) else {
                break;
            };
            let inputs: Vec<Vec<&Tensor>> = vec![joined.iter().collect()];
            // A tail that runs for one row only is measured for one row only. Rows that are joined
            // come one after the other.
            let Ok(us) = self.times(&mut session, &inputs, Duration::ZERO, part) else {
                break;
            };
            batches.push(BatchTimes {
                rows,
                us,
                resident_bytes: grown(before),
            });
        }
        drop(session);
        if !self.options.batches.contains(&1) {
            batches.retain(|batch| batch.rows > 1);
        }
        let codecs = if self.is_first_of_pass(which) {
            self.codecs(seam, &rows, part)?
        } else {
            Vec::new()
        };
        Ok(Visit {
            pass: which.pass,
            seam: which.seam,
            threads: which.threads,
            batches,
            codecs,
            ran_on: self.ran_on(which, &model, &inputs, part)?,
        })
    }

    /// What crosses at `seam`, sample by sample, on a machine that measures tails.
    fn made_by_head(&self, which: Which, seam: &KitSeam) -> Result<Vec<Vec<Tensor>>, MeasureError> {
        let part = &part_name(Side::Edge, seam);
        if seam.seam == WHOLE {
            let rows = self.samples.iter();
            return rows
                .map(|sample| pick(seam, sample, &Values::new(), part))
                .collect();
        }
        // The values are the same on any provider, and the CPU is always there.
        let options = SessionOptions {
            threads: ThreadPool::Own(which.threads),
            ..SessionOptions::default()
        };
        let mut session = open(self.runtime, &self.folder.join(&seam.head), &options, part)?;
        self.crossing(&mut session, seam, part)
    }

    /// What crosses at `seam`, sample by sample, made by its head.
    fn crossing(
        &self,
        head: &mut Session,
        seam: &KitSeam,
        part: &str,
    ) -> Result<Vec<Vec<Tensor>>, MeasureError> {
        let rows = self.samples.iter().map(|sample| {
            let inputs = inputs_of(head, sample, part)?;
            let outputs = head.run(&inputs).map_err(|error| MeasureError::Run {
                part: part.to_owned(),
                error,
            })?;
            let names = head.outputs().iter().map(|spec| spec.name.clone());
            let made: Values = names.zip(outputs).collect();
            pick(seam, sample, &made, part)
        });
        rows.collect()
    }

    fn inputs<'v>(
        &self,
        session: &Session,
        values: &'v [Values],
        part: &str,
    ) -> Result<Vec<Vec<&'v Tensor>>, MeasureError> {
        values
            .iter()
            .map(|values| inputs_of(session, values, part))
            .collect()
    }

    /// The session's inputs, `rows` rows of each: samples in turn. `None` where they cannot be
    /// joined.
    fn joined(
        &self,
        seam: &KitSeam,
        session: &Session,
        values: &[Values],
        rows: u64,
    ) -> Option<Vec<Tensor>> {
        let rows = usize::try_from(rows).ok()?;
        if seam
            .crossing
            .iter()
            .any(|crossing| crossing.batch_axis.is_none())
        {
            return None;
        }
        let inputs = session.inputs().iter().map(|spec| {
            let crossing = seam
                .crossing
                .iter()
                .find(|crossing| crossing.spec.name == spec.name)?;
            let axis = crossing.batch_axis?;
            let of_row = |row: usize| values.get(row % values.len().max(1))?.get(&spec.name);
            let in_turn = (0..rows).map(of_row).collect::<Option<Vec<_>>>()?;
            // Samples of other sizes are not joined: then the first one, repeated.
            let first = vec![*in_turn.first()?; rows];
            let joined = concat_rows(&in_turn, axis);
            joined.or_else(|_| concat_rows(&first, axis)).ok()
        });
        inputs.collect()
    }

    fn times(
        &self,
        session: &mut Session,
        inputs: &[Vec<&Tensor>],
        pause: Duration,
        part: &str,
    ) -> Result<Vec<f64>, MeasureError> {
        let effort = &self.options.effort;
        let run = |run: usize| session.run(&inputs[run % inputs.len()]).map(drop);
        let (fewest, most) = (effort.min_runs, effort.max_runs);
        timed(fewest, most, effort.time, pause, run).map_err(|error| MeasureError::Run {
            part: part.to_owned(),
            error,
        })
    }

    fn codecs(
        &self,
        seam: &KitSeam,
        rows: &[Vec<Tensor>],
        part: &str,
    ) -> Result<Vec<CodecTimes>, MeasureError> {
        codecs(seam, rows, self.options.side, &self.options.effort, part)
    }

    /// Resident memory before a session, freed memory given back; only the first visit is weighed.
    fn resident(&self, which: Which) -> Option<u64> {
        if which.pass > 0 {
            return None;
        }
        release_freed();
        resident_bytes()
    }

    /// A session as a device or a service loads it: what loading freed is given back.
    fn load(&self, model: &Path, threads: usize, part: &str) -> Result<Session, MeasureError> {
        let session = open(self.runtime, model, &self.session_options(threads), part)?;
        release_freed();
        Ok(session)
    }

    /// Who runs which node of the optimised model; in the first visit only.
    fn ran_on(
        &self,
        which: Which,
        model: &Path,
        inputs: &[Vec<&Tensor>],
        part: &str,
    ) -> Result<BTreeMap<String, Vec<String>>, MeasureError> {
        let mut ran_on: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let Some(inputs) = inputs.first() else {
            return Ok(ran_on);
        };
        if which.pass > 0 || !self.is_first_of_pass(which) {
            return Ok(ran_on);
        }
        let options = self.session_options(which.threads);
        let nodes: Vec<NodeProfile> =
            profile(self.runtime, ModelSource::File(model), &options, inputs, 1).map_err(
                |error| MeasureError::Profile {
                    part: part.to_owned(),
                    error,
                },
            )?;
        for node in nodes {
            ran_on.entry(node.provider).or_default().push(node.name);
        }
        Ok(ran_on)
    }
}

/// The seam's values: what the head made, or inputs that cross as they are.
fn pick(
    seam: &KitSeam,
    sample: &Values,
    made: &Values,
    part: &str,
) -> Result<Vec<Tensor>, MeasureError> {
    let values = seam.crossing.iter().map(|crossing| {
        let name = &crossing.spec.name;
        let value = made.get(name).or_else(|| sample.get(name));
        value.cloned().ok_or_else(|| MeasureError::Run {
            part: part.to_owned(),
            error: RunError::Value {
                name: name.clone(),
                problem: "it crosses, and neither the head makes it nor a sample has it".into(),
            },
        })
    });
    values.collect()
}

/// What has been added since; 0 where the system does not tell.
fn grown(before: Option<u64>) -> u64 {
    let now = before.and_then(|_| resident_bytes()).unwrap_or_default();
    now.saturating_sub(before.unwrap_or_default())
}
