//! A model file: it is refused, or is read, its shapes inferred, its seams found, cut at each of
//! them and written, and what was written is read again.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use seamline_fuzz::plant;
use seamline_graph::builder::{self, GraphBuilder};
use seamline_graph::extract::{extract, open_types};
use seamline_graph::infer::infer;
use seamline_graph::seams::{Costed, SeamFinder};
use seamline_graph::{ExternalWeights, Graph};
use seamline_plan::{Bindings, DType, Dim};

/// Seams that are extracted: each run must be quick.
const MOST_SEAMS: usize = 8;

fuzz_target!(
    init: plant(seeds()),
    |data: &[u8]| {
        let graph = match Graph::from_bytes(&Bytes::copy_from_slice(data)) {
            Ok(graph) => graph,
            Err(error) => return assert!(!error.to_string().is_empty()),
        };
        read_again(&graph);
        let symbolic = infer(&graph, &Bindings::new());
        let bound = infer(&graph, &bindings());
        for types in [&symbolic, &bound] {
            let costed = Costed::from_types(&graph, types);
            let finder = SeamFinder::new(&costed);
            for seam in finder.seams().iter().take(MOST_SEAMS) {
                assert!((0.0..=1.0).contains(&seam.depth()));
                let types = open_types(&symbolic, &bound);
                if let Ok(stages) = extract(&graph, std::slice::from_ref(&seam.cut), types) {
                    assert_eq!(stages.stages.len(), 2);
                    for stage in &stages.stages {
                        read_again(&stage.graph);
                    }
                }
            }
            for value in graph.values.iter().take(MOST_SEAMS) {
                let _ = finder.at(&value.name);
            }
        }
    }
);

fn bindings() -> Bindings {
    ["N", "L"]
        .into_iter()
        .zip([2, 3])
        .map(|(name, size)| (name.to_owned(), size))
        .collect()
}

fn read_again(graph: &Graph) {
    let mut model = graph.to_model_proto();
    let again = Graph::from_model_proto(model.clone()).expect("what was written is valid");
    assert_eq!(again.nodes.len(), graph.nodes.len());
    assert_eq!(again.outputs.len(), graph.outputs.len());
    let bytes = Bytes::from(model.encode_to_vec());
    Graph::from_bytes(&bytes).expect("what was written can be read");
    let mut weights = ExternalWeights::new("weights.bin", 8);
    weights.take(&mut model);
    let mut written = Vec::new();
    weights.write_to(&mut written).expect("memory");
    assert_eq!(written.len() as u64, weights.byte_len());
}

fn seeds() -> Vec<Vec<u8>> {
    let n_4 = [Dim::Sym("N".into()), Dim::Fixed(4)];
    let weight = vec![0.5; 16];
    let chain = GraphBuilder::new("chain", 17)
        .input("x", DType::F32, &n_4)
        .output("y", DType::F32, &n_4)
        .weight_f32("w", &[4, 4], &weight)
        .node("MatMul", &["x", "w"], &["a"])
        .node("Relu", &["a"], &["b"])
        .node("MatMul", &["b", "w"], &["c"])
        .node("Add", &["b", "c"], &["y"])
        .to_model_proto();
    let image = [
        Dim::Sym("N".into()),
        Dim::Fixed(3),
        Dim::Fixed(8),
        Dim::Fixed(8),
    ];
    let net = GraphBuilder::new("net", 17)
        .input("x", DType::F32, &image)
        .output("y", DType::F32, &[Dim::Sym("N".into()), Dim::Unknown])
        .weight_f32("k", &[4, 3, 3, 3], &vec![0.1; 108])
        .weight_i64("flat", &[2], &[0, -1])
        .node_with(
            "Conv",
            &["x", "k"],
            &["a"],
            vec![builder::ints("pads", &[1, 1, 1, 1])],
        )
        .node("Shape", &["a"], &["s"])
        .node_with(
            "MaxPool",
            &["a"],
            &["b"],
            vec![builder::ints("kernel_shape", &[2, 2])],
        )
        .node("Reshape", &["b", "flat"], &["c"])
        .node_with("Softmax", &["c"], &["y"], vec![builder::int("axis", -1)])
        .to_model_proto();
    let body = GraphBuilder::new("body", 17)
        .input("step", DType::I64, &[])
        .input("go_on", DType::Bool, &[])
        .input("before", DType::F32, &n_4)
        .output("still", DType::Bool, &[])
        .output("after", DType::F32, &n_4)
        .node("Identity", &["go_on"], &["still"])
        .node("Add", &["before", "x"], &["after"])
        .to_body();
    let looped = GraphBuilder::new("loop", 17)
        .input("x", DType::F32, &n_4)
        .input("n", DType::I64, &[])
        .output("y", DType::F32, &n_4)
        .node_with(
            "Loop",
            &["n", "", "x"],
            &["z"],
            vec![builder::body("body", body)],
        )
        .node("Neg", &["z"], &["y"])
        .to_model_proto();
    let text = GraphBuilder::new("text", 17)
        .input(
            "ids",
            DType::I64,
            &[Dim::Sym("N".into()), Dim::Sym("L".into())],
        )
        .output("y", DType::F32, &[Dim::Unknown, Dim::Unknown, Dim::Unknown])
        .weight_f32("table", &[4, 2], &[0.0; 8])
        .node("Gather", &["table", "ids"], &["e"])
        .node_with(
            "Transpose",
            &["e"],
            &["t"],
            vec![builder::ints("perm", &[0, 2, 1])],
        )
        .node("MatMul", &["e", "t"], &["y"])
        .to_model_proto();
    [chain, net, looped, text]
        .map(|model| model.encode_to_vec())
        .to_vec()
}
