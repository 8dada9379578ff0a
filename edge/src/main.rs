//! `seamline-edge`: runs heads on this device and asks a service for the rest.

mod cli;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use seamline_plan::error_text;

/// The device side of Seamline: runs the head of a cut network and asks a service for the tail.
#[derive(Parser)]
#[command(name = "seamline-edge", version, max_term_width = 100)]
struct Arguments {
    /// Print one JSON document on stdout instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer one input, or several.
    Run(cli::run::Run),
    /// Measure latency by step, and throughput.
    Bench(cli::bench::Bench),
    /// Measure this machine on a planner's kit: heads, codecs, memory.
    Profile(cli::profile::Profile),
    /// Measure the link to a running service: round trip, rates, loss.
    Probe(cli::probe::Probe),
    /// Tell what this machine has and lacks for a device.
    Doctor,
}

fn main() -> ExitCode {
    // A reader that has seen enough (`| head`) ends the program quietly.
    sigpipe::reset();
    // clap ends the process with 2 on bad usage.
    let Arguments { json, command } = Arguments::parse();
    cli::start_logging();
    let result = match command {
        Command::Run(run) => run.run(json),
        Command::Bench(bench) => bench.run(json),
        Command::Profile(profile) => profile.run(json),
        Command::Probe(probe) => probe.run(json),
        Command::Doctor => cli::doctor::run(json),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", error_text(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}
