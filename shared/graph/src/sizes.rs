//! Sizes that a stage can read off what it is given, so that nobody sends them: joined requests
//! then have the right ones by themselves.

use seamline_plan::{Bindings, DType, Dim};

use crate::builder;
use crate::graph::{Graph, ValueId};
use crate::infer::{Types, infer};
use crate::proto::NodeProto;

/// Which values are the size of an axis of others. Empty by default: nothing is then.
#[derive(Clone, Debug, Default)]
pub struct AxisSizes {
    types: Types,
}

/// A value that is the size of an axis of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AxisSize {
    pub(crate) value: ValueId,
    source: ValueId,
    axis: usize,
    rank: usize,
}

impl AxisSizes {
    /// Finds the sizes of `graph`. Only what operators and inputs imply counts: exporters declare
    /// shapes of the example that they traced.
    pub fn of(graph: &Graph) -> AxisSizes {
        let mut bare = graph.clone();
        for value in bare
            .values
            .iter_mut()
            .filter(|value| value.producer.is_some())
        {
            value.shape = None;
        }
        // Bodies hold declarations of their own.
        for node in &mut bare.nodes {
            if node.bodies().next().is_some() {
                node.domain = "seamline.opaque".into();
            }
        }
        AxisSizes {
            types: infer(&bare, &Bindings::new()),
        }
    }

    /// Whether `value` can be read off another of `given`.
    pub(crate) fn can_leave_out(&self, graph: &Graph, value: ValueId, given: &[ValueId]) -> bool {
        let others = given.iter().copied().filter(|&other| other != value);
        given.len() > 1 && self.find(graph, value, others).is_some()
    }

    /// How `value` can be read off one of `given`, where it can.
    pub(crate) fn find(
        &self,
        graph: &Graph,
        value: ValueId,
        mut given: impl Iterator<Item = ValueId>,
    ) -> Option<AxisSize> {
        let symbol = self.types.symbol(value)?;
        let rank = self.types.shape(value)?.len();
        let name = &graph.value(value).name;
        let is_new = |part: &&str| graph.find(&inner_name(name, part)).is_none();
        if !["axis", "shape"].iter().all(is_new) {
            return None;
        }
        given.find_map(|source| {
            let is_axis = |dim: &Dim| matches!(dim, Dim::Sym(own) if own == symbol);
            let axis = self.types.shape(source)?.iter().position(is_axis)?;
            Some(AxisSize {
                value,
                source,
                axis,
                rank,
            })
        })
    }
}

fn inner_name(value: &str, part: &str) -> String {
    format!("{value}/seamline/{part}")
}

impl AxisSize {
    /// The nodes that make the value of its source.
    pub(crate) fn nodes(&self, graph: &Graph) -> [NodeProto; 3] {
        let name = |id: ValueId| graph.value(id).name.as_str();
        let value = name(self.value);
        let [axis, shape] = ["axis", "shape"].map(|part| inner_name(value, part));
        let dims = vec![1; self.rank];
        // A rank has no more than 32 axes.
        let index = i64::try_from(self.axis).unwrap_or_default();
        let index = builder::tensor("", DType::I64, &dims, index.to_le_bytes().into());
        let index = vec![builder::tensor_attribute("value", index)];
        [
            builder::node("Constant", &[], &[&axis], index),
            builder::node("Shape", &[name(self.source)], &[&shape], vec![]),
            builder::node("Gather", &[&shape, &axis], &[value], vec![]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StageCut;
    use crate::builder::GraphBuilder;
    use crate::extract::{Stages, extract_with_sizes};

    /// `y = reshape(op(x), [rows of x, 4])`, cut behind `op`: the rows are needed on both sides.
    fn cut(op: &str) -> (Graph, Stages) {
        let shape = ["N".into(), 4.into()];
        let mut builder = GraphBuilder::new("rows", 17);
        builder
            .input("x", DType::F32, &shape)
            .weight_i64("columns", &[1], &[4])
            .node(op, &["x"], &["a"])
            .declare("a", DType::F32, &shape)
            .node_with(
                "Shape",
                &["x"],
                &["rows"],
                vec![builder::int("start", 0), builder::int("end", 1)],
            )
            .node_with(
                "Concat",
                &["rows", "columns"],
                &["target"],
                vec![builder::int("axis", 0)],
            )
            .node("Reshape", &["a", "target"], &["y"])
            .output("y", DType::F32, &shape);
        let graph = builder.build().unwrap();
        let find = |name: &str| graph.find(name).unwrap();
        let maker = |name: &str| graph.value(find(name)).producer.unwrap();
        let cut = StageCut {
            crossing: vec![find("a"), find("rows")],
            frontier: vec![maker("target")],
            repeated: Vec::new(),
        };
        let types = infer(&graph, &Bindings::new());
        let known = |id| Some((types.dtype(id)?, types.shape(id).map(<[Dim]>::to_vec)));
        let sizes = AxisSizes::of(&graph);
        let stages = extract_with_sizes(&graph, &[cut], known, &sizes).unwrap();
        (graph, stages)
    }

    #[test]
    fn a_size_of_what_crosses_is_not_sent_but_read_off() {
        let (graph, stages) = cut("Relu");
        assert_eq!(stages.crossing, [[graph.find("a").unwrap()]]);
        let tail = &stages.stages[1].graph;
        let ops: Vec<&str> = tail
            .nodes
            .iter()
            .map(|node| node.op_type.as_str())
            .collect();
        assert_eq!(ops, ["Constant", "Shape", "Gather", "Concat", "Reshape"]);
        let types = infer(tail, &Bindings::new());
        let rows = tail.find("rows").unwrap();
        assert_eq!(types.symbol(rows), Some("N"));
        assert_eq!(types.shape(rows).unwrap(), [Dim::Fixed(1)]);
    }

    #[test]
    fn a_stage_that_makes_nothing_but_sizes_keeps_them() {
        let shape = ["N".into(), 4.into()];
        let mut builder = GraphBuilder::new("sizes", 17);
        builder
            .input("x", DType::F32, &shape)
            .input("z", DType::F32, &shape)
            .weight_i64("columns", &[1], &[4])
            .node("Sigmoid", &["x"], &["a"])
            .node_with(
                "Shape",
                &["a"],
                &["rows"],
                vec![builder::int("start", 0), builder::int("end", 1)],
            )
            .node_with(
                "Concat",
                &["rows", "columns"],
                &["target"],
                vec![builder::int("axis", 0)],
            )
            .node("Reshape", &["z", "target"], &["y"])
            .output("y", DType::F32, &shape);
        let graph = builder.build().unwrap();
        let find = |name: &str| graph.find(name).unwrap();
        let cut = StageCut {
            crossing: vec![find("z"), find("rows")],
            frontier: vec![graph.value(find("target")).producer.unwrap()],
            repeated: Vec::new(),
        };
        let types = |_| Some((DType::F32, Some(vec![Dim::Unknown])));
        let sizes = AxisSizes::of(&graph);
        let stages = extract_with_sizes(&graph, &[cut], types, &sizes).unwrap();
        assert_eq!(stages.crossing, [[find("z"), find("rows")]]);
    }

    #[test]
    fn a_shape_that_only_the_file_declares_is_not_trusted() {
        let (graph, stages) = cut("test::Opaque");
        let both = ["a", "rows"].map(|name| graph.find(name).unwrap());
        assert_eq!(stages.crossing, [both]);
    }
}
