//! What is refused, and in which words.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use bytes::Bytes;
use seamline_codec::{
    CodecError, CodecErrorKind, decode, decode_bytes, decode_into, encode, encode_bytes,
    expected_len, max_encoded_len,
};
use seamline_plan::{CodecSpec, DType, Tensor};

const INT8: CodecSpec = CodecSpec::Int8 { axis: 0 };

/// The error of decoding `payload`, which must be the peer's fault.
fn refused(spec: &CodecSpec, dtype: DType, shape: &[usize], payload: &[u8]) -> CodecError {
    let error = decode(spec, dtype, shape, payload).unwrap_err();
    assert_eq!(error.kind(), CodecErrorKind::Payload, "{error}");
    error
}

fn int8_payload(scale: f32, level: i8) -> Vec<u8> {
    let mut payload = scale.to_le_bytes().to_vec();
    payload.push(level.to_le_bytes()[0]);
    payload
}

fn packed_payload(base: i64, width: u8, offsets: &[u8]) -> Vec<u8> {
    let mut payload = base.to_le_bytes().to_vec();
    payload.push(width);
    payload.extend_from_slice(offsets);
    payload
}

#[test]
fn codec_and_tensor_must_fit() {
    let tensor = Tensor::from_vec(vec![2], vec![1i64, 2]).unwrap();
    let mut out = vec![7];
    let error = encode(&CodecSpec::F16, &tensor, &mut out).unwrap_err();
    assert_eq!(
        error.to_string(),
        "codec `f16` takes f32, got i64; choose `raw`, which takes any"
    );
    let floats = Tensor::from_vec(vec![2], vec![1.0f32, 2.0]).unwrap();
    let error = encode(&CodecSpec::Int8 { axis: 1 }, &floats, &mut out).unwrap_err();
    assert_eq!(
        error.to_string(),
        "codec `int8` has channel axis 1, but the tensor has shape [2] (1 axes, counted from 0)"
    );
    assert_eq!(error.kind(), CodecErrorKind::Mismatch);
    let error = decode(&CodecSpec::Int8 { axis: 9 }, DType::F32, &[2], &[]).unwrap_err();
    assert!(matches!(error, CodecError::Axis { axis: 9, .. }));
    assert_eq!(out, [7]);
}

#[test]
fn int8_names_the_channel_that_is_not_finite() {
    // Channels first, in long runs; channels last, in tiles.
    for (shape, axis) in [(vec![2, 3, 100], 1), (vec![200, 3], 1), (vec![3, 7], 0)] {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let spec = CodecSpec::Int8 { axis };
            let count: usize = shape.iter().product();
            let inner: usize = shape[axis + 1..].iter().product();
            let mut values = vec![1.0f32; count];
            let last = count - 1;
            values[last] = bad;
            let channel = last / inner % shape[axis];
            let tensor = Tensor::from_vec(shape.clone(), values).unwrap();
            let mut out = vec![1, 2];
            let error = encode(&spec, &tensor, &mut out).unwrap_err();
            assert!(
                matches!(error, CodecError::NonFinite { axis: a, channel: c, .. } if (a, c) == (axis, channel)),
                "{error}"
            );
            assert_eq!(error.kind(), CodecErrorKind::Value);
            assert_eq!(out, [1, 2], "the buffer is as it was");
        }
    }
}

#[test]
fn hostile_scales_and_levels_are_refused() {
    let largest = f32::from_bits(0x7c01_0203);
    for scale in [
        f32::NAN,
        f32::INFINITY,
        -1.0,
        -0.0,
        -f32::NAN,
        largest.next_up(),
    ] {
        let error = refused(&INT8, DType::F32, &[1], &int8_payload(scale, 1));
        assert!(matches!(error, CodecError::Scale { channel: 0, .. }));
    }
    let error = refused(&INT8, DType::F32, &[1], &int8_payload(-1.0, 1));
    assert_eq!(
        error.to_string(),
        "scale of channel 0 is -1; expected 0 to 2.6793884e36"
    );
    let error = refused(&INT8, DType::F32, &[1], &int8_payload(1.0, -128));
    assert_eq!(error, CodecError::Level { element: 0 });
    // The largest scale that passes gives finite elements.
    let tensor = decode(&INT8, DType::F32, &[1], &int8_payload(largest, 127)).unwrap();
    assert!(tensor.as_slice::<f32>().unwrap()[0].is_finite());
}

#[test]
fn payloads_have_one_length() {
    let cases = [
        (CodecSpec::Raw, DType::F32, 16u64),
        (CodecSpec::F16, DType::F32, 8),
        (INT8, DType::F32, 12),
        (CodecSpec::Packed, DType::Bool, 1),
    ];
    for (spec, dtype, right) in cases {
        for wrong in [0, right - 1, right + 1, right * 2] {
            let payload = vec![0; usize::try_from(wrong).unwrap()];
            let error = refused(&spec, dtype, &[2, 2], &payload);
            assert!(
                matches!(error, CodecError::Length { expected, got, .. } if (expected, got) == (right, wrong)),
                "{error}"
            );
        }
    }
    let error = refused(&CodecSpec::F16, DType::F32, &[2, 2], &[0; 9]);
    assert_eq!(
        error.to_string(),
        "f32 [2, 2] as `f16` takes 8 payload bytes, got 9"
    );
    for offsets in [&[0u8, 0][..], &[0, 0, 0, 0]] {
        let payload = packed_payload(0, 1, offsets);
        let error = refused(&CodecSpec::Packed, DType::I64, &[3], &payload);
        assert!(matches!(error, CodecError::Length { expected: 12, .. }));
    }
    let error = refused(&CodecSpec::Packed, DType::I64, &[3], &[0; 8]);
    assert!(matches!(
        error,
        CodecError::Length {
            expected: 9,
            got: 8,
            ..
        }
    ));
    // An empty tensor has no header.
    let error = refused(&CodecSpec::Packed, DType::I64, &[0], &[0; 9]);
    assert!(matches!(
        error,
        CodecError::Length {
            expected: 0,
            got: 9,
            ..
        }
    ));
}

