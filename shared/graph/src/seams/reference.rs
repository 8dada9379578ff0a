//! The definition of a seam by exhaustive search, against which the flow is tested.

use proptest::prelude::*;
use seamline_plan::DType;

use super::roles::Role;
use super::{Costed, SeamFinder, TensorSize};
use crate::StageCut;
use crate::builder::GraphBuilder;
use crate::graph::{Graph, NodeId, ValueId};
use crate::tests::same_answers;

/// A random graph: for each node, whether it is cheap, the sizes of its outputs and what it reads
/// (as fractions of what is there by then).
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) inputs: Vec<u64>,
    pub(super) nodes: Vec<(bool, Vec<u64>, Vec<prop::sample::Index>)>,
}

fn scripts() -> impl Strategy<Value = Script> {
    let node = (
        prop::bool::weighted(0.35),
        prop::collection::vec(1u64..12, 1..=2),
        prop::collection::vec(any::<prop::sample::Index>(), 1..=3),
    );
    let inputs = prop::collection::vec(1u64..12, 1..=2);
    (inputs, prop::collection::vec(node, 2..=7))
        .prop_map(|(inputs, nodes)| Script { inputs, nodes })
}

/// The graph of a script, the size of each of its values in bytes and the role of each node.
/// Values that nothing reads are its outputs, so that no node is dead.
pub(super) fn build(script: &Script) -> (Graph, Vec<u64>, Vec<Role>) {
    let mut builder = GraphBuilder::new("random", 17);
    let mut names = Vec::new();
    let mut sizes = Vec::new();
    for (index, &size) in script.inputs.iter().enumerate() {
        names.push(format!("in{index}"));
        sizes.push(size);
        builder.input(&names[index], DType::U8, &[size.into()]);
    }
    let mut read = std::collections::BTreeSet::new();
    for (index, (_, outputs, inputs)) in script.nodes.iter().enumerate() {
        let reads: Vec<String> = inputs
            .iter()
            .map(|input| input.get(&names).clone())
            .collect();
        let makes: Vec<String> = (0..outputs.len())
            .map(|out| format!("n{index}_{out}"))
            .collect();
        read.extend(reads.iter().cloned());
        builder.node(
            "test::Op",
            &reads.iter().map(String::as_str).collect::<Vec<_>>(),
            &makes.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        names.extend(makes);
        sizes.extend(outputs);
    }
    for (name, &size) in names
        .iter()
        .zip(&sizes)
        .filter(|(name, _)| !read.contains(*name))
    {
        if name.starts_with('n') {
            builder.output(name, DType::U8, &[size.into()]);
        }
    }
    let role = |cheap: bool| if cheap { Role::Cheap } else { Role::Ordinary };
    let roles = script.nodes.iter().map(|node| role(node.0)).collect();
    (builder.build().unwrap(), sizes, roles)
}

/// Where a node runs.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Runs {
    pub(super) head: bool,
    pub(super) tail: bool,
}

pub(super) const HEAD: Runs = Runs {
    head: true,
    tail: false,
};
pub(super) const TAIL: Runs = Runs {
    head: false,
    tail: true,
};
pub(super) const BOTH: Runs = Runs {
    head: true,
    tail: true,
};

/// Bytes that cross under an assignment of every node, or `None` where it is not legal.
pub(super) fn price(graph: &Graph, sizes: &[u64], runs: &[Runs]) -> Option<u64> {
    let maker = |value: ValueId| graph.value(value).producer.map(|node| runs[node.index()]);
    let mut crossing = std::collections::BTreeSet::new();
    for (id, node) in graph.enumerate_nodes() {
        for value in node.reads() {
            if runs[id.index()].head && maker(value).is_some_and(|maker| !maker.head) {
                return None;
            }
            if runs[id.index()].tail && maker(value).is_none_or(|maker| !maker.tail) {
                crossing.insert(value);
            }
        }
    }
    Some(crossing.iter().map(|value| sizes[value.index()]).sum())
}

/// The cheapest legal assignment with the maker of `pivot` in the head only and `after` in the
/// tail.
fn cheapest(
    graph: &Graph,
    sizes: &[u64],
    roles: &[Role],
    pivot: ValueId,
    after: &[NodeId],
) -> Option<u64> {
    let choices = |node: usize| -> &[Runs] {
        if graph.value(pivot).producer == Some(NodeId(u32::try_from(node).unwrap())) {
            &[HEAD]
        } else if after.iter().any(|id| id.index() == node) {
            &[TAIL]
        } else if roles[node] == Role::Cheap {
            &[HEAD, TAIL, BOTH]
        } else {
            &[HEAD, TAIL]
        }
    };
    let mut best = None;
    let mut digits = vec![0usize; roles.len()];
    loop {
        let runs: Vec<Runs> = digits
            .iter()
            .enumerate()
            .map(|(n, &d)| choices(n)[d])
            .collect();
        if let Some(cost) = price(graph, sizes, &runs) {
            best = Some(best.map_or(cost, |best: u64| best.min(cost)));
        }
        let Some(at) = (0..digits.len()).find(|&n| digits[n] + 1 < choices(n).len()) else {
            return best;
        };
        digits[..at].fill(0);
        digits[at] += 1;
    }
}

