//! `seamline`: plans and cuts models.

mod cli;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use seamline_assets::Store;
use seamline_plan::error_text;
use tracing_subscriber::EnvFilter;

use crate::cli::Machine;

/// Cuts trained models in two: the head for a device, the tail for a service.
#[derive(Parser)]
#[command(name = "seamline", version, max_term_width = 100)]
struct Arguments {
    /// Print one JSON document on stdout instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Tell what a model takes, gives and consists of.
    Inspect(cli::inspect::Inspect),
    /// List where a model can be cut, and what would cross there.
    Seams(cli::seams::Seams),
    /// Choose where to cut from measurements, and make a bundle of it.
    Plan(Box<cli::plan::Plan>),
    /// Cut a model into a bundle for device and service.
    Split(cli::split::Split),
    /// Compare a bundle's two halves with the whole model.
    Verify(cli::verify::Verify),
    /// Draw a plan and all that it was chosen from, as one HTML page.
    Report(cli::report::Report),
    /// Read a model and write it again.
    Convert(cli::convert::Convert),
    /// Trained models to try things on.
    Zoo(cli::zoo::Zoo),
    /// Tell what this machine has and lacks, and how to get it.
    Doctor,
}

fn main() -> ExitCode {
    // A reader that has seen enough (`| head`) ends the program quietly.
    sigpipe::reset();
    // clap ends the process with 2 on bad usage.
    let Arguments { json, command } = Arguments::parse();
    start_logging();
    let machine = Machine {
        library: std::env::var_os("ORT_DYLIB_PATH").map(PathBuf::from),
        store: Store::from_env(),
        json,
    };
    let result = match command {
        Command::Inspect(inspect) => inspect.run(&machine),
        Command::Seams(seams) => seams.run(&machine),
        Command::Plan(plan) => plan.run(&machine),
        Command::Split(split) => split.run(&machine),
        Command::Verify(verify) => verify.run(&machine),
        Command::Report(report) => report.run(&machine),
        Command::Convert(convert) => convert.run(&machine),
        Command::Zoo(zoo) => zoo.run(&machine),
        Command::Doctor => cli::doctor::run(&machine),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", error_text(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// `SEAMLINE_LOG` says what is logged; by default warnings, and nothing of ONNX Runtime,
/// whose errors stand in the program's own.
fn start_logging() {
    let filter =
        EnvFilter::try_from_env("SEAMLINE_LOG").unwrap_or_else(|_| EnvFilter::new("warn,ort=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .log_internal_errors(false)
        .with_writer(std::io::stderr)
        .init();
}
