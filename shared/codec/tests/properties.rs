//! What holds of every codec, dtype, shape and value, and of bytes that no codec gave.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use seamline_codec::{
    decode, decode_bytes, decode_into, encode, encode_bytes, expected_len, max_encoded_len,
    min_encoded_len,
};
use seamline_plan::{CodecSpec, DType, Tensor};

/// A codec, with a tensor that it takes; the bytes of the tensor at an odd address where `shift`.
#[derive(Debug, Clone)]
struct Case {
    spec: CodecSpec,
    tensor: Tensor,
}

/// Bytes at `shift` from the start of an allocation that is aligned for every dtype.
fn shifted(bytes: &[u8], shift: usize) -> Bytes {
    let mut words = vec![0u64; (bytes.len() + shift).div_ceil(8)];
    bytemuck::cast_slice_mut(&mut words)[shift..shift + bytes.len()].copy_from_slice(bytes);
    let words = Tensor::from_vec(vec![words.len()], words).unwrap();
    words.bytes().slice(shift..shift + bytes.len())
}

/// Shapes with short and long rows, zeros and more columns than a tile has.
fn shapes() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        proptest::collection::vec(0usize..6, 0..5),
        proptest::collection::vec(1usize..6, 1..4),
        (1usize..4, 1usize..5, 60usize..70).prop_map(|(a, b, c)| vec![a, b, c]),
        (1usize..4, 500usize..530).prop_map(|(a, b)| vec![a, b]),
        (500usize..1100).prop_map(|a| vec![a]),
    ]
}

fn specs() -> impl Strategy<Value = (CodecSpec, DType)> {
    let dtype = || proptest::sample::select(&DType::ALL[..]);
    let packed = dtype().prop_filter("an integer or bool", |dtype| !dtype.is_float());
    prop_oneof![
        dtype().prop_map(|dtype| (CodecSpec::Raw, dtype)),
        Just((CodecSpec::F16, DType::F32)),
        (0usize..4).prop_map(|axis| (CodecSpec::Int8 { axis }, DType::F32)),
        packed.prop_map(|dtype| (CodecSpec::Packed, dtype)),
        dtype().prop_map(|dtype| (CodecSpec::Zstd, dtype)),
    ]
}

/// Elements of `dtype` from words: integers within a random range, f32 that are finite for int8.
fn elements(spec: &CodecSpec, dtype: DType, words: &[u64], bits: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for &word in words {
        let narrow = word & (u64::MAX >> (64 - bits));
        let word = match (spec, dtype) {
            (_, DType::Bool) => word & 1,
            (CodecSpec::Int8 { .. }, _) => {
                let value = f32::from_bits(u32::try_from(word >> 32).unwrap());
                u64::from(if value.is_finite() { value } else { 0.0 }.to_bits())
            }
            _ if dtype.is_float() => word,
            _ => narrow.wrapping_sub(1 << (bits - 1)),
        };
        bytes.extend_from_slice(&word.to_le_bytes()[..dtype.size()]);
    }
    bytes
}

