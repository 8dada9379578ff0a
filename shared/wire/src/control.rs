//! The control stream's messages: hello, welcome, contracts, load, drain.

use std::fmt;

use bytes::Bytes;
use seamline_plan::Fingerprint;
use serde::{Deserialize, Serialize};

use crate::frame::{decode_body, encode_frame_after};
use crate::{ErrorCode, Limits, WireError, bounded};

/// Magic and version range: the part of hello and answer that every version can read.
pub const PREFIX_BYTES: usize = 12;

const MAGIC: &[u8; 8] = b"SEAMLINE";

/// Protocol versions that a peer speaks, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    /// The oldest.
    pub min: u16,
    /// The newest.
    pub max: u16,
}

impl VersionRange {
    /// The newest version that both speak.
    pub fn common(self, other: VersionRange) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min && newest >= other.min).then_some(newest)
    }

    pub(crate) fn prefix(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.min.to_le_bytes());
        out.extend_from_slice(&self.max.to_le_bytes());
        out
    }

    pub(crate) fn parse_prefix(prefix: &[u8; PREFIX_BYTES]) -> Result<VersionRange, WireError> {
        let [.., a, b, c, d] = *prefix;
        if !prefix.starts_with(MAGIC) {
            return Err(WireError::Magic);
        }
        let range = VersionRange {
            min: u16::from_le_bytes([a, b]),
            max: u16::from_le_bytes([c, d]),
        };
        if range.min > range.max {
            return Err(WireError::Malformed {
                what: "the version range",
                problem: format!(
                    "its oldest, {}, is above its newest, {}",
                    range.min, range.max
                ),
            });
        }
        Ok(range)
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max {
            write!(f, "version {}", self.max)
        } else {
            write!(f, "versions {} to {}", self.min, self.max)
        }
    }
}

/// The client's first message, behind the prefix.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Program and version, for the service's log.
    #[serde(deserialize_with = "bounded::text")]
    pub agent: String,
    /// A device token, where the device has no certificate.
    #[serde(deserialize_with = "bounded::option_bytes")]
    pub token: Option<Vec<u8>>,
    /// Optional parts of the protocol that the client can use, one bit each; none so far.
    pub features: u64,
}

impl fmt::Debug for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hello")
            .field("agent", &self.agent)
            .field("token", &self.token.as_ref().map(|_| "(secret)"))
            .field("features", &self.features)
            .finish()
    }
}

/// How busy a service is. Every answer carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Requests that the whole service has accepted and not answered.
    pub in_flight: u32,
    /// Requests that it would accept at once; 0 where it does not say.
    pub capacity: u32,
    /// How long a request that came now would wait before it runs, in microseconds.
    pub queue_us: u32,
}

/// The service's answer to a hello that it accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The version that both use from here on.
    pub version: u16,
    /// Program and version of the service.
    #[serde(deserialize_with = "bounded::text")]
    pub agent: String,
    /// The client's features that the service has too.
    pub features: u64,
    /// What the service allows.
    pub limits: Limits,
    /// How busy it is.
    pub load: Load,
}

/// The service's first message, behind the prefix. Append only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HelloAnswer {
    Welcome(Welcome),
    Refused {
        code: ErrorCode,
        #[serde(deserialize_with = "bounded::text")]
        reason: String,
    },
}

/// What a client says on the control stream after the welcome. Append only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientControl {
    /// Asks for the contract of a bundle. Answered in order.
    Open {
        /// The bundle's fingerprint.
        #[serde(with = "bounded::fingerprint")]
        fingerprint: Fingerprint,
        /// The model's name, which lets the service name the builds of it that it has.
        #[serde(deserialize_with = "bounded::text")]
        model: String,
    },
}

/// What a service says on the control stream after the welcome. Append only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerControl {
    /// The contract is open.
    Opened {
        /// What requests name it by, on this connection.
        contract: u32,
        /// How busy the service is.
        load: Load,
    },
    /// The contract is not open.
    OpenRefused(OpenRefusal),
    /// How busy the service is, unasked.
    Load(Load),
    /// The service takes nothing new; what it accepted will be answered.
    Draining,
}

/// Why a contract was not opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenRefusal {
    /// [`ErrorCode::UnknownContract`], [`ErrorCode::NotReady`], …
    pub code: ErrorCode,
    /// For a person.
    #[serde(deserialize_with = "bounded::text")]
    pub message: String,
    /// Fingerprints of the builds of this model that the service does hold; at most
    /// [`OpenRefusal::MAX_KNOWN`].
    #[serde(with = "bounded::fingerprints")]
    pub known: Vec<Fingerprint>,
}

impl OpenRefusal {
    /// The most fingerprints that a refusal names.
    pub const MAX_KNOWN: usize = 16;

    /// The most bytes of the model's name that its text repeats.
    const MAX_MODEL_BYTES: usize = 256;

    /// The refusal of a bundle that the service does not hold. Both sides' fingerprints are in
    /// its text.
    pub fn unknown(
        model: &str,
        asked: Fingerprint,
        known: impl IntoIterator<Item = Fingerprint>,
    ) -> OpenRefusal {
        let known: Vec<Fingerprint> = known.into_iter().take(Self::MAX_KNOWN).collect();
        // The name is the client's, and as long as it likes.
        let model = &model[..model.floor_char_boundary(Self::MAX_MODEL_BYTES)];
        let has = if known.is_empty() {
            "the service holds no bundle of that model".to_owned()
        } else {
            let list: Vec<String> = known.iter().map(ToString::to_string).collect();
            format!("the service holds {}", list.join(", "))
        };
        OpenRefusal {
            code: ErrorCode::UnknownContract,
            message: format!(
                "the device has bundle {asked} of `{model}`; {has}; deploy the same build of the bundle to both sides"
            ),
            known,
        }
    }

    pub(crate) fn bounded(mut self) -> OpenRefusal {
        self.known.truncate(Self::MAX_KNOWN);
        self.message = crate::truncate_text(self.message);
        self
    }
}

pub(crate) fn encode_hello(versions: VersionRange, hello: &Hello) -> Result<Bytes, WireError> {
    encode_frame_after("hello", versions.prefix(), hello)
}

pub(crate) fn encode_answer(
    versions: VersionRange,
    answer: &HelloAnswer,
) -> Result<Bytes, WireError> {
    encode_frame_after("the answer to hello", versions.prefix(), answer)
}

pub(crate) fn decode_hello(body: &[u8]) -> Result<Hello, WireError> {
    decode_body("hello", body)
}

pub(crate) fn decode_answer(body: &[u8]) -> Result<HelloAnswer, WireError> {
    decode_body("the answer to hello", body)
}
