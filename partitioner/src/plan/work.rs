//! Sums over the nodes of heads and tails, for many seams of one graph.

use seamline_graph::{Graph, StageCut};

/// A graph's edges, so that what lies behind a cut is found by walking from its frontier.
pub(crate) struct Work {
    /// Readers of node `n`: `readers[first[n]..first[n + 1]]`.
    first: Vec<usize>,
    readers: Vec<u32>,
    /// When each node was last seen.
    seen: Vec<u32>,
    round: u32,
}

impl Work {
    pub(crate) fn new(graph: &Graph) -> Work {
        let mut first = Vec::with_capacity(graph.nodes.len() + 1);
        let mut readers = Vec::new();
        for (_, node) in graph.enumerate_nodes() {
            first.push(readers.len());
            for value in node.makes() {
                readers.extend(graph.value(value).consumers.iter().map(|reader| reader.0));
            }
        }
        first.push(readers.len());
        Work {
            first,
            readers,
            seen: vec![0; graph.nodes.len()],
            round: 0,
        }
    }

    /// For each of `costs`, a cost a node, the sum over the nodes that run only behind `cut`.
    pub(crate) fn behind<const N: usize>(
        &mut self,
        cut: &StageCut,
        costs: [&[f64]; N],
    ) -> [f64; N] {
        self.round += 1;
        let mut sums = [0.0; N];
        let mut pending: Vec<u32> = cut.frontier.iter().map(|id| id.0).collect();
        while let Some(node) = pending.pop() {
            let index = node as usize;
            if std::mem::replace(&mut self.seen[index], self.round) == self.round {
                continue;
            }
            for (sum, costs) in sums.iter_mut().zip(costs) {
                *sum += costs.get(index).copied().unwrap_or_default();
            }
            let (from, to) = (self.first[index], self.first[index + 1]);
            pending.extend(&self.readers[from..to]);
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use seamline_graph::builder::GraphBuilder;
    use seamline_graph::{NodeId, StageCut};
    use seamline_plan::DType;

    use super::*;

    #[test]
    fn sums_count_each_node_behind_the_cut_once() {
        let mut builder = GraphBuilder::new("diamond", 17);
        builder.input("x", DType::F32, &[4u64.into()]);
        builder.node("Relu", &["x"], &["a"]);
        builder.node("Neg", &["a"], &["b"]);
        builder.node("Abs", &["a"], &["c"]);
        builder.node("Add", &["b", "c"], &["y"]);
        builder.output("y", DType::F32, &[4u64.into()]);
        let graph = builder.build().unwrap();
        let cut = StageCut {
            crossing: vec![graph.find("a").unwrap()],
            frontier: vec![NodeId(1), NodeId(2)],
            repeated: Vec::new(),
        };
        let mut work = Work::new(&graph);
        for _ in 0..2 {
            let sums = work.behind(&cut, [&[1.0, 10.0, 100.0, 1000.0], &[1.0; 4]]);
            assert_eq!(sums, [1110.0, 3.0]);
        }
    }
}
