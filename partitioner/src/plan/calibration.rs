//! A calibration folder: inputs of the user's own, perhaps with labels.
//!
//! ```text
//! pages/                    a model of one input: a file is a request
//!   a.png                   .npy, .png, .jpg, .jpeg or .json
//!   b.npy
//!   labels.txt              optional: a file's name, a tab or a space, its label; `#` begins a
//!                           comment; or labels.json: {"a.png": 3, "b.npy": "text"}
//!
//! sentences/                a model of several inputs: a sub-folder is a request
//!   one/input_ids.npy       a file for each input, under the input's name
//!   one/attention_mask.npy
//!   two/…
//! ```
//!
//! In a file's name every character of the input's name that is not a letter, a digit, `.`, `-` or
//! `_` is written as `_`. Files that begin with a dot are passed over.

mod error;
mod labels;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use seamline_plan::{Bindings, Dim, Tensor, TensorSpec, read_input};

use super::metric::numbers;
use crate::model::Model;

pub use error::CalibrationError;

/// Labels as text, one a line.
pub const LABELS_TEXT: &str = "labels.txt";
/// Labels as JSON.
pub const LABELS_JSON: &str = "labels.json";

/// The most bytes of all inputs together: they are held in memory.
const MAX_BYTES: u64 = 4 << 30;

/// What is read of a folder.
#[derive(Clone, Debug)]
pub struct CalibrationOptions {
    /// At most this many requests; which, is drawn by `seed`. Default 64: a share of them is known
    /// to some percent, and a seam takes seconds.
    pub samples: usize,
    /// Draws the requests where there are more than `samples`.
    pub seed: u64,
    /// Inputs that may be missing and then are zeros: a recurrent net's state.
    pub states: Vec<String>,
}

impl Default for CalibrationOptions {
    fn default() -> CalibrationOptions {
        CalibrationOptions {
            samples: 64,
            seed: 1,
            states: Vec::new(),
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The file's or the sub-folder's name.
    pub name: String,
    /// Every input of the model.
    pub values: BTreeMap<String, Tensor>,
    /// Its label: text, or the index of a class in decimal.
    pub label: Option<String>,
}

/// The requests of a folder, in the order of their names.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// At least one; all have labels or none has.
    pub samples: Vec<Sample>,
    /// Requests that the folder holds, those not taken included.
    pub available: usize,
}

impl Calibration {
    /// Reads `folder` as inputs of `model`.
    ///
    /// # Errors
    /// [`CalibrationError`], which names the file, what was expected and what came.
    pub fn read(
        folder: &Path,
        model: &Model,
        options: &CalibrationOptions,
    ) -> Result<Calibration, CalibrationError> {
        let reader = Reader::new(model, &options.states)?;
        let names = list(folder)?;
        if names.is_empty() {
            return Err(CalibrationError::Empty {
                folder: folder.to_owned(),
            });
        }
        let labels = labels::read(folder, &names)?;
        let mut samples = Vec::new();
        let mut bytes = 0;
        for name in choose(&names, options) {
            let values = reader.request(&folder.join(&name))?;
            bytes += values.values().map(|t| t.bytes().len() as u64).sum::<u64>();
            if bytes > MAX_BYTES {
                return Err(CalibrationError::TooLarge {
                    folder: folder.to_owned(),
                    read: samples.len(),
                });
            }
            let label = labels
                .as_ref()
                .and_then(|labels| labels.get(&name).cloned());
            samples.push(Sample {
                name,
                values,
                label,
            });
        }
        Ok(Calibration {
            samples,
            available: names.len(),
        })
    }

