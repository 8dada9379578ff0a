//! Seams: which there are, and which are left out.

use std::time::{Duration, Instant};

use seamline_plan::{DType, Dim};

use super::{same_answers, sized};
use crate::builder::GraphBuilder;
use crate::seams::{Costed, SeamError, SeamFinder, TensorSize};
use crate::{Graph, NodeId};

fn chain(length: usize, with_skip: bool) -> Graph {
    let mut builder = GraphBuilder::new("chain", 17);
    builder.input("v0", DType::F32, &[4.into()]);
    for index in 1..=length {
        let (from, to) = (format!("v{}", index - 1), format!("v{index}"));
        let other = format!("v{}", index.saturating_sub(3));
        if with_skip {
            builder.node("Add", &[&from, &other], &[&to]);
        } else {
            builder.node("Relu", &[&from], &[&to]);
        }
    }
    builder.output(&format!("v{length}"), DType::F32, &[4.into()]);
    builder.build().unwrap()
}

/// The fastest of a few runs: other tests share the machine.
fn fastest(graph: &Graph) -> Duration {
    let time = |_| {
        let started = Instant::now();
        let costed = sized(graph);
        let finder = SeamFinder::new(&costed);
        assert!(!finder.seams().is_empty());
        started.elapsed()
    };
    (0..3).map(time).min().unwrap()
}

#[test]
fn case_06_ten_thousand_nodes_are_cut_in_under_a_second() {
    for with_skip in [false, true] {
        let taken = fastest(&chain(10_000, with_skip));
        assert!(
            taken < Duration::from_secs(1),
            "seams took {taken:?} (skips: {with_skip})"
        );
    }
    let graph = chain(10_000, false);
    let costed = sized(&graph);
    let finder = SeamFinder::new(&costed);
    assert_eq!(finder.seams().len(), 9_999);
    assert!(finder.seams().iter().all(|seam| seam.is_single()));
    let seam = finder.resolve("s4999").unwrap();
    assert_eq!(seam.depth_flops, 5_000);
    let stages = same_answers(&graph, &[seam.cut]).stages;
    assert_eq!(stages.map_nodes(), [5_000, 5_000]);
}

