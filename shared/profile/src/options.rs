//! What is measured, and how long.

use std::time::Duration;

use seamline_ort::Provider;
use seamline_plan::Side;
use serde::Serialize;

/// What is measured.
#[derive(Clone, Debug)]
pub struct MeasureOptions {
    /// Heads of a device, or tails of a service.
    pub side: Side,
    /// The machine's name in tables and reports; its processor's without it.
    pub name: Option<String>,
    /// Execution providers, first choice first. One that is missing is an error.
    pub providers: Vec<Provider>,
    /// Thread counts, each measured; each session has threads of its own. More than there are cores
    /// are slower.
    pub threads: Vec<usize>,
    /// Rows that run together, each count measured where the values at the seam can be joined. A
    /// device's heads run alone.
    pub batches: Vec<u64>,
    /// How long.
    pub effort: Effort,
}

/// How long a part is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Effort {
    /// Visits of every part; their times are pooled.
    pub passes: u32,
    /// The fewest runs of a visit, after one to warm up.
    pub min_runs: usize,
    /// The most runs of a visit.
    pub max_runs: usize,
    /// A visit begins no further run after this, beyond the fewest.
    pub time: Duration,
    /// The same for each codec of a visit.
    pub codec_time: Duration,
}

impl Effort {
    /// At least 6 runs of a part, up to 1.5 s.
    pub const FULL: Effort = Effort {
        passes: 3,
        min_runs: 2,
        max_runs: 200,
        time: Duration::from_millis(500),
        codec_time: Duration::from_millis(50),
    };

    /// At least 3 runs of a part, up to 0.2 s: a first look, with p95 that means little.
    pub const QUICK: Effort = Effort {
        passes: 1,
        min_runs: 3,
        max_runs: 50,
        time: Duration::from_millis(200),
        codec_time: Duration::from_millis(20),
    };
}
