//! The user's own metric: a command that reads JSON lines and prints a number.
//!
//! The command is run by `sh -c`, as given, nothing added to it. On stdin it gets one line a
//! request: `{"name": "a.png", "label": "3" or null, "outputs": {"NAME": "/path/NAME.npy", …},
//! "whole": {…}}`, with the candidate's outputs and the whole model's as `.npy` files. It prints one
//! finite number on stdout and exits with 0; stderr is passed on. One that takes longer than
//! [`TIME_LIMIT`] is ended, with all that it started.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Answer, MetricError};
use crate::plan::calibration::{Sample, file_stem};
use crate::plan::npy;

/// The most bytes of stdout that are read.
const MAX_OUTPUT: u64 = 64 << 10;

/// The longest that a command may take over one candidate.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(600);

/// A command and what its number means.
#[derive(Clone, Debug)]
pub(super) struct Command {
    /// As given.
    pub(super) text: String,
    /// Whether more is better.
    pub(super) higher_is_better: bool,
    /// [`TIME_LIMIT`], less in tests.
    pub(super) time_limit: Duration,
}

/// A request as the command reads it.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    label: Option<&'a str>,
    outputs: BTreeMap<&'a str, String>,
    whole: BTreeMap<&'a str, String>,
}

/// Answers on disk, and what will be written to stdin.
pub(super) struct Run {
    folder: tempfile::TempDir,
    lines: Vec<u8>,
    requests: usize,
}

impl Command {
    pub(super) fn name(&self) -> &str {
        &self.text
    }

    fn fail(&self, problem: impl Into<String>) -> MetricError {
        MetricError::Command {
            command: self.text.clone(),
            problem: problem.into(),
        }
    }

    /// Makes a place for the answers.
    pub(super) fn begin(&self) -> Result<Run, MetricError> {
        let folder = tempfile::Builder::new()
            .prefix("seamline-metric-")
            .tempdir();
        Ok(Run {
            folder: folder.map_err(|error| self.fail(format!("no temporary folder: {error}")))?,
            lines: Vec::new(),
            requests: 0,
        })
    }

    /// Runs the command on the answers of `run`.
    pub(super) fn end(&self, run: Run) -> Result<f64, MetricError> {
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg(&self.text);
        command.stdin(run.as_stdin()?).stdout(Stdio::piped());
        own_group(&mut command);
        let mut child = command
            .spawn()
            .map_err(|error| self.fail(format!("`sh` does not start: {error}")))?;
        // From a thread: what the command started may hold its stdout longer than it lives, and nobody
        // waits for that.
        let (read, was_read) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut text = String::new();
                let result = stdout.take(MAX_OUTPUT).read_to_string(&mut text);
                read.send(result.map(|_| text))
            });
        }
        let deadline = Instant::now() + self.time_limit;
        let late = |child: &mut Child| {
            end(child);
            self.fail(format!(
                "it has not ended after {} s; expected a number on stdout and its end",
                self.time_limit.as_secs_f64()
            ))
        };
        let status = loop {
            let status = child.try_wait();
            match status.map_err(|error| self.fail(error.to_string()))? {
                Some(status) => break status,
                None if Instant::now() >= deadline => return Err(late(&mut child)),
                None => std::thread::sleep(POLL),
            }
        };
        let left = || deadline.saturating_duration_since(Instant::now());
        let Ok(read) = was_read.recv_timeout(left()) else {
            return Err(late(&mut child));
        };
        let is_full = |text: &String| text.len() as u64 >= MAX_OUTPUT;
        if read.as_ref().is_ok_and(is_full) {
            return Err(self.fail(format!(
                "expected one finite number on stdout, got {} KiB and more",
                MAX_OUTPUT >> 10
            )));
        }
        if !status.success() {
            return Err(self.fail(format!(
                "{status}; expected exit code 0 and a number on stdout"
            )));
        }
        let text = read.map_err(|error| self.fail(format!("cannot read its stdout: {error}")))?;
        let text = text.trim();
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| {
            let said: String = text.chars().take(80).collect();
            self.fail(format!(
                "expected one finite number on stdout, got `{said}`"
            ))
        })
    }
}

/// How often a command is looked after.
const POLL: Duration = Duration::from_millis(5);

/// Puts what `command` starts into a group of its own, so that all of it can be ended.
fn own_group(command: &mut std::process::Command) {
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    #[cfg(not(unix))]
    let _ = command;
}

/// Ends `child` and, where there are groups, all that it started.
fn end(child: &mut Child) {
    #[cfg(unix)]
    {
        let group = format!("-{}", child.id());
        // Without `kill` the child alone is ended.
        let mut kill = std::process::Command::new("kill");
        let _ = kill
            .args(["-KILL", "--", &group])
            .stderr(Stdio::null())
            .status();
    }
    let _ = child.kill();
    let _ = child.wait();
}

impl Run {
    /// The lines as a file: of a pipe a command need not read all, and a program that writes to one
    /// that nobody reads is ended by the system.
    fn as_stdin(&self) -> Result<std::fs::File, MetricError> {
        let path = self.folder.path().join("requests.jsonl");
        let written = std::fs::write(&path, &self.lines);
        let file = written.and_then(|()| std::fs::File::open(&path));
        file.map_err(|error| MetricError::Output {
            output: "requests.jsonl".into(),
            problem: format!("{}: {error}", path.display()),
        })
    }

    /// Writes the answers to one request.
    pub(super) fn add(
        &mut self,
        sample: &Sample,
        whole: &Answer,
        candidate: &Answer,
    ) -> Result<(), MetricError> {
        let number = self.requests;
        self.requests += 1;
        let folder = self.folder.path();
        let line = Line {
            name: &sample.name,
            label: sample.label.as_deref(),
            outputs: write(folder, &format!("{number}-candidate"), candidate)?,
            whole: write(folder, &format!("{number}-whole"), whole)?,
        };
        // Names and paths always have a JSON form.
        self.lines
            .extend(serde_json::to_vec(&line).unwrap_or_default());
        self.lines.push(b'\n');
        Ok(())
    }
}

fn write<'a>(
    folder: &Path,
    prefix: &str,
    answer: &'a Answer,
) -> Result<BTreeMap<&'a str, String>, MetricError> {
    let files = answer.iter().enumerate().map(|(index, (name, tensor))| {
        let path = folder.join(format!("{prefix}-{index}-{}.npy", file_stem(name)));
        std::fs::write(&path, npy::encode(tensor)).map_err(|error| MetricError::Output {
            output: name.clone(),
            problem: format!("{}: {error}", path.display()),
        })?;
        Ok((name.as_str(), path.display().to_string()))
    });
    files.collect()
}
