//! Requests from `[NAME=]FILE` arguments of a command line.

use std::collections::BTreeMap;
use std::path::Path;

use super::{InputError, read_input};
use crate::{Bindings, Tensor, TensorSpec};

type Values = BTreeMap<String, Tensor>;

/// A request that was read from files.
#[derive(Clone, Debug)]
pub struct FileRequest {
    /// What was given on the command line.
    pub source: String,
    /// Its values by name.
    pub values: BTreeMap<String, Tensor>,
}

/// Reads requests, each with the text that it came from: for a model of one input each argument is
/// a request, else all arguments together are one. What is in `optional` may be given and may be
/// missing (a recurrent net's state).
///
/// # Errors
/// [`InputError`], which names the argument and says what the model takes.
pub fn read_requests(
    wanted: &[TensorSpec],
    optional: &[TensorSpec],
    arguments: &[String],
) -> Result<Vec<FileRequest>, InputError> {
    let names_optional = |argument: &String| named(optional, argument).is_some();
    if let ([only], false) = (wanted, arguments.iter().any(names_optional)) {
        let requests = arguments.iter().map(|argument| {
            let path = path_for(only, argument)?;
            let values = Values::from([(only.name.clone(), read_checked(path, only)?)]);
            let source = path.to_owned();
            Ok(FileRequest { source, values })
        });
        return requests.collect();
    }
    let all: Vec<&TensorSpec> = wanted.iter().chain(optional).collect();
    let mut values = Values::new();
    for argument in arguments {
        let (name, path) = argument
            .split_once('=')
            .ok_or_else(|| InputError::Unnamed {
                argument: argument.clone(),
                takes: list(&all),
            })?;
        let spec = named(wanted, argument).or_else(|| named(optional, argument));
        let spec = spec.ok_or_else(|| unknown(name, &all))?;
        if values
            .insert(name.to_owned(), read_checked(path, spec)?)
            .is_some()
        {
            return Err(InputError::Twice { name: name.into() });
        }
    }
    match wanted.iter().find(|spec| !values.contains_key(&spec.name)) {
        Some(missing) => Err(InputError::Missing {
            spec: missing.clone(),
        }),
        None => {
            let source = arguments.join(" ");
            Ok(vec![FileRequest { source, values }])
        }
    }
}

/// The input that `NAME=FILE` names.
fn named<'a>(specs: &'a [TensorSpec], argument: &str) -> Option<&'a TensorSpec> {
    let (name, _) = argument.split_once('=')?;
    specs.iter().find(|spec| spec.name == name)
}

/// The file of an argument for a model of one input; a file's own name may hold `=`.
fn path_for<'a>(only: &TensorSpec, argument: &'a str) -> Result<&'a str, InputError> {
    match argument.split_once('=') {
        Some((name, path)) if name == only.name => Ok(path),
        Some((name, _)) if !Path::new(argument).exists() => Err(unknown(name, &[only])),
        _ => Ok(argument),
    }
}

fn unknown(name: &str, specs: &[&TensorSpec]) -> InputError {
    InputError::Unknown {
        name: name.to_owned(),
        takes: list(specs),
    }
}

fn list(specs: &[&TensorSpec]) -> String {
    let specs: Vec<String> = specs.iter().map(ToString::to_string).collect();
    specs.join(", ")
}

fn read_checked(path: &str, spec: &TensorSpec) -> Result<Tensor, InputError> {
    let path = Path::new(path);
    let tensor = read_input(path, spec)?;
    let Err(mismatch) = spec.check(tensor.dtype(), tensor.shape(), &mut Bindings::new()) else {
        return Ok(tensor);
    };
    let hint = if tensor.shape().len() + 1 == spec.shape.len() {
        "; a dimension is missing, perhaps the first one, of rows: give [1, …]"
    } else {
        ""
    };
    Err(InputError::Content {
        path: path.to_owned(),
        problem: format!("input {mismatch}{hint}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    fn spec(name: &str) -> TensorSpec {
        TensorSpec {
            name: name.into(),
            dtype: DType::I64,
            shape: vec!["N".into(), 2.into()],
        }
    }

    /// The outcome for files `a.json` and `b.json` of one row, and `flat.json` without rows.
    fn read(
        wanted: &[TensorSpec],
        optional: &[TensorSpec],
        arguments: &[&str],
    ) -> Result<Vec<FileRequest>, String> {
        let folder = tempfile::tempdir().unwrap();
        let files = [("a", "[[1, 2]]"), ("b", "[[3, 4]]"), ("flat", "[1, 2]")];
        for (name, text) in files {
            std::fs::write(folder.path().join(format!("{name}.json")), text).unwrap();
        }
        let place = |argument: &&str| {
            let (name, file) = argument.split_once('=').unwrap_or(("", argument));
            let path = folder.path().join(file).display().to_string();
            if name.is_empty() {
                path
            } else {
                format!("{name}={path}")
            }
        };
        let arguments: Vec<String> = arguments.iter().map(place).collect();
        read_requests(wanted, optional, &arguments).map_err(|error| error.to_string())
    }

    #[test]
    fn each_file_is_a_request_of_a_model_of_one_input() {
        let requests = read(&[spec("x")], &[], &["a.json", "x=b.json"]).unwrap();
        let firsts = requests
            .iter()
            .map(|request| request.values["x"].as_slice::<i64>().unwrap()[0]);
        assert_eq!(firsts.collect::<Vec<_>>(), [1, 3]);
        let requests = read(&[spec("x")], &[spec("h")], &["a.json", "b.json"]).unwrap();
        assert_eq!(requests.len(), 2, "state may be missing");
    }

    #[test]
    fn files_are_one_request_of_a_model_of_several() {
        let both = [spec("x"), spec("y")];
        let requests = read(&both, &[], &["x=a.json", "y=b.json"]).unwrap();
        assert_eq!((requests.len(), requests[0].values.len()), (1, 2));
        let requests = read(&[spec("x")], &[spec("h")], &["x=a.json", "h=b.json"]).unwrap();
        assert_eq!((requests.len(), requests[0].values.len()), (1, 2));
    }

    #[test]
    fn what_does_not_fit_says_what_the_model_takes() {
        let both = [spec("x"), spec("y")];
        let error = |wanted: &[TensorSpec], arguments: &[&str], parts: &[&str]| {
            let error = read(wanted, &[], arguments).unwrap_err();
            for part in parts {
                assert!(error.contains(part), "`{part}` is not in: {error}");
            }
        };
        error(&both[..1], &["z=a.json"], &["no input `z`", "takes x: i64"]);
        error(&both, &["z=a.json"], &["no input `z`", "x: i64", "y: i64"]);
        error(&both, &["a.json"], &["NAME=FILE", "y: i64"]);
        error(&both, &["x=a.json"], &["no --input for y: i64"]);
        error(&both, &["x=a.json", "x=b.json"], &["`x` twice"]);
        error(&both[..1], &["flat.json"], &["[2]", "dimension is missing"]);
    }
}
