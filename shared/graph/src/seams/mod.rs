//! Where a graph can be cut, and what crosses there.
//!
//! A seam divides the nodes into before and after; every value that crosses belongs to it, graph
//! inputs that the tail needs included. Weights and whatever depends on weights only are free, and
//! cheap shape arithmetic may run on both sides (see [`roles`]). An output made before the cut does
//! not cross unless the tail reads it too: the device keeps it.

mod cells;
mod flow;
mod list;
mod pivot;
mod reach;
#[cfg(test)]
mod reference;
pub mod roles;
mod weighted;
#[cfg(test)]
mod weighted_reference;

use seamline_plan::DType;
use thiserror::Error;

use crate::cut::StageCut;
use crate::graph::{Graph, NodeId, ValueId};
use crate::infer::Types;
use roles::Role;

pub use list::SeamFinder;
pub use weighted::{Division, Weights};

/// What a value of unknown size counts as in a comparison: more than any tensor.
const UNKNOWN_COST: u64 = 1 << 44;

/// What a value that cannot be sent counts as: more than every other value together.
const FORBIDDEN_COST: u64 = 1 << 58;

/// The largest cost of a tensor of known size.
const MAX_COST: u64 = 1 << 42;

/// Dtype and size of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSize {
    /// Element type.
    pub dtype: DType,
    /// Dimensions.
    pub dims: Vec<u64>,
}

impl TensorSize {
    /// Number of elements, at most `u64::MAX`.
    pub fn elements(&self) -> u64 {
        if self.dims.contains(&0) {
            return 0;
        }
        self.dims
            .iter()
            .fold(1, |count, &dim| count.saturating_mul(dim))
    }

    /// Size in bytes, at most `u64::MAX`.
    pub fn bytes(&self) -> u64 {
        self.elements().saturating_mul(self.dtype.size() as u64)
    }

    /// Size in bytes where every float is sent as `f32`, at most `u64::MAX`.
    pub fn bytes_f32(&self) -> u64 {
        let size = if self.dtype.is_float() {
            DType::F32
        } else {
            self.dtype
        }
        .size();
        self.elements().saturating_mul(size as u64)
    }
}

/// A graph with the size of its values and the work of its nodes.
#[derive(Clone, Debug)]
pub struct Costed<'a> {
    graph: &'a Graph,
    sizes: Vec<Option<TensorSize>>,
    flops: Vec<u64>,
    roles: Vec<Role>,
}

impl<'a> Costed<'a> {
    /// `size` gives dtype and concrete dimensions of a value, `None` where they are not known;
    /// `flops` the floating-point operations of a node.
    pub fn new(
        graph: &'a Graph,
        size: impl Fn(ValueId) -> Option<TensorSize>,
        flops: impl Fn(NodeId) -> u64,
    ) -> Costed<'a> {
        let sizes: Vec<_> = (0u32..)
            .take(graph.values.len())
            .map(|id| size(ValueId(id)))
            .collect();
        let roles = roles::classify(graph, &sizes);
        Costed::with_roles(graph, sizes, flops, roles)
    }

    /// Sizes and FLOPs from shape inference.
    pub fn from_types(graph: &'a Graph, types: &Types) -> Costed<'a> {
        let flops = crate::infer::flops(graph, types);
        let size = |id| {
            Some(TensorSize {
                dtype: types.dtype(id)?,
                dims: types.fixed_shape(id)?,
            })
        };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "FLOPs are whole and not negative; beyond u64 the conversion saturates"
        )]
        let count = |id: NodeId| flops[id.index()] as u64;
        Costed::new(graph, size, count)
    }

    fn with_roles(
        graph: &'a Graph,
        sizes: Vec<Option<TensorSize>>,
        flops: impl Fn(NodeId) -> u64,
        roles: Vec<Role>,
    ) -> Costed<'a> {
        let of_role = |id: NodeId| roles[id.index()] == Role::Ordinary;
        let mut work: Vec<u64> = (0u32..)
            .map(NodeId)
            .take(graph.nodes.len())
            .map(|id| {
                if of_role(id) {
                    flops(id).min(1 << 60)
                } else {
                    0
                }
            })
            .collect();
        if work.iter().all(|&flops| flops == 0) {
            // Without any figure each node counts the same, so that seams still have a depth.
            let count = |(id, flops): (u32, &mut u64)| *flops = u64::from(of_role(NodeId(id)));
            (0u32..).zip(&mut work).for_each(count);
        }
        Costed {
            graph,
            sizes,
            flops: work,
            roles,
        }
    }

    /// The graph.
    pub fn graph(&self) -> &'a Graph {
        self.graph
    }

    /// Size of a value, where it is known.
    pub fn size(&self, id: ValueId) -> Option<&TensorSize> {
        self.sizes[id.index()].as_ref()
    }

    /// Work of a node that runs on one side only; 0 for the others.
    pub fn flops(&self, id: NodeId) -> u64 {
        self.flops[id.index()]
    }

    /// Work of the whole graph.
    pub fn total_flops(&self) -> u64 {
        self.flops
            .iter()
            .fold(0, |sum, &flops| sum.saturating_add(flops))
    }

    /// The seam of any cut of the graph, listed or not.
    pub fn seam(&self, id: String, cut: StageCut) -> Seam {
        let after = cut.after(self.graph);
        let before = (0u32..)
            .map(NodeId)
            .zip(&after)
            .filter(|(_, after)| !**after);
        let head_flops = before.fold(0u64, |sum, (id, _)| sum.saturating_add(self.flops(id)));
        self.describe(id, cut, head_flops)
    }

    fn describe(&self, id: String, cut: StageCut, head_flops: u64) -> Seam {
        let mut seam = Seam {
            id,
            depth_flops: head_flops,
            total_flops: self.total_flops(),
            elements: 0,
            bytes: 0,
            bytes_f32: 0,
            unsized_values: Vec::new(),
            cut,
        };
        for &id in &seam.cut.crossing {
            match self.size(id) {
                Some(size) => {
                    seam.elements = seam.elements.saturating_add(size.elements());
                    seam.bytes = seam.bytes.saturating_add(size.bytes());
                    seam.bytes_f32 = seam.bytes_f32.saturating_add(size.bytes_f32());
                }
                None => seam.unsized_values.push(id),
            }
        }
        seam
    }

    fn role(&self, id: NodeId) -> Role {
        self.roles[id.index()]
    }

    /// Whether the node belongs to the flow of data: neither constant nor dead.
    fn is_part(&self, id: NodeId) -> bool {
        matches!(self.role(id), Role::Cheap | Role::Ordinary)
    }

    /// Whether both sides have the value anyway.
    fn is_free(&self, id: ValueId) -> bool {
        self.graph.initializers.contains_key(&id)
            || self
                .graph
                .value(id)
                .producer
                .is_some_and(|node| self.role(node) == Role::Constant)
    }

    fn can_cross(&self, id: ValueId) -> bool {
        self.cost(id) < FORBIDDEN_COST
    }

    fn cost(&self, id: ValueId) -> u64 {
        match self.size(id) {
            // An empty tensor still takes a header: never prefer two values to one for nothing.
            Some(size) => size.bytes().clamp(1, MAX_COST),
            None if self.graph.value(id).is_declared_non_tensor() => FORBIDDEN_COST,
            None => UNKNOWN_COST,
        }
    }
}