#[test]
fn a_very_wide_node_is_cut_in_little_time() {
    const WIDTH: usize = 5_000;
    let mut builder = GraphBuilder::new("wide", 17);
    builder.input("x", DType::F32, &[4.into()]);
    let parts: Vec<String> = (0..WIDTH).map(|part| format!("part{part}")).collect();
    for part in &parts {
        builder.node("Relu", &["x"], &[part]);
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let all = [Dim::from(4 * WIDTH as u64)];
    let axis = vec![crate::builder::int("axis", 0)];
    builder
        .node_with("Concat", &parts, &["all"], axis)
        .node("Relu", &["all"], &["y"])
        .output("y", DType::F32, &all);
    let graph = builder.build().unwrap();
    let taken = fastest(&graph);
    assert!(taken < Duration::from_secs(4), "seams took {taken:?}");
    // A value that got no seam in the list is found when it is asked for.
    let costed = sized(&graph);
    let finder = SeamFinder::new(&costed);
    for part in ["part0", "part2500", "part4999"] {
        let seam = finder.at(part).unwrap();
        assert!(seam.names(&graph).contains(&part));
    }
}

trait NodeCounts {
    fn map_nodes(&self) -> Vec<usize>;
}

impl NodeCounts for Vec<crate::extract::Stage> {
    fn map_nodes(&self) -> Vec<usize> {
        self.iter().map(|stage| stage.graph.nodes.len()).collect()
    }
}

#[test]
fn a_chain_with_skips_has_no_single_value_seam_and_is_cut_all_the_same() {
    let graph = chain(60, true);
    let costed = sized(&graph);
    let finder = SeamFinder::new(&costed);
    let deep: Vec<_> = finder
        .seams()
        .iter()
        .filter(|seam| (0.1..0.9).contains(&seam.depth()))
        .collect();
    assert!(deep.len() > 40, "{} seams", deep.len());
    assert!(deep.iter().all(|seam| seam.cut.crossing.len() == 3));
    let cuts: Vec<_> = [10, 20, 40].map(|index| deep[index].cut.clone()).into();
    same_answers(&graph, &cuts);
}

#[test]
fn case_08_a_value_that_is_output_and_read_further_down_keeps_both_roles() {
    let mut builder = GraphBuilder::new("both", 17);
    builder
        .input("x", DType::F32, &[4.into()])
        .node("Relu", &["x"], &["early"])
        .node("Relu", &["early"], &["both"])
        .node("Relu", &["both"], &["late"])
        .node("Relu", &["early"], &["side"])
        .output("late", DType::F32, &[4.into()])
        .output("side", DType::F32, &[4.into()])
        .output("both", DType::F32, &[4.into()]);
    let graph = builder.build().unwrap();
    let costed = sized(&graph);
    let seam = SeamFinder::new(&costed).at("both").unwrap();
    assert_eq!(
        seam.names(&graph),
        ["both"],
        "`side` is the head's own and does not cross"
    );
    let stages = same_answers(&graph, &[seam.cut]).stages;
    let outputs = |index: usize| -> Vec<&str> {
        stages[index]
            .outputs
            .iter()
            .map(|&id| graph.value(id).name.as_str())
            .collect()
    };
    assert_eq!(outputs(0), ["side", "both"]);
    assert_eq!(outputs(1), ["late"]);
}

/// A transformer in small: integer ids and mask in, the mask made a float by cheap arithmetic and
/// read by every layer, shapes taken from the first activation.
fn masked() -> Graph {
    let (batch, length) = (Dim::Fixed(2), Dim::Fixed(64));
    let mut builder = GraphBuilder::new("masked", 17);
    let hidden = [batch.clone(), length.clone(), 32.into()];
    let mask = [batch.clone(), 1.into(), 1.into(), length.clone()];
    builder
        .input("ids", DType::I64, &[batch.clone(), length.clone()])
        .input("mask", DType::Bool, &[batch.clone(), length])
        .weight_f32("table", &[1000, 32], &vec![0.5; 32_000])
        .weight_i64("axes", &[2], &[1, 2])
        .weight_f32("low", &[1], &[-1e4])
        .weight_i64("zero", &[], &[0])
        .node("Gather", &["table", "ids"], &["h0"])
        .declare("h0", DType::F32, &hidden)
        .node("Shape", &["h0"], &["shape"])
        .declare("shape", DType::I64, &[3.into()])
        .node("Gather", &["shape", "zero"], &["batch"])
        .declare("batch", DType::I64, &[])
        .node("Unsqueeze", &["mask", "axes"], &["mask4"])
        .declare("mask4", DType::Bool, &mask)
        .node_with(
            "Cast",
            &["mask4"],
            &["mask_f"],
            vec![crate::builder::int("to", 1)],
        )
        .declare("mask_f", DType::F32, &mask)
        .node("Mul", &["mask_f", "low"], &["bias"])
        .declare("bias", DType::F32, &mask);
    for layer in 0..3 {
        let (from, to) = (format!("h{layer}"), format!("h{}", layer + 1));
        builder
            .node("test::Attention", &[&from, "bias", "batch"], &[&to])
            .declare(&to, DType::F32, &hidden);
    }
    builder.output("h3", DType::F32, &hidden);
    builder.build().unwrap()
}

#[test]
fn cheap_mask_arithmetic_is_repeated_instead_of_shipped() {
    let graph = masked();
    let costed = sized(&graph);
    let ops = |seam: &crate::seams::Seam| -> Vec<String> {
        seam.cut
            .repeated
            .iter()
            .map(|&id| graph.node(id).op_type.clone())
            .collect()
    };
    let seam = SeamFinder::new(&costed).at("h2").unwrap();
    // 128 bytes of booleans cross instead of 512 of the float bias that both sides make of them.
    assert_eq!(seam.names(&graph), ["batch", "mask4", "h2"]);
    assert_eq!(
        ops(&seam),
        ["Cast", "Mul"],
        "of equal cuts the one that repeats least"
    );
    assert_eq!(
        (seam.bytes, seam.elements),
        (128 + 8 + 16_384, 128 + 1 + 4_096)
    );
    assert_eq!(seam.bytes_f32, seam.bytes);

    // At the first activation the shape comes from the value that crosses anyway, and nothing in
    // the head needs what the tail makes.
    let seam = SeamFinder::new(&costed).at("h0").unwrap();
    assert_eq!(seam.names(&graph), ["mask", "h0"]);
    assert_eq!(ops(&seam), Vec::<String>::new());
    let cuts: Vec<_> = ["h0", "h1", "h2"]
        .iter()
        .map(|name| SeamFinder::new(&costed).at(name).unwrap().cut)
        .collect();
    same_answers(&graph, &cuts);
}

#[test]
fn seams_are_sorted_and_none_is_dominated() {
    let graph = masked();
    let costed = sized(&graph);
    let finder = SeamFinder::new(&costed);
    for (index, seam) in finder.seams().iter().enumerate() {
        assert_eq!(seam.id, format!("s{index}"));
        assert!(0 < seam.depth_flops && seam.depth_flops < seam.total_flops);
        same_answers(&graph, std::slice::from_ref(&seam.cut));
    }
    assert!(
        finder
            .seams()
            .windows(2)
            .all(|pair| pair[0].depth_flops <= pair[1].depth_flops)
    );
    assert!(!finder.seams().is_empty());
}

#[test]
fn values_that_no_cut_goes_through_are_refused_with_the_reason() {
    let graph = masked();
    let costed = sized(&graph);
    let finder = SeamFinder::new(&costed);
    assert!(matches!(finder.at("table"), Err(SeamError::Weight { .. })));
    assert!(matches!(
        finder.at("h3"),
        Err(SeamError::NothingAfter { .. })
    ));
    assert_eq!(finder.at("mask").unwrap().depth_flops, 0);
}

#[test]
fn values_of_unknown_size_are_not_listed_but_can_be_asked_for() {
    let graph = chain(4, false);
    let size = |id: crate::ValueId| {
        (graph.value(id).name != "v2").then(|| TensorSize {
            dtype: DType::F32,
            dims: vec![4],
        })
    };
    let costed = Costed::new(&graph, size, |_: NodeId| 1);
    let finder = SeamFinder::new(&costed);
    let names: Vec<_> = finder
        .seams()
        .iter()
        .flat_map(|seam| seam.names(&graph))
        .collect();
    assert_eq!(names, ["v1", "v3"]);
    let seam = finder.at("v2").unwrap();
    assert_eq!(seam.id, "@v2");
    assert_eq!(seam.unsized_values, [graph.find("v2").unwrap()]);
}
