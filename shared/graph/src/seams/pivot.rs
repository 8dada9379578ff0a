//! The cheapest seam through a given value, inside a cell: a minimum cut.
//!
//! A cut assigns to each node whether the head runs it and whether the tail does. A cheap node may
//! run on both sides, so it has two points in the flow network: `needed` (on the source's side
//! where the head runs it) and `kept` (on the source's side where the tail does not). For an
//! ordinary node the two are one. Infinite edges `needed(reader) -> needed(maker)` keep the head
//! closed, `kept -> needed` makes sure that someone runs each node, and a value costs its bytes
//! where its maker is kept in the head while a reader is not.

use std::collections::HashMap;

use super::Costed;
use super::cells::{Cell, Cells};
use super::flow::{INFINITE, Network, SINK, SOURCE};
use super::roles::Role;
use crate::graph::{NodeId, ValueId};

/// What a byte that crosses counts: more than repeating every node there can be.
const BYTE_COST: u128 = 1 << 33;

/// What a repeated node counts: of cuts with equal bytes, the one that repeats least is taken.
const REPEAT_COST: u128 = 1;

/// Where a point of the cut stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Head,
    Tail,
    Free(usize),
}

/// A value and the nodes of the cell that make and read it, by their place in the cell.
struct LocalValue {
    id: ValueId,
    /// `None` where the value comes from before the cell.
    maker: Option<usize>,
    readers: Vec<usize>,
}

/// A cell prepared for cuts.
pub(crate) struct PivotCell<'a> {
    costed: &'a Costed<'a>,
    cell: &'a Cell,
    is_cheap: Vec<bool>,
    /// Places of the nodes whose values a node reads.
    makers: Vec<Vec<usize>>,
    /// Places of the nodes that read what a node makes.
    readers: Vec<Vec<usize>>,
    values: Vec<LocalValue>,
    by_value: HashMap<ValueId, usize>,
    /// Makers of the seams at the cell's end, with the FLOPs behind each.
    exits: Vec<(usize, u64)>,
}

/// A minimum cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PivotCut {
    pub(crate) crossing: Vec<ValueId>,
    pub(crate) frontier: Vec<NodeId>,
    pub(crate) repeated: Vec<NodeId>,
    pub(crate) tail_flops: u64,
}

