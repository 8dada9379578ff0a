//! A payload for a tensor of some codec, dtype and shape: it decodes or is refused, within the
//! memory of the tensor that was declared. And any values: what is encoded comes back.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use seamline_codec::{decode, decode_into, encode, expected_len, max_encoded_len, min_encoded_len};
use seamline_fuzz::{Input, bounded, plant};
use seamline_plan::{CodecSpec, DType, Tensor, element_count};

/// Larger tensors are only measured, not decoded: each run must be quick.
const MOST_ELEMENTS: usize = 1 << 16;

fuzz_target!(
    init: plant(seeds()),
    |data: &[u8]| {
        let mut input = Input(data);
        let mode = input.byte();
        let (spec, mut dtype) = (spec(&mut input), dtype(&mut input));
        let mut shape = shape(&mut input);
        if spec.is_picture() && mode & 6 != 0 {
            // Most of the time one that pictures can have.
            dtype = DType::U8;
            shape.resize(3, 8);
            shape.push(if mode & 8 == 0 { 3 } else { 1 });
        }
        lengths(&spec, dtype, &shape);
        let Some(count) = element_count(&shape) else {
            assert!(decode(&spec, dtype, &shape, input.0).is_err());
            return;
        };
        if count > MOST_ELEMENTS {
            return;
        }
        let size = count * dtype.size();
        bounded(most_held(&spec, size, input.0.len()), || refuse_or_decode(&spec, dtype, &shape, input.0));
        if mode & 1 == 1 {
            round_trip(&spec, dtype, shape, size, input.0);
        }
    }
);

/// Bytes that decoding may take at a time: the tensor, and for the compressed codecs what the
/// crate's Costs say.
fn most_held(spec: &CodecSpec, size: usize, payload: usize) -> usize {
    match spec {
        CodecSpec::Zstd => 2 * size + (2 << 10),
        CodecSpec::Png => size + 2 * payload + (320 << 10),
        CodecSpec::Jpeg { .. } | CodecSpec::Webp { .. } => 3 * size + 3 * payload + (160 << 10),
        _ => size + (2 << 10),
    }
}

fn spec(input: &mut Input<'_>) -> CodecSpec {
    match input.byte() % 8 {
        0 => CodecSpec::Raw,
        1 => CodecSpec::F16,
        2 => CodecSpec::Int8 {
            axis: usize::from(input.byte() % 5),
        },
        3 => CodecSpec::Packed,
        4 => CodecSpec::Png,
        5 => CodecSpec::Jpeg {
            quality: input.byte(),
        },
        6 => CodecSpec::Webp {
            quality: input.byte(),
        },
        _ => CodecSpec::Zstd,
    }
}

fn dtype(input: &mut Input<'_>) -> DType {
    DType::ALL[usize::from(input.byte()) % DType::ALL.len()]
}

/// Small dimensions mostly, and now and then one of any size.
fn shape(input: &mut Input<'_>) -> Vec<usize> {
    let rank = input.byte() % 5;
    (0..rank)
        .map(|_| match input.byte() {
            255 => input.word() as usize,
            small => usize::from(small) % 67,
        })
        .collect()
}

fn lengths(spec: &CodecSpec, dtype: DType, shape: &[usize]) {
    let least = min_encoded_len(spec, dtype, shape);
    let most = max_encoded_len(spec, dtype, shape);
    assert_eq!(least.is_some(), most.is_some());
    assert!(least <= most);
    if let Some(exact) = expected_len(spec, dtype, shape) {
        assert_eq!((least, most), (Some(exact), Some(exact)));
    }
}

