//! Stages of a cut model, each a valid model of its own.

use std::collections::BTreeSet;

use seamline_plan::{DType, Dim};
use thiserror::Error;

use crate::cut::StageCut;
use crate::functions::needs;
use crate::graph::{Graph, NodeId, ValueId};
use crate::infer::Types;
use crate::proto::ValueInfoProto;
use crate::read::ReadError;
use crate::seams::roles::constant_nodes;
use crate::sizes::{AxisSize, AxisSizes};
use crate::write::{declaration, tensor_type};

/// Element type and, where at least the rank is known, shape of a value.
pub type ValueType = (DType, Option<Vec<Dim>>);

/// Types for [`extract`]: what inference without bindings finds, and where that knows no rank,
/// the rank that inference with every symbol bound finds, its dimensions left open.
pub fn open_types(symbolic: &Types, bound: &Types) -> impl Fn(ValueId) -> Option<ValueType> {
    move |id| {
        let dtype = symbolic.dtype(id).or_else(|| bound.dtype(id))?;
        let shape = symbolic.shape(id).map(<[Dim]>::to_vec);
        let rank = || Some(vec![Dim::Unknown; bound.shape(id)?.len()]);
        Some((dtype, shape.or_else(rank)))
    }
}

/// A model cut into stages.
#[derive(Clone, Debug)]
pub struct Stages {
    /// First to last; one more than there are cuts.
    pub stages: Vec<Stage>,
    /// What crosses each cut: the cut's own values, and those that a later stage needs from
    /// before it where the next cut repeats other nodes than this one.
    pub crossing: Vec<Vec<ValueId>>,
}

/// The nodes between two neighbouring cuts.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The stage as a model; values, nodes and the graph keep their names.
    pub graph: Graph,
    /// Live values that the stage reads, by their id in the whole graph. A value that only passes
    /// by on its way to a later stage is not among them.
    pub inputs: Vec<ValueId>,
    /// Outputs of the model that the stage makes, then live values that it makes for later stages.
    pub outputs: Vec<ValueId>,
}

/// A cut that cannot be extracted.
#[derive(Debug, Error)]
pub enum ExtractError {
    /// Cuts that are out of order or cross each other.
    #[error(
        "cut {later} does not lie behind cut {earlier}: it leaves node {node} in front, which the earlier cut puts behind it; give cuts by rising depth, each inside the tail of the one before"
    )]
    NotNested {
        /// Position of the earlier cut in the list.
        earlier: usize,
        /// Position of the later cut.
        later: usize,
        /// A node that the two order differently, and its operator.
        node: String,
    },
    /// A cut whose parts contradict each other.
    #[error(
        "stage {stage} is to give `{value}`, which node {node} makes only in a later stage: the cut's values and nodes do not belong together"
    )]
    Inconsistent {
        /// The stage.
        stage: usize,
        /// The value.
        value: String,
        /// Its maker and operator.
        node: String,
    },
    /// A stage without nodes.
    #[error(
        "stage {stage} has no nodes: two cuts lie at the same place, or one at an end of the model; leave one out"
    )]
    Empty {
        /// The stage.
        stage: usize,
    },
    /// A crossing value without an element type.
    #[error(
        "the element type of `{value}` at the cut is not known, and a stage must declare it: give it, as shape inference or a probe run finds it"
    )]
    UnknownType {
        /// The value.
        value: String,
    },
    /// A crossing value without even a rank.
    #[error(
        "the rank of `{value}` at the cut is not known, and the ONNX checker refuses a stage without it: give the shape that a probe run finds, unknown dimensions left open"
    )]
    UnknownRank {
        /// The value.
        value: String,
    },
    /// A crossing value that is no tensor.
    #[error(
        "`{value}` at the cut is a sequence, map or optional, and only tensors cross; cut before or after it"
    )]
    NotTensor {
        /// The value.
        value: String,
    },
    /// The stage is not a valid graph.
    #[error("stage {stage} is not a valid model: {error}")]
    Invalid {
        /// The stage.
        stage: usize,
        /// Why.
        #[source]
        error: ReadError,
    },
}

