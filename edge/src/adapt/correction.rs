//! How far off measured costs are, learnt from what requests really took.

use seamline_plan::{CutOption, TailTime};

/// Of a surprise, so much goes into what all options have in common: a device that is hot, or a
/// service on another machine.
const SHARED_GAIN: f64 = 0.1;

/// And so much into the option's own.
const OWN_GAIN: f64 = 0.05;

/// A surprise counts as a factor of at most e^0.5 up or down: one odd run changes little.
const MOST_SURPRISE: f64 = 0.5;

/// The largest factor in common, and the largest of one option.
const MOST_SHARED: f64 = 4.0;
const MOST_OWN: f64 = 2.0;

/// Times about as short as this say little about a machine's speed, in microseconds.
const SHORT_US: f64 = 1000.0;

/// How much a request's size counts against the sizes before it.
const BYTES_GAIN: f64 = 0.2;

/// What one request took, all in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Head and encoding on the device.
    pub device_us: f64,
    /// Decoding, the tail and encoding of the answer in the service.
    pub service_us: f64,
    /// Waiting in the service.
    pub queue_us: f64,
    /// How long a request that comes next would wait, as the service says.
    pub next_queue_us: f64,
    /// Requests that ran together.
    pub batch: f64,
    /// Payload bytes that were sent.
    pub up_bytes: u64,
    /// Payload bytes that came back.
    pub down_bytes: u64,
}

/// A factor for all options, and one on top of it for each; as logarithms.
#[derive(Clone, Debug)]
struct Factors {
    shared: f64,
    own: Vec<f64>,
}

impl Factors {
    fn new(options: usize) -> Factors {
        Factors {
            shared: 0.0,
            own: vec![0.0; options],
        }
    }

    fn of(&self, option: usize) -> f64 {
        (self.shared + self.own[option]).exp()
    }

    fn shared(&self) -> f64 {
        self.shared.exp()
    }

    /// `planned` microseconds of the costs were `real` ones.
    fn learn(&mut self, option: usize, planned: f64, real: f64) {
        let expected = planned * self.of(option);
        let surprise = ((real + SHORT_US) / (expected + SHORT_US)).ln();
        let surprise = surprise.clamp(-MOST_SURPRISE, MOST_SURPRISE);
        let within = |value: f64, most: f64| value.clamp(-most.ln(), most.ln());
        self.shared = within(self.shared + SHARED_GAIN * surprise, MOST_SHARED);
        self.own[option] = within(self.own[option] + OWN_GAIN * surprise, MOST_OWN);
    }
}

/// The options with what was learnt of them.
#[derive(Clone, Debug)]
pub(super) struct Corrected {
    planned: Vec<CutOption>,
    device: Factors,
    service: Factors,
    bytes: Vec<(f64, f64)>,
    /// The options as they are now taken to be.
    options: Vec<CutOption>,
}

impl Corrected {
    pub(super) fn new(options: Vec<CutOption>) -> Corrected {
        let bytes = |option: &CutOption| (option.up_bytes as f64, option.down_bytes as f64);
        Corrected {
            device: Factors::new(options.len()),
            service: Factors::new(options.len()),
            bytes: options.iter().map(bytes).collect(),
            options: options.clone(),
            planned: options,
        }
    }

    pub(super) fn options(&self) -> &[CutOption] {
        &self.options
    }

    /// What a request at `option` took.
    pub(super) fn learn(&mut self, option: usize, outcome: &Outcome) {
        let plan = &self.planned[option];
        let device = plan.head.p50_us + plan.encode.p50_us;
        self.device.learn(option, device, outcome.device_us);
        if !plan.is_local() {
            let service = plan.decode.p50_us + plan.tail(outcome.batch).p50_us;
            self.service.learn(option, service, outcome.service_us);
            let (up, down) = &mut self.bytes[option];
            *up += BYTES_GAIN * (outcome.up_bytes as f64 - *up);
            *down += BYTES_GAIN * (outcome.down_bytes as f64 - *down);
        }
        for index in 0..self.options.len() {
            self.apply(index);
        }
    }

    /// The option at `index` at a service that is at least as fast as the plan has it: what might
    /// be found by asking, where it was slower when it was last asked.
    pub(super) fn at_best(&self, index: usize) -> CutOption {
        self.corrected(index, self.service.of(index).min(1.0))
    }

    /// Another option of the same plan, which is not used here: what all options have in common is
    /// learnt of it too.
    pub(super) fn other(&self, plan: &CutOption) -> CutOption {
        scaled(plan, self.device.shared(), self.service.shared())
    }

    fn apply(&mut self, index: usize) {
        self.options[index] = self.corrected(index, self.service.of(index));
    }

    fn corrected(&self, index: usize, service: f64) -> CutOption {
        let mut option = scaled(&self.planned[index], self.device.of(index), service);
        let (up, down) = self.bytes[index];
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a mean of byte counts; a float saturates where it is cast"
        )]
        {
            (option.up_bytes, option.down_bytes) = (up.round() as u64, down.round() as u64);
        }
        option
    }
}

/// `plan` with its times on the device and in the service multiplied.
fn scaled(plan: &CutOption, device: f64, service: f64) -> CutOption {
    let tail = plan.tail.iter().map(|tail| TailTime {
        batch: tail.batch,
        time: tail.time.scaled(service),
    });
    CutOption {
        head: plan.head.scaled(device),
        encode: plan.encode.scaled(device),
        decode: plan.decode.scaled(service),
        tail: tail.collect(),
        ..plan.clone()
    }
}
