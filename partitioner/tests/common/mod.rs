//! What the tests of the command line share: the program, a folder, small models.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use seamline_graph::WriteOptions;
use seamline_graph::builder::GraphBuilder;
use seamline_plan::{DType, Dim};
use serde_json::Value;

/// A folder of a test's own, and the program run in it.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

/// What a run gave.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seamline"));
        command.args(arguments).current_dir(self.folder.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    /// Runs with `--json`; stdout must be one document, and the exit code `code`.
    pub(crate) fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(
            ran.code, code,
            "{arguments:?}: {}{}",
            ran.stdout, ran.stderr
        );
        assert_eq!(ran.stdout.lines().count(), 1, "{}", ran.stdout);
        serde_json::from_str(&ran.stdout).unwrap()
    }

    /// Runs what must fail with exit code 1, nothing on stdout, and every part on stderr.
    pub(crate) fn refused(&self, arguments: &[&str], parts: &[&str]) {
        self.run(arguments).assert_refused(1, parts);
    }

    /// A two-layer perceptron `x[N, 8] -> y[N, 4]` with a residual connection, at `name`.
    pub(crate) fn perceptron(&self, name: &str) -> PathBuf {
        let weights = |count: usize, seed: usize| -> Vec<f32> {
            (0..count)
                .map(|index| ((index * 37 + seed) % 19) as f32 / 19.0 - 0.4)
                .collect()
        };
        let mut builder = GraphBuilder::new("perceptron", 15);
        builder
            .input("x", DType::F32, &["N".into(), 8.into()])
            .output("y", DType::F32, &["N".into(), 4.into()])
            .weight_f32("w1", &[8, 16], &weights(128, 1))
            .weight_f32("w2", &[16, 16], &weights(256, 2))
            .weight_f32("w3", &[16, 4], &weights(64, 3))
            .node("MatMul", &["x", "w1"], &["a"])
            .node("Relu", &["a"], &["b"])
            .node("MatMul", &["b", "w2"], &["c"])
            .node("Add", &["b", "c"], &["d"])
            .node("MatMul", &["d", "w3"], &["y"]);
        write(&builder, &self.path(name))
    }

    /// A convolution over pictures `pixels[N, 3, 16, 16] -> [N, 2, 16, 16]`, at `name`.
    pub(crate) fn convolution(&self, name: &str) -> PathBuf {
        let dims: [Dim; 4] = ["N".into(), 3.into(), 16.into(), 16.into()];
        let out: [Dim; 4] = ["N".into(), 2.into(), 16.into(), 16.into()];
        let mut builder = GraphBuilder::new("convolution", 15);
        builder
            .input("pixels", DType::F32, &dims)
            .output("y", DType::F32, &out)
            .weight_f32("w1", &[2, 3, 1, 1], &[0.5, -0.25, 0.75, 0.1, 0.2, -0.3])
            .weight_f32("w2", &[2, 2, 1, 1], &[1.0, -1.0, 0.5, 0.25])
            .node("Conv", &["pixels", "w1"], &["a"])
            .node("Relu", &["a"], &["b"])
            .node("Conv", &["b", "w2"], &["y"]);
        write(&builder, &self.path(name))
    }
}

impl Ran {
    pub(crate) fn of(output: Output) -> Ran {
        Ran {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn assert_refused(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
        for part in parts {
            assert!(
                self.stderr.contains(part),
                "`{part}` is not in: {}",
                self.stderr
            );
        }
    }
}

fn write(builder: &GraphBuilder, path: &Path) -> PathBuf {
    builder
        .build()
        .unwrap()
        .write(path, &WriteOptions::default())
        .unwrap();
    path.to_owned()
}