/// Cuts `graph` at `cuts`, ordered by depth, each behind the one before. `types` gives the element
/// type and shape of crossing values, dimensions that are not known left open; where it gives
/// none, the model's own declaration counts.
///
/// A stage carries only the weights, functions and operator-set imports that it uses. Outputs that
/// are graph inputs or weights are given by the first stage.
///
/// # Errors
/// [`ExtractError`].
pub fn extract(
    graph: &Graph,
    cuts: &[StageCut],
    types: impl Fn(ValueId) -> Option<ValueType>,
) -> Result<Stages, ExtractError> {
    stages_of(&Plan::new(graph, cuts)?, cuts, &types)
}

/// As [`extract`], and a value that is the size of an axis of another that crosses, by `sizes`,
/// does not cross: the stage behind the cut reads it off the other. Where that would leave a stage
/// without nodes, as it made nothing but sizes, they cross all the same.
///
/// # Errors
/// [`ExtractError`].
pub fn extract_with_sizes(
    graph: &Graph,
    cuts: &[StageCut],
    types: impl Fn(ValueId) -> Option<ValueType>,
    sizes: &AxisSizes,
) -> Result<Stages, ExtractError> {
    let mut plan = Plan::new(graph, cuts)?;
    plan.sizes = Some(sizes);
    match stages_of(&plan, cuts, &types) {
        Err(ExtractError::Empty { .. }) => extract(graph, cuts, types),
        result => result,
    }
}

/// The values that cross at `cut` when it is made by [`extract_with_sizes`], in its order.
///
/// # Errors
/// [`ExtractError`], of a cut whose parts contradict each other.
pub fn crossing_with_sizes(
    graph: &Graph,
    cut: &StageCut,
    sizes: &AxisSizes,
) -> Result<Vec<ValueId>, ExtractError> {
    let free = |value: ValueId| sizes.can_leave_out(graph, value, &cut.crossing);
    if !cut.crossing.iter().any(|&value| free(value)) {
        return Ok(cut.crossing.clone());
    }
    let mut plan = Plan::new(graph, std::slice::from_ref(cut))?;
    plan.sizes = Some(sizes);
    let crossing = cut.crossing.iter().copied();
    let mut live = crossing.filter(|&value| !plan.is_free(value)).collect();
    match plan.walk(1, &mut live, &BTreeSet::new()) {
        Err(ExtractError::Empty { .. }) => Ok(cut.crossing.clone()),
        Err(error) => Err(error),
        Ok(_) => Ok(live.into_iter().collect()),
    }
}

fn stages_of(
    plan: &Plan<'_>,
    cuts: &[StageCut],
    types: &impl Fn(ValueId) -> Option<ValueType>,
) -> Result<Stages, ExtractError> {
    let graph = plan.graph;
    let mut live: Vec<BTreeSet<ValueId>> = vec![BTreeSet::new()];
    live.extend(cuts.iter().map(|cut| {
        let crossing = cut.crossing.iter().copied();
        crossing.filter(|&value| !plan.is_free(value)).collect()
    }));
    live[0].extend(&graph.inputs);
    live.push(BTreeSet::new());

    // From the last stage back: what a stage lacks is added to the cut in front of it.
    let mut stages = Vec::with_capacity(cuts.len() + 1);
    for stage in (0..=cuts.len()).rev() {
        let (before, after) = live.split_at_mut(stage + 1);
        let part = plan.walk(stage, &mut before[stage], &after[0])?;
        stages.push(build(graph, stage, part, types)?);
    }
    stages.reverse();
    let crossing = live[1..=cuts.len()]
        .iter()
        .map(|values| values.iter().copied().collect());
    Ok(Stages {
        stages,
        crossing: crossing.collect(),
    })
}

/// What a stage consists of.
struct Part {
    nodes: BTreeSet<NodeId>,
    inputs: Vec<ValueId>,
    weights: BTreeSet<ValueId>,
    outputs: Vec<ValueId>,
    /// Values that would be inputs, but are read off others.
    sizes: Vec<AxisSize>,
}

struct Plan<'a> {
    graph: &'a Graph,
    sizes: Option<&'a AxisSizes>,
    constant: Vec<bool>,
    /// The stage that runs each node, repeats aside.
    stage: Vec<usize>,
    /// Nodes that each stage may run again.
    repeated: Vec<BTreeSet<NodeId>>,
}

