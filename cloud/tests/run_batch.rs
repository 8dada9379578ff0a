//! A batch whose payloads do not all decode: each request gets its own answer, whoever it was
//! batched with.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use seamline_cloud::{Contract, Input, StateSlot, Tail, TailError, Values, run_batch};
use seamline_plan::{
    Bundle, BundleWriter, CodecSpec, Crossing, Cut, DType, Fingerprint, MANIFEST_FORMAT, Manifest,
    ModelInfo, Reply, Side, Stage, TensorSpec,
};
use seamline_wire::{ErrorCode, RequestHeader, TensorHeader};

/// `y = x`.
struct Copy;

impl Tail for Copy {
    fn run(
        &mut self,
        _: Range<usize>,
        values: &mut Values,
        _: Option<&mut StateSlot>,
    ) -> Result<(), TailError> {
        let x = values["x"].clone();
        values.insert("y".into(), x);
        Ok(())
    }
}

fn contract(folder: &Path, batch_axis: Option<usize>) -> Contract {
    let spec = |name: &str| TensorSpec {
        name: name.into(),
        dtype: DType::F32,
        shape: vec!["N".into(), 2.into()],
    };
    let manifest = Manifest {
        format: MANIFEST_FORMAT,
        model: ModelInfo {
            name: "copy".into(),
            graph_hash: Fingerprint::of(b"copy"),
            metadata: Default::default(),
        },
        inputs: vec![spec("x")],
        outputs: vec![spec("y")],
        states: Vec::new(),
        stages: vec![Stage {
            inputs: vec!["x".into()],
            outputs: vec!["y".into()],
            nodes: 1,
            edge: None,
            cloud: Some("cloud/stage0.onnx".into()),
        }],
        cuts: vec![Cut {
            id: "input".into(),
            stage: 0,
            depth: 0.0,
            crossing: vec![Crossing {
                spec: spec("x"),
                codecs: vec![CodecSpec::Int8 { axis: 1 }],
                batch_axis,
                reference: vec![1, 2],
            }],
            replies: vec![Reply {
                spec: spec("y"),
                codec: CodecSpec::Raw,
                batch_axis,
            }],
        }],
        default_cut: "input".into(),
        files: Vec::new(),
    };
    let root = folder.join("copy.seam");
    let mut writer = BundleWriter::create(&root).unwrap();
    writer.add("cloud/stage0.onnx", b"not run here").unwrap();
    writer.finish(manifest).unwrap();
    Contract::new(Bundle::open(&root, Side::Cloud).unwrap(), 64)
}

/// One row: two scales, two levels.
fn payload(scale: f32, level: i8) -> Bytes {
    let mut bytes = [scale.to_le_bytes(), scale.to_le_bytes()].concat();
    bytes.extend([level.cast_unsigned(); 2]);
    Bytes::from(bytes)
}

fn header(rows: u64) -> RequestHeader {
    let tensor = TensorHeader {
        codec: 2,
        dtype: 1,
        shape: vec![rows, 2],
        bytes: 8 + 2 * rows,
    };
    RequestHeader {
        tensors: vec![tensor],
        ..RequestHeader::default()
    }
}

/// Runs one request a payload, together; the first element of each answer, or its error code.
fn run(batch_axis: Option<usize>, payloads: &[Bytes]) -> Vec<Result<f32, ErrorCode>> {
    let folder = tempfile::tempdir().unwrap();
    let contract = contract(folder.path(), batch_axis);
    let checked = contract.check(0, &header(1)).unwrap();
    let inputs: Vec<Input<'_>> = payloads
        .iter()
        .map(|payload| Input {
            request: &checked,
            payloads: std::slice::from_ref(payload),
        })
        .collect();
    let answers = run_batch(&contract, 0, &mut Copy, &inputs, None).into_iter();
    let first = |bytes: &Bytes| f32::from_le_bytes(bytes[..4].try_into().unwrap());
    answers
        .map(|answer| match answer {
            Ok(answer) => Ok(first(&answer.outputs[0].1)),
            Err(failure) => Err(failure.code),
        })
        .collect()
}

#[test]
fn a_payload_that_does_not_decode_fails_its_own_request_only() {
    let good = |level| payload(1.0, level);
    let bad = payload(f32::NAN, 1);
    let invalid = Err(ErrorCode::InvalidTensor);
    let batch = Some(0);
    assert_eq!(run(batch, &[good(3)]), [Ok(3.0)]);
    assert_eq!(run(batch, std::slice::from_ref(&bad)), [invalid]);
    assert_eq!(
        run(batch, &[bad.clone(), bad.clone(), bad.clone()]),
        [invalid; 3]
    );
    assert_eq!(
        run(batch, &[good(1), bad.clone(), good(2), bad.clone()]),
        [Ok(1.0), invalid, Ok(2.0), invalid]
    );
    assert_eq!(
        run(None, std::slice::from_ref(&bad)),
        [invalid],
        "also where nothing is joined"
    );
}

#[test]
fn case_33_rows_stay_with_their_requests() {
    let levels = [5i8, -7, 127, 0, 1, -127];
    let payloads: Vec<Bytes> = levels.iter().map(|&level| payload(1.0, level)).collect();
    let expected: Vec<Result<f32, ErrorCode>> =
        levels.iter().map(|&level| Ok(f32::from(level))).collect();
    assert_eq!(run(Some(0), &payloads), expected);
}

#[test]
fn a_row_far_beyond_the_reference_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let contract = contract(folder.path(), None);
    assert!(contract.check(0, &header(64)).is_ok());
    let refusal = contract.check(0, &header(65)).unwrap_err();
    assert_eq!(refusal.code, ErrorCode::LimitExceeded);
    assert!(
        refusal.message.contains("at most 64 times"),
        "{}",
        refusal.message
    );
}
