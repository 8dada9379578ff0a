//! CPU time of a process, thread by thread.

use std::collections::BTreeMap;
use std::fs;

/// Seconds on a CPU since the start, by thread name; empty where the system does not tell.
pub(crate) fn seconds_by_thread(process: u32) -> BTreeMap<String, f64> {
    let mut seconds = BTreeMap::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else {
        return seconds;
    };
    for task in tasks.flatten() {
        let read = |file| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let nanoseconds = read("schedstat")
            .split(' ')
            .next()
            .and_then(|n| n.parse::<f64>().ok());
        *seconds.entry(read("comm").trim().to_owned()).or_default() +=
            nanoseconds.unwrap_or(0.0) / 1e9;
    }
    seconds
}

/// What was added between two readings, by thread name.
pub(crate) fn since(
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
) -> BTreeMap<String, f64> {
    let added = |(name, seconds): (&String, &f64)| {
        (
            name.clone(),
            seconds - before.get(name).copied().unwrap_or(0.0),
        )
    };
    after.iter().map(added).collect()
}
