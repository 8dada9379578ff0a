//! Times of single nodes, for shares of the work.

use std::path::Path;
use std::time::{Duration, Instant};

use seamline_ort::{
    ModelSource, NodeProfile, Optimization, Provider, Runtime, SessionOptions, ThreadPool, profile,
};
use seamline_plan::NodeTime;

use crate::error::MeasureError;
use crate::options::{Effort, MeasureOptions};
use crate::visit::{Values, inputs_of, open};

const PART: &str = "the whole model, node by node";

/// The fewest and most runs under ONNX Runtime's profiler.
const RUNS: (usize, usize) = (3, 30);

/// Median time of each node that ran, in one pass.
pub(crate) fn nodes(
    runtime: &Runtime,
    model: &Path,
    options: &MeasureOptions,
    sample: &Values,
) -> Result<Vec<NodeTime>, MeasureError> {
    let asked = node_times(runtime, model, options, &options.providers, sample)?;
    // A provider that takes whole regions leaves no nodes: the CPU's shares are the next best.
    if asked.is_empty() && options.providers.iter().any(|own| *own != Provider::Cpu) {
        return node_times(runtime, model, options, &[Provider::Cpu], sample);
    }
    Ok(asked)
}

fn node_times(
    runtime: &Runtime,
    model: &Path,
    options: &MeasureOptions,
    providers: &[Provider],
    sample: &Values,
) -> Result<Vec<NodeTime>, MeasureError> {
    let session_options = SessionOptions {
        providers: providers.to_vec(),
        optimization: Optimization::Off,
        threads: ThreadPool::Own(options.threads.first().copied().unwrap_or(1)),
        ..SessionOptions::default()
    };
    let mut session = open(runtime, model, &session_options, PART)?;
    let inputs = inputs_of(&session, sample, PART)?;
    let mut one = Duration::ZERO;
    for _ in 0..2 {
        let started = Instant::now();
        session.run(&inputs).map_err(|error| MeasureError::Run {
            part: PART.to_owned(),
            error,
        })?;
        one = started.elapsed();
    }
    drop(session);
    let source = ModelSource::File(model);
    let found = profile(
        runtime,
        source,
        &session_options,
        &inputs,
        runs(one, &options.effort),
    );
    let found = found.map_err(|error| MeasureError::Profile {
        part: PART.to_owned(),
        error,
    })?;
    let mut times: Vec<NodeTime> = found.iter().filter_map(node_time).collect();
    times.sort_by_key(|time| time.node);
    Ok(times)
}

/// As many as fit the time of a visit.
fn runs(one: Duration, effort: &Effort) -> usize {
    let fit = effort.time.as_micros() / one.as_micros().max(1);
    usize::try_from(fit).map_or(RUNS.1, |fit| fit.clamp(RUNS.0, RUNS.1))
}

/// A kit's nodes are called `n` and their index; others are the runtime's own, or a body's.
fn node_time(node: &NodeProfile) -> Option<NodeTime> {
    let index = node.name.strip_prefix('n')?;
    let is_index = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    Some(NodeTime {
        node: is_index.then(|| index.parse().ok())??,
        us: node.time.as_secs_f64() * 1e6,
    })
}
