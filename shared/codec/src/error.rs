//! What can go wrong.

use seamline_plan::{CodecSpec, DType, format_shape};
use thiserror::Error;

/// A tensor that cannot be encoded, or a payload that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The codec does not take this dtype.
    #[error(
        "codec `{codec}` takes {}, got {got}; choose `raw`, which takes any",
        codec.dtype_names()
    )]
    DType {
        /// The codec.
        codec: CodecSpec,
        /// The dtype that came.
        got: DType,
    },
    /// The channel axis is not one of the shape's.
    #[error(
        "codec `int8` has channel axis {axis}, but the tensor has shape {} ({} axes, counted from 0)",
        format_shape(shape),
        shape.len()
    )]
    Axis {
        /// The codec's axis.
        axis: usize,
        /// The tensor's shape.
        shape: Vec<usize>,
    },
    /// The codec takes pictures, and the shape is not that of some.
    #[error(
        "codec `{codec}` takes {}, got shape {}; choose `raw`, which takes any",
        codec.shape_text(),
        format_shape(shape)
    )]
    Shape {
        /// The codec.
        codec: CodecSpec,
        /// The tensor's shape.
        shape: Vec<usize>,
    },
    /// A quality outside 1 to 100.
    #[error("codec `{codec}` has quality {quality}; expected 1 to 100")]
    Quality {
        /// The codec.
        codec: CodecSpec,
        /// The quality.
        quality: u8,
    },
    /// The encoder cannot make a payload of the values.
    #[error("codec `{codec}` cannot encode this: {problem}")]
    Encode {
        /// The codec.
        codec: CodecSpec,
        /// Why.
        problem: String,
    },
    /// The tensor or its payload takes more bytes than an address can count.
    #[error(
        "{dtype} {} as `{codec}` takes more bytes than this machine can address",
        format_shape(shape)
    )]
    Overflow {
        /// The codec.
        codec: CodecSpec,
        /// Element type.
        dtype: DType,
        /// Shape.
        shape: Vec<usize>,
    },
    /// The allocator has no room for the tensor or its payload.
    #[error(
        "no memory for {dtype} {}; limit the shapes that are accepted",
        format_shape(shape)
    )]
    OutOfMemory {
        /// Element type.
        dtype: DType,
        /// Shape.
        shape: Vec<usize>,
    },
    /// The destination does not have the tensor's size.
    #[error(
        "{dtype} {} takes {expected} bytes, the destination has {got}",
        format_shape(shape)
    )]
    Destination {
        /// Element type.
        dtype: DType,
        /// Shape.
        shape: Vec<usize>,
        /// Bytes that the tensor takes.
        expected: usize,
        /// Bytes of the destination.
        got: usize,
    },
    /// NaN or infinity, which `int8` cannot carry.
    #[error(
        "channel {channel} of axis {axis} holds {value}, which `int8` cannot carry; \
         choose `f16` or `raw` for this value, or keep it finite in the model"
    )]
    NonFinite {
        /// The channel axis.
        axis: usize,
        /// The index along the axis.
        channel: usize,
        /// `inf` or `NaN` (the sign is not kept).
        value: f32,
    },
    /// The payload does not have the length that codec, dtype and shape give.
    #[error(
        "{dtype} {} as `{codec}` takes {expected} payload bytes, got {got}",
        format_shape(shape)
    )]
    Length {
        /// The codec.
        codec: CodecSpec,
        /// Element type.
        dtype: DType,
        /// Shape.
        shape: Vec<usize>,
        /// Bytes that the payload takes (at least, where its header is not there).
        expected: u64,
        /// Bytes that came.
        got: u64,
    },
    /// The payload has a length that codec, dtype and shape cannot give.
    #[error(
        "{dtype} {} as `{codec}` takes {least} to {most} payload bytes, got {got}",
        format_shape(shape)
    )]
    LengthRange {
        /// The codec.
        codec: CodecSpec,
        /// Element type.
        dtype: DType,
        /// Shape.
        shape: Vec<usize>,
        /// The least bytes that the payload takes.
        least: u64,
        /// The most.
        most: u64,
        /// Bytes that came.
        got: u64,
    },
    /// A file that is not the picture that was declared, or that does not decode.
    #[error("picture {index} (`{kind}`) {problem}")]
    Picture {
        /// The codec without its quality, which a decoder does not know.
        kind: &'static str,
        /// The picture's index along the first axis.
        index: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A Zstandard frame that is not the tensor that was declared, or that does not decode.
    #[error("`zstd`: {problem}")]
    Zstd {
        /// What is wrong with it.
        problem: String,
    },
    /// A scale that is negative, not finite, or too large for finite elements.
    #[error("scale of channel {channel} is {value}; expected 0 to {limit:e}")]
    Scale {
        /// The index along the channel axis.
        channel: usize,
        /// The scale that came.
        value: f32,
        /// The largest allowed.
        limit: f32,
    },
    /// A level of −128.
    #[error("level of element {element} is -128; expected -127 to 127")]
    Level {
        /// The element's index in row-major order.
        element: usize,
    },
    /// A width that the dtype does not have.
    #[error("offsets are {got} bytes wide; expected 0, 1, 2, 4 or 8, at most {most} for {dtype}")]
    Width {
        /// Element type.
        dtype: DType,
        /// The size of the dtype, in bytes.
        most: usize,
        /// The width that came, in bytes.
        got: u8,
    },
    /// An integer that the dtype does not have.
    #[error("base {base} with the largest offset {offset} passes the range of {dtype}")]
    Range {
        /// Element type.
        dtype: DType,
        /// The base that came.
        base: i128,
        /// The largest offset that came.
        offset: u64,
    },
    /// Bits set after the last boolean.
    #[error("the last byte of the booleans is {got:#010b}; only its lowest {used} bits may be set")]
    Padding {
        /// Bits that hold booleans.
        used: usize,
        /// The byte that came.
        got: u8,
    },
    /// A boolean that is neither 0 nor 1.
    #[error("boolean element {element} has byte {value}; expected 0 or 1")]
    Boolean {
        /// The element's index in row-major order.
        element: usize,
        /// The byte that came.
        value: u8,
    },
}

