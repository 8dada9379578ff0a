//! Reading: what is refused, and how the error reads.

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use seamline_plan::DType;

use super::sized;
use crate::bodies::MAX_NESTING;
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

/// An `If` in an `If` and so on, `depth` bodies deep.
fn deep(depth: usize) -> GraphBuilder {
    let branch = |name: &str, inner: Option<crate::proto::GraphProto>| {
        let mut body = GraphBuilder::new(name, 17);
        match inner {
            None => body.node("Relu", &["x"], &["y"]),
            Some(inner) => body.node_with(
                "If",
                &["flag"],
                &["y"],
                vec![builder::body("then_branch", inner)],
            ),
        };
        body.output("y", DType::F32, &[4.into()]).to_body()
    };
    let inner = (1..depth).fold(branch("last", None), |inner, _| branch("body", Some(inner)));
    let mut graph = GraphBuilder::new("deep", 17);
    graph
        .input("x", DType::F32, &[4.into()])
        .input("flag", DType::Bool, &[])
        .node_with(
            "If",
            &["flag"],
            &["z"],
            vec![builder::body("then_branch", inner)],
        )
        .output("z", DType::F32, &[4.into()]);
    graph
}

#[test]
fn bodies_are_read_to_the_stated_depth_and_refused_by_node_beyond_it() {
    let file = |depth| Bytes::from(deep(depth).to_model_proto().encode_to_vec());
    let graph = Graph::from_bytes(&file(MAX_NESTING)).unwrap();
    let again = Bytes::from(graph.to_model_proto().encode_to_vec());
    assert_eq!(Graph::from_bytes(&again).unwrap().nodes, graph.nodes);
    // One body too many, and so many that the decoder gives up before the bodies are counted.
    for depth in [MAX_NESTING + 1, 40, 400] {
        let error = Graph::from_bytes(&file(depth)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "node `z/node` (If) nests control-flow bodies more than 30 deep",
            "{depth} deep"
        );
    }
}

#[test]
fn types_nested_beyond_measure_are_refused_by_value() {
    use crate::proto::{TypeProto, type_proto};
    let mut kind = crate::tensor_type(DType::F32, None);
    for _ in 0..60 {
        kind = TypeProto {
            value: Some(type_proto::Value::SequenceType(Box::new(
                type_proto::Sequence {
                    elem_type: Some(Box::new(kind)),
                },
            ))),
            ..TypeProto::default()
        };
    }
    let mut model = small().to_model_proto();
    let graph = model.graph.as_mut().unwrap();
    graph.value_info.push(crate::proto::ValueInfoProto {
        name: Some("a".into()),
        r#type: Some(kind),
        ..Default::default()
    });
    let error = Graph::from_bytes(&Bytes::from(model.encode_to_vec())).unwrap_err();
    assert!(
        matches!(&error.problem, ReadProblem::TypeNesting { value } if value == "a"),
        "{error}"
    );
}

#[test]
fn operators_of_the_first_years_are_kept_opaque() {
    let mut builder = GraphBuilder::new("old", 6);
    builder
        .input("x", DType::F32, &[2.into(), 3.into()])
        .weight_f32("w", &[2], &[1.0, 2.0])
        .node_with(
            "Add",
            &["x", "w"],
            &["a"],
            vec![builder::int("broadcast", 1), builder::int("axis", 0)],
        )
        .node("Relu", &["a"], &["y"])
        .declare("a", DType::F32, &[2.into(), 3.into()])
        .output("y", DType::F32, &[2.into(), 3.into()]);
    let graph = builder.build().unwrap();
    let types = crate::infer::infer(&graph, &seamline_plan::Bindings::new());
    let shape = |name: &str| types.shape(graph.find(name).unwrap()).map(<[_]>::to_vec);
    // By today's rules 2 × 3 and 2 do not broadcast, and `Add` would contradict the file.
    assert_eq!(shape("a").unwrap(), [2.into(), 3.into()]);
    let written = Graph::from_model_proto(graph.to_model_proto()).unwrap();
    assert_eq!((written.opset(), &written.nodes), (6, &graph.nodes));

    let mut model = small().to_model_proto();
    model.opset_import.clear();
    let graph = Graph::from_model_proto(model).unwrap();
    let types = crate::infer::infer(&graph, &seamline_plan::Bindings::new());
    assert_eq!(
        types.shape(graph.find("a").unwrap()),
        None,
        "without imports a model is of the first version"
    );
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
