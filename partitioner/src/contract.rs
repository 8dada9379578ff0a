//! From stages to a manifest: what crosses each cut, with which codecs, and what comes back.

use std::collections::BTreeSet;

use seamline_graph::ValueId;
use seamline_graph::extract::Stages;
use seamline_graph::infer::{input_symbol, is_unnamed};
use seamline_graph::seams::Seam;
use seamline_plan::{
    CodecSpec, Crossing, Cut, DType, Dim, MANIFEST_FORMAT, Manifest, ModelInfo, Reply, Stage,
    StateSpec, TensorSpec,
};

use crate::model::Model;
use crate::split::{SplitError, SplitOptions};

/// The id of the cut in front of the first stage.
pub const INPUT_CUT: &str = "input";
/// The id of the cut behind the last stage.
pub const OUTPUT_CUT: &str = "output";

/// The manifest of `model` cut at `seams`; batch axes are candidates, still to be proven, and the
/// file list is empty.
pub(crate) fn manifest(
    model: &Model,
    seams: &[Seam],
    stages: &Stages,
    options: &SplitOptions,
) -> Result<Manifest, SplitError> {
    let graph = &model.graph;
    let specs = |ids: &[ValueId]| -> Result<Vec<TensorSpec>, SplitError> {
        ids.iter().map(|&id| spec(model, id)).collect()
    };
    let states = states(model, options)?;
    let count = stages.stages.len();
    let mut cuts = Vec::new();
    if options.cloud_head {
        cuts.push(cut(model, stages, &states, INPUT_CUT, 0, 0.0, options)?);
    }
    for (index, seam) in seams.iter().enumerate() {
        let depth = seam.depth();
        cuts.push(cut(
            model,
            stages,
            &states,
            &seam.id,
            index + 1,
            depth,
            options,
        )?);
    }
    if options.edge_tail {
        cuts.push(cut(
            model, stages, &states, OUTPUT_CUT, count, 1.0, options,
        )?);
    }
    let shallowest = seams.first().map_or(INPUT_CUT, |seam| seam.id.as_str());
    let default_cut = options
        .default_cut
        .as_deref()
        .unwrap_or(shallowest)
        .to_owned();
    let stage = |(index, stage): (usize, &seamline_graph::extract::Stage)| Stage {
        inputs: names(model, &stage.inputs),
        outputs: names(model, &stage.outputs),
        nodes: stage.graph.nodes.len(),
        edge: (index < seams.len() || options.edge_tail).then(|| format!("edge/stage{index}.onnx")),
        cloud: (index > 0 || options.cloud_head).then(|| format!("cloud/stage{index}.onnx")),
    };
    Ok(Manifest {
        format: MANIFEST_FORMAT,
        model: ModelInfo {
            name: model.name.clone(),
            graph_hash: model.hash,
            metadata: graph.header.metadata(),
        },
        inputs: specs(&graph.inputs)?,
        outputs: specs(&graph.outputs)?,
        states,
        stages: stages.stages.iter().enumerate().map(stage).collect(),
        cuts,
        default_cut,
        files: Vec::new(),
    })
}

fn names(model: &Model, ids: &[ValueId]) -> Vec<String> {
    ids.iter()
        .map(|&id| model.graph.value(id).name.clone())
        .collect()
}

fn states(model: &Model, options: &SplitOptions) -> Result<Vec<StateSpec>, SplitError> {
    let known = |ids: &[ValueId], name: &str, what: &'static str| {
        let names = names(model, ids);
        if names.iter().any(|known| known == name) {
            return Ok(());
        }
        Err(SplitError::State {
            name: name.to_owned(),
            what,
            known: names,
        })
    };
    for state in &options.states {
        known(&model.graph.inputs, &state.input, "input")?;
        known(&model.graph.outputs, &state.output, "output")?;
    }
    Ok(options.states.clone())
}

