//! Serde helpers that keep what a frame allocates in proportion to the bytes that came.

use std::fmt;
use std::marker::PhantomData;

use seamline_plan::Fingerprint;
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// Reads a sequence without reserving the length that the sender claims: serde's own `Vec`
/// reserves up to 1 MiB on the word of a peer.
pub(crate) fn vec<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Grow<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Grow<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a sequence")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
            let mut items = Vec::with_capacity(seq.size_hint().unwrap_or(0).min(8));
            while let Some(item) = seq.next_element()? {
                items.push(item);
            }
            Ok(items)
        }
    }
    deserializer.deserialize_seq(Grow(PhantomData))
}

/// A text for logs and people: control characters, which could forge a line of a log or drive a
/// terminal, become U+FFFD.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(printable)
}

/// `text` from a peer, fit for a log or a terminal: control characters become U+FFFD.
pub fn printable(text: String) -> String {
    if text.chars().any(char::is_control) {
        text.replace(char::is_control, "\u{fffd}")
    } else {
        text
    }
}

/// Optional bytes.
pub(crate) fn option_bytes<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<u8>>, D::Error> {
    #[derive(serde::Deserialize)]
    struct Grown(#[serde(deserialize_with = "vec")] Vec<u8>);
    Ok(Option::<Grown>::deserialize(deserializer)?.map(|Grown(bytes)| bytes))
}

/// A fingerprint as its 32 bytes; its own serde form is 64 hex digits, for JSON.
pub(crate) mod fingerprint {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        fingerprint: &Fingerprint,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        fingerprint.0.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Fingerprint, D::Error> {
        <[u8; 32]>::deserialize(deserializer).map(Fingerprint)
    }
}

/// A list of fingerprints, 32 bytes each.
pub(crate) mod fingerprints {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(
        fingerprints: &[Fingerprint],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(fingerprints.iter().map(|fingerprint| fingerprint.0))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Fingerprint>, D::Error> {
        Ok(vec::<D, [u8; 32]>(deserializer)?
            .into_iter()
            .map(Fingerprint)
            .collect())
    }
}
