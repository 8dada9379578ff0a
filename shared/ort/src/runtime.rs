//! The process's ONNX Runtime environment.

use ort::environment::{Environment, GlobalThreadPoolOptions};
use ort::logging::LogLevel;
use parking_lot::Mutex;
use thiserror::Error;

use crate::{Library, Provider};

/// How ONNX Runtime is set up. It allows one environment a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeOptions {
    /// The shared library, from [`crate::locate`].
    pub library: Library,
    /// Threads of the pool that all sessions share. Default: one a core. More than there are
    /// cores slows every request; fewer leave cores to the network and to other programs.
    pub threads: usize,
    /// Whether idle pool threads spin. Default off: spinning takes some microseconds off a lone
    /// request and takes whole cores away from everything else in the process.
    pub spinning: bool,
}

impl RuntimeOptions {
    /// One thread a core, no spinning.
    pub fn new(library: Library) -> RuntimeOptions {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        RuntimeOptions {
            library,
            threads,
            spinning: false,
        }
    }
}

/// ONNX Runtime that cannot be set up.
#[derive(Debug, Error)]
pub enum RuntimeError {
    /// The library does not load.
    #[error("cannot load ONNX Runtime from {library}: {problem}")]
    Load {
        /// The file.
        library: String,
        /// Why.
        problem: String,
    },
    /// The environment cannot be made.
    #[error("ONNX Runtime refused its environment: {0}")]
    Environment(String),
    /// Already set up otherwise.
    #[error(
        "ONNX Runtime is already set up in this process with {current:?}; it cannot be set up again with {asked:?}"
    )]
    Conflict {
        /// What stands.
        current: Box<RuntimeOptions>,
        /// What was asked for.
        asked: Box<RuntimeOptions>,
    },
}

/// The process's ONNX Runtime: one environment, one thread pool. Clones share it.
#[derive(Clone, Debug)]
pub struct Runtime {
    environment: Environment,
    options: RuntimeOptions,
}

static CURRENT: Mutex<Option<Runtime>> = Mutex::new(None);

impl Runtime {
    /// Loads ONNX Runtime. Called again with the same options, returns what the first call made.
    ///
    /// # Errors
    /// [`RuntimeError`].
    pub fn load(options: &RuntimeOptions) -> Result<Runtime, RuntimeError> {
        let mut current = CURRENT.lock();
        if let Some(runtime) = current.as_ref() {
            if runtime.options == *options {
                return Ok(runtime.clone());
            }
            return Err(RuntimeError::Conflict {
                current: Box::new(runtime.options.clone()),
                asked: Box::new(options.clone()),
            });
        }
        let runtime = Runtime::create(options)?;
        *current = Some(runtime.clone());
        Ok(runtime)
    }

    fn create(options: &RuntimeOptions) -> Result<Runtime, RuntimeError> {
        let environment = |error: ort::Error| RuntimeError::Environment(error.to_string());
        let builder =
            crate::locate::init(&options.library).map_err(|problem| RuntimeError::Load {
                library: options.library.path.display().to_string(),
                problem,
            })?;
        let pool = GlobalThreadPoolOptions::default()
            .with_intra_threads(options.threads)
            .and_then(|pool| pool.with_inter_threads(1))
            .and_then(|pool| pool.with_spin_control(options.spinning))
            .map_err(environment)?;
        let environment = builder
            .with_name("seamline")
            .with_telemetry(false)
            .with_global_thread_pool(pool)
            .build()
            .map_err(environment)?;
        environment.set_log_level(LogLevel::Error);
        Ok(Runtime {
            environment,
            options: options.clone(),
        })
    }

    /// How it was set up.
    pub fn options(&self) -> &RuntimeOptions {
        &self.options
    }

    /// The library's version, `1.32.0`, and how it was built.
    pub fn build_info(&self) -> &'static str {
        ort::info()
    }

    /// The providers that the library was built with.
    pub fn providers(&self) -> Vec<Provider> {
        Provider::ALL
            .into_iter()
            .filter(Provider::is_compiled_in)
            .collect()
    }

    pub(crate) fn environment(&self) -> &Environment {
        &self.environment
    }
}
