//! Resident memory of a process, as Linux tells it.

use std::fs;

/// Resident bytes by kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resident {
    /// All.
    pub(crate) all: f64,
    /// Not backed by a file: cannot be dropped and read again.
    pub(crate) anonymous: f64,
}

/// Of the process with this id.
pub(crate) fn of(process: u32) -> Resident {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let bytes = |field: &str| {
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        let kib: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib * 1024.0
    };
    Resident {
        all: bytes("VmRSS:"),
        anonymous: bytes("RssAnon:"),
    }
}
