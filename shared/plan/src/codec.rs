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
    /// u8 pictures \[N, H, W, 1 or 3\], each as a PNG. Lossless.
    Png,
    /// u8 pictures \[N, H, W, 1 or 3\], each as a baseline JPEG. Decoding needs no quality.
    Jpeg {
        /// 1 (smallest) to 100, the Independent JPEG Group's scale.
        quality: u8,
    },
    /// u8 pictures \[N, H, W, 3\], each as a lossy WebP. Decoding needs no quality.
    Webp {
        /// 1 (smallest) to 100, libwebp's scale.
        quality: u8,
    },
    /// The elements' first bytes, then their second ones, and so on, compressed by Zstandard.
    /// Lossless, any dtype.
    Zstd,
}

/// The names of every codec, for help and error texts.
pub const CODEC_NAMES: &str =
    "raw, f16, int8, packed, png, jpeg1 to jpeg100, webp1 to webp100 and zstd";

impl CodecSpec {
    /// The codec's id on the wire.
    pub const fn id(&self) -> u8 {
        match self {
            CodecSpec::Raw => 0,
            CodecSpec::F16 => 1,
            CodecSpec::Int8 { .. } => 2,
            CodecSpec::Packed => 3,
            CodecSpec::Png => 4,
            CodecSpec::Jpeg { .. } => 5,
            CodecSpec::Webp { .. } => 6,
            CodecSpec::Zstd => 7,
        }
    }

    /// The name that users see and type: kind and quality (`jpeg85`). A value's codecs are told
    /// apart by it; on the wire, those that differ only in quality are one, as they decode alike.
    pub const fn name(&self) -> &'static str {
        match self {
            CodecSpec::Raw => "raw",
            CodecSpec::F16 => "f16",
            CodecSpec::Int8 { .. } => "int8",
            CodecSpec::Packed => "packed",
            CodecSpec::Png => "png",
            CodecSpec::Jpeg { quality } => with_quality(&JPEG, *quality, "jpeg"),
            CodecSpec::Webp { quality } => with_quality(&WEBP, *quality, "webp"),
            CodecSpec::Zstd => "zstd",
        }
    }

    /// The codec that has this name. `None` for other texts, and for `int8`, whose axis depends on
    /// the value.
    pub fn from_name(name: &str) -> Option<CodecSpec> {
        let quality = |prefix| name.strip_prefix(prefix)?.parse().ok();
        let spec = match name {
            "raw" => CodecSpec::Raw,
            "f16" => CodecSpec::F16,
            "packed" => CodecSpec::Packed,
            "png" => CodecSpec::Png,
            "zstd" => CodecSpec::Zstd,
            _ => match (quality("jpeg"), quality("webp")) {
                (Some(quality), _) => CodecSpec::Jpeg { quality },
                (_, Some(quality)) => CodecSpec::Webp { quality },
                (None, None) => return None,
            },
        };
        // Of the ways to write a number, one is the name's.
        (spec.name() == name && spec.bad_quality().is_none()).then_some(spec)
    }

    /// Whether a codec has this name.
    pub fn is_name(name: &str) -> bool {
        name == "int8" || CodecSpec::from_name(name).is_some()
    }

    /// Whether decoding gives back the very bits that went in.
    pub const fn is_lossless(&self) -> bool {
        matches!(
            self,
            CodecSpec::Raw | CodecSpec::Packed | CodecSpec::Png | CodecSpec::Zstd
        )
    }

    /// Whether this codec takes pictures only.
    pub const fn is_picture(&self) -> bool {
        matches!(
            self,
            CodecSpec::Png | CodecSpec::Jpeg { .. } | CodecSpec::Webp { .. }
        )
    }

    /// The quality, where it is not one of 1 to 100.
    pub const fn bad_quality(&self) -> Option<u8> {
        match *self {
            CodecSpec::Jpeg { quality } | CodecSpec::Webp { quality }
                if quality == 0 || quality > 100 =>
            {
                Some(quality)
            }
            _ => None,
        }
    }

    /// Whether this codec takes values of `rank` dimensions whose last is `last`, where that is
    /// fixed: pictures have four, and channels last.
    pub const fn takes_shape(&self, rank: usize, last: Option<u64>) -> bool {
        match self {
            CodecSpec::Png | CodecSpec::Jpeg { .. } => rank == 4 && matches!(last, Some(1 | 3)),
            CodecSpec::Webp { .. } => rank == 4 && matches!(last, Some(3)),
            CodecSpec::Raw
            | CodecSpec::F16
            | CodecSpec::Int8 { .. }
            | CodecSpec::Packed
            | CodecSpec::Zstd => true,
        }
    }

    /// Whether this codec takes values of `dtype`.
    pub const fn accepts(&self, dtype: DType) -> bool {
        match self {
            CodecSpec::Raw | CodecSpec::Zstd => true,
            CodecSpec::F16 | CodecSpec::Int8 { .. } => matches!(dtype, DType::F32),
            CodecSpec::Packed => !dtype.is_float(),
            CodecSpec::Png | CodecSpec::Jpeg { .. } | CodecSpec::Webp { .. } => {
                matches!(dtype, DType::U8)
            }
        }
    }

    /// The dtypes that this codec takes, for error texts.
    pub fn dtype_names(&self) -> String {
        let accepted = DType::ALL.into_iter().filter(|&dtype| self.accepts(dtype));
        accepted.map(DType::name).collect::<Vec<_>>().join(", ")
    }

    /// The shapes that this codec takes, for error texts.
    pub const fn shape_text(&self) -> &'static str {
        match self {
            CodecSpec::Webp { .. } => "pictures [N, H, W, 3]",
            CodecSpec::Png | CodecSpec::Jpeg { .. } => "pictures [N, H, W, 1 or 3]",
            _ => "any shape",
        }
    }
}

