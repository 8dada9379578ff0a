//! The list of a graph's seams, and the seam through any one value.

use std::collections::{BTreeMap, HashSet};

use super::cells::Cells;
use super::pivot::{PivotCell, PivotCut};
use super::roles::Role;
use super::{Costed, Seam, SeamError};
use crate::bodies::made_anywhere;
use crate::cut::StageCut;
use crate::graph::{NodeId, ValueId};

/// Two seams this near, as a share of all work, have the same depth.
const SAME_DEPTH: f64 = 0.0025;

/// What finding the seams between single-value seams may cost in all, in undecided nodes and their
/// edges: well under a second. Trained models take a fraction of it.
const EFFORT: usize = 1 << 20;

/// Finds seams of one graph.
pub struct SeamFinder<'a> {
    costed: &'a Costed<'a>,
    cells: Cells,
    listed: Vec<Seam>,
}

impl<'a> SeamFinder<'a> {
    /// Divides the graph and lists its seams.
    ///
    /// Single-value seams take linear time. Between two of them, each value that a node of the
    /// head makes for the tail gets its cheapest seam by maximum flow; in a graph so wide that this
    /// would take long, as many values as time allows, spread evenly. [`SeamFinder::at`] finds the
    /// others.
    pub fn new(costed: &'a Costed<'a>) -> SeamFinder<'a> {
        let mut finder = SeamFinder {
            costed,
            cells: Cells::new(costed),
            listed: Vec::new(),
        };
        finder.listed = finder.choose(finder.candidates());
        finder
    }

    /// The seams worth choosing from, by rising depth: every single-value seam of a depth of its
    /// own, and of the others those to which no seam of the same depth (within 0.25 % of all work)
    /// sends as few bytes. Seams with no work on one side are left out.
    pub fn seams(&self) -> &[Seam] {
        &self.listed
    }

    /// The seam with the id `text`, or else the cheapest one through the value of that name.
    ///
    /// # Errors
    /// [`SeamError`].
    pub fn resolve(&self, text: &str) -> Result<Seam, SeamError> {
        match self.listed.iter().find(|seam| seam.id == text) {
            Some(seam) => Ok(seam.clone()),
            None => self.at(text),
        }
    }

    /// The cheapest seam where the value called `name` crosses, listed or not. Where only cheap
    /// arithmetic reads the value, what that makes of it may cross in its place.
    ///
    /// # Errors
    /// [`SeamError`]: no such value, one inside a control-flow body, a weight, or a value with
    /// nothing after it.
    pub fn at(&self, name: &str) -> Result<Seam, SeamError> {
        let graph = self.costed.graph;
        let value = graph.find(name).ok_or_else(|| self.not_found(name))?;
        if self.costed.is_free(value) {
            return Err(SeamError::Weight { value: name.into() });
        }
        let cut = self
            .cut(value)
            .ok_or_else(|| SeamError::NothingAfter { value: name.into() })?;
        if let Some(&bad) = cut.crossing.iter().find(|&&id| !self.costed.can_cross(id)) {
            return Err(SeamError::NotTensor {
                value: name.into(),
                crossing: graph.value(bad).name.clone(),
            });
        }
        let listed = self
            .listed
            .iter()
            .find(|seam| seam.cut.crossing == cut.crossing);
        Ok(listed.cloned().unwrap_or_else(|| Seam {
            id: format!("@{name}"),
            ..self.seam(cut)
        }))
    }

    fn cut(&self, value: ValueId) -> Option<PivotCut> {
        if let Some(behind) = self.cells.behind[value.index()] {
            return Some(self.single(value, behind));
        }
        let graph = self.costed.graph;
        let home = match graph.value(value).producer {
            Some(node) => self.cells.of_node[node.index()]?,
            None => 0,
        };
        PivotCell::new(self.costed, &self.cells, home)
            .cuts(&[value], true, usize::MAX)
            .pop()
    }

    fn not_found(&self, name: &str) -> SeamError {
        let graph = self.costed.graph;
        let inside = graph.enumerate_nodes().find_map(|(id, node)| {
            let (body, _) = node.bodies().find(|(_, body)| made_anywhere(body, name))?;
            Some((id, body.to_owned()))
        });
        match inside {
            Some((node, body)) => SeamError::InsideBody {
                value: name.into(),
                node: graph.node_label(node),
                body,
            },
            None => SeamError::Unknown { name: name.into() },
        }
    }

    fn candidates(&self) -> Vec<Seam> {
        let mut seen: HashSet<Vec<ValueId>> = HashSet::new();
        let mut found = Vec::new();
        let pivots: Vec<Vec<ValueId>> = (0..self.cells.cells.len())
            .map(|index| self.pivots(index))
            .collect();
        let total = pivots.iter().map(Vec::len).sum::<usize>().max(1);
        for (index, pivots) in pivots.iter().enumerate() {
            let share = EFFORT.saturating_mul(pivots.len()) / total;
            for cut in self.cuts_of_cell(index, pivots, share) {
                if cut.crossing.iter().all(|&id| self.costed.can_cross(id))
                    && seen.insert(cut.crossing.clone())
                {
                    found.push(self.seam(cut));
                }
            }
        }
        found
    }

    /// The values of a cell, single-value seams aside, that get a seam of their own.
    fn pivots(&self, index: usize) -> Vec<ValueId> {
        let is_ordinary = |id: &&NodeId| self.costed.role(**id) == Role::Ordinary;
        let makes = |id: &NodeId| self.costed.graph.node(*id).makes();
        let nodes = self.cells.cells[index].nodes.iter();
        let made = nodes.filter(is_ordinary).flat_map(makes);
        made.filter(|value| self.cells.behind[value.index()].is_none())
            .collect()
    }

    fn cuts_of_cell(&self, index: usize, pivots: &[ValueId], effort: usize) -> Vec<PivotCut> {
        let mut cuts = Vec::new();
        if let Some(entry) = self.cells.cells[index].entry {
            cuts.push(self.single(entry, index));
        }
        if !pivots.is_empty() {
            let local = PivotCell::new(self.costed, &self.cells, index);
            cuts.extend(local.cuts(pivots, false, effort));
        }
        cuts
    }

    /// The seam at which `value` alone crosses into the cell `behind`.
    fn single(&self, value: ValueId, behind: usize) -> PivotCut {
        let cell = &self.cells.cells[behind];
        let readers = &self.costed.graph.value(value).consumers;
        let is_first = |id: &NodeId| {
            let mut reads = self.costed.graph.node(*id).reads();
            reads.all(|read| read == value || self.costed.is_free(read))
        };
        PivotCut {
            crossing: vec![value],
            frontier: readers
                .iter()
                .copied()
                .filter(|&id| self.costed.is_part(id))
                .filter(is_first)
                .collect(),
            repeated: Vec::new(),
            tail_flops: cell.flops,
        }
    }

    fn seam(&self, cut: PivotCut) -> Seam {
        let head_flops = self.costed.total_flops().saturating_sub(cut.tail_flops);
        let stage_cut = StageCut {
            crossing: cut.crossing,
            frontier: cut.frontier,
            repeated: cut.repeated,
        };
        self.costed.describe(String::new(), stage_cut, head_flops)
    }

    fn choose(&self, mut candidates: Vec<Seam>) -> Vec<Seam> {
        candidates.retain(|seam| {
            0 < seam.depth_flops
                && seam.depth_flops < seam.total_flops
                && seam.unsized_values.is_empty()
        });
        // Cheapest first, so that whoever is kept is never dropped for a later one; a single value
        // beats several of the same size.
        candidates.sort_by(|a, b| {
            let key = |seam: &Seam| (!seam.is_single(), seam.bytes, seam.cut.crossing.len());
            key(a)
                .cmp(&key(b))
                .then_with(|| a.cut.crossing.cmp(&b.cut.crossing))
        });
        let total = self.costed.total_flops();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a u64, below 1"
        )]
        let window = (total as f64 * SAME_DEPTH) as u64;
        let mut kept: BTreeMap<(u64, usize), Seam> = BTreeMap::new();
        for (order, seam) in candidates.into_iter().enumerate() {
            let depth = seam.depth_flops;
            let from_to = |window| {
                (depth.saturating_sub(window), 0)..=(depth.saturating_add(window), usize::MAX)
            };
            let is_dominated = if seam.is_single() {
                kept.range(from_to(0)).any(|(_, other)| other.is_single())
            } else {
                kept.range(from_to(window))
                    .any(|(_, other)| other.bytes <= seam.bytes)
            };
            if !is_dominated {
                kept.insert((depth, order), seam);
            }
        }
        let mut seams: Vec<Seam> = kept.into_values().collect();
        for (index, seam) in seams.iter_mut().enumerate() {
            seam.id = format!("s{index}");
        }
        seams
    }
}
