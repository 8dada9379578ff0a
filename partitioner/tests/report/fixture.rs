//! Plans to draw: the seams of a real model with costs that are made up.

use seamline_partitioner::plan::{
    AttackRecord, Candidate, Constraints, Leakage, MachineRecord, MeasuredRun, MetricRecord,
    PLAN_FORMAT, Placement, PlanRecord,
};
use seamline_plan::{
    Bindings, CutOption, Fingerprint, Latency, LinkModel, Load, Machine, Objective, Prices, Spread,
    TailTime,
};

/// The seams of the zoo's `orientation` as `seamline seams` lists them: percent of the work before
/// them, elements of the value that crosses, its name.
const SEAMS: &str = "\
    3.42 200704 conv2d.0.0; 3.55 200704 batch_norm_.0.0; 3.61 200704 hardswish.0.0; \
    4.76 200704 depthwise_conv2d.0.0; 4.88 200704 batch_norm_.1.0; 4.95 200704 hardswish.1.0; \
    9 401408 conv2d.1.0; 9.26 401408 batch_norm_.2.0; 9.38 401408 hardswish.2.0; \
    9.96 100352 depthwise_conv2d.1.0; 10.02 100352 batch_norm_.3.0; 10.05 100352 hardswish.3.0; \
    14.11 200704 conv2d.2.0; 14.24 200704 batch_norm_.4.0; 14.3 200704 hardswish.4.0; \
    15.44 200704 depthwise_conv2d.2.0; 15.57 200704 batch_norm_.5.0; \
    15.63 200704 hardswish.5.0; 23.75 200704 conv2d.3.0; 23.87 200704 batch_norm_.6.0; \
    23.94 200704 hardswish.6.0; 24.22 50176 depthwise_conv2d.3.0; 24.25 50176 batch_norm_.7.0; \
    24.27 50176 hardswish.7.0; 28.33 100352 conv2d.4.0; 28.39 100352 batch_norm_.8.0; \
    28.42 100352 hardswish.8.0; 28.99 100352 depthwise_conv2d.4.0; \
    29.06 100352 batch_norm_.9.0; 29.09 100352 hardswish.9.0; 37.21 100352 conv2d.5.0; \
    37.27 100352 batch_norm_.10.0; 37.3 100352 hardswish.10.0; \
    37.44 25088 depthwise_conv2d.5.0; 37.46 25088 batch_norm_.11.0; 37.47 25088 hardswish.11.0; \
    41.53 50176 conv2d.6.0; 41.56 50176 batch_norm_.12.0; 41.57 50176 hardswish.12.0; \
    42.37 50176 depthwise_conv2d.6.0; 42.4 50176 batch_norm_.13.0; 42.41 50176 hardswish.13.0; \
    50.53 50176 conv2d.7.0; 50.56 50176 batch_norm_.14.0; 50.58 50176 hardswish.14.0; \
    51.37 50176 depthwise_conv2d.7.0; 51.4 50176 batch_norm_.15.0; 51.42 50176 hardswish.15.0; \
    59.53 50176 conv2d.8.0; 59.57 50176 batch_norm_.16.0; 59.58 50176 hardswish.16.0; \
    60.37 50176 depthwise_conv2d.8.0; 60.41 50176 batch_norm_.17.0; 60.42 50176 hardswish.17.0; \
    68.54 50176 conv2d.9.0; 68.57 50176 batch_norm_.18.0; 68.59 50176 hardswish.18.0; \
    69.38 50176 depthwise_conv2d.9.0; 69.41 50176 batch_norm_.19.0; 69.43 50176 hardswish.19.0; \
    77.54 50176 conv2d.10.0; 77.57 50176 batch_norm_.20.0; 77.59 50176 hardswish.20.0; \
    78.38 50176 depthwise_conv2d.10.0; 78.41 50176 batch_norm_.21.0; \
    78.43 50176 hardswish.21.0; 86.55 50176 conv2d.11.0; 86.58 50176 batch_norm_.22.0; \
    86.59 50176 hardswish.22.0; 86.79 12544 depthwise_conv2d.11.0; 86.8 12544 batch_norm_.23.0; \
    86.8 12544 hardswish.23.0; 86.83 12544 Mul.1; 90.89 25088 conv2d.14.0; \
    90.91 25088 batch_norm_.24.0; 90.91 25088 hardswish.24.0; \
    91.31 25088 depthwise_conv2d.12.0; 91.33 25088 batch_norm_.25.0; \
    91.33 25088 hardswish.25.0; 91.43 25088 Mul.3; 99.55 25088 conv2d.17.0; \
    99.57 25088 batch_norm_.26.0; 99.57 25088 hardswish.26.0; 99.58 512 pool2d.2.0; \
    100 1280 conv2d.18.0; 100 1280 hardswish.27.0; 100 1280 dropout.0.0; 100 4 matmul.0.0; \
    100 4 Add.9";

