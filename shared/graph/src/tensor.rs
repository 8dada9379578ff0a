//! Weights: a tensor of the file, its content shared with the mapped file.

use bytes::Bytes;
use half::{bf16, f16};
use seamline_plan::DType;
use thiserror::Error;

use crate::graph::Node;
use crate::proto::{AttributeProto, SparseTensorProto, TensorProto, tensor_proto::DataType};

/// A tensor whose content cannot be given in the form asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("tensor `{name}`: {problem}")]
pub struct TensorDataError {
    /// The tensor.
    pub name: String,
    /// What is wrong.
    pub problem: String,
}

/// A weight: dtype, dimensions and content. Cloning shares the content.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Initializer {
    /// The tensor; data of external files is mapped into `raw_data` when a model is read.
    pub tensor: TensorProto,
    /// The sparse form, where the file has that; `tensor` then holds name, type and dimensions
    /// only.
    pub sparse: Option<Box<SparseTensorProto>>,
}

impl From<TensorProto> for Initializer {
    fn from(tensor: TensorProto) -> Initializer {
        Initializer {
            tensor,
            sparse: None,
        }
    }
}

impl Initializer {
    /// The tensor of a `Constant` node; `None` where it is sparse or of strings.
    pub fn of_constant_node(node: &Node) -> Option<Initializer> {
        let from = |attr: &AttributeProto| -> Option<TensorProto> {
            let (code, dims) = match attr.name() {
                "value" => return attr.t.clone(),
                "value_float" => (DataType::Float, vec![]),
                "value_int" => (DataType::Int64, vec![]),
                "value_floats" => (DataType::Float, vec![attr.floats.len() as i64]),
                "value_ints" => (DataType::Int64, vec![attr.ints.len() as i64]),
                _ => return None,
            };
            Some(TensorProto {
                data_type: Some(code.into()),
                dims,
                float_data: attr
                    .f
                    .filter(|_| attr.name() == "value_float")
                    .into_iter()
                    .chain(attr.floats.iter().copied())
                    .collect(),
                int64_data: attr
                    .i
                    .filter(|_| attr.name() == "value_int")
                    .into_iter()
                    .chain(attr.ints.iter().copied())
                    .collect(),
                ..TensorProto::default()
            })
        };
        node.attributes.iter().find_map(from).map(Into::into)
    }

    /// ONNX's `TensorProto.DataType`, of types that Seamline does not carry as well.
    pub fn code(&self) -> i32 {
        self.tensor.data_type()
    }

    /// Element type, where Seamline carries it.
    pub fn dtype(&self) -> Option<DType> {
        DType::from_code(self.code())
    }

    /// Whether elements have a fixed size: not strings, nor types that ONNX had not defined yet when
    /// this was written, whose content is kept as it is.
    pub fn is_sized(&self) -> bool {
        bits_of(self.code()) > 0
    }

    /// Dimensions.
    ///
    /// # Errors
    /// A negative dimension.
    pub fn dims(&self) -> Result<Vec<u64>, TensorDataError> {
        self.tensor
            .dims
            .iter()
            .map(|&dim| {
                u64::try_from(dim).map_err(|_| self.error(format!("dimension {dim} is negative")))
            })
            .collect()
    }

    /// Number of elements.
    ///
    /// # Errors
    /// A negative dimension, or more elements than 64 bits count.
    pub fn elements(&self) -> Result<u64, TensorDataError> {
        let dims = self.dims()?;
        if dims.contains(&0) {
            return Ok(0);
        }
        dims.iter()
            .try_fold(1u64, |count, &dim| count.checked_mul(dim))
            .ok_or_else(|| self.error(format!("dimensions {dims:?} pass 64 bits")))
    }

    /// Bytes of the content, without touching it; 0 where elements have no fixed size.
    ///
    /// # Errors
    /// As [`Initializer::elements`].
    pub fn byte_len(&self) -> Result<u64, TensorDataError> {
        let bits = u64::from(bits_of(self.code()));
        self.elements()?
            .checked_mul(bits)
            .map(|bits| bits.div_ceil(8))
            .ok_or_else(|| self.error("its size passes 64 bits".into()))
    }

    /// The content: row-major, little-endian, types below 8 bits packed. Shares the file's mapping
    /// where the file holds raw data.
    ///
    /// # Errors
    /// Strings, sparse tensors, and content whose length is not what the dimensions say.
    pub fn bytes(&self) -> Result<Bytes, TensorDataError> {
        if self.sparse.is_some() {
            return Err(self.error("is sparse; only dense tensors have plain bytes".into()));
        }
        let bytes = match &self.tensor.raw_data {
            Some(raw) => raw.clone(),
            None => self.typed_bytes()?,
        };
        let expected = self.byte_len()?;
        if bytes.len() as u64 != expected {
            return Err(self.error(format!(
                "holds {} bytes; dimensions {:?} of type {} take {expected}",
                bytes.len(),
                self.tensor.dims,
                self.code()
            )));
        }
        Ok(bytes)
    }

