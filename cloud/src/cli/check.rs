//! `seamline-cloud check`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use seamline_cloud::load;
use seamline_ort::SessionOptions;
use seamline_plan::Cut;

#[derive(Args)]
pub(crate) struct Check {
    /// Folder of bundles (NAME.seam), or one bundle.
    #[arg(value_name = "DIR")]
    bundles: PathBuf,
}

impl Check {
    pub(crate) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let contracts = load::open_bundles(&self.bundles)?;
        let runtime = super::load_runtime(0)?;
        load::load_tails(&runtime, &contracts, &SessionOptions::default())?;
        if json {
            let bundles: Vec<_> = contracts
                .iter()
                .map(|contract| {
                    let cuts: Vec<_> = contract.manifest().cuts.iter().map(cut_json).collect();
                    serde_json::json!({
                        "bundle": contract.bundle().root(),
                        "model": contract.manifest().model.name,
                        "fingerprint": contract.fingerprint(),
                        "cuts": cuts,
                    })
                })
                .collect();
            println!("{}", serde_json::json!({ "bundles": bundles }));
            return Ok(ExitCode::SUCCESS);
        }
        for contract in &contracts {
            let manifest = contract.manifest();
            println!("{}: {} {}", contract.bundle().root().display(), manifest.model.name, contract.fingerprint());
            for cut in &manifest.cuts {
                let values: Vec<String> =
                    cut.crossing.iter().map(|crossing| crossing.spec.to_string()).collect();
                let batches = if cut.is_batchable() { "batched" } else { "one at a time" };
                println!("  cut {} ({batches}): {}", cut.id, values.join("; "));
            }
        }
        println!("every file is as its manifest says, and every stage loads");
        Ok(ExitCode::SUCCESS)
    }
}

fn cut_json(cut: &Cut) -> serde_json::Value {
    let values: Vec<_> = cut
        .crossing
        .iter()
        .map(|crossing| serde_json::json!({ "spec": crossing.spec, "batch_axis": crossing.batch_axis }))
        .collect();
    serde_json::json!({ "id": cut.id, "batched": cut.is_batchable(), "values": values })
}
