//! `seamline zoo`.

use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use seamline_assets::{MODELS, Model};

use super::text::{self, Align};
use super::{Machine, spinner};

#[derive(Args)]
pub(crate) struct Zoo {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the models and which of them are cached.
    List,
    /// Fetch models where they are not cached, and print their paths.
    Get {
        /// Names from `zoo list`.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
}

impl Zoo {
    pub(crate) fn run(self, machine: &Machine) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::List => list(machine),
            Command::Get { names } => get(machine, &names)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn list(machine: &Machine) {
    let cached = |model: &Model| machine.store.cached(&model.pin);
    if machine.json {
        let models: Vec<_> = MODELS
            .iter()
            .map(|model| {
                serde_json::json!({
                    "name": model.name,
                    "about": model.about,
                    "package": model.pin.package,
                    "version": model.pin.version,
                    "cached": cached(model),
                })
            })
            .collect();
        seamline_plan::outln!("{}", serde_json::json!({ "models": models }));
        return;
    }
    let rows: Vec<Vec<String>> = MODELS
        .iter()
        .map(|model| {
            let size = cached(model).and_then(|path| std::fs::metadata(path).ok());
            let size = size.map_or("-".into(), |metadata| text::bytes(metadata.len()));
            vec![model.name.into(), size, model.about.into()]
        })
        .collect();
    let columns = [
        ("name", Align::Left),
        ("cached", Align::Right),
        ("what it is", Align::Left),
    ];
    seamline_plan::out!("{}", text::table(&columns, &rows));
    seamline_plan::outln!("\nfetch one, through pip: seamline zoo get NAME");
}

fn get(machine: &Machine, names: &[String]) -> anyhow::Result<()> {
    let find = |name: &String| match MODELS.iter().find(|model| model.name == name) {
        Some(model) => Ok(model),
        None => {
            let known: Vec<&str> = MODELS.iter().map(|model| model.name).collect();
            bail!(
                "the zoo has no model `{name}`; there are {}",
                known.join(", ")
            )
        }
    };
    // All names are known before the first is fetched.
    let models: Vec<&Model> = names.iter().map(find).collect::<Result<_, _>>()?;
    let mut documents = Vec::new();
    for model in models {
        let progress = spinner(model.name);
        let path = machine.store.get(&model.pin)?;
        progress.finish_and_clear();
        if machine.json {
            documents.push(serde_json::json!({ "name": model.name, "path": path }));
        } else {
            seamline_plan::outln!("{}", path.display());
        }
    }
    if machine.json {
        seamline_plan::outln!("{}", serde_json::json!({ "models": documents }));
    }
    Ok(())
}
