//! `seamline-cloud`: the service that finishes requests.

mod cli;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use seamline_plan::error_text;

/// The Seamline service: finishes the tails of cut networks in dynamic batches.
#[derive(Parser)]
#[command(name = "seamline-cloud", version, max_term_width = 100)]
struct Arguments {
    /// Print one JSON document on stdout instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load bundles, warm up and serve until SIGTERM or Ctrl-C.
    Serve(cli::serve::Serve),
    /// Make the identities that service and devices prove themselves by.
    Identity(cli::identity::Identity),
    /// Verify bundles and list what would be served, without listening.
    Check(cli::check::Check),
    /// Measure this machine on a planner's kit: tails, codecs, memory.
    Profile(cli::profile::Profile),
    /// Tell what this machine has and lacks for the service.
    Doctor,
}

fn main() -> ExitCode {
    // clap ends the process with 2 on bad usage.
    let Arguments { json, command } = Arguments::parse();
    if !matches!(command, Command::Serve(_)) {
        // A reader that has seen enough (`| head`) ends the program quietly; a service goes on.
        sigpipe::reset();
    }
    let result = match command {
        Command::Serve(serve) => serve.run(json),
        Command::Identity(identity) => identity.run(json),
        Command::Check(check) => check.run(json),
        Command::Profile(profile) => profile.run(json),
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
