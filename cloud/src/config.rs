//! The configuration of `seamline-cloud serve`, read from TOML. Unknown fields are errors. The
//! defaults, commented, are in `seamline-cloud.example.toml` beside this crate's `Cargo.toml`.
//!
//! Relative paths are relative to the working directory of the service.

mod check;
mod sections;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use seamline_plan::read_text;
use serde::{Deserialize, Serialize};

pub use sections::{
    AdminConfig, AuthMode, BatchingConfig, Congestion, ExecutorsConfig, IdentityConfig,
    LimitsConfig, LogFormat, TransportConfig,
};

/// The most that is read of a configuration file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Everything that can be set. Every field has a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServeConfig {
    /// UDP address that devices connect to.
    ///
    /// Default `0.0.0.0:7443`. Change it to listen on one interface, on IPv6 (`[::]:7443`), or on
    /// another port; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Folder whose `*.seam` folders are served.
    ///
    /// Default `bundles`. Costs memory for the weights of every bundle in it, and warm-up time at
    /// start.
    pub bundles: PathBuf,
    /// Longest time in milliseconds that SIGTERM waits for the requests in flight before they are
    /// answered with an error and the process ends.
    ///
    /// Default 30 000; bounds 0 to 3 600 000. Keep it below the grace period of the orchestrator
    /// (Kubernetes: 30 s, so allow for some seconds of its own), above the longest request.
    pub drain_timeout_ms: u64,
    /// How log lines are written to stderr.
    ///
    /// Default `"text"`; `"json"` for log collectors.
    pub log_format: LogFormat,
    /// Who the service is, and whom it serves.
    pub identity: IdentityConfig,
    /// Metrics and health.
    pub admin: AdminConfig,
    /// How requests are joined and queued.
    pub batching: BatchingConfig,
    /// What runs the tails.
    pub executors: ExecutorsConfig,
    /// What the service takes on at most.
    pub limits: LimitsConfig,
    /// QUIC.
    pub transport: TransportConfig,
}

impl Default for ServeConfig {
    fn default() -> ServeConfig {
        ServeConfig {
            listen: SocketAddr::from(([0, 0, 0, 0], 7443)),
            bundles: PathBuf::from("bundles"),
            drain_timeout_ms: 30_000,
            log_format: LogFormat::Text,
            identity: IdentityConfig::default(),
            admin: AdminConfig::default(),
            batching: BatchingConfig::default(),
            executors: ExecutorsConfig::default(),
            limits: LimitsConfig::default(),
            transport: TransportConfig::default(),
        }
    }
}

/// A field whose value cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} = {value}: expected {expected}")]
pub struct Problem {
    /// Path of the field, such as `batching.max_batch_size`.
    pub field: &'static str,
    /// The value that it has.
    pub value: String,
    /// What it may be.
    pub expected: String,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The file is not TOML, or has a field that does not exist or is of another type. The text
    /// names line, column and field.
    #[error("the configuration {path} is not valid: {source}", path = path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        source: Box<toml::de::Error>,
    },
    /// Fields are out of bounds or contradict each other.
    #[error("the configuration cannot be used:{}", list(problems))]
    Invalid {
        /// All of them.
        problems: Vec<Problem>,
    },
}

fn list(problems: &[Problem]) -> String {
    problems
        .iter()
        .map(|problem| format!("\n  {problem}"))
        .collect()
}

impl ServeConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// When it cannot be read, is not valid TOML, has unknown fields, or fails [`Self::check`].
    pub fn load(path: &Path) -> Result<ServeConfig, ConfigError> {
        let read = |source| ConfigError::Read {
            path: path.to_owned(),
            source,
        };
        let text = read_text(path, MAX_FILE_BYTES).map_err(read)?;
        let parse = |source| ConfigError::Parse {
            path: path.to_owned(),
            source: Box::new(source),
        };
        let config: ServeConfig = toml::from_str(&text).map_err(parse)?;
        config.check()?;
        Ok(config)
    }

    /// Checks every field; to be called again after flags of the command line replaced some.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] with every problem found.
    pub fn check(&self) -> Result<(), ConfigError> {
        let problems = check::problems(self);
        if problems.is_empty() {
            Ok(())
        } else {
            Err(ConfigError::Invalid { problems })
        }
    }
}
