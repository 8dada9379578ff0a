//! What one machine takes for one model: the file that `seamline-edge profile` and
//! `seamline-cloud profile` write and `seamline plan` reads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Bindings, Fingerprint, Side, Spread, read_text};

/// The profile format that this build writes and reads.
pub const PROFILE_FORMAT: u32 = 1;

/// The most bytes of a profile: some hundred for each node of a model of 100,000.
const MAX_PROFILE_BYTES: u64 = 64 << 20;

/// The part of a kit that is the whole model: as a head it is device-only, as a tail cloud-only.
pub const WHOLE: &str = "whole";

/// What one machine takes for one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`PROFILE_FORMAT`].
    pub format: u32,
    /// Whether heads were measured, or tails.
    pub side: Side,
    /// What was measured.
    pub model: ProfiledModel,
    /// On what.
    pub machine: Machine,
    /// Every time in the file is the measured one multiplied by this: 1 for a machine that is
    /// there, another for one that is described by its likeness to it.
    pub slowdown: f64,
    /// Times of whole heads and tails were multiplied by this since they were measured, as requests
    /// taught: 1 where none did.
    #[serde(default = "one")]
    pub corrected: f64,
    /// Nodes of the model as written, nothing fused, at the reference shapes: shares of the work,
    /// not times that add up to the model's.
    pub nodes: Vec<NodeTime>,
    /// Whole heads or tails, as they run.
    pub parts: Vec<PartTime>,
}

const fn one() -> f64 {
    1.0
}

/// The model that a profile is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfiledModel {
    /// Its name.
    pub name: String,
    /// BLAKE3 of its file.
    pub graph_hash: Fingerprint,
    /// Sizes of its symbols.
    pub shapes: Bindings,
}

/// A machine and what computes on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Its name in tables and reports.
    pub name: String,
    /// The processor, as the system names it.
    pub cpu: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// Architecture and operating system, `x86_64-linux`.
    pub platform: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// What ran the model, `ONNX Runtime 1.32.0`.
    pub runtime: String,
    /// Execution providers that were asked for, first choice first.
    pub providers: Vec<String>,
    /// Instruction sets that Seamline's kernels use, e.g. `avx2`.
    pub kernels: Vec<String>,
}

/// One node of the model as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeTime {
    /// Its index among the graph's nodes.
    pub node: usize,
    /// Median time in microseconds.
    pub us: f64,
}

/// A whole head or tail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartTime {
    /// The values that cross at its seam, by name; empty for [`WHOLE`].
    pub values: Vec<String>,
    /// The seam's id when it was measured, or [`WHOLE`].
    pub seam: String,
    /// Rows that ran together.
    pub batch: u64,
    /// Threads of ONNX Runtime.
    pub threads: usize,
    /// One run of all rows.
    pub time: Spread,
    /// What the session added to the process's resident memory, its runs included, in bytes.
    pub resident_bytes: u64,
    /// Nodes that ran, by execution provider; fused ones count once.
    pub placement: BTreeMap<String, usize>,
    /// Codecs on the values that cross, each on all values that take it; a device's profile has
    /// the times of encoding, a service's those of decoding.
    pub codecs: Vec<CodecTime>,
}

/// A codec on everything that crosses at one seam.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecTime {
    /// The codec's name; values that do not take it go by the first codec of their contract.
    pub codec: String,
    /// Encoding or decoding of one row.
    pub time: Spread,
    /// Bytes of one row, encoded.
    pub bytes: u64,
}

/// A profile that cannot be used.
#[derive(Debug, Error)]
pub enum ProfileFileError {
    /// The operating system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: std::io::Error,
    },
    /// Not a profile, or one of another version.
    #[error("{}: {problem}; measure again with `{}`", path.display(), command(*side))]
    Content {
        /// The file.
        path: PathBuf,
        /// The side that was wanted.
        side: Side,
        /// Which field, what was expected and what came.
        problem: String,
    },
}

const fn command(side: Side) -> &'static str {
    match side {
        Side::Edge => "seamline-edge profile",
        Side::Cloud => "seamline-cloud profile",
    }
}

impl Profile {
    /// Reads a profile of `side` and checks it.
    ///
    /// # Errors
    /// [`ProfileFileError`], which says which field is wrong and how.
    pub fn read(path: &Path, side: Side) -> Result<Profile, ProfileFileError> {
        let text = read_text(path, MAX_PROFILE_BYTES).map_err(|error| ProfileFileError::Io {
            path: path.to_owned(),
            error,
        })?;
        let wrong = |problem: String| ProfileFileError::Content {
            path: path.to_owned(),
            side,
            problem,
        };
        let profile = Profile::parse(&text).map_err(wrong)?;
        if profile.side != side {
            return Err(wrong(format!(
                "it was made by `{}`, and `{}` is wanted here",
                command(profile.side),
                command(side)
            )));
        }
        Ok(profile)
    }

    /// Reads a profile and checks that its figures are figures.
    ///
    /// # Errors
    /// What is wrong, by field.
    pub fn parse(json: &str) -> Result<Profile, String> {
        // A later format may have other fields: look at its number before anything else.
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let invalid = |error: serde_json::Error| format!("it is no profile: {error}");
        let Format { format } = serde_json::from_str(json).map_err(invalid)?;
        if format != PROFILE_FORMAT {
            return Err(format!(
                "it has format {format}; this build reads {PROFILE_FORMAT}"
            ));
        }
        let profile: Profile = serde_json::from_str(json).map_err(invalid)?;
        profile.validate()?;
        Ok(profile)
    }

