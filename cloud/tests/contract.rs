//! Every field of a request's header is held to the contract before its payload is received.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::ops::Range;
use std::path::Path;

use bytes::Bytes;
use seamline_cloud::{Contract, Input, StateSlot, Tail, TailError, Values, run_batch};
use seamline_plan::{
    Bundle, BundleWriter, CodecSpec, Crossing, Cut, DType, Dim, Fingerprint, MANIFEST_FORMAT,
    Manifest, ModelInfo, Reply, Side, Stage, TensorSpec,
};
use seamline_wire::{ErrorCode, RequestHeader, TensorHeader};

const MOST: u32 = 4;

fn spec(name: &str, dtype: DType, shape: Vec<Dim>) -> TensorSpec {
    TensorSpec {
        name: name.into(),
        dtype,
        shape,
    }
}

fn crossing(spec: TensorSpec, codecs: Vec<CodecSpec>, reference: &[u64]) -> Crossing {
    Crossing {
        spec,
        codecs,
        batch_axis: Some(0),
        reference: reference.to_vec(),
    }
}

/// A sequence model: activations, a mask and ids, all of batch `N` and length `L`; and the same
/// with the boxes that a detector found, as many as there are.
fn contract(folder: &Path) -> Contract {
    let n_l = || vec![Dim::from("N"), Dim::from("L")];
    let x = spec("x", DType::F32, vec!["N".into(), "L".into(), 4.into()]);
    let int8 = CodecSpec::Int8 { axis: 2 };
    let values = vec![
        crossing(x, vec![CodecSpec::Raw, CodecSpec::F16, int8], &[1, 8, 4]),
        crossing(
            spec("mask", DType::Bool, n_l()),
            vec![CodecSpec::Packed, CodecSpec::Raw],
            &[1, 8],
        ),
        crossing(
            spec("ids", DType::I64, n_l()),
            vec![CodecSpec::Packed],
            &[1, 8],
        ),
    ];
    let boxes = Crossing {
        batch_axis: None,
        ..crossing(
            spec("boxes", DType::F32, vec![Dim::Unknown, 4.into()]),
            vec![CodecSpec::Raw],
            &[10, 4],
        )
    };
    let cut = |id: &str, crossing: Vec<Crossing>| Cut {
        id: id.into(),
        stage: 0,
        depth: 0.0,
        crossing,
        replies: vec![Reply {
            spec: spec("y", DType::F32, vec!["N".into(), "L".into(), 4.into()]),
            codec: CodecSpec::Raw,
            batch_axis: Some(0),
        }],
    };
    let with_boxes = [values.clone(), vec![boxes]].concat();
    let end = Cut {
        stage: 1,
        replies: Vec::new(),
        crossing: Vec::new(),
        ..cut("end", Vec::new())
    };
    let manifest = Manifest {
        format: MANIFEST_FORMAT,
        model: ModelInfo {
            name: "sequence".into(),
            graph_hash: Fingerprint::of(b"sequence"),
            metadata: Default::default(),
        },
        inputs: with_boxes.iter().map(|c| c.spec.clone()).collect(),
        outputs: vec![spec("y", DType::F32, vec![Dim::Unknown])],
        states: Vec::new(),
        stages: vec![Stage {
            inputs: ["x", "mask", "ids"].map(str::to_owned).to_vec(),
            outputs: vec!["y".into()],
            nodes: 1,
            edge: None,
            cloud: Some("cloud/stage0.onnx".into()),
        }],
        cuts: vec![cut("input", values), cut("boxes", with_boxes), end],
        default_cut: "input".into(),
        files: Vec::new(),
    };
    let root = folder.join("sequence.seam");
    let mut writer = BundleWriter::create(&root).unwrap();
    writer.add("cloud/stage0.onnx", b"not run here").unwrap();
    writer.finish(manifest).unwrap();
    Contract::new(Bundle::open(&root, Side::Cloud).unwrap(), MOST)
}