    /// Whether the requests have labels.
    pub fn is_labelled(&self) -> bool {
        self.samples.iter().all(|sample| sample.label.is_some())
    }
}

/// The name of an input's file, without its extension.
pub fn file_stem(input: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    input
        .chars()
        .map(|c| if keep(c) { c } else { '_' })
        .collect()
}

/// The names of requests in `folder`, sorted.
fn list(folder: &Path) -> Result<Vec<String>, CalibrationError> {
    let io = |error| CalibrationError::Io {
        path: folder.to_owned(),
        error,
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let name = name.into_string().map_err(|name| {
            let text = format!("the name {name:?} is not Unicode; rename it");
            io(io::Error::new(io::ErrorKind::InvalidInput, text))
        })?;
        if !name.starts_with('.') && name != LABELS_TEXT && name != LABELS_JSON {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The requests to read, in order.
fn choose(names: &[String], options: &CalibrationOptions) -> Vec<String> {
    let mut indices: Vec<usize> = (0..names.len()).collect();
    if options.samples < names.len() {
        fastrand::Rng::with_seed(options.seed).shuffle(&mut indices);
        indices.truncate(options.samples.max(1));
        indices.sort_unstable();
    }
    indices
        .into_iter()
        .map(|index| names[index].clone())
        .collect()
}

/// Reads requests of one model.
struct Reader {
    wanted: Vec<TensorSpec>,
    states: Vec<TensorSpec>,
    /// Sizes at the reference, of states.
    reference: BTreeMap<String, Vec<usize>>,
}

impl Reader {
    fn new(model: &Model, states: &[String]) -> Result<Reader, CalibrationError> {
        let mut reader = Reader {
            wanted: Vec::new(),
            states: Vec::new(),
            reference: BTreeMap::new(),
        };
        for (input, &id) in model
            .probe_inputs(None)?
            .into_iter()
            .zip(&model.graph.inputs)
        {
            let rank = || vec![Dim::Unknown; input.shape.len()];
            let spec = TensorSpec {
                name: input.name.clone(),
                dtype: input.dtype,
                shape: model.facts(id).symbolic.clone().unwrap_or_else(rank),
            };
            if states.contains(&input.name) {
                reader.reference.insert(input.name, input.shape);
                reader.states.push(spec);
            } else {
                reader.wanted.push(spec);
            }
        }
        Ok(reader)
    }

    fn request(&self, path: &Path) -> Result<BTreeMap<String, Tensor>, CalibrationError> {
        let mut values = if path.is_dir() {
            self.folder(path)?
        } else if let [only] = self.wanted.as_slice() {
            BTreeMap::from([(only.name.clone(), read_checked(path, only)?)])
        } else {
            return Err(CalibrationError::Lone {
                path: path.to_owned(),
                takes: self.takes(),
                example: path
                    .with_extension("")
                    .join(self.example())
                    .display()
                    .to_string(),
            });
        };
        self.add_states(path, &mut values)?;
        Ok(values)
    }

    /// The request in the sub-folder at `path`.
    fn folder(&self, path: &Path) -> Result<BTreeMap<String, Tensor>, CalibrationError> {
        let mut values = BTreeMap::new();
        for name in list(path)? {
            let file = path.join(&name);
            let stem = Path::new(&name).with_extension("");
            let named = |spec: &&TensorSpec| Path::new(&file_stem(&spec.name)) == stem;
            let spec = self.wanted.iter().chain(&self.states).find(named);
            let spec = spec.ok_or_else(|| CalibrationError::Unknown {
                path: file.clone(),
                takes: self.takes(),
            })?;
            let tensor = read_checked(&file, spec)?;
            if values.insert(spec.name.clone(), tensor).is_some() {
                return Err(CalibrationError::Twice {
                    path: file,
                    input: spec.name.clone(),
                });
            }
        }
        match self
            .wanted
            .iter()
            .find(|spec| !values.contains_key(&spec.name))
        {
            None => Ok(values),
            Some(spec) => Err(CalibrationError::Missing {
                folder: path.to_owned(),
                name: file_stem(&spec.name),
                spec: spec.clone(),
            }),
        }
    }

    /// Adds zeros for states that were not given, of the sizes that the files' symbols have.
    fn add_states(
        &self,
        path: &Path,
        values: &mut BTreeMap<String, Tensor>,
    ) -> Result<(), CalibrationError> {
        let mut bound = Bindings::new();
        for spec in &self.wanted {
            if let Some(tensor) = values.get(&spec.name) {
                // Checked before; models exist that give a symbol two sizes, of which one will do.
                let _ = spec.check(tensor.dtype(), tensor.shape(), &mut bound);
            }
        }
        for spec in &self.states {
            if values.contains_key(&spec.name) {
                continue;
            }
            let reference = self.reference.get(&spec.name);
            let size = |(axis, dim): (usize, &Dim)| {
                let known = match dim {
                    Dim::Fixed(size) => usize::try_from(*size).ok(),
                    Dim::Sym(symbol) => bound.get(symbol).and_then(|&s| usize::try_from(s).ok()),
                    Dim::Unknown => None,
                };
                known
                    .or_else(|| reference?.get(axis).copied())
                    .ok_or_else(|| CalibrationError::Unbound {
                        path: path.to_owned(),
                        spec: spec.clone(),
                        dim: dim.to_string(),
                    })
            };
            let shape: Vec<usize> = spec
                .shape
                .iter()
                .enumerate()
                .map(size)
                .collect::<Result<_, _>>()?;
            values.insert(spec.name.clone(), Tensor::zeros(spec.dtype, shape)?);
        }
        Ok(())
    }

    fn takes(&self) -> String {
        let all = self.wanted.iter().chain(&self.states);
        all.map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    fn example(&self) -> String {
        let first = self.wanted.first().or(self.states.first());
        format!(
            "{}.npy",
            first.map(|spec| file_stem(&spec.name)).unwrap_or_default()
        )
    }
}

fn read_checked(path: &Path, spec: &TensorSpec) -> Result<Tensor, CalibrationError> {
    let io = |error| CalibrationError::Io {
        path: path.to_owned(),
        error,
    };
    // A pipe would be waited for.
    if !std::fs::metadata(path).map_err(io)?.is_file() {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "not a file");
        return Err(io(error));
    }
    let tensor = read_input(path, spec)?;
    let numbers = numbers(&tensor).unwrap_or_default();
    if let Some(at) = numbers.iter().position(|number| number.is_nan()) {
        return Err(CalibrationError::NotANumber {
            path: path.to_owned(),
            input: spec.name.clone(),
            at,
            elements: numbers.len(),
        });
    }
    // Each input for itself: models exist that give a symbol two sizes.
    let Err(mismatch) = spec.check(tensor.dtype(), tensor.shape(), &mut Bindings::new()) else {
        return Ok(tensor);
    };
    let hint = if tensor.shape().len() + 1 == spec.shape.len() {
        "; a dimension is missing, perhaps the first one, of rows: give [1, …]"
    } else {
        ""
    };
    Err(CalibrationError::Mismatch {
        path: path.to_owned(),
        mismatch: Box::new(mismatch),
        hint,
    })
}
