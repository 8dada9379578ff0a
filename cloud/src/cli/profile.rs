//! `seamline-cloud profile`.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use seamline_ort::Provider;
use seamline_plan::Side;
use seamline_profile::{Effort, MeasureOptions, Progress, measure};

/// How a kit reaches a service's machine and a profile comes back.
const ELSEWHERE: &str = "\
On a machine that is reached by ssh (a connection that broke: give the same line again, and the \
measurement goes on):
  scp -r KIT HOST: && ssh HOST seamline-cloud profile KIT -o cloud.json && scp HOST:cloud.json .

Then: seamline plan MODEL --cloud cloud.json";

#[derive(Args)]
#[command(after_help = ELSEWHERE)]
pub(crate) struct Profile {
    /// The kit: a folder that `seamline plan MODEL --kit FOLDER` writes.
    kit: PathBuf,
    /// Write the profile into this file. Unfinished figures stand in FILE.partial; a command that
    /// was interrupted goes on from them when it is given again.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Threads of each tail, as `executors.intra_op_threads` has them; one a core without it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Rows that run together, each number in turn, where the values at a seam can be joined.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 2, 4, 8], value_parser = clap::value_parser!(u64).range(1..=4096))]
    batch: Vec<u64>,
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
        let options = MeasureOptions {
            side: Side::Cloud,
            name: self.name,
            providers: self.providers,
            threads: vec![self.threads.map_or(cores, usize::from)],
            batches: self.batch,
            effort: if self.quick {
                Effort::QUICK
            } else {
                Effort::FULL
            },
        };
        let runtime = super::load_runtime(0)?;
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