/// Elements of its input.
const INPUT: u64 = 3 * 224 * 224;

/// A codec's name, bytes an element, what it takes of the accuracy, and nanoseconds an element.
type Codec = (&'static str, f64, f64, f64);

const CODECS: [Codec; 5] = [
    ("raw", 4.0, 0.0, 0.02),
    ("f16", 2.0, 0.0, 0.15),
    ("int8", 1.0, 0.002, 0.4),
    ("int8-packed", 0.62, 0.002, 1.6),
    ("int4", 0.5, 0.019, 0.7),
];

/// Times of the whole model, in microseconds.
const DEVICE_US: f64 = 78_000.0;
const SERVICE_US: f64 = 6_400.0;

/// A plan of `orientation` on Wi-Fi: every seam, every codec; some of them measured.
pub(crate) fn example() -> PlanRecord {
    let seams: Vec<(f64, u64, String)> = SEAMS
        .split("; ")
        .map(|seam| {
            let mut words = seam.split(' ');
            let percent: f64 = words.next().unwrap().parse().unwrap();
            let elements = words.next().unwrap().parse().unwrap();
            (percent / 100.0, elements, words.next().unwrap().to_owned())
        })
        .collect();
    let mut record = plan("orientation", &seams, &CODECS);
    measure(&mut record);
    record
}

/// A plan with as many candidates as a large model has: 250 seams, 12 codecs.
pub(crate) fn large() -> PlanRecord {
    large_of(250)
}

/// A plan of so many cuts, twelve candidates each and the device alone.
pub(crate) fn large_of(cuts: u32) -> PlanRecord {
    let seams: Vec<(f64, u64, String)> = (1..cuts)
        .map(|index| {
            let depth = f64::from(index) / f64::from(cuts);
            let name = format!(
                "/encoder/layer.{}/attention/self/MatMul_output_{index}",
                index / 8
            );
            (depth, 197 * 384, name)
        })
        .collect();
    let names = [
        "raw",
        "f16",
        "int8",
        "int7",
        "int6",
        "int5",
        "int4",
        "int3",
        "int2",
        "int8-packed",
        "int6-packed",
        "int4-packed",
    ];
    let codecs: Vec<Codec> = names
        .iter()
        .zip(0..)
        .map(|(name, index)| {
            (
                *name,
                4.0 / f64::from(1 + index),
                0.001 * f64::from(index),
                0.4,
            )
        })
        .collect();
    plan("vit-large", &seams, &codecs)
}

/// The plan of a model that is cut at `seams`, each sent by each of `codecs`, for Wi-Fi.
pub(crate) fn plan(model: &str, seams: &[(f64, u64, String)], codecs: &[Codec]) -> PlanRecord {
    let link = LinkModel::preset("wifi").unwrap();
    let mut random = fastrand::Rng::with_seed(4);
    let mut candidates = Vec::new();
    for codec in codecs {
        let placement = if codec.0 == "raw" {
            Placement::CloudRaw
        } else {
            Placement::CloudCompressed
        };
        candidates.push(candidate(
            &link,
            placement,
            "input",
            (0.0, INPUT, "x"),
            *codec,
            &mut random,
        ));
    }
    for (index, (depth, elements, name)) in seams.iter().enumerate() {
        for codec in codecs {
            let (cut, seam) = (format!("s{index}"), (*depth, *elements, name.as_str()));
            candidates.push(candidate(
                &link,
                Placement::Split,
                &cut,
                seam,
                *codec,
                &mut random,
            ));
        }
    }
    let none = ("", 0.0, 0.0, 0.0);
    candidates.push(candidate(
        &link,
        Placement::Device,
        "output",
        (1.0, 0, ""),
        none,
        &mut random,
    ));
    let constraints = Constraints {
        accuracy_loss: Some(0.01),
        ..Constraints::default()
    };
    weigh(&mut candidates, &constraints);
    let best = |candidates: &[Candidate]| {
        let keeping = candidates
            .iter()
            .filter(|candidate| candidate.breaks.is_empty());
        keeping
            .min_by(|a, b| a.score.total_cmp(&b.score))
            .unwrap()
            .id
            .clone()
    };
    let chosen = best(&candidates);
    PlanRecord {
        format: PLAN_FORMAT,
        model: model.into(),
        graph_hash: Fingerprint::of(model.as_bytes()),
        shapes: Bindings::from([("N".into(), 1)]),
        objective: Objective::Latency,
        constraints,
        link,
        device: machine("raspberry-pi-5", "Cortex-A76", "aarch64-linux", 4, 12.5),
        cloud: machine("cloud-4c", "AMD EPYC 9B45", "x86_64-linux", 4, 1.0),
        prices: Prices::default(),
        arrivals_per_s: 12.0,
        metric: Some(MetricRecord {
            name: "top-1 accuracy".into(),
            higher_is_better: true,
            baseline: 0.995,
            samples: 200,
        }),
        attack: Some(AttackRecord {
            name: "ridge regression to a 32 × 32 picture".into(),
            at_input: 0.993,
            trained_on: 160,
            tried_on: 40,
        }),
        candidates,
        reason: vec![
            format!("{chosen} has the least latency of all candidates that keep the constraints."),
            "Sending the compressed input takes longer, and so does staying on the device.".into(),
        ],
        notes: vec![
            "This is a fixture: the seams are a real model's, the costs are made up.".into(),
            "The device's profile is another machine's, scaled by 12.5.".into(),
        ],
        chosen,
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "figures of the fixture, far below 2^53"
)]
fn whole(value: f64) -> u64 {
    value as u64
}

fn machine(name: &str, cpu: &str, platform: &str, cores: usize, slowdown: f64) -> MachineRecord {
    MachineRecord {
        machine: Machine {
            name: name.into(),
            cpu: cpu.into(),
            cores,
            platform: platform.into(),
            memory_bytes: 8 << 30,
            runtime: "ONNX Runtime 1.32.0".into(),
            providers: vec!["CPUExecutionProvider".into()],
            kernels: vec!["scalar".into()],
        },
        slowdown,
        threads: cores,
    }
}

fn candidate(
    link: &LinkModel,
    placement: Placement,
    cut: &str,
    (depth, elements, value): (f64, u64, &str),
    (codec, bytes, loss, ns): Codec,
    random: &mut fastrand::Rng,
) -> Candidate {
    let spread = |us: f64| Spread {
        p50_us: us,
        p95_us: us * 1.18,
        samples: 40,
    };
    let codec_us = elements as f64 * ns / 1e3;
    let is_local = placement == Placement::Device;
    let tail = |batch: u64| TailTime {
        batch,
        time: spread(1.0 + SERVICE_US * (1.0 - depth) * (0.35 + 0.65 * batch as f64)),
    };
    let option = CutOption {
        cut: cut.into(),
        codec: (!is_local).then(|| codec.into()),
        head: spread(DEVICE_US * depth * (0.98 + 0.04 * random.f64())),
        encode: spread(codec_us * 12.5),
        up_bytes: whole(elements as f64 * bytes) + if is_local { 0 } else { 24 },
        decode: spread(codec_us),
        tail: if is_local {
            Vec::new()
        } else {
            vec![tail(1), tail(8)]
        },
        down_bytes: if is_local { 0 } else { 40 },
        overhead: spread(650.0),
    };
    let (load, prices) = (
        Load {
            queue_us: 900.0,
            batch: 1.4,
        },
        Prices::default(),
    );
    let lost = if is_local || depth == 0.0 {
        loss
    } else {
        loss * (0.4 + 1.2 * random.f64())
    };
    Candidate {
        id: if is_local {
            "device".into()
        } else {
            format!("{cut}/{codec}")
        },
        placement,
        cut: cut.into(),
        values: if is_local {
            Vec::new()
        } else {
            vec![value.into()]
        },
        codec: option.codec.clone(),
        precision: "f32".into(),
        depth,
        measured_whole: random.u8(..) < 90,
        latency: option.latency(&link.usual(), &load),
        latency_p95_us: option.latency_p95_us(link, &load),
        energy_j: option.energy_j(link, &load, &prices),
        up_bytes: option.up_bytes,
        down_bytes: option.down_bytes,
        cloud_usd_per_thousand: option.cloud_usd_per_thousand(&load, &prices, 1),
        throughput_per_s: option.throughput_per_s(&link.usual(), &load, 1),
        device_memory: Some(38_000_000 + whole(46_000_000.0 * depth.powf(1.4))),
        accuracy: Some(0.995 - (lost * 1000.0).round() / 1000.0),
        leakage: (!is_local).then(|| {
            let recovered = 0.993 * (1.0 - 0.9 * depth) * (1.0 - 4.0 * loss) - 0.02 * random.f64();
            Leakage {
                recovered,
                psnr_db: Some(11.0 - 10.0 * (1.0 - recovered).log10()),
            }
        }),
        score: option.score(Objective::Latency, link, &load, &prices, 1),
        breaks: Vec::new(),
        pareto: false,
        kept: false,
        measured: None,
    }
}

/// Finds what breaks the accuracy limit, and the Pareto set of the others.
fn weigh(candidates: &mut [Candidate], constraints: &Constraints) {
    for candidate in &mut *candidates {
        let loss = 0.995 - candidate.accuracy.unwrap();
        let most = constraints.accuracy_loss.unwrap();
        if loss > most {
            candidate
                .breaks
                .push(format!("accuracy loss {loss:.3} is over {most}"));
        }
    }
    let figures = |candidate: &Candidate| {
        [
            candidate.score,
            candidate.energy_j,
            candidate.up_bytes as f64,
            candidate.cloud_usd_per_thousand,
            -candidate.accuracy.unwrap(),
            candidate.leakage.map_or(0.0, |leakage| leakage.recovered),
        ]
    };
    let all: Vec<[f64; 6]> = candidates
        .iter()
        .filter(|candidate| candidate.breaks.is_empty())
        .map(figures)
        .collect();
    for candidate in candidates {
        let own = figures(candidate);
        let is_beaten = all.iter().any(|other| {
            let mut pairs = other.iter().zip(&own);
            pairs.all(|(other, own)| other <= own) && *other != own
        });
        candidate.pareto = candidate.breaks.is_empty() && !is_beaten;
    }
}

/// Measures every nineteenth candidate, and the choice.
fn measure(record: &mut PlanRecord) {
    let mut random = fastrand::Rng::with_seed(7);
    for (index, candidate) in record.candidates.iter_mut().enumerate() {
        if index % 19 != 0 && candidate.id != record.chosen {
            continue;
        }
        let mut differs = |us: f64| us * (0.93 + 0.16 * random.f64());
        let predicted = candidate.latency;
        let latency = Latency {
            edge_us: differs(predicted.edge_us),
            encode_us: differs(predicted.encode_us),
            send_us: differs(predicted.send_us + predicted.answer_us),
            queue_us: differs(predicted.queue_us),
            decode_us: differs(predicted.decode_us),
            tail_us: differs(predicted.tail_us),
            answer_us: 0.0,
            overhead_us: differs(predicted.overhead_us),
        };
        candidate.kept = true;
        candidate.measured = Some(MeasuredRun {
            latency,
            p95_us: latency.total_us() * 1.3,
            requests: 50,
        });
    }
}
