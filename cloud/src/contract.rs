//! A bundle that the service holds, and the check of a request against it.

use std::sync::Arc;

use seamline_codec as codec;
use seamline_plan::{
    Bindings, Bundle, CodecSpec, Crossing, Cut, DType, Dim, Fingerprint, Manifest,
};
use seamline_wire::{ErrorCode, RequestHeader, TensorHeader};

/// A bundle that the service holds.
#[derive(Debug)]
pub struct Contract {
    bundle: Bundle,
    max_over_reference: u32,
}

/// A request that does not fit its contract. The message goes to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong.
    pub code: ErrorCode,
    /// What was expected and what came.
    pub message: String,
}

impl Refusal {
    fn invalid(message: String) -> Refusal {
        Refusal {
            code: ErrorCode::InvalidTensor,
            message,
        }
    }
}

/// What must be equal for two requests to be computed together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BatchKey(Arc<KeyParts>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct KeyParts {
    contract: usize,
    cut: usize,
    /// Codec id and shape of each value, the size along the batch axis left out.
    values: Vec<(u8, Vec<usize>)>,
}

impl BatchKey {
    /// Index of the contract.
    pub fn contract(&self) -> usize {
        self.0.contract
    }

    /// Index of the cut.
    pub fn cut(&self) -> usize {
        self.0.cut
    }
}

/// A request whose header fits the contract.
#[derive(Clone, Debug)]
pub struct CheckedRequest {
    /// Its place among others.
    pub key: BatchKey,
    /// Whether it may share a batch.
    pub batchable: bool,
    /// Rows along the batch axis.
    pub rows: usize,
    /// The values, in the cut's order.
    pub values: Vec<CheckedValue>,
}

/// A value of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedValue {
    /// How it was encoded.
    pub codec: CodecSpec,
    /// Its shape.
    pub shape: Vec<usize>,
}

impl Contract {
    /// The contract of a bundle whose service half was verified.
    ///
    /// A row of a value may have up to `max_over_reference` times the elements that it had when
    /// the bundle was made, where its dimensions are free.
    pub fn new(bundle: Bundle, max_over_reference: u32) -> Contract {
        Contract {
            bundle,
            max_over_reference,
        }
    }

    /// The bundle.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// What both sides agreed on.
    pub fn manifest(&self) -> &Manifest {
        self.bundle.manifest()
    }

    /// What the device presents.
    pub fn fingerprint(&self) -> Fingerprint {
        self.bundle.fingerprint()
    }

    /// Checks cut, dtypes, shapes, codecs and lengths of a request before any payload is decoded.
    /// `index` is this contract's place in the service.
    ///
    /// # Errors
    /// [`Refusal`], whose message names the value and says what was expected and what came.
    pub fn check(&self, index: usize, header: &RequestHeader) -> Result<CheckedRequest, Refusal> {
        let cut_index = usize::from(header.cut);
        let cut = self.cut(cut_index)?;
        if let Some(session) = header.session
            && self.manifest().states.is_empty()
        {
            return Err(Refusal {
                code: ErrorCode::UnknownSession,
                message: format!(
                    "session {session}: `{}` keeps no state between requests; send the request without a session",
                    self.manifest().model.name
                ),
            });
        }
        if header.tensors.len() != cut.crossing.len() {
            let names: Vec<&str> = cut.crossing.iter().map(|c| c.spec.name.as_str()).collect();
            return Err(Refusal::invalid(format!(
                "{} tensors came; cut `{}` takes {}: {}",
                header.tensors.len(),
                cut.id,
                names.len(),
                names.join(", ")
            )));
        }
        // A step of a session runs on its own state, and so alone.
        let batchable = cut.is_batchable() && header.session.is_none();
        let mut bindings = Bindings::new();
        let mut values = Vec::with_capacity(cut.crossing.len());
        for (tensor, crossing) in header.tensors.iter().zip(&cut.crossing) {
            let value = check_value(tensor, crossing, &mut bindings)?;
            check_zero(&value, crossing, batchable)?;
            check_size(&value, crossing, self.max_over_reference)?;
            values.push(value);
        }
        let rows = if batchable {
            common_rows(cut, &values)?
        } else {
            1
        };
        let key = KeyParts {
            contract: index,
            cut: cut_index,
            values: key_values(cut, &values, batchable),
        };
        Ok(CheckedRequest {
            key: BatchKey(Arc::new(key)),
            batchable,
            rows,
            values,
        })
    }

    fn cut(&self, index: usize) -> Result<&Cut, Refusal> {
        let manifest = self.manifest();
        let unsupported = |message: String| Refusal {
            code: ErrorCode::Unsupported,
            message,
        };
        let cut = manifest.cuts.get(index).ok_or_else(|| {
            unsupported(format!(
                "cut {index} asked for; the contract has {}",
                manifest.cuts.len()
            ))
        })?;
        let absent = manifest.stages[cut.stage..]
            .iter()
            .any(|stage| stage.cloud.is_none());
        if absent || cut.stage == manifest.stages.len() {
            return Err(unsupported(format!(
                "the service does not hold the stages after cut `{}`",
                cut.id
            )));
        }
        Ok(cut)
    }
}