/// Ordinary nodes that read `value`, directly or through cheap ones.
fn ordinary_readers(graph: &Graph, roles: &[Role], value: ValueId) -> Vec<NodeId> {
    let mut found = Vec::new();
    for &reader in &graph.value(value).consumers {
        if roles[reader.index()] == Role::Ordinary {
            found.push(reader);
        } else {
            for made in graph.node(reader).makes() {
                found.extend(ordinary_readers(graph, roles, made));
            }
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_seam_through_a_value_is_the_cheapest_there_is(script in scripts()) {
        let (graph, sizes, roles) = build(&script);
        let size = |&bytes: &u64| Some(TensorSize { dtype: DType::U8, dims: vec![bytes] });
        let costed = Costed::with_roles(&graph, sizes.iter().map(size).collect(), |_| 1, roles.clone());
        let finder = SeamFinder::new(&costed);
        for (id, node) in graph.enumerate_nodes() {
            if roles[id.index()] != Role::Ordinary {
                continue;
            }
            for pivot in node.makes() {
                let after = ordinary_readers(&graph, &roles, pivot);
                let name = &graph.value(pivot).name;
                if after.is_empty() {
                    continue;
                }
                let is_read_directly = graph
                    .value(pivot)
                    .consumers
                    .iter()
                    .any(|reader| roles[reader.index()] == Role::Ordinary);
                let seam = finder.at(name).unwrap();
                let best = cheapest(&graph, &sizes, &roles, pivot, &after);
                if is_read_directly {
                    prop_assert_eq!(Some(seam.bytes), best, "through {}", name);
                } else {
                    // The value itself was asked for, though what is made of it may cost less,
                    // and may cross in its place where it costs the same.
                    prop_assert!(Some(seam.bytes) >= best, "through {}", name);
                }
                if is_read_directly {
                    prop_assert!(seam.cut.crossing.contains(&pivot), "through {}", name);
                }
                check(&graph, &roles, &seam.cut)?;
            }
        }
        // Seams by rising depth need not be nested: keep those that are.
        let mut nested: Vec<StageCut> = Vec::new();
        for seam in finder.seams() {
            check(&graph, &roles, &seam.cut)?;
            same_answers(&graph, std::slice::from_ref(&seam.cut));
            if nested.last().is_none_or(|last| lies_behind(&graph, &roles, last, &seam.cut)) {
                nested.push(seam.cut.clone());
            }
        }
        same_answers(&graph, &nested);
    }
}

/// Whether every ordinary node after `later` is after `earlier`, and there is one between them.
fn lies_behind(graph: &Graph, roles: &[Role], earlier: &StageCut, later: &StageCut) -> bool {
    let (earlier, later) = (earlier.after(graph), later.after(graph));
    let is_nested = earlier
        .iter()
        .zip(&later)
        .all(|(earlier, later)| *earlier || !later);
    let between =
        |(node, role): (usize, &Role)| *role == Role::Ordinary && earlier[node] && !later[node];
    is_nested && roles.iter().enumerate().any(between)
}

/// A cut is consistent: the tail runs on what crosses, and only cheap nodes run on both sides.
pub(super) fn check(graph: &Graph, roles: &[Role], cut: &StageCut) -> Result<(), TestCaseError> {
    let sides = cut.sides(graph);
    let mut read = std::collections::BTreeSet::new();
    for (id, node) in graph.enumerate_nodes() {
        let both = sides.head[id.index()] && sides.tail[id.index()];
        prop_assert!(
            !both || roles[id.index()] == Role::Cheap,
            "{} runs twice",
            node.name
        );
        prop_assert!(
            sides.head[id.index()] || sides.tail[id.index()],
            "{} is lost",
            node.name
        );
        prop_assert_eq!(both, cut.repeated.contains(&id), "{} repeated", node.name);
        if sides.tail[id.index()] {
            for value in node.reads() {
                let maker = graph.value(value).producer;
                let crosses = cut.crossing.contains(&value);
                prop_assert!(crosses || maker.is_some_and(|maker| sides.tail[maker.index()]));
                if crosses {
                    read.insert(value);
                }
            }
        }
    }
    prop_assert_eq!(read.into_iter().collect::<Vec<_>>(), cut.crossing.clone());
    Ok(())
}