impl<'a> PivotCell<'a> {
    pub(crate) fn new(costed: &'a Costed<'a>, cells: &'a Cells, index: usize) -> PivotCell<'a> {
        let cell = &cells.cells[index];
        let count = cell.nodes.len();
        let places: HashMap<NodeId, usize> = cell.nodes.iter().copied().zip(0..).collect();
        let mut local = PivotCell {
            costed,
            cell,
            is_cheap: cell
                .nodes
                .iter()
                .map(|&id| costed.role(id) == Role::Cheap)
                .collect(),
            makers: vec![Vec::new(); count],
            readers: vec![Vec::new(); count],
            values: Vec::new(),
            by_value: HashMap::new(),
            exits: Vec::new(),
        };
        local
            .exits
            .extend(cell.exits.iter().filter_map(|&(value, behind)| {
                let maker = costed.graph.value(value).producer?;
                Some((*places.get(&maker)?, cells.cells[behind].flops))
            }));
        for (place, &id) in cell.nodes.iter().enumerate() {
            let node = costed.graph.node(id);
            for value in node.reads().filter(|&value| !costed.is_free(value)) {
                let maker = costed.graph.value(value).producer;
                let maker = maker.and_then(|maker| places.get(&maker).copied());
                let values = &mut local.values;
                let index = *local.by_value.entry(value).or_insert_with(|| {
                    values.push(LocalValue {
                        id: value,
                        maker,
                        readers: Vec::new(),
                    });
                    values.len() - 1
                });
                let readers = &mut values[index].readers;
                if readers.last() != Some(&place) {
                    readers.push(place);
                    if let Some(maker) = maker {
                        local.makers[place].push(maker);
                        local.readers[maker].push(place);
                    }
                }
            }
        }
        local
    }

    /// The cheapest cut with the maker of `pivot` before it and its ordinary readers (behind cheap
    /// ones too) after it. With `strict`, `pivot` crosses even where only cheap nodes read it and
    /// their outputs would cost less. `None` where there is no such cut.
    pub(crate) fn cut(&self, pivot: ValueId, strict: bool) -> Option<PivotCut> {
        let pivot = &self.values[*self.by_value.get(&pivot)?];
        let (first, through) = self.first_ordinary_readers(pivot);
        if first.is_empty() {
            return None;
        }
        let before = reach(pivot.maker.as_slice(), &self.makers);
        let after = reach(&first, &self.readers);
        let mut network = Network::new();
        let mut needed = Vec::with_capacity(before.len());
        let mut kept = Vec::with_capacity(before.len());
        for place in 0..before.len() {
            let is_repeatable = self.is_cheap[place];
            needed.push(match (before[place], after[place]) {
                (true, _) => Side::Head,
                (_, true) => Side::Tail,
                _ => Side::Free(network.point()),
            });
            kept.push(if !is_repeatable || after[place] {
                needed[place]
            } else if pivot.maker == Some(place) {
                Side::Head
            } else if strict && through.contains(&place) {
                Side::Tail
            } else {
                Side::Free(network.point())
            });
        }
        self.constrain(&mut network, &needed, &kept);
        for value in &self.values {
            self.price(&mut network, value, &kept);
        }
        let (_, at_source) = network.min_cut()?;
        let is_head = |side: &Side| match side {
            Side::Head => true,
            Side::Tail => false,
            Side::Free(point) => at_source[*point],
        };
        let needed: Vec<bool> = needed.iter().map(is_head).collect();
        let kept: Vec<bool> = kept.iter().map(is_head).collect();
        Some(self.describe(&needed, &kept))
    }

    /// Ordinary readers of `pivot`, directly or through cheap nodes, and the cheap nodes that read
    /// it directly on the way to one.
    fn first_ordinary_readers(&self, pivot: &LocalValue) -> (Vec<usize>, Vec<usize>) {
        let mut first = Vec::new();
        let mut through = Vec::new();
        for &reader in &pivot.readers {
            if !self.is_cheap[reader] {
                first.push(reader);
                continue;
            }
            let mut seen = vec![false; self.readers.len()];
            let mut pending = vec![reader];
            let found = first.len();
            while let Some(place) = pending.pop() {
                if std::mem::replace(&mut seen[place], true) {
                    continue;
                }
                if self.is_cheap[place] {
                    pending.extend(&self.readers[place]);
                } else {
                    first.push(place);
                }
            }
            if first.len() > found {
                through.push(reader);
            }
        }
        if pivot.readers.iter().any(|&reader| !self.is_cheap[reader]) {
            // An ordinary reader takes the value itself, so that it crosses in any case.
            through.clear();
        }
        (first, through)
    }

    fn constrain(&self, network: &mut Network, needed: &[Side], kept: &[Side]) {
        for place in 0..needed.len() {
            match (needed[place], kept[place]) {
                (Side::Free(needed), Side::Free(kept)) if kept != needed => {
                    network.edge(kept, needed, INFINITE);
                    network.edge(needed, kept, REPEAT_COST);
                }
                (Side::Head, Side::Free(kept)) => network.edge(SOURCE, kept, REPEAT_COST),
                _ => {}
            }
            if let Side::Free(reader) = needed[place] {
                for &maker in &self.makers[place] {
                    if let Side::Free(maker) = needed[maker] {
                        network.edge(reader, maker, INFINITE);
                    }
                }
            }
        }
    }

    fn price(&self, network: &mut Network, value: &LocalValue, kept: &[Side]) {
        let from = match value.maker.map(|maker| kept[maker]) {
            None | Some(Side::Head) => SOURCE,
            Some(Side::Free(point)) => point,
            Some(Side::Tail) => return,
        };
        let cost = u128::from(self.costed.cost(value.id)) * BYTE_COST;
        let sides = value.readers.iter().map(|&reader| kept[reader]);
        if sides.clone().any(|side| side == Side::Tail) {
            // From a fixed head to a fixed tail it crosses whatever else is decided.
            if from != SOURCE {
                network.edge(from, SINK, cost);
            }
            return;
        }
        let free: Vec<usize> = sides
            .filter_map(|side| match side {
                Side::Free(point) => Some(point),
                Side::Head | Side::Tail => None,
            })
            .collect();
        match free.as_slice() {
            [] => {}
            [reader] => network.edge(from, *reader, cost),
            readers => {
                let crosses = network.point();
                network.edge(from, crosses, cost);
                for &reader in readers {
                    network.edge(crosses, reader, INFINITE);
                }
            }
        }
    }

    fn describe(&self, needed: &[bool], kept: &[bool]) -> PivotCut {
        // The flow may let the tail run a cheap node that nothing there reads, where that is free.
        let mut runs = vec![false; kept.len()];
        for place in (0..kept.len()).rev() {
            let is_read = self.readers[place].iter().any(|&reader| runs[reader]);
            runs[place] = !kept[place] && (!needed[place] || is_read);
        }
        let mut cut = PivotCut::default();
        for value in &self.values {
            let is_before = value.maker.is_none_or(|maker| kept[maker]);
            if is_before && value.readers.iter().any(|&reader| runs[reader]) {
                cut.crossing.push(value.id);
            }
        }
        cut.crossing.sort_unstable();
        let nodes = &self.cell.nodes;
        for place in 0..nodes.len() {
            if needed[place] {
                if runs[place] {
                    cut.repeated.push(nodes[place]);
                }
            } else {
                cut.tail_flops += self.costed.flops(nodes[place]);
                if self.makers[place].iter().all(|&maker| needed[maker]) {
                    cut.frontier.push(nodes[place]);
                }
            }
        }
        for &(place, flops) in &self.exits {
            if !needed[place] {
                cut.tail_flops += flops;
            }
        }
        cut
    }
}

/// Places that can be reached from `from` along `edges`, those of `from` included.
fn reach(from: &[usize], edges: &[Vec<usize>]) -> Vec<bool> {
    let mut reached = vec![false; edges.len()];
    let mut pending = from.to_vec();
    while let Some(place) = pending.pop() {
        if !std::mem::replace(&mut reached[place], true) {
            pending.extend(&edges[place]);
        }
    }
    reached
}