    /// The elements as `i64`; every integer type and `bool`.
    ///
    /// # Errors
    /// Another type, `u64` beyond `i64`, or as [`Initializer::bytes`].
    pub fn to_i64s(&self) -> Result<Vec<i64>, TensorDataError> {
        let bytes = self.bytes()?;
        Ok(match self.dtype() {
            Some(DType::I64) => words(&bytes, i64::from_le_bytes),
            Some(DType::I32) => words(&bytes, |word| i64::from(i32::from_le_bytes(word))),
            Some(DType::I16) => words(&bytes, |word| i64::from(i16::from_le_bytes(word))),
            Some(DType::I8) => words(&bytes, |word| i64::from(i8::from_le_bytes(word))),
            Some(DType::U32) => words(&bytes, |word| i64::from(u32::from_le_bytes(word))),
            Some(DType::U16) => words(&bytes, |word| i64::from(u16::from_le_bytes(word))),
            Some(DType::U8 | DType::Bool) => bytes.iter().map(|&byte| i64::from(byte)).collect(),
            Some(DType::U64) => words(&bytes, u64::from_le_bytes)
                .into_iter()
                .map(|word| {
                    i64::try_from(word).map_err(|_| self.error(format!("{word} passes i64")))
                })
                .collect::<Result<_, _>>()?,
            _ => return Err(self.error(format!("type {} is not an integer", self.code()))),
        })
    }

    /// The elements as `f32`; every float type, `f64` rounded.
    ///
    /// # Errors
    /// Another type, or as [`Initializer::bytes`].
    pub fn to_f32s(&self) -> Result<Vec<f32>, TensorDataError> {
        let bytes = self.bytes()?;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "documented: f64 is rounded"
        )]
        let narrow = |word| f64::from_le_bytes(word) as f32;
        Ok(match self.dtype() {
            Some(DType::F32) => words(&bytes, f32::from_le_bytes),
            Some(DType::F64) => words(&bytes, narrow),
            Some(DType::F16) => words(&bytes, |word| f16::from_le_bytes(word).to_f32()),
            Some(DType::BF16) => words(&bytes, |word| bf16::from_le_bytes(word).to_f32()),
            _ => return Err(self.error(format!("type {} is not a float", self.code()))),
        })
    }

    fn typed_bytes(&self) -> Result<Bytes, TensorDataError> {
        let tensor = &self.tensor;
        let bytes: Vec<u8> = match DataType::try_from(self.code()) {
            Ok(DataType::String | DataType::Undefined) | Err(_) => {
                return Err(self.error(format!("type {} has no plain bytes", self.code())));
            }
            Ok(DataType::Float | DataType::Complex64) => tensor
                .float_data
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
            Ok(DataType::Double | DataType::Complex128) => tensor
                .double_data
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
            Ok(DataType::Int64) => tensor
                .int64_data
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
            Ok(DataType::Uint64) => tensor
                .uint64_data
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect(),
            Ok(DataType::Uint32) => tensor
                .uint64_data
                .iter()
                .flat_map(|value| low_bytes::<4, 8>(value.to_le_bytes()))
                .collect(),
            Ok(DataType::Float6e2m3 | DataType::Float6e3m2) => {
                return Err(self.error("6-bit floats outside `raw_data` are not supported".into()));
            }
            Ok(_) => {
                let words = tensor.int32_data.iter().map(|word| word.to_le_bytes());
                match bits_of(self.code()) {
                    32 => words.flatten().collect(),
                    16 => words.flat_map(low_bytes::<2, 4>).collect(),
                    _ => words.flat_map(low_bytes::<1, 4>).collect(),
                }
            }
        };
        Ok(bytes.into())
    }

    fn error(&self, problem: String) -> TensorDataError {
        TensorDataError {
            name: self.tensor.name().to_owned(),
            problem,
        }
    }
}

fn low_bytes<const TO: usize, const FROM: usize>(word: [u8; FROM]) -> [u8; TO] {
    std::array::from_fn(|index| word[index])
}

fn words<const SIZE: usize, T>(bytes: &[u8], decode: impl Fn([u8; SIZE]) -> T) -> Vec<T> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|&word| decode(word))
        .collect()
}

/// Bits of one element of an ONNX type; 0 where elements have no fixed size.
fn bits_of(code: i32) -> u8 {
    match DataType::try_from(code) {
        Ok(DataType::Complex128) => 128,
        Ok(DataType::Double | DataType::Int64 | DataType::Uint64 | DataType::Complex64) => 64,
        Ok(DataType::Float | DataType::Int32 | DataType::Uint32) => 32,
        Ok(DataType::Float16 | DataType::Bfloat16 | DataType::Int16 | DataType::Uint16) => 16,
        Ok(DataType::Float6e2m3 | DataType::Float6e3m2) => 6,
        Ok(DataType::Uint4 | DataType::Int4 | DataType::Float4e2m1) => 4,
        Ok(DataType::Uint2 | DataType::Int2) => 2,
        Ok(DataType::String | DataType::Undefined) | Err(_) => 0,
        Ok(_) => 8,
    }
}
