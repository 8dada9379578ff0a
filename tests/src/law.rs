//! The first law, for whoever wants to hold it against some model: head then tail gives the whole
//! model's answer, the runtime's optimisations off.

use std::path::Path;

use seamline_edge::Values;
use seamline_graph::ExternalWeights;
use seamline_graph::seams::Seam;
use seamline_ort::{ModelSource, RunError, Session, SessionOptions};
use seamline_partitioner::{Difference, Model, Optimization, compare, stages};
use seamline_plan::Tensor;

use crate::runtime;

/// Weights of a model's stages, in one file that all its halves map.
const WEIGHTS: &str = "weights.bin";

/// Encoded halves of one seam.
struct Halves {
    seam: String,
    head: Vec<u8>,
    tail: Vec<u8>,
}

/// How far a split is from the whole.
#[derive(Clone, Debug)]
pub struct SeamDifference {
    /// The seam's id.
    pub seam: String,
    /// The worst output and its difference, or why the halves do not run.
    pub result: Result<(String, Difference), String>,
}

impl SeamDifference {
    /// Whether the halves ran and no output is further off than `max_rel`.
    pub fn holds(&self, max_rel: f64) -> bool {
        let worst = self.result.as_ref();
        worst.is_ok_and(|(_, difference)| difference.max_rel <= max_rel)
    }
}

/// Runs `model` whole and cut at each of `seams` on every one of `requests`; one result a seam, of
/// the worst request.
///
/// # Panics
/// Where the whole model does not run.
pub fn split_differences(
    model: &Model,
    seams: &[Seam],
    requests: &[Values],
) -> Vec<SeamDifference> {
    let mut whole = model
        .session(&runtime(), Optimization::Off)
        .expect("ONNX Runtime takes the whole model");
    let expected: Vec<Vec<Tensor>> = requests
        .iter()
        .map(|request| model.run(&mut whole, request).expect("the model runs"))
        .collect();
    let names: Vec<&str> = model
        .graph
        .outputs
        .iter()
        .map(|&id| model.graph.value(id).name.as_str())
        .collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let halves = halves(model, seams, folder.path());
    let measure = |halves: &Halves| -> Result<(String, Difference), String> {
        let mut head = session(&halves.head, folder.path())?;
        let mut tail = session(&halves.tail, folder.path())?;
        let mut worst = (String::new(), Difference::default());
        for (request, expected) in requests.iter().zip(&expected) {
            let mut values = request.clone();
            for half in [&mut head, &mut tail] {
                run(half, &mut values).map_err(|error| error.to_string())?;
            }
            for (&name, expected) in names.iter().zip(expected) {
                let made = values.get(name);
                let made = made.ok_or_else(|| format!("no half makes output `{name}`"))?;
                let difference = compare(expected, made);
                if worst.0.is_empty() || difference.max_rel > worst.1.max_rel {
                    worst = (name.to_owned(), difference);
                }
            }
        }
        Ok(worst)
    };
    halves
        .into_iter()
        .map(|halves| {
            let halves = halves?;
            Ok((halves.seam.clone(), measure(&halves)))
        })
        .map(|found: Result<_, (String, String)>| match found {
            Ok((seam, result)) => SeamDifference { seam, result },
            Err((seam, problem)) => SeamDifference {
                seam,
                result: Err(problem),
            },
        })
        .collect()
}

/// The halves of each seam, or its id and why it has none.
fn halves(model: &Model, seams: &[Seam], folder: &Path) -> Vec<Result<Halves, (String, String)>> {
    let mut weights = ExternalWeights::new(WEIGHTS, 1024);
    let encode = |seam: &Seam| {
        let fail = |problem: String| (seam.id.clone(), problem);
        let stages = stages(model, std::slice::from_ref(seam));
        let stages = stages.map_err(|error| fail(error.to_string()))?;
        let [head, tail] = stages.stages.as_slice() else {
            return Err(fail(format!("{} stages", stages.stages.len())));
        };
        Ok(Halves {
            seam: seam.id.clone(),
            head: head.graph.encode_with_external(&mut weights),
            tail: tail.graph.encode_with_external(&mut weights),
        })
    };
    let halves = seams.iter().map(encode).collect();
    let mut file = std::fs::File::create(folder.join(WEIGHTS)).expect("a file for weights");
    weights.write_to(&mut file).expect("weights are written");
    halves
}

fn session(bytes: &[u8], folder: &Path) -> Result<Session, String> {
    let options = SessionOptions {
        optimization: Optimization::Off,
        ..SessionOptions::default()
    };
    let source = ModelSource::Bytes {
        bytes,
        folder: Some(folder),
    };
    let session = runtime().session(source, &options);
    session.map_err(|error| error.to_string())
}

/// Runs a half on named values and adds what it makes.
fn run(session: &mut Session, values: &mut Values) -> Result<(), RunError> {
    let inputs: Vec<&Tensor> = session
        .inputs()
        .iter()
        .filter_map(|spec| values.get(&spec.name))
        .collect();
    let outputs = session.run(&inputs)?;
    let names: Vec<String> = session
        .outputs()
        .iter()
        .map(|spec| spec.name.clone())
        .collect();
    values.extend(names.into_iter().zip(outputs));
    Ok(())
}
