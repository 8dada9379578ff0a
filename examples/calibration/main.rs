//! Writes a calibration folder for a model of the zoo, to plan it on real data:
//! `cargo run -p seamline-examples --bin calibration -- MODEL DIR [--count N]`.

use std::path::PathBuf;

use clap::Parser;
use seamline_examples::calibration::{calibration, image_argument};

/// Writes calibration data for a model of the zoo.
#[derive(Parser)]
struct Arguments {
    /// The model: orientation, ocr-rec, ocr-cls, ocr-det, layout, vit-s, minilm-l3, minilm-l6-int8,
    /// vad-seq or vad-if.
    model: String,
    /// The folder, which is made.
    folder: PathBuf,
    /// Requests.
    #[arg(long, default_value_t = 64)]
    count: usize,
}

fn main() -> anyhow::Result<()> {
    let Arguments {
        model,
        folder,
        count,
    } = Arguments::parse();
    calibration(&model, &folder, count)?;
    let mut options =
        image_argument(&model).map_or_else(String::new, |text| format!(" --image {text}"));
    // What the recurrent nets need beside their requests.
    options += match model.as_str() {
        "vad-if" => " --shape sequence=576 --state state=stateN",
        "vad-seq" => " --state h=hn --state c=cn",
        _ => "",
    };
    println!(
        "{}: {count} requests\n\nnext: seamline plan {model}.onnx{options} --calibration {} (`seamline zoo get {model}` fetches the model)",
        folder.display(),
        folder.display()
    );
    Ok(())
}
