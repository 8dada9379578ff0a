//! `plan.json` on disk: reading it with every figure checked, and writing it.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

use seamline_plan::{Latency, MANIFEST_FILE, read_text, write_atomic};
use serde::Deserialize;
use thiserror::Error;

use super::record::{
    AttackRecord, Candidate, Constraints, MachineRecord, MetricRecord, PLAN_FILE, PLAN_FORMAT,
    PlanRecord,
};

/// The most bytes of the file: some thousand for each of tens of thousands of candidates.
const MAX_PLAN_BYTES: u64 = 64 << 20;

/// A `plan.json` that cannot be read, or must not be written.
#[derive(Debug, Error)]
pub enum PlanRecordError {
    /// The operating system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// A bundle that was not planned.
    #[error(
        "{} has no {PLAN_FILE}: this bundle was made by `seamline split`; `seamline plan` writes \
         {PLAN_FILE}",
        path.display()
    )]
    NotPlanned {
        /// The bundle.
        path: PathBuf,
    },
    /// A folder that is no bundle.
    #[error(
        "{} is not a bundle: it has neither {MANIFEST_FILE} nor {PLAN_FILE}; give a folder that \
         `seamline plan` made, or the path of a {PLAN_FILE}",
        path.display()
    )]
    NotABundle {
        /// The folder.
        path: PathBuf,
    },
    /// Not a plan, or one with impossible figures.
    #[error("{}: {problem}; plan again with `seamline plan`", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What was expected, what came, and where.
        problem: String,
    },
}

impl PlanRecord {
    /// Reads the plan of the bundle at `path`, or the file at `path`.
    ///
    /// # Errors
    /// [`PlanRecordError`].
    pub fn read(path: &Path) -> Result<PlanRecord, PlanRecordError> {
        let is_folder = path.is_dir();
        let file = if is_folder {
            path.join(PLAN_FILE)
        } else {
            path.to_owned()
        };
        let text = match read_text(&file, MAX_PLAN_BYTES) {
            Ok(text) => text,
            Err(error) if is_folder && error.kind() == io::ErrorKind::NotFound => {
                let path = path.to_owned();
                return Err(if path.join(MANIFEST_FILE).exists() {
                    PlanRecordError::NotPlanned { path }
                } else {
                    PlanRecordError::NotABundle { path }
                });
            }
            Err(error) => return Err(PlanRecordError::Io { path: file, error }),
        };
        PlanRecord::parse(&text).map_err(|problem| PlanRecordError::Content {
            path: file,
            problem,
        })
    }

    /// Reads a plan from its JSON and checks it.
    ///
    /// # Errors
    /// What is wrong, by field.
    pub fn parse(json: &str) -> Result<PlanRecord, String> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let invalid = |error: serde_json::Error| format!("this is no plan: {error}");
        let Format { format } = serde_json::from_str(json).map_err(invalid)?;
        if format != PLAN_FORMAT {
            return Err(format!(
                "it has format {format}; this build reads {PLAN_FORMAT}"
            ));
        }
        let record: PlanRecord = serde_json::from_str(json).map_err(invalid)?;
        match record.problem() {
            Some(problem) => Err(problem),
            None => Ok(record),
        }
    }

    /// The file's content.
    pub fn to_json(&self) -> Vec<u8> {
        // Plain data always has a JSON form.
        let mut json = serde_json::to_vec_pretty(self).unwrap_or_default();
        json.push(b'\n');
        json
    }

    /// Writes the plan to `path`, whole or not at all. One that [`PlanRecord::read`] would refuse
    /// is not written.
    ///
    /// # Errors
    /// [`PlanRecordError`].
    pub fn write(&self, path: &Path) -> Result<(), PlanRecordError> {
        if let Some(problem) = self.problem() {
            return Err(PlanRecordError::Content {
                path: path.to_owned(),
                problem,
            });
        }
        write_atomic(path, &self.to_json()).map_err(|error| PlanRecordError::Io {
            path: path.to_owned(),
            error,
        })
    }

    /// The candidate that was chosen.
    pub fn chosen(&self) -> Option<&Candidate> {
        self.candidates
            .iter()
            .find(|candidate| candidate.id == self.chosen)
    }

    /// Why this cannot be a plan; `None` where it can.
    pub fn problem(&self) -> Option<String> {
        if let Some(problem) = self.link.problem() {
            return Some(format!("`link`: {problem}"));
        }
        let named = [
            ("device", machine(&self.device)),
            ("cloud", machine(&self.cloud)),
            ("prices", prices(self)),
            ("constraints", constraints(&self.constraints)),
            ("metric", self.metric.as_ref().and_then(metric)),
            ("attack", self.attack.as_ref().and_then(attack)),
        ];
        for (field, problem) in named {
            if let Some(problem) = problem {
                return Some(format!("`{field}`: {problem}"));
            }
        }
        let mut ids = HashSet::with_capacity(self.candidates.len());
        for (index, one) in self.candidates.iter().enumerate() {
            let problem = if ids.insert(one.id.as_str()) {
                candidate(one)
            } else {
                Some("another candidate has the same id".into())
            };
            if let Some(problem) = problem {
                return Some(format!("`candidates[{index}]` ({}): {problem}", one.id));
            }
        }
        if !ids.contains(self.chosen.as_str()) {
            return Some(format!(
                "`chosen` is `{}`; expected the id of one of the {} candidates",
                self.chosen,
                ids.len()
            ));
        }
        None
    }
}

