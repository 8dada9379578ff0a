//! Writes a measuring kit of a model of the zoo, for trying `seamline-edge profile` and
//! `seamline-cloud profile` by hand:
//! `cargo run -p seamline-tests --example kit -- MODEL FOLDER [SEAMS [SAMPLES]]`.

use std::fs::{File, create_dir_all, write};
use std::path::Path;

use seamline_graph::ExternalWeights;
use seamline_graph::seams::Seam;
use seamline_partitioner::{Model, SplitOptions, find_seams, split, stages};
use seamline_plan::{
    Crossing, KIT_FILE, KIT_FORMAT, Kit, KitSeam, KitTensor, ProfiledModel, WHOLE,
};
use seamline_tests::{draw, model, runtime};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, folder, rest @ ..] = arguments.as_slice() else {
        eprintln!("usage: kit MODEL FOLDER [SEAMS [SAMPLES]]");
        std::process::exit(2);
    };
    let number = |at: usize, usual: usize| {
        let given = rest.get(at).and_then(|text| text.parse().ok());
        given.unwrap_or(usual)
    };
    let folder = Path::new(folder);
    create_dir_all(folder).expect("a folder");
    let kit = make(&model(name), folder, number(0, 4), number(1, 2));
    write(folder.join(KIT_FILE), kit.to_json()).expect("kit.json");
    println!("{} with {} parts", folder.display(), kit.seams.len());
}

fn make(model: &Model, folder: &Path, seams: usize, samples: usize) -> Kit {
    let mut weights = ExternalWeights::new("weights.bin", 1024);
    let mut put = |file: &str, graph: &seamline_graph::Graph| {
        let bytes = graph.encode_with_external(&mut weights);
        write(folder.join(file), bytes).expect("a model");
        file.to_owned()
    };
    let whole = put("whole.onnx", &model.whole);
    let mut named = model.graph.clone();
    for (index, node) in named.nodes.iter_mut().enumerate() {
        node.name = format!("n{index}");
    }
    let nodes = put("nodes.onnx", &named);
    let chosen = spread(find_seams(model, &[]).expect("seams").listed, seams);
    let mut kit_seams = vec![KitSeam {
        seam: WHOLE.into(),
        head: whole.clone(),
        tail: whole,
        crossing: crossing(model, None),
    }];
    for seam in &chosen {
        let halves = stages(model, std::slice::from_ref(seam))
            .expect("stages")
            .stages;
        kit_seams.push(KitSeam {
            seam: seam.id.clone(),
            head: put(&format!("{}-head.onnx", seam.id), &halves[0].graph),
            tail: put(&format!("{}-tail.onnx", seam.id), &halves[1].graph),
            crossing: crossing(model, Some(seam)),
        });
    }
    let mut file = File::create(folder.join("weights.bin")).expect("a file for weights");
    weights.write_to(&mut file).expect("weights are written");
    Kit {
        format: KIT_FORMAT,
        model: ProfiledModel {
            name: model.name.clone(),
            graph_hash: model.hash,
            shapes: model.reference.clone(),
        },
        nodes,
        seams: kit_seams,
        samples: (0..samples).map(|at| sample(model, folder, at)).collect(),
    }
}

/// So many seams, by depth evenly.
fn spread(listed: Vec<Seam>, count: usize) -> Vec<Seam> {
    let last = listed.len().saturating_sub(1);
    let mut at: Vec<usize> = (1..=count).map(|step| last * step / (count + 1)).collect();
    at.dedup();
    at.into_iter().map(|index| listed[index].clone()).collect()
}

/// What crosses, as a bundle's contract would have it.
fn crossing(model: &Model, seam: Option<&Seam>) -> Vec<Crossing> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = SplitOptions {
        at: seam.map(|seam| seam.id.clone()).into_iter().collect(),
        cloud_head: seam.is_none(),
        seed: 1,
        ..SplitOptions::default()
    };
    let source = seamline_partitioner::Source {
        model: model.graph.source.clone().unwrap_or_default(),
        shapes: model.reference.clone(),
        image: None,
    };
    let out = folder.path().join("one.seam");
    let report = split(model, &runtime(), &out, &options, &source).expect("a bundle");
    report.manifest.cuts[0].crossing.clone()
}

fn sample(model: &Model, folder: &Path, at: usize) -> Vec<KitTensor> {
    let values = draw(model, at as u64).into_iter().enumerate();
    values
        .map(|(index, (name, tensor))| {
            let file = format!("sample{at}-{index}.bin");
            write(folder.join(&file), tensor.bytes()).expect("a sample");
            KitTensor {
                name,
                dtype: tensor.dtype(),
                shape: tensor.shape().to_vec(),
                file,
            }
        })
        .collect()
}
