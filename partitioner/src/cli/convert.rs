//! `seamline convert`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use seamline_graph::{ExternalOptions, Graph, WriteOptions};
use seamline_plan::error_text;
use serde_json::{Value, json};

use super::text::{self, plural};
use super::{Machine, bar, spinner};

#[derive(Args)]
pub(crate) struct Convert {
    /// The model to read (ONNX), or a folder: then every *.onnx file in and below it.
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// Where to write it (ONNX); for a folder, the folder that gets the same tree of models.
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Put large weights into a file of this name beside OUT; models beyond 2 GiB need it.
    #[arg(long, value_name = "FILE")]
    external: Option<String>,
    /// Weights of at least this many bytes go to the external file.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 1024,
        requires = "external"
    )]
    threshold: u64,
}

impl Convert {
    pub(crate) fn run(self, machine: &Machine) -> anyhow::Result<ExitCode> {
        if self.input.is_dir() {
            return self.folder(machine);
        }
        let options = WriteOptions {
            external: self.external()?,
        };
        let progress = spinner("reading and writing");
        let written = Written::convert(&self.input, &self.output, &options)?;
        progress.finish_and_clear();
        if machine.json {
            seamline_plan::outln!("{}", written.to_json());
        } else {
            written.print();
        }
        Ok(ExitCode::SUCCESS)
    }

    fn external(&self) -> anyhow::Result<Option<ExternalOptions>> {
        let Some(file) = self.external.clone() else {
            return Ok(None);
        };
        let own = self.output.file_name().and_then(|name| name.to_str());
        let is_plain = Path::new(&file).file_name() == Some(file.as_ref());
        if !is_plain || own == Some(file.as_str()) {
            bail!(
                "--external {file}: expected a file name other than OUT's, without a folder; the \
                 file lies beside {}",
                self.output.display()
            );
        }
        Ok(Some(ExternalOptions {
            file,
            threshold: self.threshold,
        }))
    }

    /// Converts every model of a folder. One that is refused does not stop the others.
    fn folder(&self, machine: &Machine) -> anyhow::Result<ExitCode> {
        ensure!(
            self.external.is_none(),
            "--external names the file of one model, but {} is a folder: convert its models one by \
             one",
            self.input.display()
        );
        let absolute = |path: &Path| std::path::absolute(path).context("the current folder");
        ensure!(
            !absolute(&self.output)?.starts_with(absolute(&self.input)?),
            "{} lies in {}: its models would be read again; choose another folder",
            self.output.display(),
            self.input.display()
        );
        let models = models_below(&self.input)?;
        ensure!(
            !models.is_empty(),
            "{}: no file in or below this folder ends in .onnx",
            self.input.display()
        );
        let progress = bar("reading and writing", models.len());
        let mut written = Vec::new();
        let mut failed = Vec::new();
        for model in &models {
            let target = self.output.join(model.strip_prefix(&self.input)?);
            match convert_below(model, &target) {
                Ok(model) => written.push(model),
                Err(error) => failed.push((model, error_text(error.as_ref()))),
            }
            progress.inc(1);
        }
        progress.finish_and_clear();
        if machine.json {
            let failed: Vec<Value> = failed
                .iter()
                .map(|(input, error)| json!({ "input": input, "error": error }))
                .collect();
            let written: Vec<Value> = written.iter().map(Written::to_json).collect();
            seamline_plan::outln!("{}", json!({ "written": written, "failed": failed }));
        } else {
            written.iter().for_each(Written::print);
            let total = plural(models.len(), "model");
            seamline_plan::outln!("{} of {total} written", written.len());
            failed
                .iter()
                .for_each(|(_, error)| eprintln!("error: {error}"));
        }
        Ok(if failed.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

fn convert_below(model: &Path, target: &Path) -> anyhow::Result<Written> {
    if let Some(folder) = target.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    Written::convert(model, target, &WriteOptions::default())
}

/// The `*.onnx` files in and below `folder`, in the order of their paths. Links to other folders
/// are not followed.
fn models_below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut models = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let entry = entry.with_context(|| folder.display().to_string())?;
            let path = entry.path();
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "onnx") {
                models.push(path);
            }
        }
    }
    models.sort();
    Ok(models)
}

/// A model that was written.
struct Written {
    input: PathBuf,
    path: PathBuf,
    bytes: u64,
    /// The external file and its length. Below the threshold throughout, none is written.
    external: Option<(PathBuf, u64)>,
    opset: i64,
    nodes: usize,
    initializers: usize,
}

impl Written {
    fn convert(input: &Path, output: &Path, options: &WriteOptions) -> anyhow::Result<Written> {
        Graph::read(input)?.write(output, options)?;
        // What was written must be a model again.
        let written = Graph::read(output)?;
        let external = options.external.as_ref().and_then(|external| {
            let path = output.with_file_name(&external.file);
            let bytes = std::fs::metadata(&path).ok()?.len();
            Some((path, bytes))
        });
        Ok(Written {
            input: input.to_owned(),
            path: output.to_owned(),
            bytes: std::fs::metadata(output)?.len(),
            external,
            opset: written.opset(),
            nodes: written.nodes.len(),
            initializers: written.initializers.len(),
        })
    }

    fn to_json(&self) -> Value {
        let external = self
            .external
            .as_ref()
            .map(|(path, bytes)| json!({ "path": path, "bytes": bytes }));
        json!({
            "input": self.input,
            "path": self.path,
            "bytes": self.bytes,
            "external": external,
            "opset": self.opset,
            "nodes": self.nodes,
            "initializers": self.initializers,
        })
    }

    fn print(&self) {
        seamline_plan::outln!(
            "{}: {}, opset {}, {}, {}",
            self.path.display(),
            text::bytes(self.bytes),
            self.opset,
            plural(self.nodes, "node"),
            plural(self.initializers, "initializer"),
        );
        if let Some((path, bytes)) = &self.external {
            seamline_plan::outln!("{}: {} of weights", path.display(), text::bytes(*bytes));
        }
    }
}
