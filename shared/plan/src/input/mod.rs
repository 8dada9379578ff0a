//! Tensors from files: npy, png and jpeg, json.

mod requests;

use std::path::{Path, PathBuf};

pub use requests::{FileRequest, read_requests};

use ndarray_npy::{ReadNpyError, ReadNpyExt};
use thiserror::Error;

use crate::{DType, Dim, Tensor, TensorSpec, format_shape};

/// A file that gives no tensor for the input.
#[derive(Debug, Error)]
pub enum InputError {
    /// The operating system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// The file is of no kind that is read here.
    #[error("{}: inputs are read from .npy, .png, .jpg, .jpeg and .json", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// The file is broken.
    #[error("{}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// The file is sound and does not fit the input.
    #[error("{}: {problem}; input {spec}", path.display())]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// The input.
        spec: TensorSpec,
        /// Why.
        problem: String,
    },
    /// A file that is said to be no input of a model of several.
    #[error("--input {argument}: the model takes {takes}; give each as --input NAME=FILE")]
    Unnamed {
        /// As given.
        argument: String,
        /// The model's inputs.
        takes: String,
    },
    /// No input of that name.
    #[error("there is no input `{name}`; the model takes {takes}")]
    Unknown {
        /// As given.
        name: String,
        /// The model's inputs.
        takes: String,
    },
    /// An input given twice for one request.
    #[error("--input names `{name}` twice")]
    Twice {
        /// The input.
        name: String,
    },
    /// An input that was not given.
    #[error("no --input for {spec}; give each input as --input NAME=FILE")]
    Missing {
        /// The input.
        spec: TensorSpec,
    },
}

/// Reads the file at `path` as a value for `spec`.
///
/// A picture becomes u8 `[1, height, width, 3]`, red first, for an input of that kind (see
/// `seamline split --image`). JSON is nested arrays of numbers or booleans.
///
/// # Errors
/// [`InputError`].
pub fn read_input(path: &Path, spec: &TensorSpec) -> Result<Tensor, InputError> {
    let extension = path
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "npy" => read_npy(path),
        "png" | "jpg" | "jpeg" => read_picture(path, spec),
        "json" => read_json(path, spec),
        _ => Err(InputError::Extension {
            path: path.to_owned(),
        }),
    }
}

