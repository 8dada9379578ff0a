//! A cut as extraction needs it: what crosses, and which nodes run after.

use std::collections::BTreeSet;

use crate::graph::{Graph, NodeId, ValueId};
use crate::seams::roles;

/// Where a graph is divided into head and tail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StageCut {
    /// Values that cross, in topological order. Weights never do: they stand on both sides.
    pub crossing: Vec<ValueId>,
    /// The first nodes of the tail: it runs these and everything that depends on them.
    pub frontier: Vec<NodeId>,
    /// Nodes of the head that the tail runs again, so that their outputs need not cross.
    pub repeated: Vec<NodeId>,
}

/// Which nodes run on each side of a cut; indexed by [`NodeId`]. A node may run on both, or, where
/// no output depends on it, on none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides {
    /// Runs before the cut.
    pub head: Vec<bool>,
    /// Runs after the cut.
    pub tail: Vec<bool>,
}

impl StageCut {
    /// The cut between the nodes of `before` and all others. `before` must hold, with a node, the
    /// makers of what it reads; nodes that depend on weights only may stand on either side.
    ///
    /// # Errors
    /// The node of `before` that reads from a node outside, and that node.
    pub fn after_nodes(
        graph: &Graph,
        before: &BTreeSet<NodeId>,
    ) -> Result<StageCut, (NodeId, NodeId)> {
        let constant = roles::constant_nodes(graph);
        let producer = |value: ValueId| {
            let node = graph.value(value).producer?;
            (!constant[node.index()]).then_some(node)
        };
        let is_free = |value: ValueId| {
            let made_free = graph
                .value(value)
                .producer
                .is_some_and(|node| constant[node.index()]);
            made_free || graph.initializers.contains_key(&value)
        };
        let mut crossing = BTreeSet::new();
        let mut frontier = Vec::new();
        for (id, node) in graph
            .enumerate_nodes()
            .filter(|(id, _)| !constant[id.index()])
        {
            let outside = node
                .reads()
                .filter_map(producer)
                .find(|maker| !before.contains(maker));
            match (before.contains(&id), outside) {
                (true, Some(maker)) => return Err((id, maker)),
                (true, None) => {}
                (false, outside) => {
                    if outside.is_none() {
                        frontier.push(id);
                    }
                    crossing.extend(node.reads().filter(|&value| {
                        !is_free(value)
                            && producer(value).is_none_or(|maker| before.contains(&maker))
                    }));
                }
            }
        }
        Ok(StageCut {
            crossing: crossing.into_iter().collect(),
            frontier,
            repeated: Vec::new(),
        })
    }

    /// Nodes that must run after the cut: the frontier and all that depends on it.
    pub fn after(&self, graph: &Graph) -> Vec<bool> {
        let mut after = vec![false; graph.nodes.len()];
        for id in &self.frontier {
            after[id.index()] = true;
        }
        for (id, node) in graph.enumerate_nodes() {
            let depends = node
                .reads()
                .filter_map(|value| graph.value(value).producer)
                .any(|maker| after[maker.index()]);
            after[id.index()] |= depends;
        }
        after
    }

    /// The nodes that each side runs.
    pub fn sides(&self, graph: &Graph) -> Sides {
        let after = self.after(graph);
        let (late, early): (Vec<ValueId>, Vec<ValueId>) =
            graph.outputs.iter().partition(|&&value| {
                graph
                    .value(value)
                    .producer
                    .is_some_and(|node| after[node.index()])
            });
        let stops: BTreeSet<ValueId> = self.crossing.iter().copied().collect();
        let early = early.into_iter().chain(self.crossing.iter().copied());
        Sides {
            head: needed(graph, early, &BTreeSet::new()),
            tail: needed(graph, late.into_iter(), &stops),
        }
    }
}

/// Nodes that must run for `targets`, where the values of `given` are there already.
pub(crate) fn needed(
    graph: &Graph,
    targets: impl Iterator<Item = ValueId>,
    given: &BTreeSet<ValueId>,
) -> Vec<bool> {
    let mut runs = vec![false; graph.nodes.len()];
    let mut pending: Vec<ValueId> = targets.collect();
    while let Some(value) = pending.pop() {
        if given.contains(&value) {
            continue;
        }
        if let Some(node) = graph.value(value).producer
            && !std::mem::replace(&mut runs[node.index()], true)
        {
            pending.extend(graph.node(node).reads());
        }
    }
    runs
}
