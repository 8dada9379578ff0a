//! Reading: what is refused, and how the error reads.

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use seamline_plan::DType;

use super::sized;
use crate::builder::{self, GraphBuilder};
use crate::seams::SeamFinder;
use crate::{Graph, ReadProblem};

fn small() -> GraphBuilder {
    let mut builder = GraphBuilder::new("small", 17);
    builder
        .input("x", DType::F32, &["N".into(), 4.into()])
        .weight_f32("w", &[4], &[1.0, 2.0, 3.0, 4.0])
        .node("Add", &["x", "w"], &["a"])
        .node("Relu", &["a"], &["y"])
        .output("y", DType::F32, &["N".into(), 4.into()]);
    builder
}

#[test]
fn files_that_are_no_model_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let read = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        let error = Graph::read(&path).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        error.problem
    };
    assert!(matches!(read("empty.onnx", b""), ReadProblem::Empty));
    assert!(matches!(
        read("page.png", b"\x89PNG\r\n\x1a\n rest"),
        ReadProblem::Decode { .. }
    ));
    let whole = small().to_model_proto().encode_to_vec();
    let half = read("half.onnx", &whole[..whole.len() / 2]);
    assert!(matches!(half, ReadProblem::Decode { .. }), "{half}");
    // A field that ONNX does not have: valid protobuf, but nothing in it.
    let stranger = read("other.pb", &[0xf8, 0x07, 0x01]);
    assert!(
        matches!(stranger, ReadProblem::NotAModel { .. }),
        "{stranger}"
    );
    let missing = Graph::read(&folder.path().join("missing.onnx")).unwrap_err();
    assert!(matches!(missing.problem, ReadProblem::Io(_)));
}

#[test]
fn invalid_graphs_are_refused_by_node_and_value() {
    let text = |builder: &GraphBuilder| builder.build().unwrap_err().to_string();

    let mut old = GraphBuilder::new("old", 6);
    old.input("x", DType::F32, &[]).output("x", DType::F32, &[]);
    assert!(text(&old).contains("opset 6"), "{}", text(&old));

    let mut dangling = small();
    dangling.node("Add", &["y", "ghost"], &["z"]);
    assert!(
        text(&dangling).contains("`z/node` (Add) reads `ghost`"),
        "{}",
        text(&dangling)
    );

    let mut twice = small();
    twice.node("Neg", &["x"], &["a"]);
    assert!(
        text(&twice).contains("`a` is made twice"),
        "{}",
        text(&twice)
    );

    let mut output = small();
    output.output("ghost", DType::F32, &[]);
    assert!(
        text(&output).contains("output `ghost`"),
        "{}",
        text(&output)
    );

    let mut cycle = small();
    cycle
        .node("Add", &["x", "q"], &["p"])
        .node("Neg", &["p"], &["q"])
        .node("Abs", &["q"], &["r"]);
    let error = cycle.build().unwrap_err();
    assert!(
        matches!(&error.problem, ReadProblem::Cycle { node, .. } if !node.contains("Abs")),
        "names a node of the cycle, not one behind it: {error}"
    );

    let mut short = small();
    short.weight(builder::tensor("v", DType::F32, &[3], vec![0; 8]));
    assert!(text(&short).contains("`v`"), "{}", text(&short));
    let mut negative = small();
    negative.weight(builder::tensor("v", DType::F32, &[-3], vec![]));
    assert!(text(&negative).contains("-3"), "{}", text(&negative));
    let mut enormous = small();
    enormous.weight(builder::tensor(
        "v",
        DType::F32,
        &[i64::MAX, i64::MAX],
        vec![],
    ));
    assert!(text(&enormous).contains("64 bits"), "{}", text(&enormous));
}

#[test]
fn nodes_are_sorted_and_keep_the_file_s_order_where_that_is_sorted() {
    let mut builder = GraphBuilder::new("unsorted", 17);
    builder
        .input("x", DType::F32, &[])
        .node("Neg", &["b"], &["c"])
        .node("Relu", &["x"], &["a"])
        .node("Abs", &["a"], &["b"])
        .output("c", DType::F32, &[]);
    let graph = builder.build().unwrap();
    let ops: Vec<&str> = graph
        .nodes
        .iter()
        .map(|node| node.op_type.as_str())
        .collect();
    assert_eq!(ops, ["Relu", "Abs", "Neg"]);
    assert_eq!(
        graph.value(graph.find("a").unwrap()).consumers,
        [crate::NodeId(1)]
    );
}

#[test]
fn weights_share_the_buffer_that_was_read() {
    let file = Bytes::from(small().to_model_proto().encode_to_vec());
    let graph = Graph::from_bytes(&file).unwrap();
    let weight = graph.constant(graph.find("w").unwrap()).unwrap();
    assert_eq!(weight.to_f32s().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    let at = weight.bytes().unwrap().as_ptr() as usize;
    let start = file.as_ptr() as usize;
    assert!(
        (start..start + file.len()).contains(&at),
        "the weight was copied"
    );
}

#[test]
fn constants_are_read_in_every_form() {
    let mut typed = builder::tensor("t", DType::F16, &[2], vec![]);
    typed.raw_data = None;
    typed.int32_data = vec![0x3c00, 0xc000];
    let mut graph = small();
    graph.weight(typed).node_with(
        "Constant",
        &[],
        &["c"],
        vec![builder::ints("value_ints", &[3, -4])],
    );
    let graph = graph.build().unwrap();
    let constant = |name: &str| graph.constant(graph.find(name).unwrap());
    assert_eq!(constant("t").unwrap().to_f32s().unwrap(), [1.0, -2.0]);
    assert_eq!(constant("c").unwrap().to_i64s().unwrap(), [3, -4]);
    assert_eq!(constant("c").unwrap().dims().unwrap(), [2]);
    assert!(constant("c").unwrap().to_f32s().is_err());
    assert!(constant("y").is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_files_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        keep in any::<prop::sample::Index>(),
    ) {
        let mut file = small().to_model_proto().encode_to_vec();
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        for file in [Bytes::from(file.clone()), Bytes::copy_from_slice(&file[..keep.index(file.len())])] {
            if let Ok(graph) = Graph::from_bytes(&file) {
                let costed = sized(&graph);
                let seams = SeamFinder::new(&costed).seams().len();
                prop_assert!(seams <= graph.values.len());
                graph.to_model_proto();
            }
        }
    }
}
