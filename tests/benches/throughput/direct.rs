//! The peer: ONNX Runtime alone, on the tail that the service runs.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::harness::bundles::{Halves, random_inputs};
use crate::harness::{argument, service};

/// What one turn gave.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub(crate) rows: usize,
    pub(crate) rows_per_second: f64,
}

/// Reads `BATCH SECONDS` lines and runs the default cut's tail of `--direct BUNDLE` so long;
/// returns true where this process was started to.
pub(crate) fn run_if_asked() -> bool {
    let Some(bundle) = argument("--direct") else {
        return false;
    };
    let runtime = service::runtime(argument("--spin").is_some_and(|spin| spin == "yes"));
    let bundle = Path::new(&bundle);
    let mut halves = Halves::load(&runtime, bundle);
    let crossing = halves.head(random_inputs(bundle));
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        let (batch, seconds) = line.split_once(' ').unwrap();
        let (batch, seconds): (usize, f64) = (batch.parse().unwrap(), seconds.parse().unwrap());
        let values = halves.repeat(&crossing, batch);
        // Buffers of this size.
        halves.tail(values.clone());
        let started = Instant::now();
        let mut runs = 0;
        while started.elapsed().as_secs_f64() < seconds {
            halves.tail(values.clone());
            runs += 1;
        }
        let rows = runs * batch;
        let rows_per_second = rows as f64 / started.elapsed().as_secs_f64();
        let turn = Turn {
            rows,
            rows_per_second,
        };
        println!("{}", serde_json::to_string(&turn).unwrap());
        std::io::stdout().flush().unwrap();
    }
    true
}
