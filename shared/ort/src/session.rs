//! A session: one ONNX model, ready to run.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use ort::session::SessionInputs;
use ort::session::builder::{GraphOptimizationLevel, SessionBuilder};
use seamline_plan::{Bindings, SpecMismatch, Tensor, TensorSpec};
use thiserror::Error;

use crate::{Provider, Runtime, value};

/// Where a model comes from.
#[derive(Clone, Copy, Debug)]
pub enum ModelSource<'a> {
    /// A file; external weights beside it are mapped.
    File(&'a Path),
    /// The file's content.
    Bytes {
        /// The bytes.
        bytes: &'a [u8],
        /// Where external weights lie; without it the content must hold all weights.
        folder: Option<&'a Path>,
    },
}

/// How far ONNX Runtime may rewrite the graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Optimization {
    /// Not at all: the model as written.
    Off,
    /// Rewrites that keep every operator standard.
    Basic,
    /// Fused operators too.
    Extended,
    /// Memory layouts too.
    #[default]
    All,
}

impl Optimization {
    /// Every level, lowest first.
    pub const ALL: [Optimization; 4] = [
        Optimization::Off,
        Optimization::Basic,
        Optimization::Extended,
        Optimization::All,
    ];

    const fn level(self) -> GraphOptimizationLevel {
        match self {
            Optimization::Off => GraphOptimizationLevel::Disable,
            Optimization::Basic => GraphOptimizationLevel::Level1,
            Optimization::Extended => GraphOptimizationLevel::Level2,
            Optimization::All => GraphOptimizationLevel::All,
        }
    }
}

/// Whose threads compute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ThreadPool {
    /// The runtime's pool, shared by all sessions.
    #[default]
    Shared,
    /// This session's own threads: for measurements.
    Own(usize),
}

/// How a session is made.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// Execution providers, first choice first. The CPU comes last without being named. A
    /// provider that is not in the library, or refuses, is an error unless `skip_missing`.
    pub providers: Vec<Provider>,
    /// Go on with the next provider where one is missing. Default off.
    pub skip_missing: bool,
    /// Graph rewriting. Default: all.
    pub optimization: Optimization,
    /// Threads. Default: the shared pool.
    pub threads: ThreadPool,
    /// Write ONNX Runtime's profile under this path prefix. Slows each node by microseconds.
    pub profile: Option<PathBuf>,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            providers: vec![Provider::Cpu],
            skip_missing: false,
            optimization: Optimization::default(),
            threads: ThreadPool::default(),
            profile: None,
        }
    }
}

/// A session that cannot be made.
#[derive(Debug, Error)]
pub enum SessionError {
    /// A provider is missing or refused.
    #[error(
        "execution provider {provider} cannot be used: {problem}; this library has {}",
        available.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    Provider {
        /// The provider.
        provider: Provider,
        /// Why.
        problem: String,
        /// What the library has.
        available: Vec<Provider>,
    },
    /// ONNX Runtime does not take the model.
    #[error("{model}: ONNX Runtime does not take this model: {problem}")]
    Model {
        /// The file, or how long the bytes are.
        model: String,
        /// What it said.
        problem: String,
    },
    /// An input or output that is no tensor that Seamline carries.
    #[error("{model}: {problem}")]
    Port {
        /// The file, or how long the bytes are.
        model: String,
        /// Which, and what it is.
        problem: String,
    },
}

/// A run that failed.
#[derive(Debug, Error)]
pub enum RunError {
    /// Another number of inputs.
    #[error("{got} inputs given; the model takes {expected}: {names}")]
    Count {
        /// Inputs of the model.
        expected: usize,
        /// Inputs given.
        got: usize,
        /// The model's, by name.
        names: String,
    },
    /// An input that does not fit.
    #[error("input {0}")]
    Input(#[from] SpecMismatch),
    /// An input or output cannot be passed.
    #[error("value `{name}`: {problem}")]
    Value {
        /// Its name.
        name: String,
        /// Why.
        problem: String,
    },
    /// ONNX Runtime failed in the middle.
    #[error("ONNX Runtime failed: {0}")]
    Runtime(String),
}

/// One ONNX model, ready to run. ONNX Runtime's `Run` is not safe to call from two threads, so a
/// session belongs to one worker at a time (`&mut self`).
#[derive(Debug)]
pub struct Session {
    inner: ort::session::Session,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
    providers: Vec<Provider>,
}

impl Runtime {
    /// Makes a session.
    ///
    /// # Errors
    /// [`SessionError`].
    pub fn session(
        &self,
        source: ModelSource<'_>,
        options: &SessionOptions,
    ) -> Result<Session, SessionError> {
        let model = match source {
            ModelSource::File(path) => path.display().to_string(),
            ModelSource::Bytes { bytes, .. } => format!("model of {} bytes", bytes.len()),
        };
        let refused = |problem: String| SessionError::Model {
            model: model.clone(),
            problem,
        };
        let (mut builder, providers) = self.builder(options, &refused)?;
        if let ModelSource::Bytes {
            folder: Some(folder),
            ..
        } = source
        {
            const FOLDER: &str = "session.model_external_initializers_file_folder_path";
            builder = builder
                .with_config_entry(FOLDER, folder.to_string_lossy())
                .map_err(|error| refused(error.to_string()))?;
        }
        let commit = || match source {
            ModelSource::File(path) => builder.commit_from_file(path),
            ModelSource::Bytes { bytes, .. } => builder.commit_from_memory(bytes),
        };
        // `ort` panics where ONNX Runtime infers a negative dimension; the builder is not used
        // again.
        let inner = catch_unwind(AssertUnwindSafe(commit))
            .map_err(|_| refused("it infers a dimension below zero".into()))?
            .map_err(|error| refused(error.to_string()))?;
        let specs = |outlets: &[ort::value::Outlet]| -> Result<Vec<TensorSpec>, SessionError> {
            let spec = |outlet: &ort::value::Outlet| value::spec_of(outlet.name(), outlet.dtype());
            let specs: Result<Vec<TensorSpec>, String> = outlets.iter().map(spec).collect();
            specs.map_err(|problem| SessionError::Port {
                model: model.clone(),
                problem,
            })
        };
        let inputs = specs(inner.inputs())?;
        let outputs = specs(inner.outputs())?;
        Ok(Session {
            inner,
            inputs,
            outputs,
            providers,
        })
    }

