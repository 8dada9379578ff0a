//! What candidates are worth and what they give away, on trained models with calibration data of
//! their own: the long run.
//!
//! `cargo run --release -p seamline-tests --bin accuracy-and-leakage [-- MODEL …]`; without models,
//! all of the zoo. Of each the input and six seams from end to end, each raw, as `f16` and `int8`.
//! `s` is the time of what stands in front of it: of a place's first row for all its codecs.

use std::process::ExitCode;
use std::time::Instant;

use seamline_assets::MODELS;
use seamline_partitioner::Model;
use seamline_partitioner::plan::{
    Attacker, Calibration, Evaluation, Evaluator, Leakage, LeakageError, LeakageOptions,
    MetricChoice, SPLITTING_IS_NOT_PRIVACY, SeamSessions, leakage,
};
use seamline_tests::calibrated::{calibrated, spread};
use seamline_tests::runtime;

/// Seams of each model.
const SEAMS: usize = 6;

const CODECS: [&str; 3] = ["raw", "f16", "int8"];

fn main() -> ExitCode {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    let is_known = |name: &String| MODELS.iter().any(|model| model.name == name);
    if let Some(stranger) = names.iter().find(|name| !is_known(name)) {
        eprintln!("error: no model `{stranger}`; `seamline zoo list` names them");
        return ExitCode::from(2);
    }
    if names.is_empty() {
        names = MODELS.iter().map(|model| model.name.to_owned()).collect();
    }
    for name in &names {
        table(name);
    }
    println!("{SPLITTING_IS_NOT_PRIVACY}");
    ExitCode::SUCCESS
}

/// Requests for a model: fewer where one takes long.
fn requests(name: &str) -> usize {
    match name {
        "layout" => 9,
        "ocr-det" => 12,
        "minilm-l3" | "minilm-l6-int8" => 48,
        _ => 32,
    }
}

fn table(name: &str) {
    let (model, calibration) = calibrated(name, requests(name));
    let started = Instant::now();
    let choice = MetricChoice::default();
    let mut evaluator =
        Evaluator::new(&runtime(), &model, &calibration, &choice).expect("the whole model runs");
    let record = evaluator.record();
    println!(
        "{name}: {} requests; {} of the whole model {:.4}; {:.1} s",
        record.samples,
        record.name,
        record.baseline,
        started.elapsed().as_secs_f64()
    );
    let started = Instant::now();
    let attacker = Attacker::new(&runtime(), &model, &calibration, &LeakageOptions::default());
    let took = started.elapsed().as_secs_f64();
    match &attacker {
        Ok(attacker) => {
            let record = attacker.record();
            println!(
                "  {}: {:.3} of the input itself; learns from {}, tried on {}; {took:.1} s",
                record.name, record.at_input, record.trained_on, record.tried_on
            );
        }
        Err(error) => println!("  {error}; {took:.1} s"),
    }
    println!(
        "  {:<16} {:>5}  {:<5} {:>10} {:>8} {:>6}  recovered  PSNR dB      s",
        "place", "depth", "codec", "figure", "up B", "s"
    );
    let sessions = SeamSessions::of_input(&runtime(), &model).expect("the model loads");
    let attacker = attacker.as_ref().ok();
    rows(
        "input",
        0.0,
        sessions,
        &mut evaluator,
        attacker,
        &calibration,
    );
    for seam in spread(&model, SEAMS) {
        let sessions = of_seam(&model, &seam);
        let depth = seam.depth();
        rows(
            &seam.id,
            depth,
            sessions,
            &mut evaluator,
            attacker,
            &calibration,
        );
    }
}

fn of_seam(model: &Model, seam: &seamline_graph::seams::Seam) -> SeamSessions {
    SeamSessions::of_seam(&runtime(), model, seam).expect("both halves load")
}

/// The rows of one place, a codec each.
fn rows(
    place: &str,
    depth: f64,
    mut sessions: SeamSessions,
    evaluator: &mut Evaluator<'_>,
    attacker: Option<&Attacker>,
    calibration: &Calibration,
) {
    let shapes = sessions.crossing().iter();
    let shapes: Vec<String> = shapes.map(|crossing| crossing.spec.to_string()).collect();
    println!("  {place}: {}", shapes.join(", "));
    let started = Instant::now();
    let found = evaluator
        .seam(&mut sessions, &CODECS)
        .expect("both halves run");
    let mut took = format!("{:.1}", started.elapsed().as_secs_f64());
    for Evaluation {
        codec,
        figure,
        up_bytes,
        ..
    } in found
    {
        let figure = match figure {
            Ok(figure) => format!("{:.5}", figure.value),
            Err(problem) => problem,
        };
        let started = Instant::now();
        let leaks = attacker.map(|attacker| leakage(attacker, &mut sessions, calibration, &codec));
        let leaks = match leaks {
            Some(Ok(Leakage { recovered, psnr_db })) => {
                let psnr = psnr_db.map_or("—".into(), |psnr| format!("{psnr:.1}"));
                let attacked = started.elapsed().as_secs_f64();
                format!("{recovered:>9.3}  {psnr:>7}  {attacked:>5.1}")
            }
            Some(Err(LeakageError::NoFigure(why))) => why,
            Some(Err(error)) => panic!("{error}"),
            None => String::new(),
        };
        println!(
            "  {place:<16} {depth:>5.2}  {codec:<5} {figure:>10} {up_bytes:>8} {took:>6}  {leaks}"
        );
        took.clear();
    }
}
