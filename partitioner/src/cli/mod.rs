//! The commands of `seamline`, and what they share.

pub(crate) mod convert;
pub(crate) mod doctor;
mod image;
mod inputs;
pub(crate) mod inspect;
pub(crate) mod plan;
pub(crate) mod report;
pub(crate) mod seams;
pub(crate) mod split;
mod text;
pub(crate) mod verify;
pub(crate) mod zoo;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use seamline_assets::Store;
use seamline_ort::{LibrarySource, Runtime, RuntimeOptions, locate};
use seamline_partitioner::{Model, Source, format_bindings};
use seamline_plan::{Bindings, CODEC_NAMES, CodecSpec, error_text};

use crate::cli::image::ImageSpec;

/// What `main` found in environment and arguments.
pub(crate) struct Machine {
    /// `ORT_DYLIB_PATH`.
    pub(crate) library: Option<PathBuf>,
    /// Fetched files.
    pub(crate) store: Store,
    /// Whether a JSON document is wanted.
    pub(crate) json: bool,
}

impl Machine {
    /// ONNX Runtime, fetched where it is not here yet.
    pub(crate) fn runtime(&self) -> anyhow::Result<Runtime> {
        let progress = spinner("ONNX Runtime");
        let library = locate(self.library.as_deref(), &self.store)?;
        let is_own = library.source == LibrarySource::Environment;
        let runtime = Runtime::load(&RuntimeOptions::new(library)).map_err(|error| {
            if is_own {
                anyhow!("{error}; unset ORT_DYLIB_PATH to have one fetched, or correct it")
            } else {
                error.into()
            }
        })?;
        progress.finish_and_clear();
        Ok(runtime)
    }
}

/// A codec's name, as an argument.
pub(crate) fn codec_name(name: &str) -> Result<String, String> {
    if CodecSpec::is_name(name) {
        return Ok(name.to_owned());
    }
    Err(format!("there is no such codec; there are {CODEC_NAMES}"))
}

/// A model and how its inputs are to be taken.
#[derive(Args)]
pub(crate) struct ModelArguments {
    /// The model (ONNX).
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Size of a symbol of the inputs' shapes, where the usual one does not fit; may be repeated.
    #[arg(long = "shape", value_name = "NAME=N", value_parser = parse_size)]
    shapes: Vec<(String, u64)>,
    /// Preprocessing to put in front, so that a picture enters as bytes: `imagenet`, or
    /// KEY=VALUE,… with input, name, short, size, crop, antialias, order, scale, mean, std. For
    /// example short=256,crop=224x224,mean=0.485:0.456:0.406,std=0.229:0.224:0.225,order=rgb
    #[arg(long, value_name = "SPEC", value_parser = image::parse)]
    image: Option<ImageSpec>,
}

impl ModelArguments {
    pub(crate) fn path(&self) -> &Path {
        &self.model
    }

    /// Reads the model; the source says how to read it again from any folder.
    pub(crate) fn open(&self) -> anyhow::Result<(Model, Source)> {
        anyhow::ensure!(
            !self.model.is_dir(),
            "{} is a folder; expected an ONNX file",
            self.model.display()
        );
        let shapes: Bindings = self.shapes.iter().cloned().collect();
        let image = match &self.image {
            Some(spec) => Some(spec.resolve(&self.model)?),
            None => None,
        };
        let model = Model::open(&self.model, &shapes, image.as_ref())?;
        let path = std::path::absolute(&self.model).context("the current folder")?;
        Ok((
            model,
            Source {
                model: path,
                shapes,
                image,
            },
        ))
    }
}

fn parse_size(text: &str) -> Result<(String, u64), String> {
    let expected = "expected NAME=N with N of 1 or more, for example batch=1";
    // A symbol may contain `=`; a size cannot.
    let (name, size) = text.rsplit_once('=').ok_or(expected)?;
    match size.parse() {
        Ok(size) if size > 0 && !name.is_empty() => Ok((name.to_owned(), size)),
        _ => Err(expected.into()),
    }
}

/// Learns what inference could not tell from a probe run, where anything is left open. A model
/// that does not run on random inputs can still be cut where everything is known: then the second
/// part says why the probe failed.
pub(crate) fn learn(
    model: &mut Model,
    machine: &Machine,
    seed: u64,
) -> anyhow::Result<(usize, Option<String>)> {
    if model.unknown_values().next().is_none() {
        return Ok((0, None));
    }
    let runtime = machine.runtime()?;
    let progress = spinner("probe run");
    let result = model.learn(&runtime, seed);
    progress.finish_and_clear();
    Ok(match result {
        Ok(learnt) => (learnt, None),
        Err(error) => (0, Some(error_text(&error))),
    })
}

/// Which sizes were assumed for the inputs' symbols.
pub(crate) fn sizes(model: &Model) -> String {
    if model.reference.is_empty() {
        return "every size is fixed".into();
    }
    let sizes = format_bindings(&model.reference);
    format!("sizes assumed or given: {sizes} (others: --shape NAME=N)")
}

/// A spinner on stderr, where that is a terminal.
pub(crate) fn spinner(what: &str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(what.to_owned());
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

/// A bar of `length` steps on stderr, where that is a terminal.
pub(crate) fn bar(what: &str, length: usize) -> ProgressBar {
    let bar = ProgressBar::new(length as u64).with_message(what.to_owned());
    match ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_symbols_are_positive_numbers() {
        assert_eq!(parse_size("N=3"), Ok(("N".into(), 3)));
        assert_eq!(parse_size("a=b=3"), Ok(("a=b".into(), 3)));
        for wrong in [
            "N",
            "N=",
            "N=0",
            "N=-1",
            "=3",
            "N=x",
            "N=99999999999999999999",
        ] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }
}