/// The cut before stage `stage`.
fn cut(
    model: &Model,
    stages: &Stages,
    states: &[StateSpec],
    id: &str,
    stage: usize,
    depth: f64,
    options: &SplitOptions,
) -> Result<Cut, SplitError> {
    let tail = &stages.stages[stage..];
    let made: BTreeSet<ValueId> = tail
        .iter()
        .flat_map(|stage| stage.outputs.iter().copied())
        .collect();
    let crossing: Vec<ValueId> = match stage {
        0 => read_inputs(model, stages),
        stage => stages.crossing.get(stage - 1).cloned().unwrap_or_default(),
    };
    let head_reads: BTreeSet<ValueId> = stages.stages[..stage]
        .iter()
        .flat_map(|stage| stage.inputs.iter().copied())
        .collect();
    // State that only the tail reads and makes stays in the service.
    let kept: Vec<&StateSpec> = states
        .iter()
        .filter(|state| {
            let input = model.graph.find(&state.input);
            let output = model.graph.find(&state.output);
            input.is_some_and(|id| !head_reads.contains(&id))
                && output.is_some_and(|id| made.contains(&id))
        })
        .collect();
    let is_kept_input = |id: ValueId| {
        kept.iter()
            .any(|state| state.input == model.graph.value(id).name)
    };
    let is_kept_output = |id: ValueId| {
        kept.iter()
            .any(|state| state.output == model.graph.value(id).name)
    };
    let crossing = crossing.into_iter().filter(|&id| !is_kept_input(id));
    let replies = model.graph.outputs.iter().copied();
    let replies = replies.filter(|id| made.contains(id) && !is_kept_output(*id));
    Ok(Cut {
        id: id.to_owned(),
        stage,
        depth,
        crossing: crossing
            .map(|id| self::crossing(model, id, options))
            .collect::<Result<_, _>>()?,
        replies: replies
            .map(|id| reply(model, id))
            .collect::<Result<_, _>>()?,
    })
}

/// The model's inputs that any stage reads: what is sent where nothing runs before.
fn read_inputs(model: &Model, stages: &Stages) -> Vec<ValueId> {
    let reads = |id: &ValueId| stages.stages.iter().any(|stage| stage.inputs.contains(id));
    model.graph.inputs.iter().copied().filter(reads).collect()
}

/// The model's inputs that any node reads: what is sent where nothing runs before.
pub(crate) fn read_by_nodes(model: &Model) -> Vec<ValueId> {
    let is_read = |id: &ValueId| !model.graph.value(*id).consumers.is_empty();
    model.graph.inputs.iter().copied().filter(is_read).collect()
}

/// The value `id` as it crosses: its spec, codecs and a batch axis that is still to be proven.
pub(crate) fn crossing(
    model: &Model,
    id: ValueId,
    options: &SplitOptions,
) -> Result<Crossing, SplitError> {
    let spec = spec(model, id)?;
    let reference = model.facts(id).reference.clone();
    let reference = reference.ok_or_else(|| SplitError::UnknownType {
        name: spec.name.clone(),
    })?;
    let mut codecs = codecs(&spec, &reference);
    if let Some(first) = &options.codec {
        // A picture may be sent in any quality, not just in those that are offered unasked.
        let asked = CodecSpec::from_name(first)
            .filter(|codec| codec.is_picture() && takes(codec, &spec) && !codecs.contains(codec));
        codecs.extend(asked);
        // Where the value does not take the codec, its own default stays first.
        codecs.sort_by_key(|codec| codec.name() != first);
    }
    let batch_axis = batch_axis(model, &spec);
    Ok(Crossing {
        spec,
        codecs,
        batch_axis,
        reference,
    })
}

fn reply(model: &Model, id: ValueId) -> Result<Reply, SplitError> {
    let spec = spec(model, id)?;
    let batch_axis = batch_axis(model, &spec);
    Ok(Reply {
        codec: reply_codec(spec.dtype),
        spec,
        batch_axis,
    })
}

/// How an output comes back.
pub(crate) fn reply_codec(dtype: DType) -> CodecSpec {
    if dtype.is_float() || dtype == DType::U8 {
        CodecSpec::Raw
    } else {
        CodecSpec::Packed
    }
}

