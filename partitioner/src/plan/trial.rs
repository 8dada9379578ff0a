//! Running what a plan kept, as the bundle has it: its stages one after the other, which a profile
//! of whole heads and tails does not show, and its codecs on real requests.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use seamline_codec::{self as codec, CodecError};
use seamline_ort::{Runtime, SessionOptions, StageChain, StageError, ThreadPool};
use seamline_plan::{
    Bundle, BundleError, Crossing, Cut, CutOption, Manifest, Side, Spread, Tensor,
};
use thiserror::Error;

use super::places::codec_of;

/// A bundle that does not run.
#[derive(Debug, Error)]
pub enum TrialError {
    /// The bundle is broken.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// A stage does not load or run.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// A value does not survive its codec.
    #[error("cut `{cut}`, value `{name}`: {error}")]
    Codec {
        /// The cut.
        cut: String,
        /// The value.
        name: String,
        /// Why.
        #[source]
        error: CodecError,
    },
    /// The bundle has no such cut, or its head does not make what crosses there.
    #[error("the bundle has no `{name}` for cut `{cut}`; plan again")]
    Missing {
        /// The cut.
        cut: String,
        /// The cut or value that is not there.
        name: String,
    },
}

/// How a bundle is tried.
#[derive(Clone, Copy, Debug)]
pub struct TrialOptions {
    /// Requests of each candidate that count; candidates take turns.
    pub requests: usize,
    /// Threads of the device and of the service.
    pub threads: (usize, usize),
    /// How many times as long device and service take as this machine.
    pub slowdown: (f64, f64),
}

/// What a candidate took, its ways left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tried {
    /// The head.
    pub head: Spread,
    /// Encoding of what crosses.
    pub encode: Spread,
    /// Decoding.
    pub decode: Spread,
    /// The tail, one row.
    pub tail: Spread,
    /// Payload bytes, the mean.
    pub up_bytes: u64,
}

impl Tried {
    /// `option` with what was found in place of what was predicted. Tails of more rows change in
    /// proportion.
    #[must_use]
    pub fn corrects(&self, option: &CutOption) -> CutOption {
        let predicted = option.tail(1.0).p50_us;
        let factor = if predicted > 0.0 {
            self.tail.p50_us / predicted
        } else {
            1.0
        };
        let mut corrected = option.clone();
        corrected.head = self.head;
        corrected.encode = self.encode;
        corrected.decode = self.decode;
        for tail in &mut corrected.tail {
            tail.time = if tail.batch == 1 {
                self.tail
            } else {
                tail.time.scaled(factor)
            };
        }
        if !option.is_local() {
            corrected.up_bytes = self.up_bytes;
        }
        corrected
    }
}

/// Runs each of `options` on `requests` in turns, head, codec and tail, in this process.
///
/// # Errors
/// [`TrialError`].
pub fn try_out(
    runtime: &Runtime,
    root: &Path,
    requests: &[BTreeMap<String, Tensor>],
    options: &[CutOption],
    how: &TrialOptions,
) -> Result<Vec<Tried>, TrialError> {
    let mut halves = Halves::load(runtime, root, how.threads)?;
    let mut times: Vec<Times> = vec![Times::default(); options.len()];
    // The first round warms up.
    for round in 0..=how.requests {
        for (option, times) in options.iter().zip(&mut times) {
            let Some(request) = requests.get(round % requests.len().max(1)) else {
                continue;
            };
            let took = halves.run(option, request)?;
            if round > 0 {
                times.add(took, how.slowdown);
            }
        }
    }
    Ok(times.iter().map(Times::tried).collect())
}

/// One request's times in microseconds: head, encoding, decoding, tail; and payload bytes.
type Took = ([f64; 4], usize);

#[derive(Clone, Default)]
struct Times {
    parts: [Vec<f64>; 4],
    bytes: usize,
}

impl Times {
    fn add(&mut self, (parts, bytes): Took, (device, cloud): (f64, f64)) {
        let factors = [device, device, cloud, cloud];
        for ((all, us), factor) in self.parts.iter_mut().zip(parts).zip(factors) {
            all.push(us * factor);
        }
        self.bytes += bytes;
    }

