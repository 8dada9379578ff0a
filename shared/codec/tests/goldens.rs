//! The bytes of each codec, in hex: what PROTOCOL.md promises to other implementations. A change
//! here is a change of the protocol.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use seamline_codec::{decode, encode, expected_len, max_encoded_len};
use seamline_plan::{CodecSpec, DType, Tensor};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Encodes, compares with `golden` (spaces are for the reader), decodes and gives the tensor back.
fn check(spec: &CodecSpec, tensor: &Tensor, golden: &str) -> Tensor {
    let mut out = Vec::new();
    encode(spec, tensor, &mut out).unwrap();
    assert_eq!(hex(&out), golden.replace(' ', ""), "{spec} {tensor:?}");
    let max = max_encoded_len(spec, tensor.dtype(), tensor.shape()).unwrap();
    assert!(out.len() as u64 <= max);
    if let Some(exact) = expected_len(spec, tensor.dtype(), tensor.shape()) {
        assert_eq!(out.len() as u64, exact);
    }
    decode(spec, tensor.dtype(), tensor.shape(), &out).unwrap()
}

fn lossless(spec: &CodecSpec, tensor: &Tensor, golden: &str) {
    let back = check(spec, tensor, golden);
    assert_eq!(back.bytes(), tensor.bytes(), "{spec} {tensor:?}");
}

#[test]
fn raw() {
    let floats = Tensor::from_vec(vec![2], vec![1.0f32, -2.5]).unwrap();
    lossless(&CodecSpec::Raw, &floats, "0000803f 000020c0");
    let bools = Tensor::from_bools(vec![3], &[true, false, true]).unwrap();
    lossless(&CodecSpec::Raw, &bools, "010001");
    let integers = Tensor::from_vec(vec![1], vec![-2i64]).unwrap();
    lossless(&CodecSpec::Raw, &integers, "feffffffffffffff");
}

#[test]
fn f16() {
    let values = vec![
        1.0f32,
        -0.0,
        65_504.0,
        65_519.996,
        65_520.0,
        f32::NEG_INFINITY,
        f32::NAN,
        5.960_464_5e-8,
        2.980_232_2e-8,
        0.1,
    ];
    let tensor = Tensor::from_vec(vec![2, 5], values).unwrap();
    let golden = "003c 0080 ff7b ff7b 007c 00fc 007e 0100 0000 662e";
    let back = check(&CodecSpec::F16, &tensor, golden);
    let back = back.as_slice::<f32>().unwrap();
    assert_eq!(back[..3], [1.0, 0.0, 65_504.0]);
    assert!(back[4] == f32::INFINITY && back[6].is_nan());
    assert_eq!(back[9], 0.099_975_586);
}

#[test]
fn int8_by_the_first_axis() {
    let tensor = Tensor::from_vec(vec![2, 3], vec![127.0f32, -63.5, 0.5, 0.0, 0.0, 0.0]).unwrap();
    // A scale of 1 and one of 0; −63.5 and 0.5 are ties, which go to even.
    let golden = "0000803f 00000000 7fc000 000000";
    let back = check(&CodecSpec::Int8 { axis: 0 }, &tensor, golden);
    assert_eq!(
        back.as_slice::<f32>().unwrap(),
        [127.0, -64.0, 0.0, 0.0, 0.0, 0.0]
    );
}

#[test]
fn int8_by_the_last_axis() {
    let tensor = Tensor::from_vec(vec![2, 2], vec![127.0f32, 2.0, -1.0, -254.0]).unwrap();
    let golden = "0000803f 00000040 7f01 ff81";
    let back = check(&CodecSpec::Int8 { axis: 1 }, &tensor, golden);
    assert_eq!(back.bytes(), tensor.bytes());
}

#[test]
fn packed_integers() {
    let packed = &CodecSpec::Packed;
    let constant = Tensor::from_vec(vec![3], vec![-1i32; 3]).unwrap();
    lossless(packed, &constant, "ffffffffffffffff 00");
    let tokens = Tensor::from_vec(vec![1, 3], vec![101i64, 2000, 102]).unwrap();
    lossless(packed, &tokens, "6500000000000000 02 0000 6b07 0100");
    let bytes = Tensor::from_vec(vec![2], vec![0u8, 255]).unwrap();
    lossless(packed, &bytes, "0000000000000000 01 00 ff");
    let whole = Tensor::from_vec(vec![2], vec![i64::MAX, i64::MIN]).unwrap();
    lossless(
        packed,
        &whole,
        "0000000000000080 08 ffffffffffffffff 0000000000000000",
    );
    let high = Tensor::from_vec(vec![2], vec![u64::MAX, u64::MAX - 65_536]).unwrap();
    lossless(packed, &high, "fffffeffffffffff 04 00000100 00000000");
}

#[test]
fn packed_booleans() {
    let bools = [true, false, false, true, false, false, false, false, true];
    let tensor = Tensor::from_bools(vec![3, 3], &bools).unwrap();
    lossless(&CodecSpec::Packed, &tensor, "09 01");
}

