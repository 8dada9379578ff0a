//! Head and tail of one cut, loaded in this process, with what the head made of each request.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use seamline_codec as codec;
use seamline_graph::Graph;
use seamline_graph::seams::Seam;
use seamline_ort::{ModelSource, Optimization, Runtime, Session, SessionError, SessionOptions};
use seamline_plan::{CodecSpec, Crossing, Tensor};
use thiserror::Error;

use super::calibration::Sample;
use super::evaluate::{EvaluateError, failed};
use super::metric::Answer;
use crate::contract::{INPUT_CUT, crossing};
use crate::cut::{CutError, stages};
use crate::model::{Model, ModelError};
use crate::split::{SplitError, SplitOptions};

/// The most bytes of what heads made that are kept for one cut; what does not fit is made again.
const MAX_KEPT: usize = 1 << 30;

/// Halves that cannot be made.
#[derive(Debug, Error)]
pub enum SessionsError {
    /// The cut cannot be made.
    #[error(transparent)]
    Cut(#[from] CutError),
    /// What crosses cannot be described.
    #[error(transparent)]
    Crossing(#[from] SplitError),
    /// ONNX Runtime does not take a half.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// ONNX Runtime does not take the model.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Both halves of a cut.
pub struct SeamSessions {
    id: String,
    /// None at the cut `input`, where nothing runs before.
    head: Option<Session>,
    tail: Session,
    /// The tail again, for values inside it; None at the cut `input`.
    tail_graph: Option<Graph>,
    runtime: Runtime,
    /// Where weights in files of their own lie: beside the whole model.
    folder: Option<PathBuf>,
    crossing: Vec<Crossing>,
    /// By request.
    kept: Vec<Option<HeadRun>>,
    kept_bytes: usize,
}

/// What a head made.
#[derive(Clone)]
struct HeadRun {
    /// In the order of the crossing values.
    crossing: Vec<Tensor>,
    /// Outputs of the head by name, those of the model among them.
    made: Answer,
}

/// What the service gets.
pub struct Sent {
    /// The crossing values after encoding and decoding, in their order.
    pub values: Vec<Tensor>,
    /// Payload.
    pub bytes: u64,
}

impl SeamSessions {
    /// Loads both halves of `seam`.
    ///
    /// # Errors
    /// [`SessionsError`].
    pub fn of_seam(
        runtime: &Runtime,
        model: &Model,
        seam: &Seam,
    ) -> Result<SeamSessions, SessionsError> {
        let mut stages = stages(model, std::slice::from_ref(seam))?;
        let folder = model.graph.source.as_deref().and_then(Path::parent);
        let session = |index: usize| -> Result<Session, SessionsError> {
            let stage = &stages.stages[index];
            let names = stage
                .outputs
                .iter()
                .map(|&id| model.graph.value(id).name.clone());
            load(runtime, &stage.graph, folder, &names.collect::<Vec<_>>())
        };
        let options = SplitOptions::default();
        let crosses = stages.crossing.first().into_iter().flatten();
        let crossing = crosses.map(|&id| crossing(model, id, &options));
        let (head, tail) = (session(0)?, session(1)?);
        Ok(SeamSessions {
            head: Some(head),
            tail,
            tail_graph: stages.stages.pop().map(|stage| stage.graph),
            runtime: runtime.clone(),
            folder: folder.map(Path::to_owned),
            crossing: crossing.collect::<Result<_, _>>()?,
            id: seam.id.clone(),
            kept: Vec::new(),
            kept_bytes: 0,
        })
    }

    /// The cut `input`: the inputs cross, the whole model is the tail.
    ///
    /// # Errors
    /// [`SessionsError`].
    pub fn of_input(runtime: &Runtime, model: &Model) -> Result<SeamSessions, SessionsError> {
        let options = SplitOptions::default();
        let inputs = model.graph.inputs.iter();
        let crossing = inputs.map(|&id| crossing(model, id, &options));
        Ok(SeamSessions {
            id: INPUT_CUT.into(),
            head: None,
            tail: model.session(runtime, Optimization::All)?,
            tail_graph: None,
            runtime: runtime.clone(),
            folder: None,
            crossing: crossing.collect::<Result<_, _>>()?,
            kept: Vec::new(),
            kept_bytes: 0,
        })
    }

    /// What crosses.
    pub fn crossing(&self) -> &[Crossing] {
        &self.crossing
    }

    /// Codecs by which the values cross when `name` is asked for.
    pub fn codecs(&self, name: &str) -> Vec<CodecSpec> {
        self.crossing
            .iter()
            .map(|crossing| crossing.codec(Some(name)).clone())
            .collect()
    }

    /// What the service gets of the request at `index` by `specs`, one codec a crossing value.
    ///
    /// # Errors
    /// [`EvaluateError`] where the head fails or a value does not survive its codec.
    pub fn sent(
        &mut self,
        index: usize,
        sample: &Sample,
        specs: &[CodecSpec],
    ) -> Result<Sent, EvaluateError> {
        let run = self.head_run(index, sample)?;
        let mut sent = Sent {
            values: Vec::with_capacity(specs.len()),
            bytes: 0,
        };
        for ((crossing, tensor), spec) in self.crossing.iter().zip(run.crossing).zip(specs) {
            let name = &crossing.spec.name;
            let fail = |error| failed(sample, name, error);
            let payload = codec::encode_bytes(spec, &tensor).map_err(fail)?;
            sent.bytes += payload.len() as u64;
            sent.values.push(if spec.is_lossless() {
                tensor
            } else {
                codec::decode(spec, tensor.dtype(), tensor.shape(), &payload).map_err(fail)?
            });
        }
        Ok(sent)
    }

    /// What the head gives, outputs of the model among it.
    pub(super) fn made_by_head(
        &mut self,
        index: usize,
        sample: &Sample,
    ) -> Result<Answer, EvaluateError> {
        Ok(self.head_run(index, sample)?.made)
    }

    /// The tail's outputs for what was sent.
    pub(super) fn run_tail(
        &mut self,
        sample: &Sample,
        sent: &[Tensor],
    ) -> Result<Answer, EvaluateError> {
        let names = self
            .crossing
            .iter()
            .map(|crossing| crossing.spec.name.clone());
        let values: Answer = names.zip(sent.iter().cloned()).collect();
        run(&mut self.tail, &values, sample, &self.id, "tail")
    }

    /// The value `name` of the tail for all that was `sent`, in the order of the requests; `None`
    /// where the tail does not make it.
    pub(super) fn inside_tail(
        &self,
        samples: &[Sample],
        sent: &[Vec<Tensor>],
        name: &str,
    ) -> Result<Option<Vec<Tensor>>, EvaluateError> {
        let graph = self.tail_graph.as_ref();
        let is_made = |graph: &&Graph| {
            let id = graph.find(name);
            id.is_some_and(|id| graph.value(id).producer.is_some())
        };
        let Some(graph) = graph.filter(is_made) else {
            return Ok(None);
        };
        let outputs = [name.to_owned()];
        let mut session = load(&self.runtime, graph, self.folder.as_deref(), &outputs)?;
        let mut found = Vec::with_capacity(sent.len());
        for (sample, sent) in samples.iter().zip(sent) {
            let names = self.crossing.iter().map(|c| c.spec.name.clone());
            let values: Answer = names.zip(sent.iter().cloned()).collect();
            let mut made = run(&mut session, &values, sample, &self.id, "tail")?;
            let value = made.remove(name);
            found.push(value.ok_or_else(|| missing(sample, &self.id, "tail", name))?);
        }
        Ok(Some(found))
    }

    fn head_run(&mut self, index: usize, sample: &Sample) -> Result<HeadRun, EvaluateError> {
        if let Some(Some(run)) = self.kept.get(index) {
            return Ok(run.clone());
        }
        let made = match &mut self.head {
            Some(head) => run(head, &sample.values, sample, &self.id, "head")?,
            None => Answer::new(),
        };
        let value = |crossing: &Crossing| {
            let name = &crossing.spec.name;
            let value = made.get(name).or_else(|| sample.values.get(name)).cloned();
            value.ok_or_else(|| missing(sample, &self.id, "tail", name))
        };
        let run = HeadRun {
            crossing: self.crossing.iter().map(value).collect::<Result<_, _>>()?,
            made,
        };
        let bytes: usize = run.crossing.iter().map(|tensor| tensor.bytes().len()).sum();
        if self.kept_bytes + bytes <= MAX_KEPT {
            self.kept_bytes += bytes;
            if self.kept.len() <= index {
                self.kept.resize(index + 1, None);
            }
            self.kept[index] = Some(run.clone());
        }
        Ok(run)
    }
}

fn missing(sample: &Sample, seam: &str, half: &'static str, name: &str) -> EvaluateError {
    EvaluateError::Missing {
        sample: sample.name.clone(),
        seam: seam.to_owned(),
        half,
        name: name.to_owned(),
    }
}

fn run(
    session: &mut Session,
    values: &BTreeMap<String, Tensor>,
    sample: &Sample,
    seam: &str,
    half: &'static str,
) -> Result<Answer, EvaluateError> {
    let given = session.inputs().iter().map(|spec| {
        values
            .get(&spec.name)
            .ok_or_else(|| missing(sample, seam, half, &spec.name))
    });
    let given: Vec<&Tensor> = given.collect::<Result<_, _>>()?;
    let outputs = session.run(&given).map_err(|error| EvaluateError::Half {
        sample: sample.name.clone(),
        seam: seam.to_owned(),
        half,
        error: Box::new(error),
    })?;
    let names = session.outputs().iter().map(|spec| spec.name.clone());
    Ok(names.zip(outputs).collect())
}

fn load(
    runtime: &Runtime,
    graph: &Graph,
    folder: Option<&Path>,
    outputs: &[String],
) -> Result<Session, SessionsError> {
    let bytes = graph.encode_with_outputs(outputs);
    let source = ModelSource::Bytes {
        bytes: &bytes,
        folder,
    };
    Ok(runtime.session(source, &SessionOptions::default())?)
}
