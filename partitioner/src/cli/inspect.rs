//! `seamline inspect`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use seamline_graph::infer::InputDomain;
use seamline_graph::{Graph, ValueId};
use seamline_partitioner::Model;
use seamline_plan::{Dim, format_shape};

use super::text::{self, Align, plural};
use super::{Machine, ModelArguments, sizes};

/// Names of unknown values that are printed; JSON has all.
const SHOWN_VALUES: usize = 5;

#[derive(Args)]
pub(crate) struct Inspect {
    #[command(flatten)]
    model: ModelArguments,
}

impl Inspect {
    pub(crate) fn run(self, machine: &Machine) -> anyhow::Result<ExitCode> {
        let (model, _) = self.model.open()?;
        let facts = Facts::of(&model);
        if machine.json {
            seamline_plan::outln!("{}", facts.document(&model));
        } else {
            facts.print(&model);
        }
        Ok(ExitCode::SUCCESS)
    }
}

struct Facts {
    /// Nodes by operator, the most frequent first.
    operators: Vec<(String, usize)>,
    /// Bytes of initializers and `Constant` nodes.
    weights: u64,
    /// Names of values whose dtype or size only a run tells.
    unknown: Vec<String>,
}

impl Facts {
    fn of(model: &Model) -> Facts {
        let graph = &model.graph;
        let mut operators: BTreeMap<String, usize> = BTreeMap::new();
        for node in &graph.nodes {
            let name = match node.domain.as_str() {
                "" | "ai.onnx" => node.op_type.clone(),
                domain => format!("{domain}::{}", node.op_type),
            };
            *operators.entry(name).or_default() += 1;
        }
        let mut operators: Vec<(String, usize)> = operators.into_iter().collect();
        operators.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let unknown = model
            .unknown_values()
            .map(|id| graph.value(id).name.clone());
        Facts {
            operators,
            weights: weight_bytes(graph),
            unknown: unknown.collect(),
        }
    }

    fn document(&self, model: &Model) -> serde_json::Value {
        let graph = &model.graph;
        let port = |&id: &ValueId| {
            let facts = model.facts(id);
            serde_json::json!({
                "name": graph.value(id).name,
                "dtype": facts.dtype,
                "shape": facts.symbolic,
                "reference": facts.reference,
                "domain": model.domain(id).map(domain),
            })
        };
        let output = |id: &ValueId| {
            let mut document = port(id);
            if let Some(fields) = document.as_object_mut() {
                fields.remove("domain");
            }
            document
        };
        serde_json::json!({
            "name": model.name,
            "blake3": model.hash,
            "ir_version": graph.header.ir_version(),
            "opset": graph.opset(),
            "opsets": opsets(graph),
            "producer": graph.header.model.producer_name(),
            "inputs": graph.inputs.iter().map(port).collect::<Vec<_>>(),
            "outputs": graph.outputs.iter().map(output).collect::<Vec<_>>(),
            "nodes": graph.nodes.len(),
            "operators": self.operators.iter().cloned().collect::<BTreeMap<_, _>>(),
            "weight_bytes": self.weights,
            "flops": model.flops.iter().sum::<f64>(),
            "sizes": model.reference,
            "batch_symbol": model.batch_symbol,
            "unknown_values": self.unknown,
            "metadata": graph.header.metadata().keys().collect::<Vec<_>>(),
        })
    }

    fn print(&self, model: &Model) {
        let graph = &model.graph;
        let opsets: Vec<String> = opsets(graph)
            .into_iter()
            .map(|(domain, version)| format!("{domain} {version}"))
            .collect();
        seamline_plan::outln!("{}: opset {}", model.name, opsets.join(", "));
        let producer = graph.header.model.producer_name();
        if !producer.is_empty() {
            let version = graph.header.model.producer_version();
            seamline_plan::outln!("made by  {}", format!("{producer} {version}").trim_end());
        }
        seamline_plan::outln!("\ninputs");
        seamline_plan::out!("{}", ports(model, &graph.inputs, true));
        seamline_plan::outln!("\noutputs");
        seamline_plan::out!("{}", ports(model, &graph.outputs, false));
        let operators: Vec<String> = self
            .operators
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        seamline_plan::outln!(
            "\n{}: {}",
            plural(graph.nodes.len(), "node"),
            operators.join(", ")
        );
        seamline_plan::outln!(
            "weights  {} (initializers and Constant nodes)",
            text::bytes(self.weights)
        );
        seamline_plan::outln!(
            "work     {} a run; {}",
            text::flops(model.flops.iter().sum()),
            sizes(model)
        );
        match &model.batch_symbol {
            Some(symbol) => {
                seamline_plan::outln!("batch    `{symbol}`, to be proven when the model is split")
            }
            None => seamline_plan::outln!(
                "batch    no dimension of the inputs is one: requests run singly"
            ),
        }
        if self.unknown.is_empty() {
            seamline_plan::outln!("shapes   all known before a run");
            return;
        }
        let shown: Vec<&str> = self
            .unknown
            .iter()
            .take(SHOWN_VALUES)
            .map(String::as_str)
            .collect();
        let more = if self.unknown.len() > SHOWN_VALUES {
            ", …"
        } else {
            ""
        };
        seamline_plan::outln!(
            "shapes   {} known only in a run: {}{more}",
            plural(self.unknown.len(), "value"),
            shown.join(", ")
        );
    }
}

/// Operator-set versions by domain.
fn opsets(graph: &Graph) -> BTreeMap<&str, i64> {
    let imports = graph.header.model.opset_import.iter();
    imports
        .map(|import| {
            let domain = if import.domain().is_empty() {
                "ai.onnx"
            } else {
                import.domain()
            };
            (domain, import.version())
        })
        .collect()
}

fn weight_bytes(graph: &Graph) -> u64 {
    let values = (0..graph.values.len()).filter_map(|index| u32::try_from(index).ok().map(ValueId));
    values
        .filter_map(|id| graph.constant(id)?.byte_len().ok())
        .fold(0, |sum, bytes| sum.saturating_add(bytes))
}

fn ports(model: &Model, ids: &[ValueId], is_input: bool) -> String {
    let mut columns = vec![
        ("  name", Align::Left),
        ("dtype", Align::Left),
        ("shape", Align::Left),
    ];
    if is_input {
        columns.push(("values", Align::Left));
    }
    let rows: Vec<Vec<String>> = ids
        .iter()
        .map(|&id| {
            let facts = model.facts(id);
            let shape: Option<&[Dim]> = facts.symbolic.as_deref();
            let mut row = vec![
                format!("  {}", model.graph.value(id).name),
                facts.dtype.map_or("?".into(), |dtype| dtype.to_string()),
                shape.map_or("?".into(), format_shape),
            ];
            if is_input {
                row.extend(model.domain(id).map(domain));
            }
            row
        })
        .collect();
    text::table(&columns, &rows)
}

/// The values that an input can take, as text.
fn domain(domain: &InputDomain) -> String {
    match domain {
        InputDomain::Normal => "any; probes are normal".into(),
        InputDomain::Bytes => "0 to 255".into(),
        InputDomain::Indices { upper } => format!("0 to {}", upper.saturating_sub(1)),
        InputDomain::Mask => "0 or 1".into(),
        InputDomain::OneOf(choices) => {
            let choices: Vec<String> = choices.iter().map(ToString::to_string).collect();
            format!("one of {}", choices.join(", "))
        }
        InputDomain::SmallInt { lo, hi } => format!("{lo} to {hi}"),
    }
}