    fn builder(
        &self,
        options: &SessionOptions,
        refused: &dyn Fn(String) -> SessionError,
    ) -> Result<(SessionBuilder, Vec<Provider>), SessionError> {
        let refuse = |error: ort::Error<SessionBuilder>| refused(error.to_string());
        let mut builder = ort::session::Session::builder(self.environment())
            .map_err(|error| refused(error.to_string()))?
            .with_optimization_level(options.optimization.level())
            .map_err(refuse)?;
        if let ThreadPool::Own(threads) = options.threads {
            builder = builder
                .with_independent_thread_pool()
                .map_err(refuse)?
                .with_intra_threads(threads)
                .map_err(refuse)?
                .with_intra_op_spinning(false)
                .map_err(refuse)?;
        }
        if let Some(prefix) = &options.profile {
            builder = builder.with_profiling(prefix).map_err(refuse)?;
        }
        let mut registered = Vec::new();
        for provider in options
            .providers
            .iter()
            .filter(|provider| **provider != Provider::Cpu)
        {
            if !provider.is_compiled_in() {
                let problem = "the library was built without it".to_owned();
                if options.skip_missing {
                    tracing::warn!(%provider, problem, "execution provider left out");
                    continue;
                }
                return Err(self.provider_error(provider, problem));
            }
            match builder.with_execution_providers([provider.dispatch()]) {
                Ok(next) => {
                    builder = next;
                    registered.push(provider.clone());
                }
                Err(error) if options.skip_missing => {
                    tracing::warn!(%provider, %error, "execution provider left out");
                    builder = error.recover();
                }
                Err(error) => return Err(self.provider_error(provider, error.to_string())),
            }
        }
        registered.push(Provider::Cpu);
        Ok((builder, registered))
    }

    fn provider_error(&self, provider: &Provider, problem: String) -> SessionError {
        SessionError::Provider {
            provider: provider.clone(),
            problem,
            available: self.providers(),
        }
    }
}

impl Session {
    /// What the model takes, in its order.
    pub fn inputs(&self) -> &[TensorSpec] {
        &self.inputs
    }

    /// What the model gives, in its order.
    pub fn outputs(&self) -> &[TensorSpec] {
        &self.outputs
    }

    /// The providers that were registered, first choice first; the CPU is always the last.
    pub fn providers(&self) -> &[Provider] {
        &self.providers
    }

    /// Runs the model on `inputs`, in the order of [`Session::inputs`]. Their bytes are read in
    /// place (a tensor that is not aligned is copied first).
    ///
    /// # Errors
    /// [`RunError`]; the session can be used again.
    pub fn run(&mut self, inputs: &[&Tensor]) -> Result<Vec<Tensor>, RunError> {
        self.check(inputs)?;
        let aligned: Vec<Tensor> = inputs
            .iter()
            .map(|tensor| Tensor::clone(tensor).aligned())
            .collect();
        let mut values = Vec::with_capacity(inputs.len());
        for (tensor, spec) in aligned.iter().zip(&self.inputs) {
            let value = value::to_input(tensor).map_err(|problem| RunError::Value {
                name: spec.name.clone(),
                problem,
            })?;
            values.push(value);
        }
        let outputs = self
            .inner
            .run(SessionInputs::<0>::ValueSlice(&values))
            .map_err(|error| RunError::Runtime(error.to_string().trim().to_owned()))?;
        let mut tensors = Vec::with_capacity(self.outputs.len());
        for (index, spec) in self.outputs.iter().enumerate() {
            let tensor =
                value::from_output(&outputs[index]).map_err(|problem| RunError::Value {
                    name: spec.name.clone(),
                    problem,
                })?;
            tensors.push(tensor);
        }
        Ok(tensors)
    }

    pub(crate) fn end_profiling(&mut self) -> Result<String, String> {
        self.inner
            .end_profiling()
            .map_err(|error| error.to_string())
    }

    fn check(&self, inputs: &[&Tensor]) -> Result<(), RunError> {
        if inputs.len() != self.inputs.len() {
            let names: Vec<String> = self.inputs.iter().map(ToString::to_string).collect();
            return Err(RunError::Count {
                expected: self.inputs.len(),
                got: inputs.len(),
                names: names.join(", "),
            });
        }
        // ONNX Runtime does not hold symbols equal across inputs, and some models break that
        // rule: each input is checked for itself.
        for (tensor, spec) in inputs.iter().zip(&self.inputs) {
            spec.check(tensor.dtype(), tensor.shape(), &mut Bindings::new())?;
        }
        Ok(())
    }
}
