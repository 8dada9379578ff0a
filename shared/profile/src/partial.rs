//! What has been measured so far, on disk after each step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use seamline_plan::{Fingerprint, Machine, NodeTime, Side, read_text, write_atomic};
use serde::{Deserialize, Serialize};

use crate::error::MeasureError;
use crate::options::{Effort, MeasureOptions};

/// Raw samples of many parts.
const MAX_BYTES: u64 = 256 << 20;

/// Steps that are done.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Partial {
    /// Of the kit and of all that figures depend on.
    key: Fingerprint,
    /// Times of nodes, one list a pass.
    pub(crate) nodes: Vec<Vec<NodeTime>>,
    /// Visits of parts, in their order.
    pub(crate) visits: Vec<Visit>,
}

/// One visit of a head or tail with one number of threads.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Visit {
    pub(crate) pass: u32,
    /// Index among the kit's seams.
    pub(crate) seam: usize,
    pub(crate) threads: usize,
    /// The batches that run, by rising rows.
    pub(crate) batches: Vec<BatchTimes>,
    /// Measured with the first number of threads only, as they have none of their own.
    pub(crate) codecs: Vec<CodecTimes>,
    /// Nodes of the optimised model by the provider that ran them; in the first visit only.
    pub(crate) ran_on: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchTimes {
    pub(crate) rows: u64,
    pub(crate) us: Vec<f64>,
    /// What the session has added to resident memory, up to and with this batch's runs.
    pub(crate) resident_bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CodecTimes {
    pub(crate) codec: String,
    pub(crate) us: Vec<f64>,
    pub(crate) bytes: u64,
}

impl Partial {
    pub(crate) fn new(key: Fingerprint) -> Partial {
        Partial {
            key,
            nodes: Vec::new(),
            visits: Vec::new(),
        }
    }

    /// What stands at `path`, where it is of the same measurement.
    pub(crate) fn read(path: &Path, key: Fingerprint) -> Option<Partial> {
        let text = read_text(path, MAX_BYTES).ok()?;
        // Whatever cannot be read is measured again.
        let partial: Partial = serde_json::from_str(&text).ok()?;
        (partial.key == key).then_some(partial)
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), MeasureError> {
        // Plain data always has a JSON form.
        let json = serde_json::to_vec(self).unwrap_or_default();
        write_atomic(path, &json).map_err(|error| MeasureError::Io {
            path: path.to_owned(),
            error,
        })
    }

    /// Whether this visit is done.
    pub(crate) fn has(&self, pass: u32, seam: usize, threads: usize) -> bool {
        self.visits
            .iter()
            .any(|visit| (visit.pass, visit.seam, visit.threads) == (pass, seam, threads))
    }
}

/// Where unfinished figures of `out` stand.
pub fn partial_path(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    out.with_file_name(name)
}

/// Equal keys have figures that may be pooled: the same kit, machine and settings.
pub(crate) fn key(kit_json: &[u8], machine: &Machine, options: &MeasureOptions) -> Fingerprint {
    #[derive(Serialize)]
    struct Key<'a> {
        kit: Fingerprint,
        side: Side,
        machine: Machine,
        threads: &'a [usize],
        batches: &'a [u64],
        effort: Effort,
    }
    let key = Key {
        kit: Fingerprint::of(kit_json),
        side: options.side,
        // Another name does not make another machine.
        machine: Machine {
            name: String::new(),
            ..machine.clone()
        },
        threads: &options.threads,
        batches: &options.batches,
        effort: options.effort,
    };
    Fingerprint::of(&serde_json::to_vec(&key).unwrap_or_default())
}