impl<'a> Plan<'a> {
    fn new(graph: &'a Graph, cuts: &[StageCut]) -> Result<Plan<'a>, ExtractError> {
        let mut stage = vec![0; graph.nodes.len()];
        for (index, cut) in cuts.iter().enumerate() {
            for (id, is_after) in (0u32..).map(NodeId).zip(cut.after(graph)) {
                let at = &mut stage[id.index()];
                if is_after && *at != index {
                    return Err(ExtractError::NotNested {
                        earlier: *at,
                        later: index,
                        node: graph.node_label(id),
                    });
                }
                *at += usize::from(is_after);
            }
            for &value in &cut.crossing {
                let maker = graph.value(value).producer;
                if let Some(node) = maker.filter(|node| stage[node.index()] > index) {
                    return Err(ExtractError::Inconsistent {
                        stage: index,
                        value: graph.value(value).name.clone(),
                        node: graph.node_label(node),
                    });
                }
            }
        }
        let mut repeated = vec![BTreeSet::new()];
        repeated.extend(
            cuts.iter()
                .map(|cut| cut.repeated.iter().copied().collect()),
        );
        Ok(Plan {
            graph,
            sizes: None,
            constant: constant_nodes(graph),
            stage,
            repeated,
        })
    }

    fn is_free(&self, value: ValueId) -> bool {
        let producer = self.graph.value(value).producer;
        self.graph.initializers.contains_key(&value)
            || producer.is_some_and(|node| self.constant[node.index()])
    }

    /// Collects stage `stage`, which starts from `given` and owes `owed` to later stages. Values
    /// that it lacks are added to `given`.
    fn walk(
        &self,
        stage: usize,
        given: &mut BTreeSet<ValueId>,
        owed: &BTreeSet<ValueId>,
    ) -> Result<Part, ExtractError> {
        let graph = self.graph;
        let home = |value: ValueId| {
            graph
                .value(value)
                .producer
                .map_or(0, |node| self.stage[node.index()])
        };
        let outputs = graph
            .outputs
            .iter()
            .copied()
            .filter(|&value| home(value) == stage);
        let mut part = Part {
            nodes: BTreeSet::new(),
            inputs: Vec::new(),
            weights: BTreeSet::new(),
            outputs: outputs.collect(),
            sizes: Vec::new(),
        };
        let mut reads = BTreeSet::new();
        let mut pending = part.outputs.clone();
        for &value in owed {
            self.settle(stage, value, given)?;
            if !given.contains(&value) {
                pending.push(value);
                if !part.outputs.contains(&value) {
                    part.outputs.push(value);
                }
            }
        }
        while let Some(value) = pending.pop() {
            if graph.initializers.contains_key(&value) {
                part.weights.insert(value);
                continue;
            }
            self.settle(stage, value, given)?;
            if given.contains(&value) {
                reads.insert(value);
            } else if let Some(node) = graph.value(value).producer
                && part.nodes.insert(node)
            {
                pending.extend(graph.node(node).reads());
            }
        }
        if let Some(sizes) = self.sizes {
            for &value in reads.difference(owed) {
                let others = || reads.iter().copied().filter(|&other| other != value);
                // A graph input may be state that the service keeps: other values come first.
                let is_made = |other: &ValueId| graph.value(*other).producer.is_some();
                let made = others().filter(is_made);
                let others = made.chain(others().filter(|other| !is_made(other)));
                part.sizes.extend(sizes.find(graph, value, others));
            }
        }
        for size in &part.sizes {
            reads.remove(&size.value);
        }
        // Graph inputs keep the order of the model.
        part.inputs = graph
            .inputs
            .iter()
            .copied()
            .filter(|value| reads.remove(value))
            .collect();
        part.inputs.extend(reads);
        // What neither this stage nor a later one reads need not cross after all.
        given.retain(|value| part.inputs.contains(value) || owed.contains(value));
        if part.nodes.is_empty() {
            return Err(ExtractError::Empty { stage });
        }
        Ok(part)
    }

    /// Decides whether `stage` makes `value` or is given it; in the latter case adds it to `given`.
    fn settle(
        &self,
        stage: usize,
        value: ValueId,
        given: &mut BTreeSet<ValueId>,
    ) -> Result<(), ExtractError> {
        if given.contains(&value) || self.is_free(value) {
            return Ok(());
        }
        let Some(node) = self.graph.value(value).producer else {
            given.insert(value);
            return Ok(());
        };
        let home = self.stage[node.index()];
        if home > stage {
            return Err(ExtractError::Inconsistent {
                stage,
                value: self.graph.value(value).name.clone(),
                node: self.graph.node_label(node),
            });
        }
        if home < stage && !self.repeated[stage].contains(&node) {
            given.insert(value);
        }
        Ok(())
    }
}

fn build(
    graph: &Graph,
    stage: usize,
    part: Part,
    types: impl Fn(ValueId) -> Option<ValueType>,
) -> Result<Stage, ExtractError> {
    let interface = |&value: &ValueId| interface(graph, value, &types);
    let inputs = part
        .inputs
        .iter()
        .map(interface)
        .collect::<Result<Vec<_>, _>>()?;
    let outputs = part
        .outputs
        .iter()
        .map(interface)
        .collect::<Result<Vec<_>, _>>()?;
    let nodes = || part.nodes.iter().map(|&id| graph.node(id));
    let mut weights = part.weights;
    weights.extend(
        nodes()
            .flat_map(|node| node.reads())
            .filter(|value| graph.initializers.contains_key(value)),
    );
    let outside: BTreeSet<ValueId> = part.inputs.iter().chain(&part.outputs).copied().collect();
    let inner: BTreeSet<ValueId> = nodes()
        .flat_map(|node| node.makes())
        .filter(|value| !outside.contains(value))
        .collect();
    let is_here = |name: &str| {
        let value = graph.find(name);
        value.is_some_and(|value| {
            inner.contains(&value) || outside.contains(&value) || weights.contains(&value)
        })
    };

    let mut model = graph.header.model.clone();
    let needs = needs(nodes(), graph.header.functions(), &model.opset_import);
    model.functions = needs.functions;
    model.opset_import = needs.opsets;
    // Training refers to the weights of the whole model.
    model.training_info.clear();
    let mut proto = graph.to_graph_proto_of(nodes());
    let sizes = part.sizes.iter();
    proto.node.extend(sizes.flat_map(|size| size.nodes(graph)));
    proto.input = inputs;
    proto.output = outputs;
    let (dense, sparse): (Vec<_>, Vec<_>) = weights
        .iter()
        .filter_map(|value| graph.initializers.get(value).cloned())
        .partition(|weight| weight.sparse.is_none());
    proto.initializer = dense.into_iter().map(|weight| weight.tensor).collect();
    proto.sparse_initializer = sparse
        .into_iter()
        .filter_map(|weight| Some(*weight.sparse?))
        .collect();
    proto.value_info = inner
        .iter()
        .filter_map(|&value| graph.value(value).declared.clone())
        .collect();
    proto
        .quantization_annotation
        .retain(|annotation| is_here(annotation.tensor_name()));
    model.graph = Some(proto);
    let mut extracted =
        Graph::from_model_proto(model).map_err(|error| ExtractError::Invalid { stage, error })?;
    extracted.source.clone_from(&graph.source);
    Ok(Stage {
        graph: extracted,
        inputs: part.inputs,
        outputs: part.outputs,
    })
}

/// How a stage declares a value of its interface: the model's own inputs and outputs as the model
/// does, others by the given type.
fn interface(
    graph: &Graph,
    id: ValueId,
    types: impl Fn(ValueId) -> Option<ValueType>,
) -> Result<ValueInfoProto, ExtractError> {
    let value = graph.value(id);
    let is_models_own = graph.inputs.contains(&id) || graph.outputs.contains(&id);
    let declared = declaration(value);
    if is_models_own && declared.r#type.is_some() {
        return Ok(declared);
    }
    if value.is_declared_non_tensor() {
        return Err(ExtractError::NotTensor {
            value: value.name.clone(),
        });
    }
    let given = types(id);
    let dtype = given.as_ref().map(|given| given.0).or(value.dtype);
    let shape = given
        .and_then(|given| given.1)
        .or_else(|| value.shape.clone());
    let name = || value.name.clone();
    let dtype = dtype.ok_or_else(|| ExtractError::UnknownType { value: name() })?;
    let shape = shape.ok_or_else(|| ExtractError::UnknownRank { value: name() })?;
    Ok(ValueInfoProto {
        r#type: Some(tensor_type(dtype, Some(&shape))),
        ..declared
    })
}
