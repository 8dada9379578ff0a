//! Split equals whole, bit for bit, on graphs that nobody drew: branches, residuals, weights used
//! on both sides, several outputs, integers, dead ends, bodies that read outer values, local
//! functions and a symbolic batch, run by ONNX Runtime with its optimisations off.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;
use seamline_graph::Graph;
use seamline_graph::builder::{self, GraphBuilder};
use seamline_graph::proto::{FunctionProto, OperatorSetIdProto};
use seamline_graph::seams::Seam;
use seamline_partitioner::{Model, Prober, find_seams};
use seamline_plan::{Bindings, DType, Dim, Fingerprint};
use seamline_tests::law::split_differences;
use seamline_tests::runtime;

const OPSET: i64 = 17;

/// Columns of every float value; rows are the batch.
const COLUMNS: u64 = 4;

/// Rows of the table that integers look up.
const TABLE: usize = 8;

/// What a step adds to the graph. Floats are `[N, 4]`, integers `[N]` and below 8.
#[derive(Clone, Copy, Debug)]
enum Step {
    Relu,
    Residual,
    Gain,
    Dense,
    Centre,
    Halves,
    Choose,
    Lookup,
    Reshape,
    Rows,
    Branch,
    Call,
    AddIntegers,
    FromIntegers,
    TimesSize,
    DeadEnd,
}

const STEPS: [Step; 16] = [
    Step::Relu,
    Step::Residual,
    Step::Gain,
    Step::Dense,
    Step::Centre,
    Step::Halves,
    Step::Choose,
    Step::Lookup,
    Step::Reshape,
    Step::Rows,
    Step::Branch,
    Step::Call,
    Step::AddIntegers,
    Step::FromIntegers,
    Step::TimesSize,
    Step::DeadEnd,
];

/// A random graph: steps, each with what it reads as fractions of what is there by then, and which
/// values are outputs beside the last.
#[derive(Clone, Debug)]
struct Script {
    steps: Vec<(Step, Index, Index)>,
    outputs: Vec<Index>,
    /// A weight is an output too, and an input.
    passes_through: bool,
}

fn scripts() -> impl Strategy<Value = Script> {
    let step = (
        prop::sample::select(&STEPS[..]),
        any::<Index>(),
        any::<Index>(),
    );
    (
        prop::collection::vec(step, 4..24),
        prop::collection::vec(any::<Index>(), 0..3),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(steps, outputs, passes_through)| Script {
            steps,
            outputs,
            passes_through,
        })
}

struct Writer {
    builder: GraphBuilder,
    floats: Vec<String>,
    integers: Vec<String>,
    count: usize,
}

impl Writer {
    fn fresh(&mut self) -> String {
        self.count += 1;
        format!("v{}", self.count)
    }

    /// Adds a node with one output and returns its name.
    fn node(&mut self, op: &str, inputs: &[&str]) -> String {
        self.node_with(op, inputs, Vec::new())
    }

    fn node_with(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: Vec<seamline_graph::proto::AttributeProto>,
    ) -> String {
        let output = self.fresh();
        self.builder.node_with(op, inputs, &[&output], attributes);
        output
    }

    fn step(&mut self, step: Step, a: &Index, b: &Index) {
        let (x, y) = (a.get(&self.floats).clone(), b.get(&self.floats).clone());
        let (i, j) = (a.get(&self.integers).clone(), b.get(&self.integers).clone());
        let made = match step {
            Step::Relu => self.node("Relu", &[&x]),
            Step::Residual => self.node("Add", &[&x, &y]),
            Step::Gain => self.node("Mul", &[&x, "gain"]),
            Step::Dense => {
                let product = self.node("MatMul", &[&x, "weight"]);
                self.node("Add", &[&product, "bias"])
            }
            Step::Centre => {
                let axes = vec![builder::ints("axes", &[1])];
                let mean = self.node_with("ReduceMean", &[&x], axes);
                self.node("Sub", &[&y, &mean])
            }
            Step::Halves => {
                let (left, right) = (self.fresh(), self.fresh());
                let axis = || vec![builder::int("axis", 1)];
                self.builder
                    .node_with("Split", &[&x], &[&left, &right], axis());
                self.node_with("Concat", &[&right, &left], axis())
            }
            Step::Choose => {
                let greater = self.node("Greater", &[&x, &y]);
                self.node("Where", &[&greater, &x, &y])
            }
            Step::Lookup => self.node("Gather", &["table", &i]),
            Step::Reshape => {
                let shape = self.node("Shape", &[&x]);
                self.node("Reshape", &[&y, &shape])
            }
            // As exporters write it: the number of rows, which the tail can read off what crosses.
            Step::Rows => {
                let first = vec![builder::int("start", 0), builder::int("end", 1)];
                let rows = self.node_with("Shape", &[&x], first);
                let axis = vec![builder::int("axis", 0)];
                let shape = self.node_with("Concat", &[&rows, "columns"], axis);
                self.node("Reshape", &[&y, &shape])
            }
            Step::Branch => {
                let body = |name: &str, op: &str| {
                    let output = format!("{name}_{}", self.count);
                    let mut body = GraphBuilder::new(name, OPSET);
                    body.node(op, &[&x, &y], &[&output])
                        .output(&output, DType::F32, &shape());
                    builder::body(name, body.to_body())
                };
                let bodies = vec![body("then_branch", "Add"), body("else_branch", "Sub")];
                self.node_with("If", &["flag"], bodies)
            }
            Step::Call => self.node("local::Twice", &[&x]),
            Step::AddIntegers => {
                let sum = self.node("Add", &[&i, &j]);
                let sum = self.node("Mod", &[&sum, "eight"]);
                self.integers.push(sum);
                return;
            }
            Step::FromIntegers => {
                let to = vec![builder::int("to", DType::F32.code().into())];
                let float = self.node_with("Cast", &[&i], to);
                let column = self.node("Unsqueeze", &[&float, "one"]);
                self.node("Add", &[&x, &column])
            }
            Step::TimesSize => {
                let size = self.node("Size", &[&x]);
                let to = vec![builder::int("to", DType::F32.code().into())];
                let size = self.node_with("Cast", &[&size], to);
                self.node("Div", &[&y, &size])
            }
            Step::DeadEnd => {
                self.node("Sigmoid", &[&x]);
                return;
            }
        };
        self.floats.push(made);
    }
}