/// Where the fault lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CodecErrorKind {
    /// Codec, dtype, shape and destination do not fit each other: the plan or the caller.
    Mismatch,
    /// The tensor holds what the codec cannot carry: the values.
    Value,
    /// The payload is not one that the codec gives: the peer.
    Payload,
    /// This machine lacks memory.
    Memory,
}

impl CodecError {
    /// Where the fault lies.
    pub const fn kind(&self) -> CodecErrorKind {
        match self {
            CodecError::DType { .. }
            | CodecError::Axis { .. }
            | CodecError::Shape { .. }
            | CodecError::Quality { .. }
            | CodecError::Overflow { .. }
            | CodecError::Destination { .. } => CodecErrorKind::Mismatch,
            CodecError::NonFinite { .. } | CodecError::Encode { .. } => CodecErrorKind::Value,
            CodecError::OutOfMemory { .. } => CodecErrorKind::Memory,
            CodecError::Length { .. }
            | CodecError::LengthRange { .. }
            | CodecError::Picture { .. }
            | CodecError::Zstd { .. }
            | CodecError::Scale { .. }
            | CodecError::Level { .. }
            | CodecError::Width { .. }
            | CodecError::Range { .. }
            | CodecError::Padding { .. }
            | CodecError::Boolean { .. } => CodecErrorKind::Payload,
        }
    }
}

pub(crate) fn encoding(codec: &CodecSpec, problem: String) -> CodecError {
    CodecError::Encode {
        codec: codec.clone(),
        problem,
    }
}

pub(crate) fn picture(codec: &CodecSpec, index: u64, problem: String) -> CodecError {
    let kind = match codec {
        CodecSpec::Jpeg { .. } => "jpeg",
        CodecSpec::Webp { .. } => "webp",
        other => other.name(),
    };
    CodecError::Picture {
        kind,
        index,
        problem,
    }
}

pub(crate) fn overflow(codec: &CodecSpec, dtype: DType, shape: &[usize]) -> CodecError {
    CodecError::Overflow {
        codec: codec.clone(),
        dtype,
        shape: shape.to_vec(),
    }
}

pub(crate) fn out_of_memory(dtype: DType, shape: &[usize]) -> CodecError {
    CodecError::OutOfMemory {
        dtype,
        shape: shape.to_vec(),
    }
}

pub(crate) fn destination(
    dtype: DType,
    shape: &[usize],
    expected: usize,
    got: usize,
) -> CodecError {
    CodecError::Destination {
        dtype,
        shape: shape.to_vec(),
        expected,
        got,
    }
}
