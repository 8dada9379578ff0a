//! The first law: head then tail gives the whole model's answer.
//!
//! One test a model and kind, so that they run side by side. Each prints what it covered.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::io::Write;
use std::sync::Mutex;

use seamline_cloud::{Contract, Input, OrtTail, run_batch};
use seamline_codec as codec;
use seamline_graph::seams::Seam;
use seamline_ort::{Optimization, SessionOptions, StageChain};
use seamline_partitioner::{
    BATCH_TOLERANCE, BatchVerdict, Difference, VerifyOptions, compare, find_seams, verify,
};
use seamline_plan::{Bundle, Side, Tensor};
use seamline_tests::law::split_differences;
use seamline_tests::{cut, draw, middle, model, runtime};
use seamline_wire::{RequestHeader, TensorHeader};

/// |difference| / max(1, |whole|) with the runtime's optimisations off; 0 is expected.
const MAX_REL: f64 = 1e-5;

/// Of the probe inputs.
const SEED: u64 = 7;

/// Seams and models that were tried in this process.
struct Covered(Mutex<(usize, usize)>);

static COVERED: Covered = Covered(Mutex::new((0, 0)));

impl Covered {
    /// Adds a model with some seams; returns both sums.
    fn add(&self, seams: usize) -> (usize, usize) {
        let mut covered = self.0.lock().unwrap();
        *covered = (covered.0 + seams, covered.1 + 1);
        *covered
    }
}

/// Which seams of a model are tried.
#[derive(Clone, Copy)]
enum Which {
    Every,
    Sampled(usize),
}

/// The seams that `which` takes, spread over the list, its ends included.
fn choose(listed: Vec<Seam>, which: Which) -> Vec<Seam> {
    match which {
        Which::Sampled(count) if count < listed.len() => {
            let last = listed.len() - 1;
            (0..count)
                .map(|index| listed[index * last / (count - 1)].clone())
                .collect()
        }
        _ => listed,
    }
}