fn check_value(
    tensor: &TensorHeader,
    crossing: &Crossing,
    bindings: &mut Bindings,
) -> Result<CheckedValue, Refusal> {
    let name = &crossing.spec.name;
    let dtype = DType::from_code(tensor.dtype.into()).ok_or_else(|| {
        Refusal::invalid(format!(
            "`{name}` has the unknown dtype code {}",
            tensor.dtype
        ))
    })?;
    let shape: Result<Vec<usize>, _> = tensor.shape.iter().map(|&dim| dim.try_into()).collect();
    let shape = shape.map_err(|_| {
        Refusal::invalid(format!(
            "`{name}` has a dimension that this machine cannot address"
        ))
    })?;
    crossing
        .spec
        .check(dtype, &shape, bindings)
        .map_err(|mismatch| Refusal::invalid(mismatch.to_string()))?;
    let codec = crossing
        .codecs
        .iter()
        .find(|codec| codec.id() == tensor.codec);
    let codec = codec.ok_or_else(|| Refusal {
        code: ErrorCode::Unsupported,
        message: format!(
            "`{name}` came in codec {}; the contract allows {}",
            tensor.codec,
            crossing
                .codecs
                .iter()
                .map(CodecSpec::name)
                .collect::<Vec<_>>()
                .join(", ")
        ),
    })?;
    check_length(tensor, name, codec, dtype)?;
    Ok(CheckedValue {
        codec: codec.clone(),
        shape,
    })
}

/// The payload's length, before the payload comes: it must be one that the codec gives.
fn check_length(
    tensor: &TensorHeader,
    name: &str,
    codec: &CodecSpec,
    dtype: DType,
) -> Result<(), Refusal> {
    let (bytes, shape) = (tensor.bytes, &tensor.shape);
    let least = codec::min_encoded_len(codec, dtype, shape);
    let most = codec::max_encoded_len(codec, dtype, shape);
    let (Some(least), Some(most)) = (least, most) else {
        return Err(Refusal::invalid(format!(
            "`{name}`: {codec} of {dtype} {shape:?} takes more bytes than 64 bits count"
        )));
    };
    if (least..=most).contains(&bytes) {
        return Ok(());
    }
    let takes = if least == most {
        format!("{most}")
    } else {
        format!("{least} to {most}")
    };
    Err(Refusal::invalid(format!(
        "`{name}` came in {bytes} bytes; {codec} of {dtype} {shape:?} takes {takes}"
    )))
}

/// A named dimension has a size: runtimes divide by it. Where the bundle itself was made with a
/// size of 0, or only the run knows it (the boxes that a detector found), it may be 0. The rows of
/// a batch are counted elsewhere.
fn check_zero(value: &CheckedValue, crossing: &Crossing, batchable: bool) -> Result<(), Refusal> {
    let spec = &crossing.spec;
    let rows = crossing.batch_axis.filter(|_| batchable);
    for (axis, (dim, &got)) in spec.shape.iter().zip(&value.shape).enumerate() {
        let Dim::Sym(symbol) = dim else { continue };
        let may_be_zero = crossing.reference.get(axis) == Some(&0) || rows == Some(axis);
        if got == 0 && !may_be_zero {
            return Err(Refusal::invalid(format!(
                "`{}` has shape {:?}; its dimension {axis}, `{symbol}`, must be at least 1",
                spec.name, value.shape
            )));
        }
    }
    Ok(())
}

/// What a tail needs grows with its input, often many times over: free dimensions are bounded by
/// what the bundle was made with. Rows are bounded by the batcher.
fn check_size(value: &CheckedValue, crossing: &Crossing, most: u32) -> Result<(), Refusal> {
    let row = |dims: &mut dyn Iterator<Item = u64>| {
        let counted = dims
            .enumerate()
            .filter(|(axis, _)| Some(*axis) != crossing.batch_axis);
        counted.fold(1u64, |count, (_, dim)| count.saturating_mul(dim))
    };
    let got = row(&mut value.shape.iter().map(|&dim| dim as u64));
    let reference = row(&mut crossing.reference.iter().copied()).max(1);
    if got <= reference.saturating_mul(most.into()) {
        return Ok(());
    }
    Err(Refusal {
        code: ErrorCode::LimitExceeded,
        message: format!(
            "`{}` has {got} elements a row; the service takes at most {most} times the {reference} that the bundle was made with",
            crossing.spec.name
        ),
    })
}

/// The number of rows, which all values of a request must share.
fn common_rows(cut: &Cut, values: &[CheckedValue]) -> Result<usize, Refusal> {
    let mut rows = None;
    for (value, crossing) in values.iter().zip(&cut.crossing) {
        let Some(axis) = crossing.batch_axis else {
            continue;
        };
        let got = value.shape[axis];
        match rows {
            None => rows = Some(got),
            Some(expected) if expected != got => {
                return Err(Refusal::invalid(format!(
                    "`{}` has {got} rows along axis {axis}; the values before it have {expected}",
                    crossing.spec.name
                )));
            }
            Some(_) => {}
        }
    }
    match rows {
        Some(0) => Err(Refusal::invalid(
            "a request has at least one row; this one has none".into(),
        )),
        rows => Ok(rows.unwrap_or(1)),
    }
}

fn key_values(cut: &Cut, values: &[CheckedValue], batchable: bool) -> Vec<(u8, Vec<usize>)> {
    let parts = values.iter().zip(&cut.crossing).map(|(value, crossing)| {
        let mut shape = value.shape.clone();
        if let (true, Some(axis)) = (batchable, crossing.batch_axis) {
            shape[axis] = 0;
        }
        (value.codec.id(), shape)
    });
    parts.collect()
}