/// The axis that has the batch symbol, where exactly one has it.
fn batch_axis(model: &Model, spec: &TensorSpec) -> Option<usize> {
    let symbol = model.batch_symbol.as_deref()?;
    let mut axes = (0..spec.shape.len())
        .filter(|&axis| matches!(&spec.shape[axis], Dim::Sym(own) if own == symbol));
    let axis = axes.next()?;
    axes.next().is_none().then_some(axis)
}

/// What pictures can be sent as besides: without loss, and in the qualities that people use.
const PICTURE_CODECS: [CodecSpec; 8] = [
    CodecSpec::Png,
    CodecSpec::Jpeg { quality: 95 },
    CodecSpec::Jpeg { quality: 85 },
    CodecSpec::Jpeg { quality: 75 },
    CodecSpec::Jpeg { quality: 50 },
    CodecSpec::Webp { quality: 90 },
    CodecSpec::Webp { quality: 75 },
    CodecSpec::Webp { quality: 50 },
];

/// What a value can be sent as, the default first: unchanged floats, packed integers.
fn codecs(spec: &TensorSpec, reference: &[u64]) -> Vec<CodecSpec> {
    let mut codecs = sized_codecs(spec.dtype, reference);
    codecs.extend(
        PICTURE_CODECS
            .into_iter()
            .filter(|codec| takes(codec, spec)),
    );
    if spec.dtype != DType::Bool {
        codecs.push(CodecSpec::Zstd);
    }
    codecs
}

/// Those that make payloads of one length for a size.
fn sized_codecs(dtype: DType, reference: &[u64]) -> Vec<CodecSpec> {
    match dtype {
        DType::F32 => {
            let mut codecs = vec![CodecSpec::Raw, CodecSpec::F16];
            codecs.extend(scale_axis(reference).map(|axis| CodecSpec::Int8 { axis }));
            codecs
        }
        dtype if dtype.is_float() => vec![CodecSpec::Raw],
        DType::U8 | DType::I8 => vec![CodecSpec::Raw, CodecSpec::Packed],
        _ => vec![CodecSpec::Packed, CodecSpec::Raw],
    }
}

fn takes(codec: &CodecSpec, spec: &TensorSpec) -> bool {
    let last = spec.shape.last().and_then(Dim::fixed);
    codec.accepts(spec.dtype) && codec.takes_shape(spec.shape.len(), last)
}

/// The axis with a scale each: channels, which come second in feature maps (N, C, …) and last in
/// sequences (N, tokens, C). Where a channel has too few elements to pay for its scale, rows; none
/// where rows have too few as well.
fn scale_axis(reference: &[u64]) -> Option<usize> {
    /// A scale takes 4 bytes: with fewer elements each, f16 is as short and more exact.
    const MIN_ELEMENTS: u64 = 4;
    let channels = match reference.len() {
        0 => return None,
        1 | 2 => 0,
        3 => 2,
        _ => 1,
    };
    [channels, 0].into_iter().find(|&axis| {
        let others = reference
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != axis);
        others.fold(1u64, |count, (_, &dim)| count.saturating_mul(dim)) >= MIN_ELEMENTS
    })
}

/// Bytes of a value by the codec called `name`; `None` where it does not take it, or where sizes
/// alone do not tell.
pub(crate) fn bytes_by(name: &str, dtype: DType, shape: &[u64]) -> Option<u64> {
    let codecs = sized_codecs(dtype, shape);
    let codec = codecs.iter().find(|codec| codec.name() == name)?;
    seamline_codec::expected_len(codec, dtype, shape)
}

/// Bytes that cross at a seam, by what floats are sent as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireBytes {
    /// Every float as `f32`.
    pub f32: u64,
    /// `f32` values by the codec `f16`, others as they are.
    pub f16: u64,
    /// `f32` values by the codec `int8`, its scales included, others as they are.
    pub int8: u64,
}

