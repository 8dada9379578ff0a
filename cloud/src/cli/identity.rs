//! `seamline-cloud identity`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use seamline_cloud::ADMIN_TOKEN_FILE;
use seamline_net::identity::create;

#[derive(Args)]
pub(crate) struct Identity {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make an authority, the service's certificate, the admin token, and a certificate for each
    /// device named.
    New {
        /// Folder that will hold the files.
        dir: PathBuf,
        /// Names and addresses that devices connect to.
        #[arg(long = "host", value_name = "NAME", default_values_t = [String::from("localhost"), String::from("127.0.0.1"), String::from("::1")])]
        hosts: Vec<String>,
        /// Names of devices; more can be added later.
        #[arg(long = "device", value_name = "NAME", default_values_t = [String::from("device")])]
        devices: Vec<String>,
        /// Validity of certificates, in days.
        #[arg(long, value_name = "DAYS", default_value_t = create::CERTIFICATE_DAYS, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Make a certificate for one more device.
    Device {
        /// Folder made by `identity new`.
        dir: PathBuf,
        /// The device's name.
        name: String,
        /// Validity, in days.
        #[arg(long, value_name = "DAYS", default_value_t = create::CERTIFICATE_DAYS, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Make a token for a device that cannot keep a key.
    Token {
        /// Folder made by `identity new`.
        dir: PathBuf,
        /// The device's name.
        name: String,
    },
}

impl Identity {
    pub(crate) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let (dir, made) = match self.command {
            Command::New {
                dir,
                hosts,
                devices,
                days,
            } => {
                // Nothing is made where a name is refused.
                for name in &devices {
                    create::check_name(name)?;
                }
                for host in &hosts {
                    create::check_host(host)?;
                }
                let mut made = new(&dir, &hosts, days)?;
                for name in &devices {
                    create::device(&dir, name, days)?;
                    made.extend([format!("{name}.pem"), format!("{name}.key")]);
                }
                (dir, made)
            }
            Command::Device { dir, name, days } => {
                create::device(&dir, &name, days)?;
                (dir, vec![format!("{name}.pem"), format!("{name}.key")])
            }
            Command::Token { dir, name } => {
                create::token(&dir, &name)?;
                (dir, vec![format!("{name}.token"), "tokens".into()])
            }
        };
        if json {
            seamline_plan::outln!("{}", serde_json::json!({ "dir": dir, "files": made }));
        } else {
            seamline_plan::outln!("made in {}: {}", dir.display(), made.join(", "));
            seamline_plan::outln!(
                "a device needs ca.pem and its own two files, or its token; the service ca.pem, server.*, admin.token; keep ca.key away from both"
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn new(dir: &Path, hosts: &[String], days: u32) -> anyhow::Result<Vec<String>> {
    create::authority(dir, "seamline-authority", create::AUTHORITY_DAYS)?;
    create::server(dir, hosts, days)?;
    create::secret(&dir.join(ADMIN_TOKEN_FILE)).context("the admin token")?;
    let made = [
        "ca.pem",
        "ca.key",
        "server.pem",
        "server.key",
        ADMIN_TOKEN_FILE,
    ];
    Ok(made.map(String::from).into())
}
