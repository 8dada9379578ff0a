//! The cheapest division of a whole graph under costs of any kind that add up, exactly: a minimum
//! cut (C. Hu et al., "Dynamic adaptive DNN surgery for inference acceleration on the edge",
//! INFOCOM 2019; S. Zhang et al., "Towards real-time cooperative deep inference over the cloud and
//! edge end devices", 2020), extended to nodes that may run on both sides.

use std::collections::BTreeSet;

use super::flow::{INFINITE, Network, SINK, SOURCE};
use super::roles::Role;
use super::{Costed, FORBIDDEN_COST};
use crate::cut::StageCut;
use crate::graph::{NodeId, ValueId};

/// What a division costs, in any one unit; a cost of `u64::MAX / 4` or more forbids.
pub struct Weights<'w> {
    /// Running a node before the cut.
    pub head: &'w dyn Fn(NodeId) -> u64,
    /// Running it after the cut, the way of its outputs to the caller included.
    pub tail: &'w dyn Fn(NodeId) -> u64,
    /// Sending a value, once, to however many readers.
    pub send: &'w dyn Fn(ValueId) -> u64,
}

/// A division of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    /// Its cost by the weights.
    pub cost: u128,
    /// What crosses and which nodes run where. Nothing crosses where nothing is left for the tail;
    /// where nothing runs before, the graph's inputs cross.
    pub cut: StageCut,
    /// Ordinary nodes before the cut.
    pub before: usize,
    /// Ordinary nodes behind it.
    pub behind: usize,
}

/// Where the copies of a node are decided: on the source's side it runs before the cut (`head`),
/// and does not run behind it (`tail`). An ordinary node has one point for both.
#[derive(Clone, Copy)]
struct Points {
    head: usize,
    tail: usize,
}

/// A cost that stands for no, far above every sum of others.
const FORBIDDEN: u64 = u64::MAX / 4;

/// A copy of a cheap node that nobody needs costs this, so that there is none; all else counts in
/// multiples of [`UNIT`], which no number of copies reaches.
const IDLE_COPY: u128 = 1;
const UNIT: u128 = 1 << 24;

fn capacity(cost: u64) -> u128 {
    if cost >= FORBIDDEN {
        INFINITE
    } else {
        u128::from(cost) * UNIT
    }
}

impl Costed<'_> {
    /// The cheapest division of the graph, data flowing only forward; each node runs on one side,
    /// cheap arithmetic on either or both, and weights are free. `None` where every division is
    /// forbidden. Among equals the one with the least before the cut.
    pub fn cheapest(&self, weights: &Weights<'_>) -> Option<Division> {
        let mut network = Network::new();
        let points = self.node_points(&mut network);
        for (id, node) in self.graph.enumerate_nodes() {
            let Some(own) = points[id.index()] else {
                continue;
            };
            self.add_node(&mut network, id, own, weights);
            let makers = node.reads().filter_map(|value| self.maker(value));
            for maker in makers.filter_map(|maker| points[maker.index()]) {
                network.edge(own.head, maker.head, INFINITE);
            }
        }
        for value in (0u32..).map(ValueId).take(self.graph.values.len()) {
            self.add_value(&mut network, value, &points, weights);
        }
        let (cost, at_source) = network.min_cut()?;
        let (cut, before, behind) = self.division(&points, &at_source);
        Some(Division {
            cost: cost / UNIT,
            cut,
            before,
            behind,
        })
    }

    fn node_points(&self, network: &mut Network) -> Vec<Option<Points>> {
        let nodes = (0u32..).map(NodeId).take(self.graph.nodes.len());
        let points = nodes.map(|id| match self.role(id) {
            Role::Ordinary => {
                let point = network.point();
                Some(Points {
                    head: point,
                    tail: point,
                })
            }
            Role::Cheap => Some(Points {
                head: network.point(),
                tail: network.point(),
            }),
            Role::Dead | Role::Constant => None,
        });
        points.collect()
    }

    fn add_node(&self, network: &mut Network, id: NodeId, own: Points, weights: &Weights<'_>) {
        network.edge(own.head, SINK, capacity((weights.head)(id)));
        network.edge(SOURCE, own.tail, capacity((weights.tail)(id)));
        if own.head != own.tail {
            // It runs on one side at least.
            network.edge(own.tail, own.head, INFINITE);
            network.edge(own.head, own.tail, IDLE_COPY);
        }
    }

    fn add_value(
        &self,
        network: &mut Network,
        value: ValueId,
        points: &[Option<Points>],
        weights: &Weights<'_>,
    ) {
        let entry = self.graph.value(value);
        if self.is_free(value) {
            return;
        }
        let from = match self.maker(value).map(|maker| points[maker.index()]) {
            None => SOURCE,
            Some(Some(maker)) => maker.tail,
            Some(None) => return,
        };
        let mut readers: Vec<usize> = entry
            .consumers
            .iter()
            .filter_map(|reader| points[reader.index()])
            .map(|reader| reader.tail)
            .collect();
        readers.dedup();
        if readers.is_empty() {
            return;
        }
        let cost = if self.cost(value) >= FORBIDDEN_COST {
            INFINITE
        } else {
            capacity((weights.send)(value))
        };
        if let [reader] = readers[..] {
            network.edge(from, reader, cost);
            return;
        }
        let crosses = network.point();
        network.edge(from, crosses, cost);
        for reader in readers {
            network.edge(crosses, reader, INFINITE);
        }
    }

    /// The node that makes `value` from the graph's inputs.
    fn maker(&self, value: ValueId) -> Option<NodeId> {
        self.graph.value(value).producer
    }

    fn division(&self, points: &[Option<Points>], at_source: &[bool]) -> (StageCut, usize, usize) {
        let runs_before = |id: NodeId| points[id.index()].is_some_and(|own| at_source[own.head]);
        let mut behind: Vec<bool> = points
            .iter()
            .map(|own| own.is_some_and(|own| !at_source[own.tail]))
            .collect();
        // The flow may let the tail run a copy of a cheap node that nothing there reads.
        for (id, node) in self
            .graph
            .enumerate_nodes()
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            let is_read = node.makes().any(|value| {
                let readers = &self.graph.value(value).consumers;
                readers.iter().any(|reader| behind[reader.index()])
            });
            if behind[id.index()] && runs_before(id) && !is_read {
                behind[id.index()] = false;
            }
        }
        let mut crossing = BTreeSet::new();
        let mut frontier = Vec::new();
        let mut repeated = Vec::new();
        let (mut early, mut late) = (0, 0);
        for (id, node) in self
            .graph
            .enumerate_nodes()
            .filter(|&(id, _)| self.is_part(id))
        {
            let is_ordinary = self.role(id) == Role::Ordinary;
            if !behind[id.index()] {
                early += usize::from(is_ordinary);
                continue;
            }
            let reads = || node.reads().filter(|&value| !self.is_free(value));
            let is_here =
                |value: ValueId| self.maker(value).is_some_and(|maker| behind[maker.index()]);
            crossing.extend(reads().filter(|&value| !is_here(value)));
            if runs_before(id) {
                repeated.push(id);
                continue;
            }
            late += usize::from(is_ordinary);
            let comes_first = reads().all(|value| self.maker(value).is_none_or(runs_before));
            if comes_first {
                frontier.push(id);
            }
        }
        let cut = StageCut {
            crossing: crossing.into_iter().collect(),
            frontier,
            repeated,
        };
        (cut, early, late)
    }
}
