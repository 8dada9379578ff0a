//! The cheapest seam through a given value, inside a cell: a minimum cut.
//!
//! A cut assigns to each node whether the head runs it and whether the tail does. A cheap node may
//! run on both sides, so it has two points in the flow network: `needed` (on the source's side
//! where the head runs it) and `kept` (on the source's side where the tail does not). For an
//! ordinary node the two are one. Infinite edges `needed(reader) -> needed(maker)` keep the head
//! closed, `kept -> needed` makes sure that someone runs each node, and a value costs its bytes
//! where its maker is kept in the head while a reader is not.
//!
//! Most nodes are decided beforehand: the makers behind the value, and the readers in front of it.
//! [`Reach`] finds out for 64 values at once, and the network holds only what is left.

use std::collections::{BTreeSet, HashMap};

use super::Costed;
use super::cells::{Cell, Cells};
use super::flow::{INFINITE, Network, SINK, SOURCE};
use super::reach::Reach;
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
pub(super) struct LocalValue {
    pub(super) id: ValueId,
    /// `None` where the value comes from before the cell.
    pub(super) maker: Option<usize>,
    /// Ascending, each once.
    pub(super) readers: Vec<usize>,
}

/// A cell prepared for cuts. Places are in topological order.
pub(crate) struct PivotCell<'a> {
    costed: &'a Costed<'a>,
    cell: &'a Cell,
    pub(super) is_cheap: Vec<bool>,
    /// Whether an ordinary node reads what the node makes, directly or through cheap ones.
    leads_on: Vec<bool>,
    /// Places of the nodes whose values a node reads.
    pub(super) makers: Vec<Vec<usize>>,
    /// Places of the nodes that read what a node makes.
    pub(super) readers: Vec<Vec<usize>>,
    pub(super) values: Vec<LocalValue>,
    /// Indices of the values that a node makes or reads.
    touches: Vec<Vec<usize>>,
    by_value: HashMap<ValueId, usize>,
    /// FLOPs of a node and of the cells behind the seams that it makes.
    flops: Vec<u64>,
    /// FLOPs of all nodes from a place on.
    flops_from: Vec<u64>,
}

