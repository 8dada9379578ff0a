//! How a value becomes bytes.

use serde::{Deserialize, Serialize};

use crate::DType;

/// A codec and its parameters, as the manifest states them. `seamline-codec` implements it.
///
/// The order of the variants is the wire's codec id ([`CodecSpec::id`]): append only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum CodecSpec {
    /// The elements as they are, little-endian. Lossless, any dtype.
    Raw,
    /// f32 as IEEE 754 half precision, rounded to nearest even; beyond ±65,504 it becomes ±∞.
    F16,
    /// f32 as signed 8-bit levels with one scale a channel, found anew for each request:
    /// `scale = max|x| / 127`, `level = round(x / scale)`.
    Int8 {
        /// The channel axis.
        axis: usize,
    },
    /// Integers in as few bytes each as the request's range needs, booleans as bits. Lossless.
    Packed,
}

impl CodecSpec {
    /// The codec's id on the wire.
    pub const fn id(&self) -> u8 {
        match self {
            CodecSpec::Raw => 0,
            CodecSpec::F16 => 1,
            CodecSpec::Int8 { .. } => 2,
            CodecSpec::Packed => 3,
        }
    }

    /// The name that users see and type.
    pub const fn name(&self) -> &'static str {
        match self {
            CodecSpec::Raw => "raw",
            CodecSpec::F16 => "f16",
            CodecSpec::Int8 { .. } => "int8",
            CodecSpec::Packed => "packed",
        }
    }

    /// Whether decoding gives back the very bits that went in.
    pub const fn is_lossless(&self) -> bool {
        matches!(self, CodecSpec::Raw | CodecSpec::Packed)
    }

    /// Whether this codec takes values of `dtype`.
    pub const fn accepts(&self, dtype: DType) -> bool {
        match self {
            CodecSpec::Raw => true,
            CodecSpec::F16 | CodecSpec::Int8 { .. } => matches!(dtype, DType::F32),
            CodecSpec::Packed => !dtype.is_float(),
        }
    }
}

impl std::fmt::Display for CodecSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