/// What another encoder may send for the same values is another frame: decoding is fixed.
#[test]
fn zstd_decodes_bytes_by_significance() {
    let decoded = |dtype, shape: &[usize], payload: &str| {
        let payload = payload.replace(' ', "");
        let byte = |at| u8::from_str_radix(&payload[at..at + 2], 16).unwrap();
        let payload: Vec<u8> = (0..payload.len()).step_by(2).map(byte).collect();
        decode(&CodecSpec::Zstd, dtype, shape, &payload).unwrap()
    };
    // A frame header, the content's size, a stored block: 1.0 and -2.5.
    let floats = decoded(
        DType::F32,
        &[2],
        "28b52ffd 20 08 410000 0000 0000 8020 3fc0",
    );
    assert_eq!(floats.as_slice::<f32>().unwrap(), [1.0, -2.5]);
    // A block of one byte, repeated.
    let integers = decoded(DType::I16, &[2, 2], "28b52ffd 20 08 430000 07");
    assert_eq!(integers.as_slice::<i16>().unwrap(), [0x0707; 4]);
    let bytes = decoded(DType::U8, &[3], "28b52ffd 20 03 190000 010203");
    assert_eq!(bytes.as_slice::<u8>().unwrap(), [1, 2, 3]);
}

#[test]
fn empty_tensors_have_empty_payloads() {
    let specs = [
        (CodecSpec::Raw, DType::F32),
        (CodecSpec::F16, DType::F32),
        (CodecSpec::Int8 { axis: 0 }, DType::F32),
        (CodecSpec::Int8 { axis: 1 }, DType::F32),
        (CodecSpec::Packed, DType::I64),
        (CodecSpec::Packed, DType::Bool),
        (CodecSpec::Zstd, DType::F32),
    ];
    for spec in [
        CodecSpec::Png,
        CodecSpec::Jpeg { quality: 85 },
        CodecSpec::Webp { quality: 75 },
    ] {
        let tensor = Tensor::zeros(DType::U8, vec![1 << 40, 0, 5, 3]).unwrap();
        lossless(&spec, &tensor, "");
    }
    for (spec, dtype) in specs {
        let tensor = Tensor::zeros(dtype, vec![1 << 40, 0]).unwrap();
        lossless(&spec, &tensor, "");
    }
}

#[test]
fn scalars_are_tensors_without_axes() {
    let tensor = Tensor::from_vec(vec![], vec![7i64]).unwrap();
    lossless(&CodecSpec::Packed, &tensor, "0700000000000000 00");
    let tensor = Tensor::from_vec(vec![], vec![1.0f32]).unwrap();
    check(&CodecSpec::F16, &tensor, "003c");
}

/// What others may send, where many payloads stand for one tensor.
fn decodes(spec: &CodecSpec, tensor: &Tensor, payload: &str) {
    let digits: Vec<u8> = payload.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let payload: Vec<u8> = digits.chunks(2).map(byte).collect();
    let back = decode(spec, tensor.dtype(), tensor.shape(), &payload).unwrap();
    assert_eq!(back.bytes(), tensor.bytes(), "{spec} {tensor:?}");
}

#[test]
fn zstd() {
    // Magic number, single segment, 8 bytes; one last stored block of 8; the planes.
    let floats = Tensor::from_vec(vec![2], vec![1.0f32, -2.5]).unwrap();
    let frame = "28b52ffd 20 08 410000";
    decodes(
        &CodecSpec::Zstd,
        &floats,
        &format!("{frame} 0000 0000 8020 3fc0"),
    );
    let shorts = Tensor::from_vec(vec![4], vec![1i16, 2, 3, -1]).unwrap();
    decodes(
        &CodecSpec::Zstd,
        &shorts,
        &format!("{frame} 010203ff 000000ff"),
    );
    let bytes = Tensor::from_vec(vec![8], (1..9).collect::<Vec<u8>>()).unwrap();
    decodes(
        &CodecSpec::Zstd,
        &bytes,
        &format!("{frame} 0102030405060708"),
    );
    let empty = Tensor::from_vec(vec![0, 3], Vec::<f32>::new()).unwrap();
    lossless(&CodecSpec::Zstd, &empty, "");
}

#[test]
fn png() {
    // Two pictures of 1 × 1 pixels, each behind its length: signature, header, a stored block with
    // filter byte and sample, the end.
    let file = |checksums: [&str; 2], data: &str, color: &str| {
        format!(
            "89504e470d0a1a0a 0000000d 49484452 00000001 00000001 08 {color} 00 00 00 {} \
             {data} {} 00000000 49454e44 ae426082",
            checksums[0], checksums[1]
        )
    };
    let grey = |sample: &str, adler: &str, checksum: &str| {
        let data = format!("0000000d 49444154 7801 01 0200 fdff 00 {sample} {adler}");
        file(["3a7e9b55", checksum], &data, "00")
    };
    let one = grey("07", "00090008", "b9ac8687");
    let two = grey("ff", "01010100", "608712b5");
    let tensor = Tensor::from_vec(vec![2, 1, 1, 1], vec![7u8, 255]).unwrap();
    decodes(
        &CodecSpec::Png,
        &tensor,
        &format!("46000000 {one} 46000000 {two}"),
    );
}
