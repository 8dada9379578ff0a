//! Requests of a bundle in all the sizes that its contract offers.

use bytes::Bytes;
use seamline_codec as codec;
use seamline_plan::{CodecSpec, Crossing, Cut, Manifest, Tensor};
use seamline_wire::TensorHeader;

use crate::error::{Error, ErrorKind};

/// Rows of a request where a cut can be batched; a service that joins fewer says so.
const ROWS: [u64; 4] = [1, 2, 4, 8];

/// Larger requests only take longer.
const MAX_BYTES: u64 = 4 << 20;

/// How many sizes are tried on the way to the largest.
const SIZES: usize = 6;

/// A request of zeros.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) cut: u16,
    pub(crate) tensors: Vec<TensorHeader>,
    pub(crate) payloads: Vec<Bytes>,
}

impl Candidate {
    fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }
}

/// Requests that the service of `manifest` answers, by rising size, some sizes apart.
pub(crate) fn candidates(manifest: &Manifest) -> Result<Vec<Candidate>, Error> {
    let mut found = Vec::new();
    for (index, cut) in manifest.cuts.iter().enumerate() {
        let Ok(index) = u16::try_from(index) else {
            break;
        };
        let tail = manifest.stages.get(cut.stage..).unwrap_or_default();
        let is_served = !tail.is_empty() && tail.iter().all(|stage| stage.cloud.is_some());
        if !is_served || cut.crossing.is_empty() {
            continue;
        }
        let rows = if cut.is_batchable() { &ROWS[..] } else { &[1] };
        for &rows in rows {
            let names = codec_names(cut).into_iter();
            found.extend(names.filter_map(|name| candidate(index, cut, rows, name)));
        }
    }
    found.retain(|candidate| candidate.bytes() <= MAX_BYTES);
    found.sort_by_key(Candidate::bytes);
    found.dedup_by_key(|candidate| candidate.bytes());
    if found.is_empty() {
        let text = "the bundle has no cut whose tail the service holds; give another one";
        return Err(Error::text(ErrorKind::Bundle, text));
    }
    Ok(some_of(found))
}

/// The smallest, the largest, and some between them by even ratios.
fn some_of(sorted: Vec<Candidate>) -> Vec<Candidate> {
    let bytes = |candidate: Option<&Candidate>| candidate.map_or(1, |found| found.bytes().max(1));
    let (first, last) = (bytes(sorted.first()) as f64, bytes(sorted.last()) as f64);
    let ratio = (last / first).powf(1.0 / (SIZES - 1) as f64);
    let mut next = first;
    let mut some: Vec<Candidate> = Vec::new();
    for candidate in sorted {
        // A hair below, since the powers are rounded.
        if candidate.bytes().max(1) as f64 >= next * 0.999 {
            next = candidate.bytes().max(1) as f64 * ratio.max(1.001);
            some.push(candidate);
        }
    }
    some
}

fn codec_names(cut: &Cut) -> Vec<&'static str> {
    let codecs = cut.crossing.iter().flat_map(|crossing| &crossing.codecs);
    let mut names: Vec<&'static str> = codecs.map(CodecSpec::name).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Zeros for everything that crosses, in the codec called `name` where a value takes it.
fn candidate(index: u16, cut: &Cut, rows: u64, name: &str) -> Option<Candidate> {
    let mut tensors = Vec::new();
    let mut payloads = Vec::new();
    for crossing in &cut.crossing {
        let spec = crossing.codec(Some(name));
        let tensor = zeros(crossing, rows)?;
        let payload = codec::encode_bytes(spec, &tensor).ok()?;
        tensors.push(TensorHeader {
            codec: spec.id(),
            dtype: tensor.dtype().code(),
            shape: tensor.shape().iter().map(|&dim| dim as u64).collect(),
            bytes: payload.len() as u64,
        });
        payloads.push(payload);
    }
    Some(Candidate {
        cut: index,
        tensors,
        payloads,
    })
}

fn zeros(crossing: &Crossing, rows: u64) -> Option<Tensor> {
    let mut shape = crossing.reference.clone();
    if let Some(size) = crossing.batch_axis.and_then(|axis| shape.get_mut(axis)) {
        *size = size.checked_mul(rows)?;
    }
    let shape = shape.into_iter().map(|dim| usize::try_from(dim).ok());
    let shape: Vec<usize> = shape.collect::<Option<_>>()?;
    let elements = shape
        .iter()
        .try_fold(1usize, |all, &dim| all.checked_mul(dim))?;
    let bytes = elements.checked_mul(crossing.spec.dtype.size())? as u64;
    // Small in a codec's bytes, perhaps, but not in memory.
    if bytes > 16 * MAX_BYTES {
        return None;
    }
    Tensor::zeros(crossing.spec.dtype, shape).ok()
}
