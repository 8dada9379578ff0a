//! `seamline-edge profile`.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use seamline_edge::Provider;
use seamline_plan::Side;
use seamline_profile::{Effort, MeasureOptions, Progress, measure};

/// How a kit reaches a device and a profile comes back.
const ELSEWHERE: &str = "\
On a device that is reached by ssh (a connection that broke: give the same line again, and the \
measurement goes on):
  scp -r KIT DEVICE: && ssh DEVICE seamline-edge profile KIT -o device.json \
&& scp DEVICE:device.json .

On an Android device, with the program and ONNX Runtime's library beside the kit:
  adb push KIT seamline-edge libonnxruntime.so /data/local/tmp/ && adb shell \
'cd /data/local/tmp && ORT_DYLIB_PATH=./libonnxruntime.so ./seamline-edge profile KIT \
-o device.json' && adb pull /data/local/tmp/device.json

Then: seamline plan MODEL --device device.json";

#[derive(Args)]
#[command(after_help = ELSEWHERE)]
pub(crate) struct Profile {
    /// The kit: a folder that `seamline plan MODEL --kit FOLDER` writes.
    kit: PathBuf,
    /// Write the profile into this file. Unfinished figures stand in FILE.partial; a command that
    /// was interrupted goes on from them when it is given again.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Threads to measure with, each number in turn; one a core without it.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Vec<u16>,
    /// Execution providers, first choice first. One that is missing is an error.
    #[arg(long = "provider", value_name = "NAME", value_delimiter = ',')]
    providers: Vec<Provider>,
    /// The machine's name in tables and reports; its processor's without it.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A first look: one pass, few runs.
    #[arg(long)]
    quick: bool,
}

impl Profile {
    pub(crate) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut threads: Vec<usize> = self.threads.iter().copied().map(usize::from).collect();
        if threads.is_empty() {
            threads.push(cores);
        }
        let options = MeasureOptions {
            side: Side::Edge,
            name: self.name,
            providers: self.providers,
            threads,
            batches: vec![1],
            effort: if self.quick {
                Effort::QUICK
            } else {
                Effort::FULL
            },
        };
        let runtime = super::load_runtime(None)?;
        let bar = bar();
        let measured = measure(&runtime, &self.kit, &self.output, &options, |progress| {
            show(&bar, progress);
            ControlFlow::Continue(())
        });
        bar.finish_and_clear();
        let measured = measured?;
        if json {
            let document = measured.document(&self.output, &options);
            seamline_plan::outln!("{document}");
        } else {
            seamline_plan::out!("{}", measured.table(&options));
            seamline_plan::outln!("written to {}", self.output.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A bar on stderr, where that is a terminal.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    match ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn show(bar: &ProgressBar, progress: &Progress) {
    bar.set_length(progress.total as u64);
    bar.set_position(progress.done as u64);
    bar.set_message(progress.what.clone());
}
