//! The device's half of a request: check the inputs, run the head, encode what crosses; and, when
//! the answer is there, decode it and put the outputs together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use seamline_codec as codec;
use seamline_ort::{Runtime, SessionOptions, StageChain};
use seamline_plan::{Bindings, Bundle, CodecSpec, Crossing, Cut, Tensor, TensorSpec};
use seamline_wire::TensorHeader;

use crate::error::{Error, ErrorKind};

/// Values by name.
pub type Values = BTreeMap<String, Tensor>;

/// A bundle's stages on this device.
pub(crate) struct Device {
    bundle: Bundle,
    chain: Mutex<StageChain>,
}

/// What the head made of a request.
pub(crate) struct Encoded {
    /// The crossing values, ready to be sent.
    pub(crate) tensors: Vec<TensorHeader>,
    /// Their payloads.
    pub(crate) payloads: Vec<Bytes>,
    /// Their codecs' names.
    pub(crate) codecs: Vec<&'static str>,
    /// Outputs and state that the head made itself.
    pub(crate) local: Values,
    /// Time of the head.
    pub(crate) run: Duration,
    /// Time of encoding.
    pub(crate) encode: Duration,
}

/// Recurrent state that the device keeps between two steps of a session.
#[derive(Debug, Default)]
pub(crate) struct DeviceState(Values);

impl Device {
    pub(crate) fn load(
        runtime: &Runtime,
        bundle: Bundle,
        options: &SessionOptions,
    ) -> Result<Device, Error> {
        let chain = StageChain::load(runtime, &bundle, options)
            .map_err(|error| Error::new(ErrorKind::Runtime, error))?;
        Ok(Device {
            bundle,
            chain: Mutex::new(chain),
        })
    }

    pub(crate) fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// Whether the device holds the stages before `cut`.
    pub(crate) fn holds(&self, cut: &Cut) -> bool {
        self.chain.lock().holds(0..cut.stage)
    }

