//! How fast every codec is on one thread, and what it saves.
//!
//! `cargo bench -p seamline-codec --features webp` prints a table; with `-- --json`, one line of
//! JSON a row: `ours` in MB/s of the tensor's bytes (10^6), the median over rounds in which all
//! codecs take turns; `spread` is the distance between the quartiles over the median; `compression` is
//! the tensor's bytes over the payload's. The picture is drawn (slopes, edges, a fine pattern, a
//! little noise) and the activation is noise cut off at zero: on real values ratios are others.

use std::hint::black_box;
use std::time::{Duration, Instant};

use seamline_codec::{can_encode, decode_into, encode};
use seamline_plan::{CodecSpec, Tensor};

/// Rounds of each measurement.
const ROUNDS: usize = 15;

/// The least time of one measurement.
const LEAST: Duration = Duration::from_millis(10);

const PICTURE_CODECS: [&str; 11] = [
    "raw", "packed", "png", "jpeg95", "jpeg85", "jpeg75", "jpeg50", "webp90", "webp75", "webp50",
    "zstd",
];

struct Case {
    name: String,
    spec: CodecSpec,
    tensor: Tensor,
    payload: Vec<u8>,
    place: Vec<u8>,
    encode: Vec<f64>,
    decode: Vec<f64>,
}

/// Noise, the same in every run: a linear congruence's high bits.
fn noise(count: usize) -> impl Iterator<Item = u8> {
    let step = |state: &u64| {
        Some(
            state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1),
        )
    };
    let states = std::iter::successors(Some(1u64), step);
    states.map(|state| state.to_le_bytes()[7]).take(count)
}

fn picture(height: usize, width: usize) -> Tensor {
    let sample = |(at, noise): (usize, u8)| {
        let (channel, x, y) = (at % 3, at / 3 % width, at / 3 / width);
        let slope = 40 + (x * (channel + 1) + y * (3 - channel)) / 3 % 160;
        let edge = if (x / 40 + y / 32) % 2 == 0 { 0 } else { 30 };
        let fine = if x > width / 2 {
            (x * 7 + y * 13) % 5
        } else {
            0
        };
        u8::try_from(slope + edge + fine + usize::from(noise % 4)).unwrap_or(u8::MAX)
    };
    let count = height * width * 3;
    let samples = (0..count).zip(noise(count)).map(sample).collect();
    Tensor::from_vec(vec![1, height, width, 3], samples).expect("of its size")
}

fn activation(channels: usize, side: usize) -> Tensor {
    let count = channels * side * side;
    let centred = |byte: u8| f32::from(byte) / 128.0 - 1.0;
    let (a, b) = (
        noise(3 * count).step_by(3),
        noise(3 * count).skip(1).step_by(3),
    );
    let values = a.zip(b).map(|(a, b)| (centred(a) * centred(b)).max(0.0));
    let values = values.take(count).collect();
    Tensor::from_vec(vec![1, channels, side, side], values).expect("of its size")
}

fn case(value: &str, spec: CodecSpec, tensor: &Tensor) -> Case {
    let mut payload = Vec::new();
    encode(&spec, tensor, &mut payload).expect("a codec for this value");
    Case {
        name: format!("{value}/{spec}"),
        spec,
        tensor: tensor.clone(),
        payload,
        place: vec![0; tensor.bytes().len()],
        encode: Vec::new(),
        decode: Vec::new(),
    }
}

/// MB/s of `work`, which goes through `bytes`.
fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut runs = 0u32;
    while runs == 0 || start.elapsed() < LEAST {
        work();
        runs += 1;
    }
    bytes as f64 * f64::from(runs) / start.elapsed().as_secs_f64() / 1e6
}

impl Case {
    fn round(&mut self) -> (f64, f64) {
        let bytes = self.tensor.bytes().len();
        let mut out = Vec::with_capacity(self.payload.len());
        let encoded = rate(bytes, || {
            out.clear();
            encode(&self.spec, black_box(&self.tensor), &mut out).expect("as before");
        });
        let (dtype, shape) = (self.tensor.dtype(), self.tensor.shape());
        let decoded = rate(bytes, || {
            let payload = black_box(&self.payload);
            decode_into(&self.spec, dtype, shape, payload, &mut self.place).expect("as before");
        });
        (encoded, decoded)
    }

    fn print(&self, json: bool) {
        let ratio = self.tensor.bytes().len() as f64 / self.payload.len() as f64;
        for (direction, rates) in [("encode", &self.encode), ("decode", &self.decode)] {
            let median = quantile(rates, 2);
            let spread = (quantile(rates, 3) - quantile(rates, 1)) / median;
            let case = format!("{direction}/{}", self.name);
            if json {
                println!(
                    r#"{{"bench":"codecs","case":"{case}","unit":"MB/s","ours":{median:.1},"spread":{spread:.3},"compression":{ratio:.2}}}"#
                );
            } else {
                println!(
                    "{case:<36} {median:>9.1} MB/s ±{:>3.0} % ratio {ratio:.2}",
                    spread * 100.0
                );
            }
        }
    }
}

/// The value at a quarter's multiple of the sorted rates.
fn quantile(rates: &[f64], quarter: usize) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) * quarter / 4]
}

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    let mut cases = Vec::new();
    for (value, tensor) in [
        ("picture-224x224", picture(224, 224)),
        ("picture-1280x720", picture(720, 1280)),
    ] {
        let specs = PICTURE_CODECS.into_iter().filter_map(CodecSpec::from_name);
        let (here, absent): (Vec<_>, Vec<_>) = specs.partition(can_encode);
        for spec in absent {
            eprintln!("skipped: {spec}: built without the feature `webp`");
        }
        cases.extend(here.into_iter().map(|spec| case(value, spec, &tensor)));
    }
    let tensor = activation(64, 56);
    let specs = [
        CodecSpec::Raw,
        CodecSpec::F16,
        CodecSpec::Int8 { axis: 1 },
        CodecSpec::Zstd,
    ];
    cases.extend(specs.map(|spec| case("f32-64x56x56", spec, &tensor)));
    for round in 0..=ROUNDS {
        for case in &mut cases {
            let (encode, decode) = case.round();
            // The first round warms up caches, pages and dispatch.
            if round > 0 {
                case.encode.push(encode);
                case.decode.push(decode);
            }
        }
    }
    cases.iter().for_each(|case| case.print(json));
}
