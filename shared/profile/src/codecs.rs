//! How long codecs take on what really crosses.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use seamline_codec as codec;
use seamline_plan::{CodecSpec, Crossing, KitSeam, Side, Tensor};

use crate::error::MeasureError;
use crate::options::Effort;
use crate::partial::CodecTimes;
use crate::timing::timed;

/// The fewest runs of a codec in a visit.
const MIN_RUNS: usize = 3;

/// Times every codec that a value at `seam` allows, on all of its values: encoding on a device,
/// decoding in a service. `rows` has, for each sample, the values in the order of the seam's list.
/// A codec that does not take the values of these samples (`int8` an infinity, say) is left out,
/// unless it is some value's default.
pub(crate) fn codecs(
    seam: &KitSeam,
    rows: &[Vec<Tensor>],
    side: Side,
    effort: &Effort,
    part: &str,
) -> Result<Vec<CodecTimes>, MeasureError> {
    let mut found = Vec::new();
    for (position, name) in names(&seam.crossing).into_iter().enumerate() {
        let specs: Vec<CodecSpec> = seam
            .crossing
            .iter()
            .map(|crossing| crossing.codec(Some(name)).clone())
            .collect();
        match one(seam, &specs, rows, side, effort) {
            Ok(times) => found.push(CodecTimes {
                codec: name.to_owned(),
                ..times
            }),
            // The first name is a default of the first value: without it nothing can be sent.
            Err(Unfit { value, problem }) if position == 0 => {
                return Err(MeasureError::Codec {
                    part: part.to_owned(),
                    codec: name.to_owned(),
                    value,
                    problem,
                });
            }
            Err(_) => {}
        }
    }
    Ok(found)
}

/// The codecs' names, in the order in which the values list them.
fn names(crossing: &[Crossing]) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for codec in crossing.iter().flat_map(|crossing| &crossing.codecs) {
        if !names.contains(&codec.name()) {
            names.push(codec.name());
        }
    }
    names
}

/// A value that its codec does not take.
struct Unfit {
    value: String,
    problem: String,
}

fn one(
    seam: &KitSeam,
    specs: &[CodecSpec],
    rows: &[Vec<Tensor>],
    side: Side,
    effort: &Effort,
) -> Result<CodecTimes, Unfit> {
    let encode = |row: usize| {
        let values = specs.iter().zip(&rows[row % rows.len()]).enumerate();
        let payloads = values.map(|(index, (spec, tensor))| {
            codec::encode_bytes(spec, tensor).map_err(|error| Unfit {
                value: seam.crossing[index].spec.name.clone(),
                problem: error.to_string(),
            })
        });
        payloads.collect::<Result<Vec<_>, _>>()
    };
    let encoded = (0..rows.len()).map(encode).collect::<Result<Vec<_>, _>>()?;
    let lens = encoded.iter().flatten().map(|payload| payload.len() as u64);
    let bytes = lens.sum::<u64>().div_ceil(rows.len() as u64);
    let (most, time) = (effort.max_runs, effort.codec_time);
    // A codec finds its values where the head, or the network, has just put them.
    let pause = Duration::ZERO;
    let us = match side {
        Side::Edge => timed(MIN_RUNS, most, time, pause, |run| encode(run).map(drop))?,
        Side::Cloud => {
            let decode = |run: usize| {
                let row = run % rows.len();
                let values = specs.iter().zip(&rows[row]).zip(&encoded[row]);
                for ((spec, tensor), payload) in values {
                    // What was just encoded decodes.
                    drop(decode(spec, tensor, payload.clone()));
                }
                Ok::<(), Infallible>(())
            };
            timed(MIN_RUNS, most, time, pause, decode).unwrap_or_default()
        }
    };
    Ok(CodecTimes {
        codec: String::new(),
        us,
        bytes,
    })
}

/// As a service decodes a request that runs alone; `raw` is the bytes as they came, and a check of
/// booleans.
fn decode(spec: &CodecSpec, like: &Tensor, payload: Bytes) -> Option<Tensor> {
    codec::decode_bytes(spec, like.dtype(), like.shape(), payload).ok()
}