    /// Checks `inputs` against the contract.
    pub(crate) fn check(&self, inputs: &Values) -> Result<(), Error> {
        let manifest = self.bundle.manifest();
        let is_state = |name: &str| manifest.states.iter().any(|state| state.input == name);
        let wanted: Vec<&TensorSpec> = manifest
            .inputs
            .iter()
            .filter(|spec| !is_state(&spec.name))
            .collect();
        let list = || {
            wanted
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let mut bindings = Bindings::new();
        for spec in &wanted {
            let tensor = inputs.get(&spec.name).ok_or_else(|| {
                Error::input(format!(
                    "input `{}` is missing; the model takes {}",
                    spec.name,
                    list()
                ))
            })?;
            spec.check(tensor.dtype(), tensor.shape(), &mut bindings)
                .map_err(|mismatch| Error::input(format!("input {mismatch}")))?;
        }
        match inputs
            .keys()
            .find(|name| !wanted.iter().any(|spec| spec.name == **name))
        {
            Some(name) => Err(Error::input(format!(
                "there is no input `{name}`; the model takes {}",
                list()
            ))),
            None => Ok(()),
        }
    }

    /// Runs the head of `cut` and encodes what crosses, each value with the codec that `choose`
    /// gives for it.
    pub(crate) fn run_head(
        &self,
        cut: &Cut,
        mut values: Values,
        state: Option<&DeviceState>,
        choose: impl Fn(&Crossing) -> CodecSpec,
    ) -> Result<Encoded, Error> {
        let started = Instant::now();
        self.add_state(&mut values, state)?;
        self.run_stages(0..cut.stage, &mut values)?;
        encode(cut, values, started.elapsed(), choose)
    }

    /// Goes on from the head of the cut `from`, which made `head`, to the head of `cut` behind it.
    pub(crate) fn run_on(
        &self,
        from: &Cut,
        head: &Encoded,
        cut: &Cut,
        choose: impl Fn(&Crossing) -> CodecSpec,
    ) -> Result<Encoded, Error> {
        let started = Instant::now();
        let mut values = head.local.clone();
        self.run_stages(from.stage..cut.stage, &mut values)?;
        encode(cut, values, head.run + started.elapsed(), choose)
    }

    fn run_stages(&self, stages: Range<usize>, values: &mut Values) -> Result<(), Error> {
        let run = self.chain.lock().run(stages, values);
        run.map_err(|error| Error::new(ErrorKind::Runtime, error))
    }

    /// Adds state inputs: what `state` kept, or zeros at the first step.
    fn add_state(&self, values: &mut Values, state: Option<&DeviceState>) -> Result<(), Error> {
        let manifest = self.bundle.manifest();
        for spec in &manifest.states {
            if let Some(tensor) = state.and_then(|state| state.0.get(&spec.input)) {
                values.insert(spec.input.clone(), tensor.clone());
                continue;
            }
            let Some(input) = manifest
                .inputs
                .iter()
                .find(|input| input.name == spec.input)
            else {
                continue;
            };
            let dims = input
                .shape
                .iter()
                .map(|dim| usize::try_from(dim.fixed()?).ok());
            let zeros = dims
                .collect::<Option<Vec<usize>>>()
                .and_then(|shape| Tensor::zeros(input.dtype, shape).ok());
            let zeros = zeros.ok_or_else(|| {
                Error::new(
                    ErrorKind::Bundle,
                    Text(format!("state {input} has no fixed size to begin with")),
                )
            })?;
            values.insert(spec.input.clone(), zeros);
        }
        Ok(())
    }

    /// Decodes the service's outputs into `values`.
    pub(crate) fn decode(
        &self,
        cut: &Cut,
        tensors: &[TensorHeader],
        payloads: &[Bytes],
        values: &mut Values,
    ) -> Result<(), Error> {
        let wrong = |problem: String| Error::new(ErrorKind::Service, Text(problem));
        if tensors.len() != cut.replies.len() || payloads.len() != tensors.len() {
            return Err(wrong(format!(
                "the service answered with {} outputs; cut `{}` has {}",
                tensors.len(),
                cut.id,
                cut.replies.len()
            )));
        }
        let mut bindings = Bindings::new();
        for ((reply, tensor), payload) in cut.replies.iter().zip(tensors).zip(payloads) {
            let name = &reply.spec.name;
            let shape: Result<Vec<usize>, _> = tensor
                .shape
                .iter()
                .map(|&dim| usize::try_from(dim))
                .collect();
            let shape = shape.map_err(|_| wrong(format!("`{name}` has an impossible shape")))?;
            let dtype = tensor
                .dtype()
                .ok_or_else(|| wrong(format!("`{name}` has dtype code {}", tensor.dtype)))?;
            reply
                .spec
                .check(dtype, &shape, &mut bindings)
                .map_err(|mismatch| wrong(format!("output {mismatch}")))?;
            if tensor.codec != reply.codec.id() {
                return Err(wrong(format!("`{name}` came in codec {}", tensor.codec)));
            }
            let decoded = if reply.codec == CodecSpec::Raw {
                Tensor::new(dtype, shape, payload.clone())
                    .map(Tensor::aligned)
                    .map_err(|error| wrong(format!("`{name}`: {error}")))?
            } else {
                codec::decode(&reply.codec, dtype, &shape, payload)
                    .map_err(|error| wrong(format!("`{name}`: {error}")))?
            };
            values.insert(name.clone(), decoded);
        }
        Ok(())
    }

    /// Moves the state outputs in `values` to `state`, and returns the model's outputs in its
    /// order; state is not among them.
    pub(crate) fn collect(
        &self,
        mut values: Values,
        state: Option<&mut DeviceState>,
    ) -> Vec<(String, Tensor)> {
        let manifest = self.bundle.manifest();
        if let Some(state) = state {
            for spec in &manifest.states {
                if let Some(tensor) = values.get(&spec.output) {
                    state.0.insert(spec.input.clone(), tensor.clone());
                }
            }
        }
        let is_state = |name: &str| manifest.states.iter().any(|state| state.output == name);
        let outputs = manifest.outputs.iter().filter(|spec| !is_state(&spec.name));
        outputs
            .filter_map(|spec| Some((spec.name.clone(), values.remove(&spec.name)?)))
            .collect()
    }
}

/// Encodes what crosses at `cut`, each value with the codec that `choose` gives for it. `run` is the
/// time of the head.
fn encode(
    cut: &Cut,
    values: Values,
    run: Duration,
    choose: impl Fn(&Crossing) -> CodecSpec,
) -> Result<Encoded, Error> {
    let started = Instant::now();
    let mut tensors = Vec::with_capacity(cut.crossing.len());
    let mut payloads = Vec::with_capacity(cut.crossing.len());
    let mut codecs = Vec::with_capacity(cut.crossing.len());
    for crossing in &cut.crossing {
        let name = &crossing.spec.name;
        let tensor = values.get(name).ok_or_else(|| {
            Error::new(
                ErrorKind::Bundle,
                Text(format!("the head made no `{name}`")),
            )
        })?;
        let spec = choose(crossing);
        let payload = codec::encode_bytes(&spec, tensor).map_err(|error| {
            Error::new(
                ErrorKind::Runtime,
                Text(format!("`{name}` as {spec}: {error}")),
            )
        })?;
        tensors.push(TensorHeader {
            codec: spec.id(),
            dtype: tensor.dtype().code(),
            shape: tensor.shape().iter().map(|&dim| dim as u64).collect(),
            bytes: payload.len() as u64,
        });
        payloads.push(payload);
        codecs.push(spec.name());
    }
    Ok(Encoded {
        tensors,
        payloads,
        codecs,
        local: values,
        run,
        encode: started.elapsed(),
    })
}

impl Encoded {
    /// Payload bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.payloads
            .iter()
            .map(|payload| payload.len() as u64)
            .sum()
    }

    /// The codec of what crosses, several different ones joined by `+`; `None` where nothing does.
    pub(crate) fn codec(&self) -> Option<String> {
        let mut names = self.codecs.clone();
        names.sort_unstable();
        names.dedup();
        (!names.is_empty()).then(|| names.join("+"))
    }
}

/// A sentence as an error's source.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Text(pub(crate) String);
