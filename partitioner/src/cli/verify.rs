//! `seamline verify`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use seamline_ort::{Optimization, Runtime};
use seamline_partitioner::{
    CutDifference, Difference, Model, OutputDifference, Source, SourceError, VerifyOptions, spread,
    verify,
};
use seamline_plan::{Bundle, Manifest, Tensor};
use serde::Serialize;

use super::text::{self, Align, plural};
use super::{Machine, bar, codec_name, inputs};

/// The largest relative difference that lossless codecs may leave where nothing else is known.
const LIMIT: f64 = 1e-5;

/// With optimisations on, the runtime fuses other operators in two halves than in the whole, which
/// moves the last bits; it moves them between levels of the whole model too. So many times that
/// spread may the halves be off.
const SPREADS: f64 = 2.0;

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
    /// changes, all what a service would give; every tries each.
    #[arg(long, value_name = "LEVEL", default_value = "every")]
    level: Level,
    /// What crossing values that allow it are sent as (`int8`, `jpeg85`); the bundle's default
    /// without it.
    #[arg(long, value_name = "CODEC", value_parser = codec_name)]
    codec: Option<String>,
    /// Only this cut; every cut without it.
    #[arg(long, value_name = "ID")]
    cut: Option<String>,
    /// Largest allowed |difference| / max(1, |whole|). Without it, where every value crosses
    /// unchanged: 1e-5, or twice what the whole model itself differs between levels where that is
    /// more and optimisations are on. Where a codec rounds: none.
    #[arg(long, value_name = "REL")]
    limit: Option<f64>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    Off,
    Basic,
    Extended,
    All,
    Every,
}

impl Level {
    const fn optimizations(self) -> &'static [Optimization] {
        match self {
            Level::Off => &[Optimization::Off],
            Level::Basic => &[Optimization::Basic],
            Level::Extended => &[Optimization::Extended],
            Level::All => &[Optimization::All],
            Level::Every => &Optimization::ALL,
        }
    }
}

const fn name(level: Optimization) -> &'static str {
    match level {
        Optimization::Off => "off",
        Optimization::Basic => "basic",
        Optimization::Extended => "extended",
        Optimization::All => "all",
    }
}

/// What one level gave.
#[derive(Serialize)]
struct LevelResult {
    level: &'static str,
    /// The worst of all cuts.
    outputs: Vec<OutputDifference>,
    cuts: Vec<CutDifference>,
    /// Each output's, in the order of `outputs`; `None` for no limit.
    limits: Option<Vec<f64>>,
    passed: bool,
}

impl LevelResult {
    fn new(level: Optimization, cuts: Vec<CutDifference>, limits: Option<Vec<f64>>) -> LevelResult {
        let outputs = worst(&cuts);
        // A difference that is no number is never within the limit.
        let within = |limits: &Vec<f64>| {
            let mut pairs = outputs.iter().zip(limits);
            pairs.all(|(output, limit)| output.max_rel <= *limit)
        };
        LevelResult {
            level: name(level),
            passed: limits.as_ref().is_none_or(within),
            outputs,
            cuts,
            limits,
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
        let runtime = machine.runtime()?;
        let levels = self.verify(&runtime, &manifest, &model, &requests)?;
        let passed = levels.iter().all(|level| level.passed);
        if machine.json {
            let all: Vec<CutDifference> = levels.iter().flat_map(|l| l.cuts.clone()).collect();
            let document = serde_json::json!({
                "outputs": worst(&all),
                "levels": levels,
                "inputs": requests.len(),
                "passed": passed,
            });
            seamline_plan::outln!("{document}");
        } else {
            print(&levels, requests.len());
        }
        Ok(if passed {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn verify(
        &self,
        runtime: &Runtime,
        manifest: &Manifest,
        model: &Model,
        requests: &[BTreeMap<String, Tensor>],
    ) -> anyhow::Result<Vec<LevelResult>> {
        let levels = self.level.optimizations();
        let progress = bar("verifying", levels.len());
        let mut options = VerifyOptions {
            codec: self.codec.clone(),
            cut: self.cut.clone(),
            ..VerifyOptions::default()
        };
        let lossless = is_lossless(manifest, &options);
        let optimised = levels.iter().any(|level| *level != Optimization::Off);
        let spreads = if self.limit.is_none() && lossless && optimised {
            spread(runtime, model, requests)?
        } else {
            Vec::new()
        };
        let limit = |level: Optimization, output: usize| match (self.limit, level) {
            (Some(limit), _) => limit,
            (None, Optimization::Off) => LIMIT,
            (None, _) => {
                // A whole model whose integers flip between levels gives no measure.
                let spread = spreads.get(output).map_or(0.0, |spread| spread.max_rel);
                LIMIT.max(if spread.is_finite() {
                    SPREADS * spread
                } else {
                    0.0
                })
            }
        };
        let mut results = Vec::new();
        for &level in levels {
            options.optimization = level;
            let cuts = verify(runtime, &self.bundle, model, requests, &options)?;
            let limits = (self.limit.is_some() || lossless)
                .then(|| (0..manifest.outputs.len()).map(|output| limit(level, output)));
            results.push(LevelResult::new(level, cuts, limits.map(Iterator::collect)));
            progress.inc(1);
        }
        progress.finish_and_clear();
        Ok(results)
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
}

fn print(levels: &[LevelResult], requests: usize) {
    let number = |number: f64| format!("{number:.1e}");
    let mut rows: Vec<Vec<String>> = Vec::new();
    for level in levels {
        let limit = |output: usize| match &level.limits {
            Some(limits) => number(limits[output]),
            None => "-".into(),
        };
        for cut in &level.cuts {
            for (index, output) in cut.outputs.iter().enumerate() {
                let (abs, rel) = (number(output.max_abs), number(output.max_rel));
                let (cut, output) = (cut.id.clone(), output.name.clone());
                rows.push(vec![
                    level.level.into(),
                    cut,
                    output,
                    abs,
                    rel,
                    limit(index),
                ]);
            }
        }
    }
    let columns = [
        ("level", Align::Left),
        ("cut", Align::Left),
        ("output", Align::Left),
        ("max abs", Align::Right),
        ("max rel", Align::Right),
        ("limit", Align::Right),
    ];
    seamline_plan::out!("{}", text::table(&columns, &rows));
    seamline_plan::outln!(
        "\nhead then tail against the whole, {}",
        plural(requests, "request")
    );
    let failed: Vec<&str> = levels
        .iter()
        .filter(|l| !l.passed)
        .map(|l| l.level)
        .collect();
    if levels.iter().all(|level| level.limits.is_none()) {
        seamline_plan::outln!(
            "no limit: the codec rounds, and how much is too much depends on the task; set one \
             with --limit"
        );
    } else if failed.is_empty() {
        seamline_plan::outln!("passed: every max rel is within its limit");
    } else {
        seamline_plan::outln!("failed at level {}: {}", failed.join(", "), hint(&failed));
    }
}

fn hint(failed: &[&str]) -> &'static str {
    if failed.contains(&"off") {
        "with optimisations off nothing but cutting and codecs differs, so the halves are not the \
         model; split it again, and report it where that does not help"
    } else {
        "ONNX Runtime fuses other operators in the halves than in the whole; see whether it \
         matters for the task, and set a limit of your own with --limit"
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
        .map(|value| options.codec_of(value));
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
