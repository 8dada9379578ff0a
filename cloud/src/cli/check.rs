//! `seamline-cloud check`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use seamline_cloud::config::LimitsConfig;
use seamline_cloud::{Contract, load};
use seamline_ort::{ModelSource, Placement, Runtime, SessionOptions, placement, profile};
use seamline_plan::{Cut, Tensor};

#[derive(Args)]
pub(crate) struct Check {
    /// Folder of bundles (NAME.seam), or one bundle.
    #[arg(value_name = "DIR")]
    bundles: PathBuf,
}

impl Check {
    pub(crate) fn run(self, json: bool) -> anyhow::Result<ExitCode> {
        let contracts =
            load::open_bundles(&self.bundles, LimitsConfig::default().max_over_reference)?;
        let runtime = super::load_runtime(0)?;
        load::load_tails(&runtime, &contracts, &SessionOptions::default())?;
        let placements: Vec<Vec<StagePlacement>> = contracts
            .iter()
            .map(|contract| placements(&runtime, contract))
            .collect();
        if json {
            let bundles: Vec<_> = contracts
                .iter()
                .zip(&placements)
                .map(|(contract, placements)| {
                    let cuts: Vec<_> = contract.manifest().cuts.iter().map(cut_json).collect();
                    let stages: Vec<_> = placements.iter().map(StagePlacement::json).collect();
                    serde_json::json!({
                        "bundle": contract.bundle().root(),
                        "model": contract.manifest().model.name,
                        "fingerprint": contract.fingerprint(),
                        "cuts": cuts,
                        "stages": stages,
                    })
                })
                .collect();
            seamline_plan::outln!("{}", serde_json::json!({ "bundles": bundles }));
            return Ok(ExitCode::SUCCESS);
        }
        for (contract, placements) in contracts.iter().zip(&placements) {
            let manifest = contract.manifest();
            seamline_plan::outln!(
                "{}: {} {}",
                contract.bundle().root().display(),
                manifest.model.name,
                contract.fingerprint()
            );
            for cut in &manifest.cuts {
                let values: Vec<String> = cut
                    .crossing
                    .iter()
                    .map(|crossing| crossing.spec.to_string())
                    .collect();
                let batches = if cut.is_batchable() {
                    "batched"
                } else {
                    "one at a time"
                };
                seamline_plan::outln!("  cut {} ({batches}): {}", cut.id, values.join("; "));
            }
            for placement in placements {
                seamline_plan::outln!("  stage {}: {}", placement.stage, placement.text());
            }
        }
        seamline_plan::outln!("every file is as its manifest says, and every stage loads");
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

/// Which execution providers ran a stage's nodes.
struct StagePlacement {
    stage: usize,
    /// Nodes by provider, or why the stage did not run on zeros.
    result: Result<Placement, String>,
}

impl StagePlacement {
    fn text(&self) -> String {
        match &self.result {
            Ok(placement) => {
                let parts = placement
                    .iter()
                    .map(|(provider, nodes)| format!("{nodes} nodes on {provider}"));
                parts.collect::<Vec<_>>().join(", ")
            }
            Err(problem) => format!("where its nodes run is not known: {problem}"),
        }
    }

    fn json(&self) -> serde_json::Value {
        match &self.result {
            Ok(placement) => serde_json::json!({ "stage": self.stage, "nodes": placement }),
            Err(problem) => serde_json::json!({ "stage": self.stage, "problem": problem }),
        }
    }
}

/// Runs the first stage behind each cut once on zeros, and sees who ran its nodes.
fn placements(runtime: &Runtime, contract: &Contract) -> Vec<StagePlacement> {
    let cuts = contract.manifest().cuts.iter();
    cuts.filter_map(|cut| {
        let path = contract.bundle().stage_file(cut.stage)?;
        let result = zeros(contract, cut).and_then(|inputs| {
            let inputs: Vec<&Tensor> = inputs.iter().collect();
            let options = SessionOptions::default();
            profile(runtime, ModelSource::File(&path), &options, &inputs, 1)
                .map(|nodes| placement(&nodes))
                .map_err(|error| error.to_string())
        });
        Some(StagePlacement {
            stage: cut.stage,
            result,
        })
    })
    .collect()
}

/// The inputs of the stage behind `cut`, all zeros.
fn zeros(contract: &Contract, cut: &Cut) -> Result<Vec<Tensor>, String> {
    let stage = &contract.manifest().stages[cut.stage];
    let inputs = stage.inputs.iter().map(|name| {
        let crossing = cut
            .crossing
            .iter()
            .find(|crossing| crossing.spec.name == *name);
        let crossing =
            crossing.ok_or_else(|| format!("`{name}` is state that the service keeps"))?;
        let shape = crossing.reference.iter().map(|&dim| usize::try_from(dim));
        let shape = shape
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())?;
        Tensor::zeros(crossing.spec.dtype, shape).map_err(|error| error.to_string())
    });
    inputs.collect()
}