#[test]
fn hostile_packed_headers_are_refused() {
    let packed = &CodecSpec::Packed;
    for width in [3, 5, 7, 9, 255] {
        let error = refused(packed, DType::I64, &[1], &packed_payload(0, width, &[0; 8]));
        assert!(matches!(error, CodecError::Width { got, .. } if got == width));
    }
    let error = refused(packed, DType::I16, &[1], &packed_payload(0, 4, &[0; 4]));
    assert_eq!(
        error.to_string(),
        "offsets are 4 bytes wide; expected 0, 1, 2, 4 or 8, at most 2 for i16"
    );
    // A base, and a sum, that the dtype does not have.
    for (dtype, base, offset) in [
        (DType::U8, 256, 0),
        (DType::U8, -1, 0),
        (DType::U8, 255, 1),
        (DType::I8, 127, 1),
        (DType::I8, -129, 5),
        (DType::I32, i64::from(i32::MAX), 1),
        (DType::I64, i64::MAX, 1),
        (DType::U64, -1, 1),
    ] {
        let error = refused(packed, dtype, &[2], &packed_payload(base, 1, &[0, offset]));
        assert!(
            matches!(error, CodecError::Range { .. }),
            "{dtype}: {error}"
        );
    }
    let error = refused(packed, DType::U8, &[2], &packed_payload(255, 1, &[0, 1]));
    assert_eq!(
        error.to_string(),
        "base 255 with the largest offset 1 passes the range of u8"
    );
}

#[test]
fn booleans_are_zero_or_one() {
    let error = refused(&CodecSpec::Packed, DType::Bool, &[3], &[0b1000]);
    assert_eq!(
        error.to_string(),
        "the last byte of the booleans is 0b00001000; only its lowest 3 bits may be set"
    );
    let error = refused(&CodecSpec::Raw, DType::Bool, &[3], &[0, 1, 2]);
    assert_eq!(
        error.to_string(),
        "boolean element 2 has byte 2; expected 0 or 1"
    );
    let tensor = Tensor::new(DType::Bool, vec![1], Bytes::from_static(&[255])).unwrap();
    for spec in [CodecSpec::Raw, CodecSpec::Packed] {
        assert!(matches!(
            encode_bytes(&spec, &tensor),
            Err(CodecError::Boolean {
                element: 0,
                value: 255
            })
        ));
    }
    assert!(decode_bytes(&CodecSpec::Raw, DType::Bool, &[1], Bytes::from_static(&[2])).is_err());
}

#[test]
fn the_destination_has_the_tensors_size() {
    let error = decode_into(&CodecSpec::F16, DType::F32, &[2], &[0; 4], &mut [0; 9]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "f32 [2] takes 8 bytes, the destination has 9"
    );
    assert_eq!(error.kind(), CodecErrorKind::Mismatch);
}

#[test]
fn shapes_that_overflow_are_refused_before_anything_is_allocated() {
    let specs = [
        (CodecSpec::Raw, DType::F64),
        (CodecSpec::F16, DType::F32),
        (INT8, DType::F32),
        (CodecSpec::Packed, DType::I64),
    ];
    for (spec, dtype) in specs {
        assert_eq!(max_encoded_len(&spec, dtype, &[u64::MAX, 3]), None);
        assert_eq!(expected_len(&spec, dtype, &[1u64 << 62, 1 << 62]), None);
        let error = decode(&spec, dtype, &[usize::MAX, 3], &[]).unwrap_err();
        assert!(matches!(error, CodecError::Overflow { .. }), "{error}");
    }
    assert_eq!(max_encoded_len(&INT8, DType::F32, &[1u64 << 62]), None);
    assert_eq!(
        max_encoded_len(&CodecSpec::Packed, DType::I64, &[1u64 << 61]),
        None
    );
    // A few bytes that stand for more than this machine can hold: an error, not an abort.
    let payload = packed_payload(1, 0, &[]);
    let error = decode(&CodecSpec::Packed, DType::I64, &[1 << 59], &payload).unwrap_err();
    assert_eq!(error.kind(), CodecErrorKind::Memory);
}

#[test]
fn lengths_are_known_before_the_values() {
    let len = |spec: &CodecSpec, dtype, shape: &[u64]| {
        (
            expected_len(spec, dtype, shape),
            max_encoded_len(spec, dtype, shape),
        )
    };
    assert_eq!(
        len(&CodecSpec::Raw, DType::F64, &[2, 3]),
        (Some(48), Some(48))
    );
    assert_eq!(len(&CodecSpec::F16, DType::F32, &[]), (Some(2), Some(2)));
    let int8 = CodecSpec::Int8 { axis: 1 };
    assert_eq!(len(&int8, DType::F32, &[2, 3, 5]), (Some(42), Some(42)));
    assert_eq!(len(&int8, DType::F32, &[2]), (None, None));
    assert_eq!(len(&CodecSpec::Packed, DType::I16, &[5]), (None, Some(19)));
    assert_eq!(
        len(&CodecSpec::Packed, DType::I16, &[5, 0]),
        (Some(0), Some(0))
    );
    assert_eq!(
        len(&CodecSpec::Packed, DType::Bool, &[17]),
        (Some(3), Some(3))
    );
    assert_eq!(len(&CodecSpec::Packed, DType::F32, &[17]), (None, None));
}
