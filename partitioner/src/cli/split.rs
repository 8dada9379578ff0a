//! `seamline split`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use seamline_partitioner::{BatchProof, BatchVerdict, SplitOptions, SplitReport, split};
use seamline_plan::{Crossing, Cut, StateSpec};

use super::text::{self, plural};
use super::{Machine, ModelArguments, codec_name, learn, spinner};

/// A service looks for folders of this name only.
pub(crate) fn bundle_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path
        .extension()
        .is_some_and(|extension| extension == "seam")
    {
        return Ok(path);
    }
    let named = path.with_added_extension("seam");
    Err(format!(
        "a bundle's name ends in .seam: give {}",
        named.display()
    ))
}

#[derive(Args)]
pub(crate) struct Split {
    #[command(flatten)]
    model: ModelArguments,
    /// Where to cut: a seam's id from `seamline seams`, or a value's name; may be repeated. The
    /// shallowest is the default cut.
    #[arg(long, value_name = "SEAM")]
    at: Vec<String>,
    /// The bundle to make (NAME.seam); one that is there already is replaced.
    #[arg(short = 'o', long = "output", value_name = "BUNDLE", value_parser = bundle_path)]
    output: PathBuf,
    /// The device gets the tail too, so that it can run alone.
    #[arg(long)]
    edge_tail: bool,
    /// The service gets the head too, so that a device may send the model's own inputs.
    #[arg(long)]
    cloud_head: bool,
    /// What crossing values are sent as by default, where they take it; the others can be chosen
    /// per request. f32: raw, f16, int8; integers: raw, packed; u8 pictures also: png, jpeg1 to
    /// jpeg100, webp1 to webp100; any: zstd.
    #[arg(long, value_name = "CODEC", value_parser = codec_name)]
    codec: Option<String>,
    /// An output that is the next request's input, kept by the service; may be repeated.
    #[arg(long = "state", value_name = "IN=OUT", value_parser = parse_state)]
    states: Vec<StateSpec>,
    /// Seed of the probe inputs.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

pub(crate) fn parse_state(text: &str) -> Result<StateSpec, String> {
    match text.split_once('=') {
        Some((input, output)) if !input.is_empty() && !output.is_empty() => Ok(StateSpec {
            input: input.to_owned(),
            output: output.to_owned(),
        }),
        _ => Err("expected IN=OUT: an input's name and the output that follows it".into()),
    }
}

impl Split {
    pub(crate) fn run(self, machine: &Machine) -> anyhow::Result<ExitCode> {
        let (mut model, source) = self.model.open()?;
        let (_, problem) = learn(&mut model, machine, self.seed)?;
        if let Some(problem) = problem {
            eprintln!("warning: {problem}");
        }
        let options = SplitOptions {
            at: self.at,
            edge_tail: self.edge_tail,
            cloud_head: self.cloud_head,
            default_cut: None,
            codec: self.codec,
            states: self.states,
            seed: self.seed,
        };
        let runtime = machine.runtime()?;
        let progress = spinner("cutting, writing, proving batch axes");
        let report = split(&model, &runtime, &self.output, &options, &source)?;
        progress.finish_and_clear();
        if machine.json {
            seamline_plan::outln!("{}", document(&report));
        } else {
            print(&report);
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn document(report: &SplitReport) -> serde_json::Value {
    let proof = |cut: &Cut| report.batching.iter().find(|proof| proof.cut == cut.id);
    let cuts: Vec<_> = report
        .manifest
        .cuts
        .iter()
        .map(|cut| {
            serde_json::json!({
                "id": cut.id,
                "stage": cut.stage,
                "depth": cut.depth,
                "crossing": cut.crossing,
                "replies": cut.replies,
                "batched": cut.is_batchable(),
                "batching": proof(cut).map(reason),
            })
        })
        .collect();
    serde_json::json!({
        "bundle": report.path,
        "fingerprint": report.fingerprint,
        "default_cut": report.manifest.default_cut,
        "stages": report.manifest.stages,
        "cuts": cuts,
        "bytes": { "edge": report.bytes.edge, "cloud": report.bytes.cloud },
    })
}

fn print(report: &SplitReport) {
    let manifest = &report.manifest;
    seamline_plan::outln!("{}  {}", report.path.display(), report.fingerprint.short());
    seamline_plan::outln!("  edge   {}", text::bytes(report.bytes.edge));
    seamline_plan::outln!("  cloud  {}", text::bytes(report.bytes.cloud));
    seamline_plan::outln!("\nstages");
    for (index, stage) in manifest.stages.iter().enumerate() {
        let sides = match (&stage.edge, &stage.cloud) {
            (Some(_), Some(_)) => "edge and cloud",
            (Some(_), None) => "edge",
            (None, _) => "cloud",
        };
        seamline_plan::outln!("  {index}  {}, {sides}", plural(stage.nodes, "node"));
    }
    seamline_plan::outln!("\ncuts");
    for (cut, proof) in manifest.cuts.iter().zip(&report.batching) {
        let default = if cut.id == manifest.default_cut {
            ", the default"
        } else {
            ""
        };
        seamline_plan::outln!(
            "  {} at {:.1} % of the work{default}",
            cut.id,
            100.0 * cut.depth
        );
        for crossing in &cut.crossing {
            seamline_plan::outln!("    {}", describe(crossing));
        }
        seamline_plan::outln!("    {}", reason(proof));
    }
    seamline_plan::outln!("\nnext: seamline verify {}", report.path.display());
}

fn describe(crossing: &Crossing) -> String {
    let codecs: Vec<&str> = crossing.codecs.iter().map(|codec| codec.name()).collect();
    format!("{}, sent as {}", crossing.spec, codecs.join(" or "))
}

/// Whether requests are joined, and why.
fn reason(proof: &BatchProof) -> String {
    match &proof.verdict {
        BatchVerdict::Proven { max_rel } if *max_rel == 0.0 => {
            "batched: two rows together equal the same rows apart".into()
        }
        BatchVerdict::Proven { max_rel } => {
            format!("batched: two rows together equal the same rows apart within {max_rel:.1e}")
        }
        BatchVerdict::NoTail => "nothing is left for the service".into(),
        BatchVerdict::NoAxis { value } => {
            format!("one at a time: `{value}` has no batch axis")
        }
        BatchVerdict::Refuted { output, max_rel } => format!(
            "one at a time: `{output}` of two rows together differs by {max_rel:.1e} from the \
             same rows apart"
        ),
        BatchVerdict::Fails { problem } => {
            format!("one at a time: two rows together do not run: {problem}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_named_as_the_service_looks_for_it() {
        assert_eq!(bundle_path("b/m.seam"), Ok("b/m.seam".into()));
        let error = bundle_path("b/m").unwrap_err();
        assert!(error.contains("b/m.seam"), "{error}");
    }

    #[test]
    fn states_pair_an_input_with_an_output() {
        let state = parse_state("h=hn").unwrap();
        assert_eq!((state.input.as_str(), state.output.as_str()), ("h", "hn"));
        for wrong in ["h", "=hn", "h=", ""] {
            assert!(
                parse_state(wrong).unwrap_err().contains("IN=OUT"),
                "{wrong}"
            );
        }
    }
}