/// Head then tail against the whole at the seams that `which` takes, nothing optimised.
fn seams_equal_whole(name: &str, which: Which) {
    let model = model(name);
    let listed = find_seams(&model, &[]).expect("seams").listed;
    let total = listed.len();
    let seams = choose(listed, which);
    let least = match which {
        Which::Every => total.max(1),
        Which::Sampled(count) => count.min(total).max(3),
    };
    assert!(
        seams.len() >= least,
        "{name}: {} of {total} seams, wanted {least}",
        seams.len()
    );
    let mut worst = Difference::default();
    for found in split_differences(&model, &seams, &[draw(&model, SEED)]) {
        assert!(found.holds(MAX_REL), "{name}: {found:?} (seed {SEED})");
        worst = found.result.map_or(worst, |(_, other)| worst.max(other));
    }
    let covered = seams.len();
    let (seams, models) = COVERED.add(covered);
    let line = format!(
        "split equals whole: {name}, {covered} of {total} seams, max_rel {:e}; so far {seams} seams of {models} models\n",
        worst.max_rel
    );
    // Past the test harness, which keeps what a passing test prints to itself.
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Case 9: at every optimisation level, within twice the whole model's own spread across levels.
fn levels_keep_the_split(name: &str) {
    let model = model(name);
    let inputs = draw(&model, SEED);
    let wholes: Vec<Vec<Tensor>> = Optimization::ALL
        .iter()
        .map(|&level| {
            let mut session = model.session(&runtime(), level).unwrap();
            model.run(&mut session, &inputs).unwrap()
        })
        .collect();
    let spread = wholes
        .iter()
        .flat_map(|a| wholes.iter().map(move |b| (a, b)));
    let spread = spread
        .flat_map(|(a, b)| a.iter().zip(b).map(|(a, b)| compare(a, b)))
        .fold(Difference::default(), Difference::max);
    let seam = middle(&model);
    let folder = tempfile::tempdir().unwrap();
    let report = cut(&model, &folder.path().join("m.seam"), &[&seam.id], |_| {});
    let mut seen = Vec::new();
    for level in Optimization::ALL {
        let options = VerifyOptions {
            optimization: level,
            codec: Some("raw".into()),
            ..VerifyOptions::default()
        };
        let cuts = verify(
            &runtime(),
            &report.path,
            &model,
            std::slice::from_ref(&inputs),
            &options,
        )
        .unwrap();
        let worst = cuts
            .iter()
            .flat_map(|cut| &cut.outputs)
            .map(|o| o.max_rel)
            .fold(0.0, f64::max);
        let bound = if level == Optimization::Off {
            MAX_REL
        } else {
            2.0 * spread.max_rel
        };
        assert!(
            worst <= bound.max(MAX_REL),
            "{name} at {}, {level:?}: {worst:e} > {bound:e} (seed {SEED})",
            seam.id
        );
        seen.push(worst);
    }
    eprintln!(
        "levels: {name} at {}, max_rel {seen:?}, own spread {:e}",
        seam.id, spread.max_rel
    );
}

/// Two requests computed together by the service equal the two computed apart, where joining is
/// proven. Returns whether it is.
fn rows_join(name: &str) -> bool {
    let model = model(name);
    let seam = middle(&model);
    let folder = tempfile::tempdir().unwrap();
    let report = cut(&model, &folder.path().join("m.seam"), &[&seam.id], |_| {});
    let verdict = &report.batching[0].verdict;
    let (index, cut) = report.manifest.cut(&report.manifest.default_cut).unwrap();
    assert_eq!(
        cut.is_batchable(),
        matches!(verdict, BatchVerdict::Proven { .. }),
        "{verdict:?}"
    );
    eprintln!("batching: {name} at {}, {verdict:?}", seam.id);
    if !cut.is_batchable() {
        return false;
    }
    let options = SessionOptions::default();
    let edge = Bundle::open(&report.path, Side::Edge).unwrap();
    let cloud = Bundle::open(&report.path, Side::Cloud).unwrap();
    let mut head = StageChain::load(&runtime(), &edge, &options).unwrap();
    let mut tail = OrtTail::load(&runtime(), &cloud, &options).unwrap();
    let contract = Contract::new(cloud, 64);
    let mut encode = |seed: u64| {
        let mut values = draw(&model, seed);
        head.run(0..cut.stage, &mut values).unwrap();
        let encoded = cut.crossing.iter().map(|crossing| {
            let tensor = &values[&crossing.spec.name];
            let spec = &crossing.codecs[0];
            let payload = codec::encode_bytes(spec, tensor).unwrap();
            let header = TensorHeader {
                codec: spec.id(),
                dtype: tensor.dtype().code(),
                shape: tensor.shape().iter().map(|&dim| dim as u64).collect(),
                bytes: payload.len() as u64,
            };
            (header, payload)
        });
        let (tensors, payloads): (Vec<_>, Vec<_>) = encoded.unzip();
        let header = RequestHeader {
            cut: u16::try_from(index).unwrap(),
            tensors,
            ..RequestHeader::default()
        };
        (contract.check(0, &header).unwrap(), payloads)
    };
    let requests = [encode(SEED), encode(SEED + 1)];
    let inputs: Vec<Input<'_>> = requests
        .iter()
        .map(|(request, payloads)| Input { request, payloads })
        .collect();
    let together = run_batch(&contract, index, &mut tail, &inputs, None);
    for (row, together) in together.into_iter().enumerate() {
        let together = together.unwrap();
        assert_eq!(together.timings.batch_size, 2);
        let apart = run_batch(&contract, index, &mut tail, &inputs[row..=row], None);
        let apart = apart.into_iter().next().unwrap().unwrap();
        let pairs = together.outputs.iter().zip(&apart.outputs);
        for (reply, ((a, together), (b, apart))) in cut.replies.iter().zip(pairs) {
            assert_eq!((a.dtype, &a.shape), (b.dtype, &b.shape));
            let shape: Vec<usize> = a
                .shape
                .iter()
                .map(|&dim| usize::try_from(dim).unwrap())
                .collect();
            let tensor = |bytes: &bytes::Bytes| {
                codec::decode(&reply.codec, a.dtype().unwrap(), &shape, bytes).unwrap()
            };
            let difference = compare(&tensor(apart), &tensor(together));
            assert!(
                difference.max_rel <= BATCH_TOLERANCE,
                "{name}, row {row}: {difference:?} (seed {SEED})"
            );
        }
    }
    true
}

macro_rules! laws {
    ($($module:ident: $name:literal, $which:expr, joins $joins:literal;)*) => {$(
        mod $module {
            use super::*;

            #[test]
            fn seams_equal_whole() {
                super::seams_equal_whole($name, $which);
            }

            #[test]
            fn case_09_levels_keep_the_split() {
                super::levels_keep_the_split($name);
            }

            #[test]
            fn rows_join_where_proven() {
                assert_eq!(super::rows_join($name), $joins);
            }
        }
    )*};
}

laws! {
    orientation: "orientation", Which::Every, joins true;
    ocr_rec: "ocr-rec", Which::Every, joins true;
    ocr_cls: "ocr-cls", Which::Every, joins true;
    minilm_l3: "minilm-l3", Which::Every, joins true;
    vad_seq: "vad-seq", Which::Every, joins false;
    ocr_det: "ocr-det", Which::Sampled(8), joins true;
    layout: "layout", Which::Sampled(6), joins false;
    vit_s: "vit-s", Which::Sampled(6), joins true;
    vad_if: "vad-if", Which::Sampled(8), joins true;
    minilm_l6_int8: "minilm-l6-int8", Which::Sampled(8), joins true;
}