fn refuse_or_decode(spec: &CodecSpec, dtype: DType, shape: &[usize], payload: &[u8]) {
    let tensor = match decode(spec, dtype, shape, payload) {
        Ok(tensor) => tensor,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let length = payload.len() as u64;
    assert!(min_encoded_len(spec, dtype, shape) <= Some(length));
    assert!(Some(length) <= max_encoded_len(spec, dtype, shape));
    assert_eq!(Some(tensor.bytes().len()), Tensor::byte_len(dtype, shape));
    if dtype == DType::Bool {
        assert!(tensor.bytes().iter().all(|&byte| byte <= 1));
    }
    if *spec == CodecSpec::Raw {
        assert_eq!(tensor.bytes(), payload);
    }
}

fn round_trip(spec: &CodecSpec, dtype: DType, shape: Vec<usize>, size: usize, values: &[u8]) {
    let bytes: Vec<u8> = values
        .iter()
        .copied()
        .chain(std::iter::repeat(0))
        .take(size)
        .collect();
    let tensor = Tensor::new(dtype, shape, Bytes::from(bytes)).expect("of its size");
    let mut payload = Vec::new();
    if encode(spec, &tensor, &mut payload).is_err() {
        return;
    }
    let back = decode(spec, dtype, tensor.shape(), &payload).expect("of this encoder");
    if spec.is_lossless() {
        assert_eq!(back.bytes(), tensor.bytes());
    }
    let mut place = vec![0; size];
    decode_into(spec, dtype, tensor.shape(), &payload, &mut place).expect("as above");
    assert_eq!(place.as_slice(), back.bytes().as_ref());
}

fn seeds() -> Vec<Vec<u8>> {
    let floats: Vec<u8> = (0..6)
        .flat_map(|x| (x as f32 - 2.5).to_le_bytes())
        .collect();
    let ids: Vec<u8> = [101i64, 2000, 102]
        .iter()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let index = |dtype| DType::ALL.iter().position(|&d| d == dtype).unwrap() as u8;
    let payload = |spec: &CodecSpec, dtype, shape: Vec<usize>, bytes: &[u8]| {
        let tensor = Tensor::new(dtype, shape, Bytes::copy_from_slice(bytes)).unwrap();
        let mut payload = Vec::new();
        encode(spec, &tensor, &mut payload).unwrap();
        payload
    };
    let f32s = index(DType::F32);
    let int8 = CodecSpec::Int8 { axis: 1 };
    let picture: Vec<u8> = (0..20 * 24 * 3)
        .map(|at| (at / 7 % 200 + at % 11) as u8)
        .collect();
    let pictures = [
        (vec![4], CodecSpec::Png),
        (vec![5, 50], CodecSpec::Jpeg { quality: 50 }),
        (vec![5, 95], CodecSpec::Jpeg { quality: 95 }),
        (vec![6, 75], CodecSpec::Webp { quality: 75 }),
        (vec![6, 10], CodecSpec::Webp { quality: 10 }),
    ];
    let pictures = pictures.into_iter().map(|(code, spec)| {
        let payload = payload(&spec, DType::U8, vec![1, 20, 24, 3], &picture);
        [&[3][..], &code, &[0, 3, 1, 20, 24], &payload].concat()
    });
    let zstd = payload(&CodecSpec::Zstd, DType::F32, vec![2, 3], &floats);
    let zstd = [&[1, 7, f32s, 2, 2, 3][..], &zstd].concat();
    let others = vec![
        [&[1, 0, f32s, 2, 2, 3][..], &floats].concat(),
        [
            &[1, 1, f32s, 2, 2, 3][..],
            &payload(&CodecSpec::F16, DType::F32, vec![2, 3], &floats),
        ]
        .concat(),
        [
            &[1, 2, 1, f32s, 2, 2, 3][..],
            &payload(&int8, DType::F32, vec![2, 3], &floats),
        ]
        .concat(),
        [
            &[1, 3, index(DType::I64), 1, 3][..],
            &payload(&CodecSpec::Packed, DType::I64, vec![3], &ids),
        ]
        .concat(),
        [&[1, 3, index(DType::Bool), 1, 9][..], &[9, 1]].concat(),
        vec![
            0,
            3,
            index(DType::I64),
            1,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
            255,
        ],
    ];
    pictures.chain([zstd]).chain(others).collect()
}
