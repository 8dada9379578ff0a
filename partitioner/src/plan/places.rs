//! Every place where a model can be cut, with what crosses there: the seams of its list, the
//! cheapest divisions by measured costs, the input and the output.

use seamline_graph::ValueId;
use seamline_graph::extract;
use seamline_graph::seams::{Costed, Seam, SeamFinder, Weights};
use seamline_plan::{CodecSpec, Crossing};

use crate::contract::{self, INPUT_CUT, OUTPUT_CUT};
use crate::cut;
use crate::model::Model;
use crate::split::{SplitError, SplitOptions};

/// A place to cut.
#[derive(Clone, Debug)]
pub struct Place {
    /// A seam's id, `input` or `output`.
    pub id: String,
    /// The seam; none in front of all nodes and behind all.
    pub seam: Option<Seam>,
    /// Share of the work before it, 0 to 1.
    pub depth: f64,
    /// What crosses, with its codecs; nothing behind all nodes.
    pub crossing: Vec<Crossing>,
    /// Bytes of it as the model computes it, at the reference sizes.
    pub raw_bytes: u64,
    /// Bytes of the outputs that the tail makes.
    pub reply_bytes: u64,
}

/// Costs of single nodes and bytes, for [`places`].
pub struct NodeCosts<'c> {
    /// A node before the cut, in nanoseconds, by its index.
    pub head_ns: &'c [f64],
    /// A node behind it.
    pub tail_ns: &'c [f64],
    /// Nanoseconds that a byte takes to the service, for each link to divide the graph for.
    pub byte_ns: &'c [f64],
    /// Nanoseconds of a byte back.
    pub reply_byte_ns: f64,
}

impl Place {
    /// Names of the values that cross.
    pub fn values(&self) -> Vec<String> {
        self.crossing
            .iter()
            .map(|crossing| crossing.spec.name.clone())
            .collect()
    }

    /// Names of the codecs that any value here allows, the defaults first.
    pub fn codecs(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        let most = self
            .crossing
            .iter()
            .map(|crossing| crossing.codecs.len())
            .max();
        for position in 0..most.unwrap_or_default() {
            let codecs = self
                .crossing
                .iter()
                .filter_map(|crossing| crossing.codecs.get(position));
            for name in codecs.map(CodecSpec::name) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }

    /// Whether every value passes unchanged where the codec called `name` is asked for.
    pub fn is_lossless(&self, name: &str) -> bool {
        self.crossing
            .iter()
            .all(|crossing| crossing.codec(Some(name)).is_lossless())
    }

    /// Whether this build can encode every value here by the codec called `name`.
    pub fn can_encode(&self, name: &str) -> bool {
        self.crossing
            .iter()
            .all(|crossing| seamline_codec::can_encode(crossing.codec(Some(name))))
    }

    /// Payload bytes with the codec called `name`, where sizes alone tell.
    pub fn encoded_bytes(&self, name: &str) -> Option<u64> {
        self.crossing.iter().try_fold(0u64, |sum, crossing| {
            let codec = crossing.codec(Some(name));
            let bytes =
                seamline_codec::expected_len(codec, crossing.spec.dtype, &crossing.reference)?;
            sum.checked_add(bytes)
        })
    }
}

/// Every place of `model`, by rising depth, the input first and the output last. The cheapest
/// divisions by `costs` that the list of seams lacks are among them, as `f0`, `f1` ….
///
/// # Errors
/// [`SplitError::UnknownType`] for an input or output of no known type.
pub fn places(model: &Model, costs: Option<&NodeCosts<'_>>) -> Result<Vec<Place>, SplitError> {
    let costed = cut::costed(model);
    let mut seams = SeamFinder::new(&costed).seams().to_vec();
    if let Some(costs) = costs {
        add_divisions(model, &costed, costs, &mut seams);
    }
    let mut places = vec![ends(model, INPUT_CUT)?];
    // A value of no known type cannot be sent: its seam is no place to cut.
    let inner = seams.into_iter().filter_map(|seam| place(model, seam).ok());
    places.extend(inner.filter(|place| !place.crossing.is_empty()));
    places.push(ends(model, OUTPUT_CUT)?);
    Ok(places)
}

/// The place at a seam.
pub(crate) fn place(model: &Model, seam: Seam) -> Result<Place, SplitError> {
    let values = extract::crossing_with_sizes(&model.graph, &seam.cut, &model.sizes);
    // A cut that cannot be made is refused where it is made, with its reason.
    let values = values.unwrap_or_else(|_| seam.cut.crossing.clone());
    let crossing = crossing(model, &values)?;
    let after = seam.cut.after(&model.graph);
    let is_late = |id: &ValueId| {
        let maker = model.graph.value(*id).producer;
        maker.is_some_and(|maker| after[maker.index()])
    };
    Ok(Place {
        id: seam.id.clone(),
        depth: seam.depth(),
        raw_bytes: raw_bytes(model, &values),
        reply_bytes: raw_bytes(model, model.graph.outputs.iter().filter(|&id| is_late(id))),
        crossing,
        seam: Some(seam),
    })
}

fn ends(model: &Model, id: &str) -> Result<Place, SplitError> {
    let is_input = id == INPUT_CUT;
    let inputs = contract::read_by_nodes(model);
    Ok(Place {
        id: id.to_owned(),
        seam: None,
        depth: if is_input { 0.0 } else { 1.0 },
        crossing: if is_input {
            crossing(model, &inputs)?
        } else {
            Vec::new()
        },
        raw_bytes: if is_input {
            raw_bytes(model, &inputs)
        } else {
            0
        },
        reply_bytes: if is_input {
            raw_bytes(model, &model.graph.outputs)
        } else {
            0
        },
    })
}

fn crossing(model: &Model, ids: &[ValueId]) -> Result<Vec<Crossing>, SplitError> {
    let options = SplitOptions::default();
    ids.iter()
        .map(|&id| contract::crossing(model, id, &options))
        .collect()
}

fn raw_bytes<'a>(model: &Model, ids: impl IntoIterator<Item = &'a ValueId>) -> u64 {
    let bytes = ids.into_iter().filter_map(|&id| model.facts(id).bytes());
    bytes.fold(0, u64::saturating_add)
}