prop_compose! {
    fn cases()(
        (spec, dtype) in specs(),
        shape in shapes(),
    )(
        words in proptest::collection::vec(any::<u64>(), shape.iter().product::<usize>()),
        bits in 1u32..=64,
        shift in 0usize..8,
        spec in Just(spec),
        dtype in Just(dtype),
        shape in Just(shape),
    ) -> Case {
        let spec = match spec {
            CodecSpec::Int8 { .. } if shape.is_empty() => CodecSpec::F16,
            CodecSpec::Int8 { axis } => CodecSpec::Int8 { axis: axis % shape.len() },
            spec => spec,
        };
        let bytes = elements(&spec, dtype, &words, bits);
        let tensor = Tensor::new(dtype, shape, shifted(&bytes, shift)).unwrap();
        Case { spec, tensor }
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (bytes, _) = bytes.as_chunks::<4>();
    bytes
        .iter()
        .map(|&bytes| f32::from_le_bytes(bytes))
        .collect()
}

/// The channel of element `at`.
fn channel(shape: &[usize], axis: usize, at: usize) -> usize {
    at / shape[axis + 1..].iter().product::<usize>() % shape[axis]
}

/// Whether `got` is what `case` may decode to.
fn check_values(case: &Case, got: &[u8]) -> Result<(), TestCaseError> {
    let src: &[u8] = case.tensor.bytes();
    match case.spec {
        CodecSpec::F16 => {
            for (x, y) in floats(src).into_iter().zip(floats(got)) {
                let expected = half::f16::from_f32_const(x).to_f32_const();
                prop_assert_eq!(expected.to_bits(), y.to_bits(), "{} became {}", x, y);
            }
        }
        CodecSpec::Int8 { axis } => {
            let src = floats(src);
            let shape = case.tensor.shape();
            let mut largest = vec![0.0f64; shape[axis]];
            for (at, x) in src.iter().enumerate() {
                let largest = &mut largest[channel(shape, axis, at)];
                *largest = largest.max(f64::from(x.abs()));
            }
            for (at, (x, y)) in src.into_iter().zip(floats(got)).enumerate() {
                let scale = largest[channel(shape, axis, at)] / 127.0;
                // Half a level, the rounding of three f32 operations on up to 127 levels, and the
                // least scale.
                let bound = scale * 0.5001 + f64::from(f32::MIN_POSITIVE);
                let error = (f64::from(x) - f64::from(y)).abs();
                prop_assert!(error <= bound, "{} became {}, scale {}", x, y, scale);
            }
        }
        _ => prop_assert_eq!(src, got),
    }
    Ok(())
}

/// The same cases in every run; `PROPTEST_CASES` makes them more.
fn config() -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(0x5ea3_1111),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_encoded_comes_back(case in cases(), shift in 0usize..8) {
        let Case { spec, tensor } = &case;
        let mut out = vec![0xaa; shift];
        encode(spec, tensor, &mut out).unwrap();
        prop_assert_eq!(&out[..shift], &vec![0xaa; shift][..]);
        let payload = &out[shift..];
        prop_assert_eq!(&encode_bytes(spec, tensor).unwrap()[..], payload);

        let back = decode(spec, tensor.dtype(), tensor.shape(), payload).unwrap();
        check_values(&case, back.bytes())?;
        prop_assert!(back.bytes().as_ptr().addr().is_multiple_of(8) || back.is_empty());
        let shared = Bytes::copy_from_slice(payload);
        let shared = decode_bytes(spec, tensor.dtype(), tensor.shape(), shared).unwrap();
        prop_assert_eq!(shared.bytes(), back.bytes());

        // A range of a larger buffer, at any address: nothing around it is touched.
        let len = tensor.bytes().len();
        let mut batch = vec![0x55; shift + len + 9];
        let dst = &mut batch[shift..shift + len];
        decode_into(spec, tensor.dtype(), tensor.shape(), payload, dst).unwrap();
        prop_assert_eq!(&batch[shift..shift + len], &back.bytes()[..]);
        prop_assert!(batch[..shift].iter().chain(&batch[shift + len..]).all(|&x| x == 0x55));
    }

    #[test]
    fn lengths_are_as_announced(case in cases()) {
        let Case { spec, tensor } = &case;
        let len = encode_bytes(spec, tensor).unwrap().len() as u64;
        let shape: Vec<u64> = tensor.shape().iter().map(|&dim| dim as u64).collect();
        let most = max_encoded_len(spec, tensor.dtype(), &shape).unwrap();
        prop_assert!(len <= most, "{} > {}", len, most);
        let least = min_encoded_len(spec, tensor.dtype(), &shape).unwrap();
        prop_assert!(least <= len, "{} > {}", least, len);
        prop_assert_eq!(Some(most), max_encoded_len(spec, tensor.dtype(), tensor.shape()));
        match expected_len(spec, tensor.dtype(), &shape) {
            Some(exact) => prop_assert_eq!((len, most), (exact, exact)),
            None if *spec == CodecSpec::Zstd => {}
            None => prop_assert!(*spec == CodecSpec::Packed && tensor.dtype() != DType::Bool),
        }
    }

    #[test]
    fn decoded_values_encode_to_the_same_payload(case in cases()) {
        // A second trip changes nothing more for codecs that keep bits, nor for f16.
        let Case { spec, tensor } = &case;
        if matches!(spec, CodecSpec::Int8 { .. }) {
            return Ok(());
        }
        let payload = encode_bytes(spec, tensor).unwrap();
        let back = decode(spec, tensor.dtype(), tensor.shape(), &payload).unwrap();
        prop_assert_eq!(encode_bytes(spec, &back).unwrap(), payload);
    }

    #[test]
    fn changed_bytes_never_panic(
        case in cases(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        keep in any::<prop::sample::Index>(),
        cut in any::<bool>(),
        extra in proptest::collection::vec(any::<u8>(), 0..10),
    ) {
        let Case { spec, tensor } = &case;
        let right = encode_bytes(spec, tensor).unwrap();
        let mut payload = right.to_vec();
        for (at, byte) in flips {
            if !payload.is_empty() {
                let at = at.index(payload.len());
                payload[at] = byte;
            }
        }
        if cut && !payload.is_empty() {
            payload.truncate(keep.index(payload.len()));
        }
        payload.extend_from_slice(&extra);
        match decode(spec, tensor.dtype(), tensor.shape(), &payload) {
            Ok(back) => {
                prop_assert_eq!(back.bytes().len(), tensor.bytes().len());
                if expected_len(spec, tensor.dtype(), tensor.shape()).is_some() {
                    prop_assert_eq!(payload.len(), right.len());
                }
                if matches!(spec, CodecSpec::Int8 { .. }) {
                    prop_assert!(floats(back.bytes()).iter().all(|x| x.is_finite()));
                }
                if tensor.dtype() == DType::Bool {
                    prop_assert!(back.bytes().iter().all(|&byte| byte <= 1));
                }
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn random_bytes_never_panic(
        (spec, dtype) in specs(),
        shape in proptest::collection::vec(0usize..5, 0..4),
        payload in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        if let Ok(tensor) = decode(&spec, dtype, &shape, &payload) {
            prop_assert_eq!(Some(tensor.bytes().len()), Tensor::byte_len(dtype, &shape));
        }
    }

    #[test]
    fn lengths_never_panic(
        (spec, dtype) in specs(),
        shape in proptest::collection::vec(prop_oneof![any::<u64>(), 0u64..9], 0..5),
    ) {
        let most = max_encoded_len(&spec, dtype, &shape);
        if let Some(exact) = expected_len(&spec, dtype, &shape) {
            prop_assert_eq!(most, Some(exact));
        }
    }
}