fn shape() -> [Dim; 2] {
    ["N".into(), COLUMNS.into()]
}

/// `Twice(x) = x + x`.
fn twice() -> FunctionProto {
    let import = |domain: &str, version| OperatorSetIdProto {
        domain: Some(domain.into()),
        version: Some(version),
    };
    FunctionProto {
        name: Some("Twice".into()),
        domain: Some("local".into()),
        input: vec!["in".into()],
        output: vec!["out".into()],
        node: vec![builder::node("Add", &["in", "in"], &["out"], vec![])],
        opset_import: vec![import("", OPSET)],
        ..FunctionProto::default()
    }
}

fn graph(script: &Script) -> Graph {
    let mut builder = GraphBuilder::new("generated", OPSET);
    let ramp = |count: usize, step: f32| -> Vec<f32> {
        (0..count).map(|index| step * index as f32 - 0.5).collect()
    };
    builder
        .import("local", 1)
        .function(twice())
        .input("x", DType::F32, &shape())
        .input("ids", DType::I64, &["N".into()])
        .input("flag", DType::Bool, &[])
        .weight_f32("gain", &[4], &ramp(4, 0.4))
        .weight_f32("weight", &[4, 4], &ramp(16, 0.07))
        .weight_f32("bias", &[4], &ramp(4, 0.3))
        .weight_f32("table", &[8, 4], &ramp(4 * TABLE, 0.05))
        .weight_i64("eight", &[], &[8])
        .weight_i64("columns", &[1], &[4])
        .weight_i64("one", &[1], &[1]);
    // Every graph looks something up, so that the integers are known to be indices.
    let mut writer = Writer {
        builder,
        floats: vec!["x".into()],
        integers: vec!["ids".into()],
        count: 0,
    };
    let looked_up = writer.node("Gather", &["table", "ids"]);
    writer.floats.push(looked_up);
    for (step, a, b) in &script.steps {
        writer.step(*step, a, b);
    }
    let last = writer.floats.last().unwrap().clone();
    let mut outputs = BTreeSet::from([last]);
    let made = |name: &&String| name.starts_with('v');
    let floats: Vec<&String> = writer.floats.iter().filter(made).collect();
    outputs.extend(
        script
            .outputs
            .iter()
            .map(|index| (*index.get(&floats)).clone()),
    );
    for output in outputs {
        writer.builder.output(&output, DType::F32, &shape());
    }
    if let Some(integers) = writer.integers.iter().skip(1).next_back() {
        writer.builder.output(integers, DType::I64, &["N".into()]);
    }
    if script.passes_through {
        writer.builder.output("bias", DType::F32, &[4.into()]);
    }
    writer.builder.build().unwrap()
}

/// The listed seams, and those through every value that has one.
fn seams(model: &Model) -> Vec<Seam> {
    let mut seams = find_seams(model, &[]).unwrap().listed;
    for value in &model.graph.values {
        let at = [value.name.clone()];
        let found = find_seams(model, &at).map_or(Vec::new(), |seams| seams.chosen);
        // A cut before all work or behind it is no cut: one half would be empty.
        seams.extend(
            found
                .into_iter()
                .filter(|seam| 0 < seam.depth_flops && seam.depth_flops < seam.total_flops),
        );
    }
    let mut seen = BTreeSet::new();
    seams.retain(|seam| seen.insert(seam.cut.crossing.clone()));
    seams
}

/// Seams over which the law was held, for the test that nothing was skipped.
fn holds(script: &Script) -> Result<usize, TestCaseError> {
    let hash = Fingerprint::of(b"generated");
    let mut model = Model::new(graph(script), "generated".into(), hash, &Bindings::new()).unwrap();
    model.learn(&runtime(), 1).unwrap();
    let seams = seams(&model);
    // One row, as the sizes were inferred for, and three, which only the symbol allows.
    let requests = [(None, 11), (Some(3), 12)].map(|(rows, seed)| {
        let inputs = model.probe_inputs(rows).unwrap();
        Prober::new(seed).draw(&inputs).unwrap()
    });
    for found in split_differences(&model, &seams, &requests) {
        prop_assert!(found.holds(0.0), "{found:?}");
    }
    Ok(seams.len())
}

#[test]
fn split_equals_whole_on_generated_graphs() {
    const CASES: u32 = 384;
    let config = ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let covered = std::cell::Cell::new(0usize);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    runner
        .run(&scripts(), |script| {
            covered.set(covered.get() + holds(&script)?);
            Ok(())
        })
        .unwrap();
    let covered = covered.get();
    eprintln!("split equals whole: {covered} seams of {CASES} generated graphs, 2 requests each");
    assert!(covered > 3 * CASES as usize, "only {covered} seams");
}