impl std::fmt::Display for CodecSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Names with every quality, as [`CodecSpec::name`] is of static texts.
macro_rules! names {
    ($name:literal) => {
        names!($name:
            0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
            33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62
            63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92
            93 94 95 96 97 98 99 100
        )
    };
    ($name:literal: $($quality:literal)*) => {
        [$(concat!($name, $quality)),*]
    };
}

static JPEG: [&str; 101] = names!("jpeg");
static WEBP: [&str; 101] = names!("webp");

const fn with_quality(
    names: &'static [&'static str; 101],
    quality: u8,
    kind: &'static str,
) -> &'static str {
    if quality as usize >= names.len() {
        return kind;
    }
    names[quality as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codecs_are_one_to_one() {
        let mut specs = vec![
            CodecSpec::Raw,
            CodecSpec::F16,
            CodecSpec::Packed,
            CodecSpec::Png,
            CodecSpec::Zstd,
        ];
        specs.extend((1..=100).map(|quality| CodecSpec::Jpeg { quality }));
        specs.extend((1..=100).map(|quality| CodecSpec::Webp { quality }));
        for spec in specs {
            assert_eq!(CodecSpec::from_name(spec.name()), Some(spec));
        }
        assert_eq!(CodecSpec::Jpeg { quality: 85 }.name(), "jpeg85");
        for none in [
            "", "jpeg", "jpeg0", "jpeg101", "jpeg085", "jpeg+5", "webp300", "JPEG85", "int8",
        ] {
            assert_eq!(CodecSpec::from_name(none), None, "{none}");
        }
        assert!(CodecSpec::is_name("int8") && !CodecSpec::is_name("jpeg"));
    }

    #[test]
    fn qualities_are_in_the_manifest() {
        let json = serde_json::to_string(&CodecSpec::Webp { quality: 80 }).unwrap();
        assert_eq!(json, r#"{"kind":"webp","quality":80}"#);
        assert_eq!(
            serde_json::from_str::<CodecSpec>(&json).unwrap(),
            CodecSpec::Webp { quality: 80 }
        );
    }
}
