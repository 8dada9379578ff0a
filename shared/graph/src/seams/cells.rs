//! Single-value seams in linear time, and the cells between them.
//!
//! A value is a single-value seam where every path from the graph's inputs to anything that depends
//! on it leads through it: where it dominates its whole future. Dominators come from one pass in
//! topological order (the immediate dominator of a node is the nearest common ancestor of its
//! inputs in the tree so far), and an edge that leads out of a value's subtree shows that the value
//! is none.
//!
//! A seam through a value inside a cell never needs to look beyond the cell: cuts are submodular,
//! so whatever lies before the cell's first value may stand before the cut, and whatever lies
//! behind a later seam may stand with that seam's maker, at no cost.

use super::Costed;
use super::roles::Role;
use crate::graph::{NodeId, ValueId};

/// The nodes between single-value seams.
#[derive(Debug, Default)]
pub(crate) struct Cell {
    /// The seam in front; `None` for the first cell, which reads the graph's inputs.
    pub(crate) entry: Option<ValueId>,
    /// Ordinary and cheap nodes, in topological order.
    pub(crate) nodes: Vec<NodeId>,
    /// Seams whose makers lie here, with the cells behind them.
    pub(crate) exits: Vec<(ValueId, usize)>,
    /// FLOPs of the cell and of all cells behind it.
    pub(crate) flops: u64,
}

/// The graph, divided at its single-value seams.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    pub(crate) cells: Vec<Cell>,
    /// The cell of each node; `None` where it is constant or dead.
    pub(crate) of_node: Vec<Option<usize>>,
    /// The cell behind each value, where it is a single-value seam.
    pub(crate) behind: Vec<Option<usize>>,
}

impl Cells {
    pub(crate) fn new(costed: &Costed<'_>) -> Cells {
        let graph = costed.graph;
        let tree = Dominators::new(costed);
        let is_seam = tree.dominating_values(costed);
        let mut cells = Cells {
            cells: vec![Cell::default()],
            of_node: vec![None; graph.nodes.len()],
            behind: vec![None; graph.values.len()],
        };
        // The cell in which the successors of each point of the tree lie.
        let mut inside = vec![0usize; tree.points.len()];
        for (id, node) in graph
            .enumerate_nodes()
            .filter(|&(id, _)| costed.is_part(id))
        {
            let point = tree.of_node[id.index()];
            let above = tree.points[point].parent;
            let cell = match tree.points[above].value {
                Some(value) if is_seam[value.index()] => *cells.behind[value.index()]
                    .get_or_insert_with(|| {
                        cells.cells.push(Cell {
                            entry: Some(value),
                            ..Cell::default()
                        });
                        let behind = cells.cells.len() - 1;
                        let maker = graph.value(value).producer;
                        let before = maker.and_then(|maker| cells.of_node[maker.index()]);
                        cells.cells[before.unwrap_or(0)].exits.push((value, behind));
                        behind
                    }),
                _ => inside[above],
            };
            cells.of_node[id.index()] = Some(cell);
            cells.cells[cell].nodes.push(id);
            cells.cells[cell].flops += costed.flops(id);
            inside[point] = cell;
            for value in node.makes() {
                inside[tree.of_value[value.index()]] = cell;
            }
        }
        // A cell comes after the cell that it hangs from.
        for index in (0..cells.cells.len()).rev() {
            let behind: u64 = cells.cells[index]
                .exits
                .iter()
                .map(|&(_, cell)| cells.cells[cell].flops)
                .sum();
            cells.cells[index].flops += behind;
        }
        cells
    }
}

/// A node or a value in the dominator tree.
#[derive(Clone, Copy)]
struct Point {
    parent: usize,
    depth: u32,
    /// An ancestor far above, so that walks take logarithmic time (E. W. Myers, 1983).
    jump: usize,
    value: Option<ValueId>,
}

struct Dominators {
    points: Vec<Point>,
    of_node: Vec<usize>,
    of_value: Vec<usize>,
}

/// The point above all.
const ROOT: usize = 0;

impl Dominators {
    fn new(costed: &Costed<'_>) -> Dominators {
        let graph = costed.graph;
        let mut tree = Dominators {
            points: vec![Point {
                parent: ROOT,
                depth: 0,
                jump: ROOT,
                value: None,
            }],
            of_node: vec![ROOT; graph.nodes.len()],
            of_value: vec![ROOT; graph.values.len()],
        };
        for &input in &graph.inputs {
            tree.of_value[input.index()] = tree.add(ROOT, Some(input));
        }
        for (id, node) in graph
            .enumerate_nodes()
            .filter(|&(id, _)| costed.is_part(id))
        {
            let above = node
                .reads()
                .filter(|&value| !costed.is_free(value))
                .map(|value| tree.of_value[value.index()])
                .reduce(|a, b| tree.common_ancestor(a, b))
                .unwrap_or(ROOT);
            let point = tree.add(above, None);
            tree.of_node[id.index()] = point;
            for value in node.makes() {
                tree.of_value[value.index()] = tree.add(point, Some(value));
            }
        }
        tree
    }

    fn add(&mut self, parent: usize, value: Option<ValueId>) -> usize {
        let above = self.points[parent];
        let far = self.points[above.jump];
        let depth = |point: Point| point.depth;
        // Two equal jumps in a row are merged into one of twice the length.
        let is_even = depth(above) - depth(far) == depth(far) - depth(self.points[far.jump]);
        self.points.push(Point {
            parent,
            depth: above.depth + 1,
            jump: if is_even { far.jump } else { parent },
            value,
        });
        self.points.len() - 1
    }

    fn common_ancestor(&self, mut a: usize, mut b: usize) -> usize {
        if self.points[a].depth < self.points[b].depth {
            (a, b) = (b, a);
        }
        let level = self.points[b].depth;
        while self.points[a].depth > level {
            let jump = self.points[a].jump;
            let can_jump = self.points[jump].depth >= level;
            a = if can_jump {
                jump
            } else {
                self.points[a].parent
            };
        }
        while a != b {
            let (far_a, far_b) = (self.points[a].jump, self.points[b].jump);
            (a, b) = if far_a == far_b {
                (self.points[a].parent, self.points[b].parent)
            } else {
                (far_a, far_b)
            };
        }
        a
    }

    /// Values that dominate all that depends on them and have a reader; one per [`ValueId`].
    fn dominating_values(&self, costed: &Costed<'_>) -> Vec<bool> {
        let graph = costed.graph;
        // Edges that leave the subtree of a point, counted from its leaves upwards.
        let mut leaving = vec![0i64; self.points.len()];
        let mut is_seam = vec![false; graph.values.len()];
        for (id, node) in graph
            .enumerate_nodes()
            .filter(|&(id, _)| costed.is_part(id))
        {
            let above = self.points[self.of_node[id.index()]].parent;
            for value in node.reads().filter(|&value| !costed.is_free(value)) {
                leaving[self.of_value[value.index()]] += 1;
                leaving[above] -= 1;
                is_seam[value.index()] = true;
            }
        }
        for point in (1..self.points.len()).rev() {
            let Point { parent, value, .. } = self.points[point];
            leaving[parent] += leaving[point];
            if let Some(value) = value {
                // A cheap node may be repeated, so its output need not cross where it is read.
                let may_cross = graph
                    .value(value)
                    .producer
                    .is_none_or(|node| costed.role(node) == Role::Ordinary);
                is_seam[value.index()] &=
                    leaving[point] == 0 && may_cross && costed.can_cross(value);
            }
        }
        is_seam
    }
}
