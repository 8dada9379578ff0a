//! A tensor's header and the checks that come before any allocation for it.

use seamline_plan::{CodecSpec, DType};
use serde::{Deserialize, Serialize};

use crate::{Limits, WireError, bounded};

/// One tensor of a message. Its payload follows the header frame, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorHeader {
    /// [`CodecSpec::id`]; its parameters are the contract's.
    pub codec: u8,
    /// [`DType::code`] of the elements after decoding.
    pub dtype: u8,
    /// Dimensions after decoding, outermost first.
    #[serde(deserialize_with = "bounded::vec")]
    pub shape: Vec<u64>,
    /// Length of the payload.
    pub bytes: u64,
}

/// What the tensors of a header add up to, in bytes.
#[derive(Default)]
struct Totals {
    payload: u64,
    decoded: u64,
}

impl TensorHeader {
    /// The element type.
    pub fn dtype(&self) -> Option<DType> {
        DType::from_code(self.dtype.into())
    }

    /// Bytes of the elements after decoding; `None` for an unknown dtype or beyond 64 bits.
    pub fn decoded_bytes(&self) -> Option<u64> {
        let elements = self
            .shape
            .iter()
            // A zero makes the product zero whatever the rest; the rest must still be sane, as
            // strides are computed from it.
            .filter(|&&dim| dim != 0)
            .try_fold(1u64, |count, &dim| count.checked_mul(dim))?;
        let bytes = elements.checked_mul(self.dtype()?.size() as u64)?;
        Some(if self.shape.contains(&0) { 0 } else { bytes })
    }

    fn check(&self, index: usize, limits: &Limits) -> Result<Totals, WireError> {
        let invalid = |problem: String| WireError::Tensor { index, problem };
        if self.dtype().is_none() {
            return Err(invalid(format!("no dtype has code {}", self.dtype)));
        }
        let rank = self.shape.len() as u64;
        if rank > u64::from(limits.max_rank) {
            return Err(WireError::Limit {
                what: "the rank of a tensor",
                got: rank,
                limit: limits.max_rank.into(),
                unit: "",
            });
        }
        let decoded = self.decoded_bytes().ok_or_else(|| {
            invalid(format!(
                "shape {:?} takes more bytes than 64 bits count",
                self.shape
            ))
        })?;
        if self.codec == CodecSpec::Raw.id() && decoded != self.bytes {
            return Err(invalid(format!(
                "shape {:?} takes {decoded} raw bytes, its header states {}",
                self.shape, self.bytes
            )));
        }
        Ok(Totals {
            payload: self.bytes,
            decoded,
        })
    }
}

/// Checks `tensors` against `limits`, `max_bytes` of payload among them.
pub(crate) fn check_tensors(
    tensors: &[TensorHeader],
    limits: &Limits,
    what: &'static str,
    max_bytes: u64,
) -> Result<(), WireError> {
    let count = tensors.len() as u64;
    if count > u64::from(limits.max_tensors) {
        return Err(WireError::Limit {
            what: "the number of tensors",
            got: count,
            limit: limits.max_tensors.into(),
            unit: "",
        });
    }
    let mut totals = Totals::default();
    for (index, tensor) in tensors.iter().enumerate() {
        let tensor = tensor.check(index, limits)?;
        // Saturation passes every limit below the maximum, and one at the maximum is no limit.
        totals.payload = totals.payload.saturating_add(tensor.payload);
        totals.decoded = totals.decoded.saturating_add(tensor.decoded);
    }
    let bytes = |what, got, limit| {
        Err(WireError::Limit {
            what,
            got,
            limit,
            unit: " bytes",
        })
    };
    if totals.payload > max_bytes || totals.payload == u64::MAX {
        return bytes(what, totals.payload, max_bytes);
    }
    if totals.decoded > limits.max_decoded_bytes || totals.decoded == u64::MAX {
        return bytes(
            "the size of all tensors after decoding",
            totals.decoded,
            limits.max_decoded_bytes,
        );
    }
    Ok(())
}