/// A value through which a cut is asked for.
pub(super) struct Pivot {
    pub(super) maker: Option<usize>,
    /// Ordinary readers, directly or through cheap nodes: they stand in the tail.
    pub(super) after: Vec<usize>,
    /// Cheap direct readers that the tail must run, so that the value itself crosses.
    through: BTreeSet<usize>,
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
        let place_of = |value: ValueId| places.get(&costed.graph.value(value).producer?).copied();
        let mut local = PivotCell {
            costed,
            cell,
            is_cheap: cell
                .nodes
                .iter()
                .map(|&id| costed.role(id) == Role::Cheap)
                .collect(),
            leads_on: vec![false; count],
            makers: vec![Vec::new(); count],
            readers: vec![Vec::new(); count],
            values: Vec::new(),
            touches: vec![Vec::new(); count],
            by_value: HashMap::new(),
            flops: cell.nodes.iter().map(|&id| costed.flops(id)).collect(),
            flops_from: vec![0; count + 1],
        };
        for (place, &id) in cell.nodes.iter().enumerate() {
            for value in costed.graph.node(id).reads() {
                if !costed.is_free(value) {
                    local.add_read(value, place_of(value), place);
                }
            }
        }
        for &(value, behind) in &cell.exits {
            if let Some(place) = place_of(value) {
                local.flops[place] += cells.cells[behind].flops;
            }
        }
        for place in (0..count).rev() {
            let leads_on = |&reader: &usize| !local.is_cheap[reader] || local.leads_on[reader];
            local.leads_on[place] = local.readers[place].iter().any(leads_on);
            local.flops_from[place] = local.flops_from[place + 1] + local.flops[place];
        }
        local
    }

    fn add_read(&mut self, value: ValueId, maker: Option<usize>, place: usize) {
        let values = &mut self.values;
        let index = *self.by_value.entry(value).or_insert_with(|| {
            values.push(LocalValue {
                id: value,
                maker,
                readers: Vec::new(),
            });
            values.len() - 1
        });
        let readers = &mut values[index].readers;
        if readers.last() == Some(&place) {
            return;
        }
        readers.push(place);
        self.touches[place].push(index);
        if let Some(maker) = maker {
            self.makers[place].push(maker);
            self.readers[maker].push(place);
            self.touches[maker].push(index);
        }
    }

    /// For each value of `pivots`, the cheapest cut with its maker before it and its ordinary
    /// readers (behind cheap ones too) after it; values without such a cut are left out. With
    /// `strict`, a value crosses even where only cheap nodes read it and their outputs would cost
    /// less.
    ///
    /// Values beside each other, as in a very wide node's inputs, leave each other undecided, and
    /// their cuts would take quadratic time together: after `effort` undecided nodes and their
    /// edges, the values that are left get none. Those that were served are spread evenly.
    pub(crate) fn cuts(
        &self,
        pivots: &[ValueId],
        strict: bool,
        mut effort: usize,
    ) -> Vec<PivotCut> {
        let pivots: Vec<Pivot> = pivots
            .iter()
            .filter_map(|&value| self.pivot(value, strict))
            .collect();
        let rounds = pivots.len().div_ceil(Reach::WIDTH);
        let mut cuts = Vec::with_capacity(pivots.len());
        for round in 0..rounds {
            let picked: Vec<usize> = (round..pivots.len()).step_by(rounds).collect();
            let chosen: Vec<&Pivot> = picked.iter().map(|&index| &pivots[index]).collect();
            let reach = Reach::new(self, &chosen);
            let open = reach.open();
            let certain = reach.certain(self);
            for (lane, index) in picked.into_iter().enumerate() {
                let cut = PivotNetwork::new(self, &reach, lane, &pivots[index], &open[lane]);
                let cut = cut.solve(&certain[lane]);
                cuts.extend(cut.map(|cut| (index, cut)));
                effort = effort.saturating_sub(self.effort(&open[lane]));
            }
            if effort == 0 {
                break;
            }
        }
        cuts.sort_unstable_by_key(|&(index, _)| index);
        cuts.into_iter().map(|(_, cut)| cut).collect()
    }

    /// What a cut costs that leaves `open` undecided: nodes and edges of its network.
    fn effort(&self, open: &[usize]) -> usize {
        let edges = |&place: &usize| self.makers[place].len() + self.readers[place].len();
        open.iter().map(|place| 1 + edges(place)).sum()
    }

    fn pivot(&self, value: ValueId, strict: bool) -> Option<Pivot> {
        let value = &self.values[*self.by_value.get(&value)?];
        let mut after = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut pending = value.readers.clone();
        while let Some(place) = pending.pop() {
            if !self.is_cheap[place] {
                after.insert(place);
            } else if seen.insert(place) {
                pending.extend(&self.readers[place]);
            }
        }
        // An ordinary reader takes the value itself, so that it crosses in any case.
        let is_through = |&reader: &usize| self.leads_on[reader];
        let through = if strict && value.readers.iter().all(|&reader| self.is_cheap[reader]) {
            value.readers.iter().copied().filter(is_through).collect()
        } else {
            BTreeSet::new()
        };
        (!after.is_empty()).then(|| Pivot {
            maker: value.maker,
            after: after.into_iter().collect(),
            through,
        })
    }
}

/// The flow network of one pivot.
struct PivotNetwork<'a> {
    cell: &'a PivotCell<'a>,
    reach: &'a Reach,
    lane: usize,
    pivot: &'a Pivot,
    /// Nodes that are not decided, ascending, with `needed` and `kept`.
    open: &'a [usize],
    sides: HashMap<usize, (Side, Side)>,
    network: Network,
}