    fn tried(&self) -> Tried {
        let [head, encode, decode, tail] = self.parts.each_ref().map(|part| Spread::of(part));
        Tried {
            head,
            encode,
            decode,
            tail,
            up_bytes: (self.bytes / self.parts[0].len().max(1)) as u64,
        }
    }
}

struct Halves {
    manifest: Manifest,
    edge: StageChain,
    cloud: StageChain,
}

impl Halves {
    fn load(
        runtime: &Runtime,
        root: &Path,
        (edge_threads, cloud_threads): (usize, usize),
    ) -> Result<Halves, TrialError> {
        let edge = Bundle::open(root, Side::Edge)?;
        let cloud = Bundle::open(root, Side::Cloud)?;
        let with = |threads| SessionOptions {
            threads: ThreadPool::Own(threads),
            ..SessionOptions::default()
        };
        Ok(Halves {
            manifest: edge.manifest().clone(),
            edge: StageChain::load(runtime, &edge, &with(edge_threads))?,
            cloud: StageChain::load(runtime, &cloud, &with(cloud_threads))?,
        })
    }

    fn run(
        &mut self,
        option: &CutOption,
        request: &BTreeMap<String, Tensor>,
    ) -> Result<Took, TrialError> {
        let found = self.manifest.cut(&option.cut);
        let (_, cut) = found.ok_or_else(|| TrialError::Missing {
            cut: option.cut.clone(),
            name: option.cut.clone(),
        })?;
        let cut = cut.clone();
        let mut values = request.clone();
        let started = Instant::now();
        self.edge.run(0..cut.stage, &mut values)?;
        let head = lap(started);
        let started = Instant::now();
        let payloads = encode(&cut, option, &values)?;
        let encoded = lap(started);
        let bytes = payloads.iter().map(|(.., bytes)| bytes.len()).sum();
        let started = Instant::now();
        let mut sent = BTreeMap::new();
        for (crossing, tensor, bytes) in payloads {
            let spec = codec_of(crossing, option.codec.as_deref().unwrap_or_default());
            let decoded = codec::decode(spec, tensor.dtype(), tensor.shape(), &bytes)
                .map_err(|error| codec_error(&cut, crossing, error))?;
            sent.insert(crossing.spec.name.clone(), decoded);
        }
        let decoded = lap(started);
        // State that stays in the service does not cross.
        for state in &self.manifest.states {
            if let (false, Some(tensor)) =
                (sent.contains_key(&state.input), request.get(&state.input))
            {
                sent.insert(state.input.clone(), tensor.clone());
            }
        }
        let started = Instant::now();
        if !option.is_local() {
            self.cloud
                .run(cut.stage..self.manifest.stages.len(), &mut sent)?;
        }
        Ok(([head, encoded, decoded, lap(started)], bytes))
    }
}

fn lap(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e6
}

type Payload<'a> = (&'a Crossing, &'a Tensor, Vec<u8>);

fn encode<'a>(
    cut: &'a Cut,
    option: &CutOption,
    values: &'a BTreeMap<String, Tensor>,
) -> Result<Vec<Payload<'a>>, TrialError> {
    let payloads = cut.crossing.iter().map(|crossing| {
        let name = &crossing.spec.name;
        let tensor = values.get(name).ok_or_else(|| TrialError::Missing {
            cut: cut.id.clone(),
            name: name.clone(),
        })?;
        let spec = codec_of(crossing, option.codec.as_deref().unwrap_or_default());
        let mut bytes = Vec::new();
        codec::encode(spec, tensor, &mut bytes)
            .map_err(|error| codec_error(cut, crossing, error))?;
        Ok((crossing, tensor, bytes))
    });
    payloads.collect()
}

fn codec_error(cut: &Cut, crossing: &Crossing, error: CodecError) -> TrialError {
    TrialError::Codec {
        cut: cut.id.clone(),
        name: crossing.spec.name.clone(),
        error,
    }
}