    /// The file's content.
    pub fn to_json(&self) -> Vec<u8> {
        // Plain data always has a JSON form.
        let mut json = serde_json::to_vec_pretty(self).unwrap_or_default();
        json.push(b'\n');
        json
    }

    /// The same on a machine that takes `factor` times as long for everything.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Profile {
        self.slowdown *= factor;
        for node in &mut self.nodes {
            node.us *= factor;
        }
        for part in &mut self.parts {
            part.time = part.time.scaled(factor);
            for codec in &mut part.codecs {
                codec.time = codec.time.scaled(factor);
            }
        }
        self
    }

    /// The same where requests took `factor` times as long as it says; all corrections together are
    /// a thousandfold at most.
    #[must_use]
    pub fn corrected(mut self, factor: f64) -> Profile {
        let product = (self.corrected * factor).clamp(1e-3, 1e3);
        let factor = product / self.corrected;
        self.corrected = product;
        for part in &mut self.parts {
            part.time = part.time.scaled(factor);
        }
        self
    }

    /// Whole heads or tails of `values`, whatever the seam was called.
    pub fn parts_of<'a>(&'a self, values: &'a [String]) -> impl Iterator<Item = &'a PartTime> {
        self.parts.iter().filter(move |part| part.values == values)
    }

    fn validate(&self) -> Result<(), String> {
        for (field, factor) in [("slowdown", self.slowdown), ("corrected", self.corrected)] {
            if !(1e-6..=1e6).contains(&factor) {
                return Err(format!("`{field}` is {factor}; expected 1e-6 to 1e6"));
            }
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(problem) = Spread::exactly(node.us).problem() {
                return Err(format!("`nodes[{index}].us`: {problem}"));
            }
        }
        for (index, part) in self.parts.iter().enumerate() {
            if part.batch == 0 || part.threads == 0 {
                return Err(format!("`parts[{index}]` has a batch or threads of 0"));
            }
            if let Some(problem) = part.time.problem() {
                return Err(format!("`parts[{index}].time`: {problem}"));
            }
            for codec in &part.codecs {
                if let Some(problem) = codec.time.problem() {
                    return Err(format!(
                        "`parts[{index}].codecs` ({}): {problem}",
                        codec.codec
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        Profile {
            format: PROFILE_FORMAT,
            side: Side::Edge,
            model: ProfiledModel {
                name: "m".into(),
                graph_hash: Fingerprint([1; 32]),
                shapes: Bindings::new(),
            },
            machine: Machine::default(),
            slowdown: 1.0,
            corrected: 1.0,
            nodes: vec![NodeTime { node: 0, us: 2.0 }],
            parts: vec![PartTime {
                values: vec!["x".into()],
                seam: "s0".into(),
                batch: 1,
                threads: 1,
                time: Spread::exactly(3.0),
                resident_bytes: 5,
                placement: BTreeMap::new(),
                codecs: vec![CodecTime {
                    codec: "raw".into(),
                    time: Spread::exactly(1.0),
                    bytes: 4,
                }],
            }],
        }
    }

    #[test]
    fn a_profile_survives_its_file() {
        let profile = profile();
        let json = String::from_utf8(profile.to_json()).unwrap();
        assert_eq!(Profile::parse(&json), Ok(profile));
    }

    #[test]
    fn figures_that_are_none_are_refused_by_field() {
        type Spoil = (&'static str, fn(&mut Profile));
        let spoil: [Spoil; 4] = [
            ("format", |p| p.format = 9),
            ("slowdown", |p| p.slowdown = 0.0),
            ("nodes[0].us", |p| p.nodes[0].us = -1.0),
            ("parts[0].time", |p| p.parts[0].time.p50_us = 9.0),
        ];
        for (field, spoil) in spoil {
            let mut bad = profile();
            spoil(&mut bad);
            let json = String::from_utf8(bad.to_json()).unwrap();
            let error = Profile::parse(&json).unwrap_err();
            assert!(error.contains(field), "{field}: {error}");
        }
        // JSON has no NaN: what is written for one is refused when it is read.
        let mut nan = profile();
        nan.nodes[0].us = f64::NAN;
        let json = String::from_utf8(nan.to_json()).unwrap();
        assert!(Profile::parse(&json).is_err());
    }

    #[test]
    fn a_slower_machine_takes_longer_for_everything() {
        let scaled = profile().scaled(4.0).scaled(2.0);
        assert_eq!(scaled.slowdown, 8.0);
        assert_eq!(scaled.nodes[0].us, 16.0);
        assert_eq!(scaled.parts[0].time.p50_us, 24.0);
        assert_eq!(scaled.parts[0].codecs[0].time.p50_us, 8.0);
        assert_eq!(scaled.parts[0].codecs[0].bytes, 4);
    }

    #[test]
    fn regression_figures_are_read_as_they_were_written() {
        // serde_json without `float_roundtrip` is off by the last bit of some.
        let mut bits = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            // A mantissa at random, between 2^-64 and 2^64.
            let us = f64::from_bits(((959 + bits % 128) << 52) | (bits >> 12));
            let text = serde_json::to_string(&us).unwrap();
            let read: f64 = serde_json::from_str(&text).unwrap();
            assert_eq!(read.to_bits(), us.to_bits(), "{text}");
        }
    }
}