impl<'a> PivotNetwork<'a> {
    fn new(
        cell: &'a PivotCell<'a>,
        reach: &'a Reach,
        lane: usize,
        pivot: &'a Pivot,
        open: &'a [usize],
    ) -> PivotNetwork<'a> {
        let mut network = Network::new();
        let mut sides = HashMap::with_capacity(open.len());
        for &place in open {
            let needed = if reach.is_head(place, lane) {
                Side::Head
            } else {
                Side::Free(network.point())
            };
            let kept = if !cell.is_cheap[place] {
                needed
            } else if pivot.maker == Some(place) {
                Side::Head
            } else if pivot.through.contains(&place) {
                Side::Tail
            } else {
                Side::Free(network.point())
            };
            sides.insert(place, (needed, kept));
        }
        PivotNetwork {
            cell,
            reach,
            lane,
            pivot,
            open,
            sides,
            network,
        }
    }

    /// `needed` and `kept` of a node; a decided one has both alike.
    fn sides(&self, place: usize) -> (Side, Side) {
        self.sides.get(&place).copied().unwrap_or_else(|| {
            let is_tail = self.reach.is_tail(place, self.lane);
            let side = if is_tail { Side::Tail } else { Side::Head };
            (side, side)
        })
    }

    /// The cut; `certain` are values that cross whatever is decided here.
    fn solve(mut self, certain: &[usize]) -> Option<PivotCut> {
        self.constrain();
        let mut touched: Vec<usize> = self
            .open
            .iter()
            .flat_map(|&place| &self.cell.touches[place])
            .copied()
            .collect();
        touched.sort_unstable();
        touched.dedup();
        for &value in &touched {
            self.price(&self.cell.values[value]);
        }
        let (_, at_source) = self.network.min_cut()?;
        for (needed, kept) in self.sides.values_mut() {
            for side in [needed, kept] {
                if let Side::Free(point) = *side {
                    *side = if at_source[point] {
                        Side::Head
                    } else {
                        Side::Tail
                    };
                }
            }
        }
        Some(self.describe(certain, &touched))
    }

    fn constrain(&mut self) {
        for &place in self.open {
            let (needed, kept) = self.sides(place);
            match (needed, kept) {
                (Side::Free(needed), Side::Free(kept)) if kept != needed => {
                    self.network.edge(kept, needed, INFINITE);
                    self.network.edge(needed, kept, REPEAT_COST);
                }
                (Side::Head, Side::Free(kept)) => self.network.edge(SOURCE, kept, REPEAT_COST),
                _ => {}
            }
            if let Side::Free(reader) = needed {
                for &maker in &self.cell.makers[place] {
                    if let (Side::Free(maker), _) = self.sides(maker) {
                        self.network.edge(reader, maker, INFINITE);
                    }
                }
            }
        }
    }

    fn price(&mut self, value: &LocalValue) {
        let from = match value.maker.map(|maker| self.sides(maker).1) {
            None | Some(Side::Head) => SOURCE,
            Some(Side::Free(point)) => point,
            Some(Side::Tail) => return,
        };
        let cost = u128::from(self.cell.costed.cost(value.id)) * BYTE_COST;
        // Readers in the tail come last, and one of them settles it.
        let kept = |&reader: &usize| self.sides(reader).1;
        if value
            .readers
            .iter()
            .rev()
            .map(kept)
            .any(|side| side == Side::Tail)
        {
            // From a fixed head to a fixed tail it crosses whatever else is decided.
            if from != SOURCE {
                self.network.edge(from, SINK, cost);
            }
            return;
        }
        let free = value
            .readers
            .iter()
            .map(kept)
            .filter_map(|side| match side {
                Side::Free(point) => Some(point),
                Side::Head | Side::Tail => None,
            });
        match free.collect::<Vec<_>>().as_slice() {
            [] => {}
            [reader] => self.network.edge(from, *reader, cost),
            readers => {
                let crosses = self.network.point();
                self.network.edge(from, crosses, cost);
                for &reader in readers {
                    self.network.edge(crosses, reader, INFINITE);
                }
            }
        }
    }

    fn describe(&self, certain: &[usize], touched: &[usize]) -> PivotCut {
        let cell = self.cell;
        let is_needed = |place: usize| self.sides(place).0 == Side::Head;
        let is_kept = |place: usize| self.sides(place).1 == Side::Head;
        // The flow may let the tail run a cheap node that nothing there reads, where that is free.
        let mut idle = BTreeSet::new();
        let runs = |place: usize, idle: &BTreeSet<usize>| !is_kept(place) && !idle.contains(&place);
        for &place in self.open.iter().rev() {
            let is_read = || {
                cell.readers[place]
                    .iter()
                    .rev()
                    .any(|&reader| runs(reader, &idle))
            };
            if is_needed(place) && !is_kept(place) && !is_read() {
                idle.insert(place);
            }
        }
        let runs = |place: usize| runs(place, &idle);
        let crosses = |value: &LocalValue| {
            value.maker.is_none_or(is_kept)
                && value.readers.iter().rev().any(|&reader| runs(reader))
        };
        let decided = certain.iter().map(|&value| &cell.values[value]);
        let open = touched.iter().map(|&value| &cell.values[value]);
        let crossing: BTreeSet<ValueId> = decided
            .chain(open.filter(|value| crosses(value)))
            .map(|value| value.id)
            .collect();

        let mut late: BTreeSet<usize> = self.pivot.after.iter().copied().collect();
        late.extend(self.open.iter().copied().filter(|&place| !is_needed(place)));
        let is_first = |place: &usize| cell.makers[*place].iter().all(|&maker| is_needed(maker));
        let node = |place: usize| cell.cell.nodes[place];
        let repeated = self
            .open
            .iter()
            .filter(|&&place| is_needed(place) && runs(place));

        // Without the open nodes, the head ends with the pivot's maker.
        let end = self.pivot.maker.map_or(0, |maker| maker + 1);
        let mut tail_flops = cell.flops_from[end];
        for &place in self.open {
            match (place >= end, is_needed(place)) {
                (true, true) => tail_flops -= cell.flops[place],
                (false, false) => tail_flops += cell.flops[place],
                _ => {}
            }
        }
        PivotCut {
            crossing: crossing.into_iter().collect(),
            frontier: late.into_iter().filter(is_first).map(node).collect(),
            repeated: repeated.map(|&place| node(place)).collect(),
            tail_flops,
        }
    }
}