fn tensor(codec: u8, dtype: DType, shape: &[u64], bytes: u64) -> TensorHeader {
    TensorHeader {
        codec,
        dtype: dtype.code(),
        shape: shape.to_vec(),
        bytes,
    }
}

/// Two rows of length 3: x raw, mask packed, ids packed in a byte each.
fn good() -> RequestHeader {
    RequestHeader {
        tensors: vec![
            tensor(0, DType::F32, &[2, 3, 4], 96),
            tensor(3, DType::Bool, &[2, 3], 1),
            tensor(3, DType::I64, &[2, 3], 15),
        ],
        ..RequestHeader::default()
    }
}

type Edit = fn(&mut RequestHeader);

fn refused(contract: &Contract, edit: Edit) -> (ErrorCode, String) {
    let mut header = good();
    edit(&mut header);
    match contract.check(0, &header) {
        Ok(checked) => panic!("accepted: {header:?} as {checked:?}"),
        Err(refusal) => (refusal.code, refusal.message),
    }
}

fn check_refusals(refusals: &[(Edit, ErrorCode, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    let contract = contract(folder.path());
    for (edit, code, part) in refusals {
        let (got, message) = refused(&contract, *edit);
        assert!(message.contains(part), "{part:?} is not in: {message}");
        assert_eq!(got, *code, "{message}");
    }
}

#[test]
fn what_fits_is_accepted_in_every_codec() {
    let folder = tempfile::tempdir().unwrap();
    let contract = contract(folder.path());
    let accepted = |edit: Edit| {
        let mut header = good();
        edit(&mut header);
        contract.check(0, &header).unwrap()
    };
    let plain = accepted(|_| {});
    assert_eq!((plain.rows, plain.batchable), (2, true));
    accepted(|h| h.tensors[0] = tensor(1, DType::F32, &[2, 3, 4], 48));
    accepted(|h| h.tensors[0] = tensor(2, DType::F32, &[2, 3, 4], 40));
    accepted(|h| h.tensors[1] = tensor(0, DType::Bool, &[2, 3], 6));
    accepted(|h| h.tensors[2].bytes = 9);
    accepted(|h| h.tensors[2].bytes = 57);
    // A detector that found nothing.
    let none = accepted(|h| {
        h.cut = 1;
        h.tensors.push(tensor(0, DType::F32, &[0, 4], 0));
    });
    assert!(!none.batchable);
}

#[test]
fn case_14_every_field_of_a_tensor_is_held_to_the_contract() {
    use ErrorCode::{InvalidTensor, LimitExceeded};
    check_refusals(&[
        (|h| h.tensors.truncate(2), InvalidTensor, "2 tensors came"),
        (
            |h| h.tensors.push(h.tensors[0].clone()),
            InvalidTensor,
            "4 tensors came; cut `input` takes 3: x, mask, ids",
        ),
        (|h| h.tensors[0].dtype = 7, InvalidTensor, "dtype i64"),
        (
            |h| h.tensors[0].dtype = 200,
            InvalidTensor,
            "dtype code 200",
        ),
        (
            |h| h.tensors[0].shape[2] = 5,
            InvalidTensor,
            "shape [2, 3, 5]; expected [N, L, 4]",
        ),
        (
            |h| h.tensors[0].shape.truncate(2),
            InvalidTensor,
            "shape [2, 3]; expected [N, L, 4]",
        ),
        (
            |h| h.tensors[1].shape[1] = 4,
            InvalidTensor,
            "`L`, which is 3 elsewhere",
        ),
        (
            |h| h.tensors[2].shape[0] = 1,
            InvalidTensor,
            "`N`, which is 2 elsewhere",
        ),
        (|h| h.tensors[0].bytes = 95, InvalidTensor, "takes 96"),
        (
            |h| h.tensors[0] = tensor(1, DType::F32, &[2, 3, 4], 47),
            InvalidTensor,
            "takes 48",
        ),
        (
            |h| h.tensors[0] = tensor(2, DType::F32, &[2, 3, 4], 41),
            InvalidTensor,
            "takes 40",
        ),
        (|h| h.tensors[1].bytes = 2, InvalidTensor, "takes 1"),
        (|h| h.tensors[2].bytes = 8, InvalidTensor, "takes 9 to 57"),
        (|h| h.tensors[2].bytes = 58, InvalidTensor, "takes 9 to 57"),
        (|h| h.tensors[2].bytes = u64::MAX, InvalidTensor, "9 to 57"),
        // No rows, and rows without length, in every value.
        (|h| resize(h, 0, 3), InvalidTensor, "at least one row"),
        (
            |h| resize(h, 2, 0),
            InvalidTensor,
            "`L`, must be at least 1",
        ),
        // A row of four times the reference, and of one more.
        (|h| resize(h, 2, 33), LimitExceeded, "132 elements a row"),
        (|h| resize(h, 2, 1 << 60), InvalidTensor, "64 bits"),
        (|h| resize(h, u64::MAX, u64::MAX), InvalidTensor, "64 bits"),
    ]);
}

/// All values in their largest form, with `rows` rows of length `length`.
fn resize(header: &mut RequestHeader, rows: u64, length: u64) {
    let count = rows.saturating_mul(length);
    header.tensors = vec![
        tensor(0, DType::F32, &[rows, length, 4], count.saturating_mul(16)),
        tensor(3, DType::Bool, &[rows, length], count.div_ceil(8)),
        tensor(
            3,
            DType::I64,
            &[rows, length],
            if count == 0 { 0 } else { 9 },
        ),
    ];
}

#[test]
fn case_15_a_request_names_only_what_the_bundle_holds() {
    use ErrorCode::{UnknownSession, Unsupported};
    check_refusals(&[
        (|h| h.cut = 3, Unsupported, "cut 3 asked for"),
        (|h| h.cut = u16::MAX, Unsupported, "cut 65535 asked for"),
        (
            |h| {
                h.cut = 2;
                h.tensors.clear();
            },
            Unsupported,
            "does not hold the stages after cut `end`",
        ),
        (
            |h| h.tensors[0].codec = 3,
            Unsupported,
            "`x` came in codec 3; the contract allows raw, f16, int8",
        ),
        (
            |h| h.tensors[2].codec = 0,
            Unsupported,
            "`ids` came in codec 0; the contract allows packed",
        ),
        (|h| h.tensors[1].codec = 255, Unsupported, "codec 255"),
        (
            |h| h.session = Some(1),
            UnknownSession,
            "session 1: `sequence` keeps no state",
        ),
    ]);
}

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

/// NaN of every kind, infinities and −0 come back bit for bit, alone and in a batch.
#[test]
fn nan_payloads_pass_through_unharmed() {
    let folder = tempfile::tempdir().unwrap();
    let contract = contract(folder.path());
    let odd = [
        0x7fc0_0000u32,
        0xffc0_0001,
        0x7f80_0001,
        0xffff_ffff,
        0x7f80_0000,
        0xff80_0000,
        0x8000_0000,
        1,
    ];
    let x: Vec<u8> = odd
        .iter()
        .cycle()
        .take(24)
        .flat_map(|b| b.to_le_bytes())
        .collect();
    let header = good();
    let request = contract.check(0, &header).unwrap();
    let payloads = [
        Bytes::from(x.clone()),
        Bytes::from_static(&[0b11_1111]),
        Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6]),
    ];
    let input = || Input {
        request: &request,
        payloads: &payloads,
    };
    for count in [1, 2] {
        let inputs: Vec<Input<'_>> = (0..count).map(|_| input()).collect();
        let answers = run_batch(&contract, 0, &mut Copy, &inputs, None);
        assert_eq!(answers.len(), count);
        for answer in answers {
            let (header, y) = answer.unwrap().outputs.remove(0);
            assert_eq!(header.shape, [2, 3, 4]);
            assert_eq!(y, x);
        }
    }
}
