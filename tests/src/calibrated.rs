//! Trained models with calibration data of their own.

use seamline_graph::seams::Seam;
use seamline_partitioner::plan::{Calibration, CalibrationOptions};
use seamline_partitioner::{Model, find_seams};

use crate::calibration::{calibration, preprocessing};
use crate::{runtime, sizes, zoo};

/// A model of the zoo, with its preprocessing in front where it takes pictures, and `count`
/// requests for it. States begin as zeros.
pub fn calibrated(name: &str, count: usize) -> (Model, Calibration) {
    let image = preprocessing(name);
    // With pictures the preprocessing gives the sizes.
    let sizes = match image {
        Some(_) => Default::default(),
        None => sizes(name),
    };
    let mut model = Model::open(&zoo(name), &sizes, image.as_ref()).expect("the model opens");
    model.learn(&runtime(), 1).expect("a probe run");
    let folder = tempfile::tempdir().expect("a folder");
    calibration(name, folder.path(), count).expect("calibration data");
    let options = CalibrationOptions {
        states: states(name).iter().map(|&name| name.to_owned()).collect(),
        ..CalibrationOptions::default()
    };
    let calibration =
        Calibration::read(folder.path(), &model, &options).expect("calibration data is read");
    (model, calibration)
}

/// Inputs that are the state of a recurrent net.
fn states(name: &str) -> &'static [&'static str] {
    match name {
        "vad-seq" => &["h", "c"],
        "vad-if" => &["state"],
        _ => &[],
    }
}

/// `count` of the listed seams, spread over the list, its ends included.
pub fn spread(model: &Model, count: usize) -> Vec<Seam> {
    let listed = find_seams(model, &[]).expect("seams").listed;
    let last = listed.len().saturating_sub(1);
    let steps = count.saturating_sub(1).max(1);
    (0..count)
        .filter_map(|index| listed.get(index * last / steps).cloned())
        .collect()
}