fn content(path: &Path, problem: impl ToString) -> InputError {
    InputError::Content {
        path: path.to_owned(),
        problem: problem.to_string(),
    }
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, InputError> {
    std::fs::read(path).map_err(|error| InputError::Io {
        path: path.to_owned(),
        error,
    })
}

fn read_npy(path: &Path) -> Result<Tensor, InputError> {
    let bytes = read_bytes(path)?;
    let wrong = |problem: String| {
        content(
            path,
            format!("not an npy array that is read here: {problem}"),
        )
    };
    // The reader makes room for all that the header promises, before it looks for it.
    let promised = promised_elements(&bytes);
    let promised = promised.ok_or_else(|| wrong("no header with a shape".into()))?;
    if promised > bytes.len() {
        return Err(wrong(format!(
            "the header promises {promised} elements, the whole file has {} bytes",
            bytes.len()
        )));
    }
    macro_rules! try_element {
        ($($element:ty),*) => {$(
            match ndarray::ArrayD::<$element>::read_npy(bytes.as_slice()) {
                Ok(array) => {
                    let shape = array.shape().to_vec();
                    // Fortran order is turned into row-major here.
                    let elements: Vec<$element> = array.iter().copied().collect();
                    return Tensor::from_vec(shape, elements).map_err(|error| content(path, error));
                }
                Err(ReadNpyError::WrongDescriptor(_)) => {}
                Err(error) => return Err(wrong(error.to_string())),
            }
        )*};
    }
    try_element!(f32, i64, u8, f64, i32, i8, i16, u16, u32, u64);
    match ndarray::ArrayD::<bool>::read_npy(bytes.as_slice()) {
        Ok(array) => {
            let elements: Vec<bool> = array.iter().copied().collect();
            Tensor::from_bools(array.shape().to_vec(), &elements)
                .map_err(|error| content(path, error))
        }
        Err(ReadNpyError::WrongDescriptor(descriptor)) => Err(wrong(format!(
            "its elements are {descriptor}; expected floats or integers of at most 64 bits, or bool"
        ))),
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// The elements of the shape in the header of an npy file; `None` where there is no plain one.
fn promised_elements(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.strip_prefix(b"\x93NUMPY")?;
    let (version, rest) = rest.split_first_chunk::<2>()?;
    let (length, rest) = match version {
        [1, _] => rest
            .split_first_chunk()
            .map(|(length, rest)| (u32::from(u16::from_le_bytes(*length)), rest))?,
        _ => rest
            .split_first_chunk()
            .map(|(length, rest)| (u32::from_le_bytes(*length), rest))?,
    };
    let header = std::str::from_utf8(rest.get(..usize::try_from(length).ok()?)?).ok()?;
    // Python's escapes could spell the key another way.
    let is_plain = !header.contains('\\') && header.matches("shape").count() == 1;
    let shape = header.split_once("shape").filter(|_| is_plain)?.1;
    let (_, shape) = shape.split_once('(')?;
    let (shape, _) = shape.split_once(')')?;
    let mut dims = shape
        .split(',')
        .map(str::trim)
        .filter(|dim| !dim.is_empty());
    dims.try_fold(1usize, |all, dim| {
        Some(all.saturating_mul(dim.parse().ok()?))
    })
}

fn read_picture(path: &Path, spec: &TensorSpec) -> Result<Tensor, InputError> {
    let is_picture =
        spec.dtype == DType::U8 && spec.shape.len() == 4 && spec.shape[3] == Dim::Fixed(3);
    if !is_picture {
        return Err(InputError::Mismatch {
            path: path.to_owned(),
            spec: spec.clone(),
            problem: "a picture is u8 [N, H, W, 3]; split the model with `--image` to have its \
                      preprocessing in the graph, or give an .npy file"
                .into(),
        });
    }
    let picture = image::load_from_memory(&read_bytes(path)?)
        .map_err(|error| content(path, error))?
        .into_rgb8();
    let (width, height) = picture.dimensions();
    Tensor::from_vec(
        vec![1, height as usize, width as usize, 3],
        picture.into_raw(),
    )
    .map_err(|error| content(path, error))
}

fn read_json(path: &Path, spec: &TensorSpec) -> Result<Tensor, InputError> {
    let value: serde_json::Value =
        serde_json::from_slice(&read_bytes(path)?).map_err(|error| content(path, error))?;
    if value.is_object() {
        let problem = "an object; an input's values are nested arrays of numbers or booleans";
        return Err(content(path, problem));
    }
    let mut shape = Vec::new();
    let mut level = &value;
    while let serde_json::Value::Array(elements) = level {
        shape.push(elements.len());
        match elements.first() {
            Some(first) => level = first,
            None => break,
        }
    }
    let mut leaves = Vec::new();
    flatten(&value, &shape, &mut leaves).map_err(|problem| content(path, problem))?;
    let wrong = |what: &str| InputError::Mismatch {
        path: path.to_owned(),
        spec: spec.clone(),
        problem: format!("{what} among the values of shape {}", format_shape(&shape)),
    };
    macro_rules! numbers {
        ($get:ident => $element:ty) => {{
            let elements = leaves
                .iter()
                .map(|leaf| <$element>::try_from(leaf.$get()?).ok());
            let elements: Option<Vec<$element>> = elements.collect();
            Tensor::from_vec(
                shape.clone(),
                elements.ok_or_else(|| wrong("not every number fits its dtype"))?,
            )
        }};
    }
    let tensor = match spec.dtype {
        DType::F32 | DType::F64 => {
            let elements: Option<Vec<f64>> = leaves.iter().map(|leaf| leaf.as_f64()).collect();
            let elements = elements.ok_or_else(|| wrong("something else than a number"))?;
            if spec.dtype == DType::F64 {
                Tensor::from_vec(shape.clone(), elements)
            } else {
                #[allow(
                    clippy::cast_possible_truncation,
                    reason = "JSON numbers are decimal text; the nearest f32 is what is asked for"
                )]
                Tensor::from_vec(shape.clone(), elements.iter().map(|&e| e as f32).collect())
            }
        }
        DType::I64 => numbers!(as_i64 => i64),
        DType::I32 => numbers!(as_i64 => i32),
        DType::I16 => numbers!(as_i64 => i16),
        DType::I8 => numbers!(as_i64 => i8),
        DType::U64 => numbers!(as_u64 => u64),
        DType::U32 => numbers!(as_u64 => u32),
        DType::U16 => numbers!(as_u64 => u16),
        DType::U8 => numbers!(as_u64 => u8),
        DType::Bool => {
            let elements: Option<Vec<bool>> = leaves.iter().map(|leaf| leaf.as_bool()).collect();
            Tensor::from_bools(
                shape.clone(),
                &elements.ok_or_else(|| wrong("something else than true or false"))?,
            )
        }
        DType::F16 | DType::BF16 => return Err(wrong("half floats are read from .npy only, not")),
    };
    tensor.map_err(|error| content(path, error))
}

/// Collects the leaves in row-major order; every array of a depth must have the same length. The
/// JSON reader bounds the depth.
fn flatten<'a>(
    value: &'a serde_json::Value,
    shape: &[usize],
    leaves: &mut Vec<&'a serde_json::Value>,
) -> Result<(), String> {
    match (value, shape.split_first()) {
        (serde_json::Value::Array(elements), Some((&expected, rest))) => {
            if elements.len() != expected {
                return Err(format!(
                    "ragged arrays: one has {} elements, another {expected}",
                    elements.len()
                ));
            }
            elements
                .iter()
                .try_for_each(|element| flatten(element, rest, leaves))
        }
        (serde_json::Value::Array(_), None) | (_, Some(_)) => {
            Err("ragged arrays: some are nested deeper than others".into())
        }
        (leaf, None) => {
            leaves.push(leaf);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(dtype: DType) -> TensorSpec {
        TensorSpec {
            name: "x".into(),
            dtype,
            shape: vec![Dim::Unknown; 2],
        }
    }

    fn json(text: &str, dtype: DType) -> Result<Tensor, InputError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        std::fs::write(&path, text).unwrap();
        read_input(&path, &spec(dtype))
    }

    #[test]
    fn json_takes_the_inputs_dtype() {
        let ids = json("[[1, 2], [3, 4]]", DType::I64).unwrap();
        assert_eq!(ids.shape(), [2, 2]);
        assert_eq!(ids.as_slice::<i64>().unwrap(), [1, 2, 3, 4]);
        let floats = json("[[0.5]]", DType::F32).unwrap();
        assert_eq!(floats.as_slice::<f32>().unwrap(), [0.5]);
        let mask = json("[true, false]", DType::Bool).unwrap();
        assert_eq!(mask.bytes().as_ref(), [1, 0]);
    }

    #[test]
    fn json_that_is_no_tensor_says_why() {
        let ragged = json("[[1, 2], [3]]", DType::I64).unwrap_err().to_string();
        assert!(ragged.contains("ragged"), "{ragged}");
        let deep = json("[1, [2]]", DType::I64).unwrap_err().to_string();
        assert!(deep.contains("nested deeper"), "{deep}");
        let overflow = json("[300]", DType::U8).unwrap_err().to_string();
        assert!(overflow.contains("not every number fits"), "{overflow}");
        let object = json("{\"x\": [1]}", DType::F32).unwrap_err().to_string();
        assert!(object.contains("nested arrays"), "{object}");
        let text = json("[\"a\"]", DType::F32).unwrap_err().to_string();
        assert!(text.contains("something else than a number"), "{text}");
    }

    #[test]
    fn npy_keeps_dtype_and_shape() {
        use ndarray_npy::WriteNpyExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let array = ndarray::arr2(&[[1i64, 2, 3], [4, 5, 6]]);
        array
            .write_npy(std::fs::File::create(&path).unwrap())
            .unwrap();
        let tensor = read_input(&path, &spec(DType::I64)).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (DType::I64, &[2, 3][..]));
        assert_eq!(tensor.as_slice::<i64>().unwrap(), [1, 2, 3, 4, 5, 6]);
    }

    /// An npy file of this header and data.
    fn npy(header: &str, data: &[u8]) -> Result<Tensor, InputError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend(u16::try_from(header.len() + 1).unwrap().to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.push(b'\n');
        bytes.extend(data);
        std::fs::write(&path, bytes).unwrap();
        read_input(&path, &spec(DType::F32))
    }

    #[test]
    fn npy_of_either_order_is_read() {
        let values = |bytes: fn(f32) -> [u8; 4]| [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(bytes).concat();
        let big = "{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }";
        let big = npy(big, &values(f32::to_be_bytes)).unwrap();
        assert_eq!(
            big.as_slice::<f32>().unwrap(),
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
        );
        let fortran = "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }";
        let fortran = npy(fortran, &values(f32::to_le_bytes)).unwrap();
        assert_eq!(fortran.shape(), [2, 3]);
        assert_eq!(
            fortran.as_slice::<f32>().unwrap(),
            [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]
        );
    }

    #[test]
    fn broken_npy_says_what_is_wrong() {
        let refused = |header: &str, data: &[u8], part: &str| {
            let error = npy(header, data).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("x.npy"), "{error}");
        };
        let shaped =
            |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
        refused(&shaped("(2,)"), &[0; 7], "reached EOF");
        refused(&shaped("(1,)"), &[0; 9], "extra bytes");
        refused(
            &shaped("(1099511627776,)"),
            &[0; 4],
            "promises 1099511627776 elements",
        );
        refused(
            &shaped("(9999999999, 9999999999, 9999999999)"),
            &[],
            "promises",
        );
        refused(
            "{'descr': '<f4', 'fortran_order': False, 'sh\\x61pe': (9999999999999,), }",
            &[],
            "no header",
        );
        refused("", &[], "no header with a shape");
        let text = "{'descr': '<U5', 'fortran_order': False, 'shape': (1,), }";
        refused(text, &[0; 20], "its elements are '<U5'");
    }

    #[test]
    fn a_picture_for_a_float_input_says_how_to_get_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.png");
        image::RgbImage::new(2, 2).save(&path).unwrap();
        let error = read_input(&path, &spec(DType::F32))
            .unwrap_err()
            .to_string();
        assert!(error.contains("--image"), "{error}");
        let picture = TensorSpec {
            name: "x".into(),
            dtype: DType::U8,
            shape: vec!["N".into(), "H".into(), "W".into(), 3.into()],
        };
        assert_eq!(read_input(&path, &picture).unwrap().shape(), [1, 2, 2, 3]);
    }

    #[test]
    fn broken_and_unknown_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        for (name, expected) in [
            ("x.npy", "not an npy"),
            ("x.json", "x.json"),
            ("x.txt", ".npy"),
        ] {
            let path = folder.path().join(name);
            std::fs::write(&path, b"\x00garbage").unwrap();
            let error = read_input(&path, &spec(DType::F32))
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected) && error.contains(name), "{error}");
        }
    }
}
