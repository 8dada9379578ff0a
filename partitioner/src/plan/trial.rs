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
        error: Box<CodecError>,
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
        corrected
    }
}

/// Runs each of `options` on `requests` in this process. Heads, codecs and tails run in blocks of
/// their own: the threads of a session go on looking for work after a run, and would slow the other
/// half down, which has a machine of its own in truth.
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
    let runs = how.requests.div_ceil(requests.len().max(1) * ROUNDS).max(1);
    let mut times: Vec<Times> = vec![Times::default(); options.len()];
    for _ in 0..ROUNDS {
        for (option, times) in options.iter().zip(&mut times) {
            for request in requests {
                halves.run(option, request, runs, times)?;
            }
        }
    }
    Ok(times
        .iter()
        .map(|times| times.tried(how.slowdown))
        .collect())
}

/// Candidates take turns this many times.
const ROUNDS: usize = 2;

/// Times of each part in microseconds: head, encoding, decoding, tail.
#[derive(Clone, Default)]
struct Times {
    parts: [Vec<f64>; 4],
}

impl Times {
    fn tried(&self, (device, cloud): (f64, f64)) -> Tried {
        let [head, encode, decode, tail] = self.parts.each_ref().map(|part| Spread::of(part));
        Tried {
            head: head.scaled(device),
            encode: encode.scaled(device),
            decode: decode.scaled(cloud),
            tail: tail.scaled(cloud),
        }
    }
}

/// Runs `run` once to warm up and `runs` times that count; what the last one gave.
fn timed<T>(
    runs: usize,
    times: &mut Vec<f64>,
    mut run: impl FnMut() -> Result<T, TrialError>,
) -> Result<T, TrialError> {
    let mut result = run()?;
    for _ in 0..runs {
        let started = Instant::now();
        result = run()?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    Ok(result)
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
        runs: usize,
        times: &mut Times,
    ) -> Result<(), TrialError> {
        let found = self.manifest.cut(&option.cut);
        let (_, cut) = found.ok_or_else(|| TrialError::Missing {
            cut: option.cut.clone(),
            name: option.cut.clone(),
        })?;
        let [head, encoding, decoding, tail] = &mut times.parts;
        let edge = &mut self.edge;
        let values = timed(runs, head, || {
            let mut values = request.clone();
            edge.run(0..cut.stage, &mut values)?;
            Ok(values)
        })?;
        let payloads = timed(runs, encoding, || encode(cut, option, &values))?;
        let mut sent = timed(runs, decoding, || decode(cut, option, &payloads))?;
        // State that stays in the service does not cross.
        for state in &self.manifest.states {
            if let (false, Some(tensor)) =
                (sent.contains_key(&state.input), request.get(&state.input))
            {
                sent.insert(state.input.clone(), tensor.clone());
            }
        }
        let stages = cut.stage..self.manifest.stages.len();
        if option.is_local() {
            tail.push(0.0);
            return Ok(());
        }
        let cloud = &mut self.cloud;
        timed(runs, tail, || {
            Ok(cloud.run(stages.clone(), &mut sent.clone())?)
        })
    }
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
        let spec = crossing.codec(option.codec.as_deref());
        let mut bytes = Vec::new();
        codec::encode(spec, tensor, &mut bytes)
            .map_err(|error| codec_error(cut, crossing, error))?;
        Ok((crossing, tensor, bytes))
    });
    payloads.collect()
}

fn decode(
    cut: &Cut,
    option: &CutOption,
    payloads: &[Payload<'_>],
) -> Result<BTreeMap<String, Tensor>, TrialError> {
    let tensors = payloads.iter().map(|(crossing, tensor, bytes)| {
        let spec = crossing.codec(option.codec.as_deref());
        let decoded = codec::decode(spec, tensor.dtype(), tensor.shape(), bytes)
            .map_err(|error| codec_error(cut, crossing, error))?;
        Ok((crossing.spec.name.clone(), decoded))
    });
    tensors.collect()
}

fn codec_error(cut: &Cut, crossing: &Crossing, error: CodecError) -> TrialError {
    TrialError::Codec {
        cut: cut.id.clone(),
        name: crossing.spec.name.clone(),
        error: Box::new(error),
    }
}
