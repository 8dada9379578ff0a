//! Which metric fits a model and its calibration data.

use std::str::FromStr;

use seamline_graph::{Graph, Node, ValueId};
use seamline_plan::DType;

use super::command::{Command, TIME_LIMIT};
use super::{Kind, Metric, MetricError, text};
use crate::model::Model;
use crate::plan::calibration::Calibration;

/// A metric by name, as `--metric` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "NAMES says what each is")]
pub enum MetricName {
    Top1,
    Accuracy,
    Cosine,
    CharacterError,
    Perplexity,
    MaxRelativeError,
}

const NAMES: &[(&str, MetricName)] = &[
    ("top1", MetricName::Top1),
    ("accuracy", MetricName::Accuracy),
    ("cosine", MetricName::Cosine),
    ("cer", MetricName::CharacterError),
    ("perplexity", MetricName::Perplexity),
    ("max-rel", MetricName::MaxRelativeError),
];

impl MetricName {
    /// `top1`, `accuracy`, `cosine`, `cer`, `perplexity`, `max-rel`.
    pub fn name(self) -> &'static str {
        NAMES
            .iter()
            .find(|(_, own)| *own == self)
            .map_or("", |(name, _)| name)
    }
}

impl FromStr for MetricName {
    type Err = MetricError;

    fn from_str(text: &str) -> Result<MetricName, MetricError> {
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, metric)| *metric)
            .ok_or_else(|| MetricError::Name {
                name: text.to_owned(),
                known: NAMES
                    .iter()
                    .map(|(name, _)| *name)
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }
}

/// What the user asked for.
#[derive(Clone, Debug, Default)]
pub struct MetricChoice {
    /// A metric by name; the one that fits without it.
    pub name: Option<MetricName>,
    /// The output to look at; the one that fits without it.
    pub output: Option<String>,
    /// A command that gives the figure, instead of a metric of ours; see `--metric-command`. It is
    /// run by `sh -c`.
    pub command: Option<String>,
    /// Whether less of the command's figure is better.
    pub lower_is_better: bool,
}

impl Metric {
    /// The metric that `asked` names, or the one that fits: with labels, accuracy where they are
    /// classes and character error where they are text; without, the agreement of the best class
    /// where the model classifies, and otherwise the cosine of the first floating
    /// output, or the largest relative error of all where that is one number or none is floating.
    ///
    /// # Errors
    /// [`MetricError::Unfit`] where the metric needs what model or data do not have,
    /// [`MetricError::Label`] for labels that are no classes.
    pub fn choose(
        model: &Model,
        calibration: &Calibration,
        asked: &MetricChoice,
    ) -> Result<Metric, MetricError> {
        let outputs = Outputs::of(model, asked)?;
        if let Some(text) = &asked.command {
            let (text, higher_is_better) = (text.clone(), !asked.lower_is_better);
            let kind = Kind::Command(Command {
                text,
                higher_is_better,
                time_limit: TIME_LIMIT,
            });
            return Ok(Metric { kind });
        }
        let name = asked.name.unwrap_or_else(|| outputs.fitting(calibration));
        Ok(Metric {
            kind: outputs.kind(name, calibration)?,
        })
    }
}

/// The outputs that may be looked at.
struct Outputs<'a> {
    model: &'a Model,
    ids: Vec<ValueId>,
}

impl<'a> Outputs<'a> {
    fn of(model: &'a Model, asked: &MetricChoice) -> Result<Outputs<'a>, MetricError> {
        let name = |id: &ValueId| model.graph.value(*id).name.as_str();
        let all = &model.graph.outputs;
        let is_asked = |id: &&ValueId| {
            asked
                .output
                .as_deref()
                .is_none_or(|asked| asked == name(id))
        };
        let ids: Vec<ValueId> = all.iter().filter(is_asked).copied().collect();
        if ids.is_empty() {
            return Err(MetricError::Output {
                output: asked.output.clone().unwrap_or_default(),
                problem: format!(
                    "the model has no such output; it has {}",
                    all.iter().map(name).collect::<Vec<_>>().join(", ")
                ),
            });
        }
        Ok(Outputs { model, ids })
    }

    fn name(&self, id: ValueId) -> String {
        self.model.graph.value(id).name.clone()
    }

    fn shape(&self, id: ValueId) -> &[u64] {
        self.model
            .facts(id)
            .reference
            .as_deref()
            .unwrap_or_default()
    }

    fn is_float(&self, id: ValueId) -> bool {
        self.model.facts(id).dtype.is_some_and(DType::is_float)
    }

    /// Outputs with scores of classes along the last axis.
    fn classes(&self) -> impl Iterator<Item = ValueId> + '_ {
        let fits = |id: &ValueId| {
            let shape = self.shape(*id);
            shape.len() >= 2
                && shape.last().is_some_and(|&classes| classes >= 2)
                && self.is_float(*id)
        };
        self.ids.iter().copied().filter(fits)
    }

    /// The output whose last axis has scores of classes, by how it is made.
    fn classifier(&self) -> Option<ValueId> {
        let is_classifier =
            |id: &ValueId| is_made_of_scores(&self.model.graph, *id, self.shape(*id).len());
        self.classes().find(is_classifier)
    }

    /// The output with a text's scores, and its charset.
    fn text(&self) -> Option<(ValueId, Vec<String>)> {
        let metadata = self.model.graph.header.metadata();
        let characters = metadata.get("character")?;
        self.classes()
            .filter(|&id| self.shape(id).len() == 3)
            .find_map(|id| {
                let classes = usize::try_from(*self.shape(id).last()?).ok()?;
                Some((id, text::charset(characters, classes)?))
            })
    }