/// What crosses at `seam` in bytes, at the reference sizes; integers count as they are.
pub fn wire_bytes(model: &Model, seam: &Seam) -> WireBytes {
    let mut total = WireBytes {
        f32: seam.bytes_f32,
        ..WireBytes::default()
    };
    for &id in &seam.cut.crossing {
        let facts = model.facts(id);
        let (Some(plain), Some(dtype), Some(shape)) =
            (facts.bytes(), facts.dtype, &facts.reference)
        else {
            continue;
        };
        let by = |name| bytes_by(name, dtype, shape);
        total.f16 = total.f16.saturating_add(by("f16").unwrap_or(plain));
        total.int8 = total.int8.saturating_add(by("int8").unwrap_or(plain));
    }
    total
}

fn spec(model: &Model, id: ValueId) -> Result<TensorSpec, SplitError> {
    let name = model.graph.value(id).name.clone();
    let facts = model.facts(id);
    let unknown = || SplitError::UnknownType { name: name.clone() };
    let dtype = facts.dtype.ok_or_else(unknown)?;
    let shape = facts.symbolic.as_ref().ok_or_else(unknown)?;
    let dims = shape.iter().enumerate().map(|(axis, dim)| match dim {
        Dim::Sym(symbol) if is_unnamed(symbol) => Dim::Sym(input_symbol(&name, axis)),
        dim => dim.clone(),
    });
    Ok(TensorSpec {
        dtype,
        shape: dims.collect(),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_offered_as_pictures() {
        let names = |dtype, shape: &[u64]| {
            let spec = TensorSpec {
                name: "x".into(),
                dtype,
                shape: shape.iter().map(|&dim| Dim::Fixed(dim)).collect(),
            };
            let codecs = codecs(&spec, shape);
            codecs
                .iter()
                .map(CodecSpec::name)
                .collect::<Vec<_>>()
                .join(" ")
        };
        let rgb = "raw packed png jpeg95 jpeg85 jpeg75 jpeg50 webp90 webp75 webp50 zstd";
        assert_eq!(names(DType::U8, &[1, 224, 224, 3]), rgb);
        let grey = "raw packed png jpeg95 jpeg85 jpeg75 jpeg50 zstd";
        assert_eq!(names(DType::U8, &[1, 224, 224, 1]), grey);
        assert_eq!(names(DType::U8, &[1, 3, 224, 224]), "raw packed zstd");
        assert_eq!(names(DType::F32, &[1, 224, 224, 3]), "raw f16 int8 zstd");
        assert_eq!(names(DType::F64, &[1, 8]), "raw zstd");
        assert_eq!(names(DType::I64, &[1, 8]), "packed raw zstd");
        assert_eq!(names(DType::Bool, &[1, 8]), "packed raw");
    }

    #[test]
    fn scales_are_never_dearer_than_halves() {
        assert_eq!(
            scale_axis(&[1, 64, 14, 14]),
            Some(1),
            "feature maps: channels"
        );
        assert_eq!(scale_axis(&[1, 32, 384]), Some(2), "sequences: channels");
        assert_eq!(
            scale_axis(&[1, 1280, 1, 1]),
            Some(0),
            "pooled: one scale a row"
        );
        assert_eq!(scale_axis(&[1, 384]), Some(0), "vectors: one scale a row");
        assert_eq!(scale_axis(&[1, 1, 384]), Some(0), "a single token");
        for few in [&[][..], &[384], &[8, 1], &[1, 3]] {
            assert_eq!(scale_axis(few), None, "{few:?}");
        }
        for shape in [&[1, 64, 14, 14][..], &[1, 1280, 1, 1], &[1, 4], &[3, 5, 7]] {
            let axis = scale_axis(shape).unwrap();
            let bytes = |codec| seamline_codec::expected_len(&codec, DType::F32, shape).unwrap();
            assert!(
                bytes(CodecSpec::Int8 { axis }) <= bytes(CodecSpec::F16),
                "{shape:?}"
            );
        }
    }
}
