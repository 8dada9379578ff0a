//! The cheapest division by exhaustive search, against which the flow is tested.

use proptest::prelude::*;
use seamline_plan::DType;

use super::reference::{BOTH, HEAD, Runs, Script, TAIL, build, check, price};
use super::roles::Role;
use super::{Costed, TensorSize, Weights};
use crate::builder::GraphBuilder;
use crate::graph::{Graph, NodeId};

/// A graph of up to 14 nodes, and what each node costs before and behind the cut.
#[derive(Clone, Debug)]
struct Case {
    script: Script,
    head: Vec<u64>,
    tail: Vec<u64>,
}

fn cases() -> impl Strategy<Value = Case> {
    let node = (
        prop::bool::weighted(0.2),
        prop::collection::vec(1u64..40, 1..=2),
        prop::collection::vec(any::<prop::sample::Index>(), 1..=3),
        0u64..30,
        0u64..12,
    );
    let inputs = prop::collection::vec(1u64..60, 1..=2);
    (inputs, prop::collection::vec(node, 2..=14)).prop_map(|(inputs, nodes)| {
        let costs =
            |pick: fn(u64, u64) -> u64| nodes.iter().map(|node| pick(node.3, node.4)).collect();
        Case {
            head: costs(|head, _| head),
            tail: costs(|_, tail| tail),
            // Three choices for a cheap node: few of them, so that all can be tried.
            script: Script {
                inputs,
                nodes: nodes
                    .iter()
                    .scan(0, |cheap, (is_cheap, outputs, reads, ..)| {
                        *cheap += usize::from(*is_cheap);
                        Some((*is_cheap && *cheap <= 3, outputs.clone(), reads.clone()))
                    })
                    .collect(),
            },
        }
    })
}

/// What an assignment costs, or `None` where it is not legal.
fn cost(graph: &Graph, sizes: &[u64], case: &Case, runs: &[Runs]) -> Option<u64> {
    let sent = price(graph, sizes, runs)?;
    let run = runs.iter().enumerate().map(|(node, runs)| {
        u64::from(runs.head) * case.head[node] + u64::from(runs.tail) * case.tail[node]
    });
    Some(sent + run.sum::<u64>())
}

fn cheapest(graph: &Graph, sizes: &[u64], roles: &[Role], case: &Case) -> u64 {
    let choices = |node: usize| -> &[Runs] {
        if roles[node] == Role::Cheap {
            &[HEAD, TAIL, BOTH]
        } else {
            &[HEAD, TAIL]
        }
    };
    let mut best = u64::MAX;
    let mut digits = vec![0usize; roles.len()];
    loop {
        let runs: Vec<Runs> = digits
            .iter()
            .enumerate()
            .map(|(n, &d)| choices(n)[d])
            .collect();
        if let Some(cost) = cost(graph, sizes, case, &runs) {
            best = best.min(cost);
        }
        let Some(at) = (0..digits.len()).find(|&n| digits[n] + 1 < choices(n).len()) else {
            return best;
        };
        digits[..at].fill(0);
        digits[at] += 1;
    }
}

fn index(id: NodeId) -> usize {
    id.index()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_division_is_the_cheapest_there_is(case in cases()) {
        let (graph, sizes, roles) = build(&case.script);
        let size = |&bytes: &u64| Some(TensorSize { dtype: DType::U8, dims: vec![bytes] });
        let sized = sizes.iter().map(size).collect();
        let costed = Costed::with_roles(&graph, sized, |_| 1, roles.clone());
        let division = costed.cheapest(&Weights {
            head: &|id| case.head[index(id)],
            tail: &|id| case.tail[index(id)],
            send: &|id| sizes[id.index()],
        });
        let division = division.expect("nothing is forbidden");
        let best = cheapest(&graph, &sizes, &roles, &case);
        prop_assert_eq!(division.cost, u128::from(best));
        // The cut that it describes costs that much.
        let sides = division.cut.sides(&graph);
        let runs: Vec<Runs> = sides.head.iter().zip(&sides.tail)
            .map(|(&head, &tail)| Runs { head, tail })
            .collect();
        prop_assert_eq!(cost(&graph, &sizes, &case, &runs), Some(best));
        if division.before > 0 && division.behind > 0 {
            check(&graph, &roles, &division.cut)?;
        }
    }
}

/// A chain of nodes, each sending as much as the one before.
fn chain(length: usize) -> Graph {
    let mut builder = GraphBuilder::new("chain", 17);
    builder.input("v0", DType::U8, &[4u64.into()]);
    for index in 0..length {
        builder.node(
            "test::Op",
            &[&format!("v{index}")],
            &[&format!("v{}", index + 1)],
        );
    }
    builder.output(&format!("v{length}"), DType::U8, &[4u64.into()]);
    builder.build().unwrap()
}

#[test]
fn what_is_forbidden_does_not_happen() {
    let graph = chain(3);
    let size = |_| {
        Some(TensorSize {
            dtype: DType::U8,
            dims: vec![4],
        })
    };
    let costed = Costed::new(&graph, size, |_| 1);
    let by = |head: &dyn Fn(NodeId) -> u64, tail: &dyn Fn(NodeId) -> u64| {
        costed.cheapest(&Weights {
            head,
            tail,
            send: &|_| 4,
        })
    };
    let forbid = |from: u32| move |id: NodeId| if id.0 < from { 1 } else { u64::MAX };
    let division = by(&forbid(2), &|_| 1).unwrap();
    assert!(
        division.behind >= 1,
        "the last node cannot run on the device"
    );
    assert_eq!(by(&|_| u64::MAX, &|_| u64::MAX), None);
}

#[test]
fn case_06_a_chain_of_ten_thousand_nodes_is_divided_without_recursion() {
    let graph = chain(10_000);
    let size = |_| {
        Some(TensorSize {
            dtype: DType::U8,
            dims: vec![4],
        })
    };
    let costed = Costed::new(&graph, size, |_| 1);
    let division = costed.cheapest(&Weights {
        head: &|id| if id.0 < 4000 { 0 } else { 2 },
        tail: &|_| 1,
        send: &|_| 7,
    });
    let division = division.unwrap();
    assert_eq!((division.cost, division.before), (6007, 4000));
}