/// The first of `figures` that is not finite or is negative.
fn not_positive(figures: &[(&str, f64)]) -> Option<String> {
    let wrong = |value: f64| !value.is_finite() || value < 0.0;
    let (name, value) = figures.iter().find(|(_, value)| wrong(*value))?;
    Some(format!(
        "`{name}` is {value}; expected a finite number of 0 or more"
    ))
}

fn not_finite(name: &str, value: f64) -> Option<String> {
    (!value.is_finite()).then(|| format!("`{name}` is {value}; expected a finite number"))
}

fn machine(record: &MachineRecord) -> Option<String> {
    let factor = record.slowdown;
    (!factor.is_finite() || factor <= 0.0)
        .then(|| format!("`slowdown` is {factor}; expected a finite number above 0"))
}

fn prices(record: &PlanRecord) -> Option<String> {
    not_positive(&[
        ("compute_w", record.prices.compute_w),
        ("wait_w", record.prices.wait_w),
        ("cloud_usd_per_hour", record.prices.cloud_usd_per_hour),
        ("arrivals_per_s", record.arrivals_per_s),
    ])
}

fn constraints(limits: &Constraints) -> Option<String> {
    let limits = [
        ("accuracy_loss", limits.accuracy_loss),
        ("leakage", limits.leakage),
        ("deadline_us", limits.deadline_us),
    ];
    limits
        .into_iter()
        .find_map(|(name, limit)| not_finite(name, limit?))
}

fn metric(record: &MetricRecord) -> Option<String> {
    not_finite("baseline", record.baseline)
}

fn attack(record: &AttackRecord) -> Option<String> {
    not_finite("at_input", record.at_input)
}

fn candidate(candidate: &Candidate) -> Option<String> {
    if !(0.0..=1.0).contains(&candidate.depth) {
        return Some(format!(
            "`depth` is {}; expected a share of the work, 0 to 1",
            candidate.depth
        ));
    }
    not_positive(&[
        ("latency_p95_us", candidate.latency_p95_us),
        ("energy_j", candidate.energy_j),
        ("cloud_usd_per_thousand", candidate.cloud_usd_per_thousand),
        ("throughput_per_s", candidate.throughput_per_s),
    ])
    .or_else(|| latency("latency", &candidate.latency))
    .or_else(|| not_finite("score", candidate.score))
    .or_else(|| not_finite("accuracy", candidate.accuracy?))
    .or_else(|| {
        let leakage = candidate.leakage?;
        not_finite("leakage.recovered", leakage.recovered)
            .or_else(|| not_finite("leakage.psnr_db", leakage.psnr_db?))
    })
    .or_else(|| {
        let measured = candidate.measured.as_ref()?;
        latency("measured.latency", &measured.latency)
            .or_else(|| not_positive(&[("measured.p95_us", measured.p95_us)]))
    })
}

fn latency(field: &str, latency: &Latency) -> Option<String> {
    not_positive(&latency.parts()).map(|problem| format!("`{field}`: part {problem}"))
}
