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

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use seamline_plan::{
    Bindings, Dim, InputError, SpecMismatch, Tensor, TensorError, TensorSpec, read_input, read_text,
};
use thiserror::Error;

use crate::model::{Model, ModelError};

/// Labels as text, one a line.
pub const LABELS_TEXT: &str = "labels.txt";
/// Labels as JSON.
pub const LABELS_JSON: &str = "labels.json";

/// The most bytes of labels.
const MAX_LABEL_BYTES: u64 = 64 << 20;

/// The most bytes of all inputs together: they are held in memory.
const MAX_BYTES: u64 = 4 << 30;

const FORMS: &str = "for a model of one input give .npy, .png, .jpg, .jpeg or .json files, for \
                     one of several a sub-folder a request with a file for each input, such as \
                     FOLDER/REQUEST/INPUT.npy";

/// A calibration folder that cannot be used.
#[derive(Debug, Error)]
pub enum CalibrationError {
    /// The operating system refused.
    #[error("{}: {error}; --calibration takes a folder of inputs", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// Nothing in it.
    #[error("{}: no inputs in this folder; {FORMS}", folder.display())]
    Empty {
        /// The folder.
        folder: PathBuf,
    },
    /// A file that is no input.
    #[error(transparent)]
    Input(#[from] InputError),
    /// An input of another dtype or shape.
    #[error("{}: input {mismatch}{hint}", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// Expected and got.
        #[source]
        mismatch: SpecMismatch,
        /// What may help.
        hint: &'static str,
    },
    /// A file where the model needs several.
    #[error(
        "{}: a file alone is no request of this model, which takes {takes}; give a sub-folder a \
         request with a file for each input, such as {example}",
        path.display()
    )]
    Lone {
        /// The file.
        path: PathBuf,
        /// The model's inputs.
        takes: String,
        /// A file that would do.
        example: String,
    },
    /// An input without a file.
    #[error("{}: no file for input {spec}; give {name}.npy, .json, .png or .jpg", folder.display())]
    Missing {
        /// The request's folder.
        folder: PathBuf,
        /// The input.
        spec: TensorSpec,
        /// Its file's stem.
        name: String,
    },
    /// A file of no input.
    #[error("{}: the model has no input of that name; it takes {takes}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The model's inputs.
        takes: String,
    },
    /// Two files for one input.
    #[error("{}: input `{input}` has a file already; remove one", path.display())]
    Twice {
        /// The second file.
        path: PathBuf,
        /// The input.
        input: String,
    },
    /// A state without a file, of a size that nothing tells.
    #[error(
        "{}: input {spec} has no file, and no other file of the request says how large `{dim}` is; \
         give {}.npy, or its size with --shape {dim}=N",
        path.display(),
        file_stem(&spec.name)
    )]
    Unbound {
        /// The request.
        path: PathBuf,
        /// The input.
        spec: TensorSpec,
        /// The dimension.
        dim: String,
    },
    /// Labels that cannot be read.
    #[error("{}: {problem}", path.display())]
    Labels {
        /// The file.
        path: PathBuf,
        /// What was expected and what came.
        problem: String,
    },
    /// A label for what is not there.
    #[error(
        "{}: a label for `{name}`, which is not in the folder; give the file or remove the label",
        path.display()
    )]
    LabelWithoutInput {
        /// The labels.
        path: PathBuf,
        /// As named there.
        name: String,
    },
    /// An input without a label, where others have one.
    #[error("{}: no label for `{name}`; label every input, or none", path.display())]
    Unlabelled {
        /// The labels.
        path: PathBuf,
        /// The file or sub-folder.
        name: String,
    },
    /// More than is held in memory.
    #[error(
        "{}: the inputs pass {} GiB after {read} of them; take fewer with --samples N",
        folder.display(),
        MAX_BYTES >> 30
    )]
    TooLarge {
        /// The folder.
        folder: PathBuf,
        /// Inputs that were read.
        read: usize,
    },
    /// An input of the model that cannot be fed.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A state that cannot be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

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
        let labels = read_labels(folder, &names)?;
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
    let tensor = read_input(path, spec)?;
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
        mismatch,
        hint,
    })
}

type Labels = BTreeMap<String, String>;

/// The labels of `folder` where it has any: one for each of `names`, and for nothing else.
fn read_labels(folder: &Path, names: &[String]) -> Result<Option<Labels>, CalibrationError> {
    let (text, json) = (folder.join(LABELS_TEXT), folder.join(LABELS_JSON));
    let path = match (text.exists(), json.exists()) {
        (false, false) => return Ok(None),
        (true, false) => text,
        (false, true) => json,
        (true, true) => {
            return Err(CalibrationError::Labels {
                path: json,
                problem: format!("{LABELS_TEXT} is there too; keep one of them"),
            });
        }
    };
    let content = read_text(&path, MAX_LABEL_BYTES).map_err(|error| CalibrationError::Io {
        path: path.clone(),
        error,
    })?;
    let is_json = path.ends_with(LABELS_JSON);
    let parsed = if is_json {
        parse_json(&content)
    } else {
        parse_text(&content)
    };
    let labels = parsed.map_err(|problem| CalibrationError::Labels {
        path: path.clone(),
        problem,
    })?;
    let known: BTreeSet<&String> = names.iter().collect();
    if let Some(name) = labels.keys().find(|name| !known.contains(name)) {
        let name = name.clone();
        return Err(CalibrationError::LabelWithoutInput { path, name });
    }
    if let Some(name) = names.iter().find(|name| !labels.contains_key(*name)) {
        let name = name.clone();
        return Err(CalibrationError::Unlabelled { path, name });
    }
    Ok(Some(labels))
}

/// `NAME<tab>LABEL` lines; a space will do where the name has none.
fn parse_text(content: &str) -> Result<Labels, String> {
    let mut labels = Labels::new();
    for (index, line) in content.lines().enumerate() {
        let line = line.trim_end_matches('\r');
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let at = index + 1;
        let (name, label) = line
            .split_once('\t')
            .or_else(|| line.split_once(' '))
            .ok_or_else(|| {
                format!("line {at}: expected a file's name, a tab and its label, got `{line}`")
            })?;
        if labels
            .insert(name.trim().to_owned(), label.to_owned())
            .is_some()
        {
            return Err(format!("line {at}: `{name}` has a label already"));
        }
    }
    Ok(labels)
}

/// An object of names to numbers or text.
fn parse_json(content: &str) -> Result<Labels, String> {
    let expected = "expected an object of file names to class indices or text";
    let object: BTreeMap<String, serde_json::Value> =
        serde_json::from_str(content).map_err(|error| format!("{expected}: {error}"))?;
    let label = |(name, value): (String, serde_json::Value)| match value {
        serde_json::Value::String(text) => Ok((name, text)),
        serde_json::Value::Number(number) if number.is_u64() => Ok((name, number.to_string())),
        other => Err(format!("{expected}; `{name}` has {other}")),
    };
    object.into_iter().map(label).collect()
}

#[cfg(test)]
mod tests;
