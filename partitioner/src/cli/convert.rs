//! `seamline convert`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use seamline_graph::{ExternalOptions, Graph, WriteOptions};

use super::text::{self, plural};
use super::{Machine, spinner};

#[derive(Args)]
pub(crate) struct Convert {
    /// The model to read (ONNX).
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// Where to write it (ONNX).
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
        let external = match self.external {
            Some(file) => {
                let own = self.output.file_name().and_then(|name| name.to_str());
                let is_plain = std::path::Path::new(&file).file_name() == Some(file.as_ref());
                if !is_plain || own == Some(file.as_str()) {
                    bail!(
                        "--external {file}: expected a file name other than OUT's, without a \
                         folder; the file lies beside {}",
                        self.output.display()
                    );
                }
                Some(ExternalOptions {
                    file,
                    threshold: self.threshold,
                })
            }
            None => None,
        };
        let progress = spinner("reading and writing");
        let graph = Graph::read(&self.input)?;
        let options = WriteOptions { external };
        graph.write(&self.output, &options)?;
        // What was written must be a model again.
        let written = Graph::read(&self.output)?;
        progress.finish_and_clear();
        let bytes = std::fs::metadata(&self.output)?.len();
        // Below the threshold throughout, no external file is written.
        let external = options.external.and_then(|external| {
            let path = self.output.with_file_name(external.file);
            let bytes = std::fs::metadata(&path).ok()?.len();
            Some((path, bytes))
        });
        if machine.json {
            let external =
                external.map(|(path, bytes)| serde_json::json!({ "path": path, "bytes": bytes }));
            let document = serde_json::json!({
                "path": self.output,
                "bytes": bytes,
                "external": external,
                "opset": written.opset(),
                "nodes": written.nodes.len(),
                "initializers": written.initializers.len(),
            });
            println!("{document}");
            return Ok(ExitCode::SUCCESS);
        }
        println!(
            "{}: {}, opset {}, {}, {}",
            self.output.display(),
            text::bytes(bytes),
            written.opset(),
            plural(written.nodes.len(), "node"),
            plural(written.initializers.len(), "initializer"),
        );
        if let Some((path, bytes)) = external {
            println!("{}: {} of weights", path.display(), text::bytes(bytes));
        }
        Ok(ExitCode::SUCCESS)
    }
}