fn add_divisions(model: &Model, costed: &Costed<'_>, costs: &NodeCosts<'_>, seams: &mut Vec<Seam>) {
    let listed = seams.len();
    for &byte_ns in costs.byte_ns {
        for name in ["raw", "f16", "int8"] {
            let division = costed.cheapest(&Weights {
                head: &|id| nanoseconds(costs.head_ns[id.index()]),
                tail: &|id| {
                    let made = model.graph.node(id).makes();
                    let replies = made.filter(|value| model.graph.outputs.contains(value));
                    let bytes = replies.filter_map(|value| model.facts(value).bytes());
                    let reply = bytes.sum::<u64>() as f64 * costs.reply_byte_ns;
                    nanoseconds(costs.tail_ns[id.index()] + reply)
                },
                send: &|id| sent_ns(model, id, name, byte_ns),
            });
            let Some(division) = division.filter(|it| it.before > 0 && it.behind > 0) else {
                continue;
            };
            if seams
                .iter()
                .any(|seam| seam.cut.crossing == division.cut.crossing)
            {
                continue;
            }
            let id = format!("f{}", seams.len() - listed);
            seams.push(costed.seam(id, division.cut));
        }
    }
    seams.sort_by_key(|seam| seam.depth_flops);
}

/// A cost far above all real ones.
const FORBIDDEN_NS: u64 = u64::MAX;

fn sent_ns(model: &Model, id: ValueId, codec: &str, byte_ns: f64) -> u64 {
    let facts = model.facts(id);
    let (Some(dtype), Some(shape)) = (facts.dtype, &facts.reference) else {
        return FORBIDDEN_NS;
    };
    let bytes = contract::bytes_by(codec, dtype, shape).or_else(|| facts.bytes());
    bytes.map_or(FORBIDDEN_NS, |bytes| nanoseconds(bytes as f64 * byte_ns))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to what the type holds"
)]
fn nanoseconds(ns: f64) -> u64 {
    // 11 days.
    ns.clamp(0.0, 1e15).round() as u64
}
