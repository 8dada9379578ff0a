//! What ran where and for how long, from ONNX Runtime's own profiler.

use std::collections::BTreeMap;
use std::time::Duration;

use seamline_plan::Tensor;
use serde::Deserialize;
use thiserror::Error;

use crate::{ModelSource, RunError, Runtime, SessionError, SessionOptions};

/// One node of the optimised graph.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeProfile {
    /// The node's name; a fused node has the runtime's own.
    pub name: String,
    /// The operator.
    pub op: String,
    /// The provider that ran it, as the runtime names it (`CPUExecutionProvider`).
    pub provider: String,
    /// Median time of a run.
    pub time: Duration,
}

/// How many nodes each provider ran.
pub type Placement = BTreeMap<String, usize>;

/// A profile that cannot be taken.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// No session.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The runtime's profile cannot be read.
    #[error("ONNX Runtime's profile cannot be read: {0}")]
    Read(String),
}

/// Runs `source` on `inputs` `runs` times after a warm-up run and returns each node's median time
/// and provider, in order of execution.
///
/// # Errors
/// [`ProfileError`].
pub fn profile(
    runtime: &Runtime,
    source: ModelSource<'_>,
    options: &SessionOptions,
    inputs: &[&Tensor],
    runs: usize,
) -> Result<Vec<NodeProfile>, ProfileError> {
    let read = |error: std::io::Error| ProfileError::Read(error.to_string());
    let folder = std::env::temp_dir().join(format!(
        "seamline-profile-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::create_dir_all(&folder).map_err(read)?;
    let options = SessionOptions {
        profile: Some(folder.join("profile")),
        ..options.clone()
    };
    let events = (|| {
        let mut session = runtime.session(source, &options)?;
        for _ in 0..=runs.max(1) {
            session.run(inputs)?;
        }
        let path = session.end_profiling().map_err(ProfileError::Read)?;
        let json = std::fs::read(path).map_err(read)?;
        serde_json::from_slice::<Vec<Event>>(&json)
            .map_err(|error| ProfileError::Read(error.to_string()))
    })();
    // The profile has been read; a folder that stays behind in /tmp is no reason to fail.
    let _ = std::fs::remove_dir_all(&folder);
    Ok(summarise(events?))
}

/// Nodes by provider.
pub fn placement(nodes: &[NodeProfile]) -> Placement {
    let mut placement = Placement::new();
    for node in nodes {
        *placement.entry(node.provider.clone()).or_default() += 1;
    }
    placement
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    cat: String,
    name: String,
    #[serde(default)]
    dur: u64,
    #[serde(default)]
    args: Args,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Args {
    op_name: Option<String>,
    provider: Option<String>,
}

fn summarise(events: Vec<Event>) -> Vec<NodeProfile> {
    const SUFFIX: &str = "_kernel_time";
    let mut order: Vec<(String, String, String)> = Vec::new();
    let mut times: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for event in events {
        let Some(name) = event.name.strip_suffix(SUFFIX) else {
            continue;
        };
        if event.cat != "Node" {
            continue;
        }
        let samples = times.entry(name.to_owned()).or_default();
        if samples.is_empty() {
            let op = event.args.op_name.unwrap_or_default();
            order.push((name.to_owned(), op, event.args.provider.unwrap_or_default()));
        }
        samples.push(event.dur);
    }
    let median = |name: &str| {
        let mut samples = times.get(name).cloned().unwrap_or_default();
        // The first run warms caches and is not a sample.
        if samples.len() > 1 {
            samples.remove(0);
        }
        samples.sort_unstable();
        Duration::from_micros(samples.get(samples.len() / 2).copied().unwrap_or_default())
    };
    order
        .into_iter()
        .map(|(name, op, provider)| NodeProfile {
            time: median(&name),
            name,
            op,
            provider,
        })
        .collect()
}
