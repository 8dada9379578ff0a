//! End metrics and leakage on trained models with calibration data of their own.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::time::Instant;

use seamline_graph::seams::Seam;
use seamline_partitioner::plan::{
    Attacker, Calibration, CalibrationOptions, Evaluation, Evaluator, LeakageError, LeakageOptions,
    MetricChoice, SeamSessions, leakage,
};
use seamline_partitioner::{Model, find_seams};
use seamline_tests::calibration::{calibration, preprocessing};
use seamline_tests::{runtime, sizes, zoo};

/// A model behind its preprocessing, with `count` requests of its own.
fn open(name: &str, count: usize, states: &[&str]) -> (Model, Calibration) {
    let image = preprocessing(name);
    let mut sizes = sizes(name);
    if image.is_some() {
        sizes.clear();
    }
    let mut model = Model::open(&zoo(name), &sizes, image.as_ref()).unwrap();
    model.learn(&runtime(), 1).unwrap();
    let folder = tempfile::tempdir().unwrap();
    calibration(name, folder.path(), count).unwrap();
    let options = CalibrationOptions {
        states: states.iter().map(|&state| state.to_owned()).collect(),
        ..CalibrationOptions::default()
    };
    let calibration = Calibration::read(folder.path(), &model, &options).unwrap();
    assert_eq!(calibration.samples.len(), count);
    (model, calibration)
}

/// `count` seams, spread over the list, its ends included.
fn spread(model: &Model, count: usize) -> Vec<Seam> {
    let listed = find_seams(model, &[]).unwrap().listed;
    let last = listed.len() - 1;
    (0..count)
        .map(|index| listed[index * last / (count - 1)].clone())
        .collect()
}

#[test]
fn explore() {
    for (name, count, states) in [
        ("orientation", 32, &[][..]),
        ("ocr-rec", 32, &[]),
        ("vit-s", 24, &[]),
        ("minilm-l3", 48, &[]),
        ("minilm-l6-int8", 48, &[]),
        ("vad-seq", 24, &["h", "c"]),
        ("vad-if", 24, &["state"]),
        ("ocr-cls", 24, &[]),
        ("ocr-det", 12, &[]),
        ("layout", 8, &[]),
    ] {
        if std::env::var("ONLY").is_ok_and(|only| !only.split(',').any(|o| o == name)) {
            continue;
        }
        let (model, calibration) = open(name, count, states);
        let started = Instant::now();
        let mut evaluator =
            Evaluator::new(&runtime(), &model, &calibration, &MetricChoice::default()).unwrap();
        println!("{name}: {:?} {:?}", evaluator.record(), started.elapsed());
        let started = Instant::now();
        let attacker = Attacker::new(&runtime(), &model, &calibration, &LeakageOptions::default());
        match &attacker {
            Ok(attacker) => println!("  {:?} {:?}", attacker.record(), started.elapsed()),
            Err(error) => println!("  {error} {:?}", started.elapsed()),
        }
        let seams = spread(&model, 6);
        let mut all = vec![(
            "input".to_owned(),
            SeamSessions::of_input(&runtime(), &model).unwrap(),
        )];
        for seam in &seams {
            let label = format!(
                "{} {:.2} {:?}",
                seam.id,
                seam.depth(),
                seam.names(&model.graph)
            );
            all.push((
                label,
                SeamSessions::of_seam(&runtime(), &model, seam).unwrap(),
            ));
        }
        for (label, mut sessions) in all {
            let shapes: Vec<_> = sessions
                .crossing()
                .iter()
                .map(|c| c.reference.clone())
                .collect();
            println!("  {label} {shapes:?}");
            let started = Instant::now();
            let found = evaluator
                .seam(&mut sessions, &["raw", "f16", "int8"])
                .unwrap();
            let evaluated = started.elapsed();
            for Evaluation {
                codec,
                figure,
                up_bytes,
                down_bytes,
            } in found
            {
                let started = Instant::now();
                let leaks = match &attacker {
                    Ok(attacker) => match leakage(attacker, &mut sessions, &calibration, &codec) {
                        Ok(leakage) => format!("{leakage:?}"),
                        Err(LeakageError::NoFigure(why)) => why,
                        Err(error) => panic!("{error}"),
                    },
                    Err(_) => String::new(),
                };
                println!(
                    "    {codec} {figure:?} up {up_bytes} down {down_bytes} ({evaluated:?}) {leaks} ({:?})",
                    started.elapsed()
                );
            }
        }
    }
}