    fn fitting(&self, calibration: &Calibration) -> MetricName {
        let is_class = |label: &Option<String>| {
            label
                .as_deref()
                .is_some_and(|label| label.trim().parse::<usize>().is_ok())
        };
        if calibration.is_labelled() {
            let all_classes = calibration
                .samples
                .iter()
                .all(|sample| is_class(&sample.label));
            return match (self.text(), all_classes) {
                (Some(_), _) => MetricName::CharacterError,
                _ => MetricName::Accuracy,
            };
        }
        if self.classifier().is_some() {
            return MetricName::Top1;
        }
        // Of one number the cosine is its sign: a probability that is off by all would agree.
        let first = self.ids.iter().find(|&&id| self.is_float(id));
        let last = first.and_then(|&id| self.shape(id).last());
        if last.is_some_and(|&last| last > 1) {
            return MetricName::Cosine;
        }
        MetricName::MaxRelativeError
    }

    fn kind(&self, name: MetricName, calibration: &Calibration) -> Result<Kind, MetricError> {
        let unfit = |problem: &str| MetricError::Unfit {
            metric: name.name(),
            problem: problem.to_owned(),
        };
        let scores = || {
            let id = self.classifier().or_else(|| self.classes().next());
            id.map(|id| self.name(id)).ok_or_else(|| {
                unfit("no output is a float [N, …, classes]; name one with --metric-output")
            })
        };
        let labels = || {
            let hint = "it needs labels; give labels.txt in the calibration folder";
            calibration
                .is_labelled()
                .then_some(())
                .ok_or_else(|| unfit(hint))
        };
        Ok(match name {
            MetricName::Top1 => Kind::Top1 { output: scores()? },
            MetricName::Accuracy => {
                labels()?;
                let kind = Kind::Accuracy { output: scores()? };
                self.check_classes(&kind, calibration)?;
                kind
            }
            MetricName::Cosine => {
                let float = self.ids.iter().copied().find(|&id| self.is_float(id));
                let hint = "no output is floating; use max-rel";
                let output = self.name(float.ok_or_else(|| unfit(hint))?);
                Kind::Cosine { output }
            }
            MetricName::CharacterError => {
                labels()?;
                let hint = "it needs an output [N, T, classes] and the characters of its classes, one \
                            a line, in the model's metadata key `character`; give --metric-command";
                let (id, charset) = self.text().ok_or_else(|| unfit(hint))?;
                let output = self.name(id);
                Kind::CharacterError { output, charset }
            }
            MetricName::Perplexity => {
                let hint = "it needs an integer input [N, T] and an output [N, T, vocabulary]";
                let (ids, logits) = self.language().ok_or_else(|| unfit(hint))?;
                Kind::Perplexity { logits, ids }
            }
            MetricName::MaxRelativeError => Kind::MaxRelativeError,
        })
    }

    /// Labels are found wrong before anything runs.
    fn check_classes(&self, kind: &Kind, calibration: &Calibration) -> Result<(), MetricError> {
        let Kind::Accuracy { output } = kind else {
            return Ok(());
        };
        let id = self.model.graph.find(output);
        let classes = id.and_then(|id| usize::try_from(*self.shape(id).last()?).ok());
        let mut samples = calibration.samples.iter();
        samples.try_for_each(|sample| {
            super::scores::class(sample, classes.unwrap_or(usize::MAX)).map(|_| ())
        })
    }

    /// Token ids and the scores of the next token.
    fn language(&self) -> Option<(String, String)> {
        let graph = &self.model.graph;
        let is_ids = |id: &ValueId| {
            let facts = self.model.facts(*id);
            matches!(facts.dtype, Some(DType::I64 | DType::I32))
                && facts
                    .reference
                    .as_ref()
                    .is_some_and(|shape| shape.len() == 2)
        };
        let mut ids: Vec<ValueId> = graph.inputs.iter().copied().filter(is_ids).collect();
        // A mask may come first.
        ids.sort_by_key(|&id| !graph.value(id).name.ends_with("ids"));
        let ids = *ids.first()?;
        let logits = self.classes().find(|&id| {
            let shape = self.shape(id);
            shape.len() == 3 && shape.get(1) == self.shape(ids).get(1)
        });
        Some((self.name(ids), self.name(logits?)))
    }
}

/// Whether the output `id` of rank `rank` has scores of classes: it comes from a softmax, or, of one
/// row a request, from a matrix product, with only shapes and biases between. Embeddings that end in
/// a product are told by their name.
fn is_made_of_scores(graph: &Graph, id: ValueId, rank: usize) -> bool {
    const PASSED: &[&str] = &[
        "Identity",
        "Cast",
        "Reshape",
        "Squeeze",
        "Unsqueeze",
        "Flatten",
        "Add",
        "DequantizeLinear",
    ];
    const EMBEDDINGS: &[&str] = &["embed", "hidden", "pool", "feature"];
    let name = graph.value(id).name.to_ascii_lowercase();
    let producer = |id: ValueId| -> Option<&Node> { Some(graph.node(graph.value(id).producer?)) };
    let mut node = producer(id);
    // As many steps as any model has behind its last product.
    for _ in 0..8 {
        let Some(made) = node else { return false };
        match made.op_type.as_str() {
            "Softmax" | "LogSoftmax" => return true,
            "Gemm" | "MatMul" | "MatMulInteger" | "MatMulNBits" | "QLinearMatMul" | "QGemm" => {
                return rank == 2 && !EMBEDDINGS.iter().any(|part| name.contains(part));
            }
            passed if PASSED.contains(&passed) => {
                let data = made
                    .inputs
                    .iter()
                    .flatten()
                    .find(|&&id| !graph.is_weight(id));
                node = data.and_then(|&id| producer(id));
            }
            _ => return false,
        }
    }
    false
}