/// A legal place to cut.
#[derive(Clone, Debug, PartialEq)]
pub struct Seam {
    /// `s0`, `s1` … by depth in the list; `@NAME` for one asked for by a value's name that the
    /// list leaves out.
    pub id: String,
    /// What crosses and which nodes run where.
    pub cut: StageCut,
    /// Work before the cut.
    pub depth_flops: u64,
    /// Work of the whole graph.
    pub total_flops: u64,
    /// Elements that cross, those of unknown size left out.
    pub elements: u64,
    /// Bytes that cross as they are.
    pub bytes: u64,
    /// Bytes that cross where every float is sent as `f32`.
    pub bytes_f32: u64,
    /// Values of [`StageCut::crossing`] whose size is not known; the sums leave them out.
    pub unsized_values: Vec<ValueId>,
}

impl Seam {
    /// Share of the work that lies before the cut, 0 to 1.
    pub fn depth(&self) -> f64 {
        if self.total_flops == 0 {
            return 0.0;
        }
        self.depth_flops as f64 / self.total_flops as f64
    }

    /// Whether one value crosses.
    pub fn is_single(&self) -> bool {
        self.cut.crossing.len() == 1
    }

    /// Names of the values that cross.
    pub fn names<'g>(&self, graph: &'g Graph) -> Vec<&'g str> {
        let name = |&id: &ValueId| graph.value(id).name.as_str();
        self.cut.crossing.iter().map(name).collect()
    }
}

/// A seam that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SeamError {
    /// No such id or value.
    #[error("no seam and no value is called `{name}`; `seamline seams MODEL` lists the seams")]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// A value of a control-flow body.
    #[error(
        "`{value}` is inside the body `{body}` of node {node}: a model is cut only between nodes of its outer graph; cut before or after that node"
    )]
    InsideBody {
        /// The value.
        value: String,
        /// The node of the outer graph and its operator.
        node: String,
        /// The attribute that holds the body.
        body: String,
    },
    /// A weight.
    #[error(
        "`{value}` is a weight or depends on weights only: both sides have it, nothing would cross; choose a value that depends on an input"
    )]
    Weight {
        /// The value.
        value: String,
    },
    /// Nothing runs after.
    #[error(
        "nothing but outputs depends on `{value}`, so no node would be left for the tail; choose an earlier value"
    )]
    NothingAfter {
        /// The value.
        value: String,
    },
    /// A value that is no tensor.
    #[error(
        "a cut at `{value}` would send `{crossing}`, which is a sequence, map or optional, not a tensor; choose a value before or after it"
    )]
    NotTensor {
        /// The value that was asked for.
        value: String,
        /// The one that cannot be sent.
        crossing: String,
    },
}
