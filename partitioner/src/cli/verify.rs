//! `seamline verify`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use seamline_ort::Optimization;
use seamline_partitioner::{
    CutDifference, Difference, Model, OutputDifference, Source, SourceError, VerifyOptions, verify,
};
use seamline_plan::{Bundle, Manifest};

use super::text::{self, Align, plural};
use super::{Machine, bar, inputs};

/// The largest relative difference that lossless codecs may leave: the runtime may fuse other
/// operators in two halves than in the whole, which moves the last bits.
const LIMIT: f64 = 1e-5;

/// Random requests where no input is given.
const RANDOM: u64 = 3;

#[derive(Args)]
pub(crate) struct Verify {
    /// The bundle (NAME.seam).
    #[arg(value_name = "BUNDLE")]
    bundle: PathBuf,
    /// The model that the bundle was cut from, where it does not lie where it lay then.
    #[arg(long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// A request's input (.npy, .png, .jpg, .json); may be repeated.
    #[arg(long = "input", value_name = "[NAME=]FILE")]
    inputs: Vec<String>,
    /// Requests of random values within what the graph can take; 3 where no input is given.
    #[arg(long, value_name = "N")]
    random: Option<u64>,
    /// Seed of the random values.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How far ONNX Runtime may rewrite the halves and the whole: off shows what cutting itself
    /// changes, all what a service would give.
    #[arg(long, value_name = "LEVEL", default_value = "all")]
    level: Level,
    /// What crossing f32 values are sent as; the bundle's default without it.
    #[arg(long, value_name = "CODEC", value_parser = ["raw", "f16", "int8"])]
    codec: Option<String>,
    /// Only this cut; every cut without it.
    #[arg(long, value_name = "ID")]
    cut: Option<String>,
    /// Largest allowed |difference| / max(1, |whole|); 1e-5 without it where every value crosses
    /// unchanged, none where a codec rounds.
    #[arg(long, value_name = "REL")]
    limit: Option<f64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    Off,
    Basic,
    Extended,
    All,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Level::Off => "off",
            Level::Basic => "basic",
            Level::Extended => "extended",
            Level::All => "all",
        }
    }

    const fn optimization(self) -> Optimization {
        match self {
            Level::Off => Optimization::Off,
            Level::Basic => Optimization::Basic,
            Level::Extended => Optimization::Extended,
            Level::All => Optimization::All,
        }
    }
}

impl Verify {
    pub(crate) fn run(self, machine: &Machine) -> anyhow::Result<ExitCode> {
        let (manifest, _) = Bundle::read_manifest(&self.bundle)?;
        let model = self.open_model()?;
        let mut requests = inputs::read(&manifest, &model, &self.inputs)?;
        let random = self
            .random
            .unwrap_or(if requests.is_empty() { RANDOM } else { 0 });
        requests.extend(inputs::draw(&model, random, self.seed)?);
        anyhow::ensure!(
            !requests.is_empty(),
            "--random 0 without --input leaves nothing to verify"
        );
        let options = VerifyOptions {
            optimization: self.level.optimization(),
            codec: self.codec.clone(),
            cut: self.cut.clone(),
        };
        let limit = self
            .limit
            .or_else(|| is_lossless(&manifest, &options).then_some(LIMIT));
        let runtime = machine.runtime()?;
        let progress = bar("verifying", requests.len());
        let inputs = progress.wrap_iter(requests.iter());
        let cuts = verify(&runtime, &self.bundle, &model, inputs, &options)?;
        progress.finish_and_clear();
        let outputs = worst(&cuts);
        // A difference that is no number is never within the limit.
        let within = |output: &OutputDifference| limit.is_none_or(|limit| output.max_rel <= limit);
        let passed = outputs.iter().all(within);
        if machine.json {
            let document = serde_json::json!({
                "outputs": outputs,
                "cuts": cuts,
                "inputs": requests.len(),
                "level": self.level.name(),
                "limit": limit,
            });
            println!("{document}");
        } else {
            self.print(&cuts, requests.len(), limit, passed);
        }
        Ok(if passed {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    /// The whole model, as it was read when the bundle was made.
    fn open_model(&self) -> anyhow::Result<Model> {
        let mut source = match (Source::read(&self.bundle), &self.model) {
            (Ok(source), _) => source,
            // A bundle without its source can still be verified against a model as it is.
            (Err(SourceError::Missing { .. }), Some(_)) => Source::default(),
            (Err(error), _) => return Err(error.into()),
        };
        match &self.model {
            Some(model) => source.model.clone_from(model),
            None if !source.model.exists() => anyhow::bail!(
                "{}, from which this bundle was cut, is not there; say where it is with --model",
                source.model.display()
            ),
            None => {}
        }
        Ok(source.open()?)
    }

    fn print(&self, cuts: &[CutDifference], requests: usize, limit: Option<f64>, passed: bool) {
        let rows: Vec<Vec<String>> = cuts
            .iter()
            .flat_map(|cut| cut.outputs.iter().map(move |output| (cut, output)))
            .map(|(cut, output)| {
                let number = |number: f64| format!("{number:.1e}");
                let (abs, rel) = (number(output.max_abs), number(output.max_rel));
                vec![cut.id.clone(), output.name.clone(), abs, rel]
            })
            .collect();
        let columns = [
            ("cut", Align::Left),
            ("output", Align::Left),
            ("max abs", Align::Right),
            ("max rel", Align::Right),
        ];
        print!("{}", text::table(&columns, &rows));
        let level = self.level.name();
        println!(
            "\nhead then tail against the whole, {}, level {level}",
            plural(requests, "request")
        );
        match limit {
            Some(limit) if passed => println!("passed: max rel is at most {limit:.1e}"),
            Some(limit) => {
                println!("failed: max rel is above {limit:.1e}");
                println!("{}", self.hint());
            }
            None => println!(
                "no limit: the codec rounds, and how much is too much depends on the task; set \
                 one with --limit"
            ),
        }
    }

    fn hint(&self) -> &'static str {
        match self.level {
            Level::Off => "with optimisations off nothing but cutting and codecs differs",
            _ => {
                "next: --level off leaves out what ONNX Runtime fuses differently in halves; \
                 --limit sets another limit"
            }
        }
    }
}

/// Whether every value of the cuts in question crosses unchanged.
fn is_lossless(manifest: &Manifest, options: &VerifyOptions) -> bool {
    let cuts = manifest
        .cuts
        .iter()
        .filter(|cut| options.cut.as_ref().is_none_or(|id| *id == cut.id));
    let mut codecs = cuts
        .flat_map(|cut| &cut.crossing)
        .filter_map(|value| options.codec_of(value));
    codecs.all(|codec| codec.is_lossless())
}

/// Each output's largest differences over all cuts.
fn worst(cuts: &[CutDifference]) -> Vec<OutputDifference> {
    let mut worst: BTreeMap<&str, Difference> = BTreeMap::new();
    for output in cuts.iter().flat_map(|cut| &cut.outputs) {
        let so_far = worst.entry(&output.name).or_default();
        *so_far = so_far.max(Difference {
            max_abs: output.max_abs,
            max_rel: output.max_rel,
        });
    }
    let names = cuts
        .first()
        .map(|cut| cut.outputs.as_slice())
        .unwrap_or_default();
    names
        .iter()
        .filter_map(|output| {
            let difference = worst.get(output.name.as_str())?;
            Some(OutputDifference {
                name: output.name.clone(),
                max_abs: difference.max_abs,
                max_rel: difference.max_rel,
            })
        })
        .collect()
}
