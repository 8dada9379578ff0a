//! Compressed payloads: pictures, and any value by Zstandard. What comes back, how exact, and what
//! is refused.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "samples and lengths of tests are small"
)]

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use seamline_codec::{
    CodecError, CodecErrorKind, can_encode, decode, encode_bytes, max_encoded_len,
};
use seamline_plan::{CodecSpec, DType, Tensor};

const LOSSY: [&str; 7] = [
    "jpeg95", "jpeg85", "jpeg75", "jpeg50", "webp90", "webp75", "webp50",
];

fn spec(name: &str) -> CodecSpec {
    CodecSpec::from_name(name).unwrap()
}

/// Whether `name` is to be tested; a codec without its encoder is named as skipped.
fn is_here(name: &str) -> bool {
    let here = can_encode(&spec(name));
    if !here {
        eprintln!("skipped: {name}: built without the feature `webp`");
    }
    here
}

fn pictures(shape: [usize; 4], sample: impl Fn(usize, usize, usize) -> u8) -> Tensor {
    let [count, height, width, channels] = shape;
    let mut samples = Vec::new();
    for picture in 0..count {
        for at in 0..height * width {
            let (y, x) = (at / width + picture, at % width);
            samples.extend((0..channels).map(|channel| sample(y, x, channel)));
        }
    }
    Tensor::from_vec(shape.to_vec(), samples).unwrap()
}

/// Slopes of three colours, an edge, and a fine pattern on one half.
fn scene(shape: [usize; 4]) -> Tensor {
    pictures(shape, |y, x, channel| {
        let slope = 40 + (x * (channel + 1) + y * (3 - channel)) / 3 % 160;
        let edge = if (x / 40 + y / 32) % 2 == 0 { 0 } else { 40 };
        let fine = if x > 60 { (x * 7 + y * 13) % 5 } else { 0 };
        (slope + edge + fine) as u8
    })
}

fn noise(shape: [usize; 4]) -> Tensor {
    let state = std::cell::Cell::new(0x9e37_79b9_7f4a_7c15u64);
    pictures(shape, |_, _, _| {
        let mut bits = state.get();
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        state.set(bits);
        (bits >> 32) as u8
    })
}

/// Peak signal to noise, in dB.
fn psnr(a: &[u8], b: &[u8]) -> f64 {
    let squares = a.iter().zip(b).map(|(&a, &b)| {
        let off = f64::from(a) - f64::from(b);
        off * off
    });
    let mean = squares.sum::<f64>() / a.len() as f64;
    10.0 * (255.0 * 255.0 / mean).log10()
}

fn trip(name: &str, tensor: &Tensor) -> (usize, Tensor) {
    let spec = spec(name);
    let payload = encode_bytes(&spec, tensor).unwrap();
    let most = max_encoded_len(&spec, tensor.dtype(), tensor.shape()).unwrap();
    assert!(payload.len() as u64 <= most, "{name}: {}", payload.len());
    let back = decode(&spec, tensor.dtype(), tensor.shape(), &payload).unwrap();
    (payload.len(), back)
}

#[test]
fn lossy_pictures_are_as_close_as_their_quality_says() {
    let scene = scene([2, 96, 120, 3]);
    // PSNR in dB: what the encoders give here, less 1 dB.
    let least = [46.2, 43.7, 43.5, 39.0, 43.1, 41.8, 40.7];
    let mut before = f64::INFINITY;
    for (name, least) in LOSSY.into_iter().zip(least) {
        if !is_here(name) {
            continue;
        }
        let (bytes, back) = trip(name, &scene);
        let got = psnr(scene.bytes(), back.bytes());
        println!(
            "{name}: {bytes} of {} bytes, {got:.1} dB",
            scene.bytes().len()
        );
        assert!(got >= least, "{name}: {got:.1} dB; expected {least}");
        assert!(bytes < scene.bytes().len() / 2, "{name}: {bytes} bytes");
        if name.ends_with("95") || name.ends_with("90") {
            before = f64::INFINITY;
        }
        assert!(got < before, "{name} is no worse than a higher quality");
        before = got;
    }
}

#[test]
fn grey_and_odd_sizes_go_through() {
    for shape in [[1, 1, 1, 3], [3, 7, 5, 3], [1, 17, 33, 3], [2, 9, 16, 1]] {
        let scene = scene(shape);
        assert_eq!(trip("png", &scene).1.bytes(), scene.bytes(), "{shape:?}");
        for name in LOSSY {
            if shape[3] == 3 && !is_here(name) || shape[3] == 1 && name.starts_with("webp") {
                continue;
            }
            let back = trip(name, &scene).1;
            let got = psnr(scene.bytes(), back.bytes());
            assert!(got >= 15.0, "{name} {shape:?}: {got:.1} dB");
        }
    }
}

#[test]
fn noise_is_sent_within_the_bound_at_a_lower_quality() {
    for name in ["png", "jpeg100", "jpeg95", "webp100", "webp90"] {
        if is_here(name) {
            for shape in [[1, 64, 64, 3], [2, 1, 300, 3], [2, 300, 1, 3]] {
                trip(name, &noise(shape));
            }
        }
    }
}

#[test]
fn only_pictures_are_taken() {
    let tensor = Tensor::zeros(DType::U8, vec![1, 3, 8, 8]).unwrap();
    let error = encode_bytes(&CodecSpec::Png, &tensor).unwrap_err();
    assert_eq!(
        error.to_string(),
        "codec `png` takes pictures [N, H, W, 1 or 3], got shape [1, 3, 8, 8]; choose `raw`, which \
         takes any"
    );
    assert_eq!(error.kind(), CodecErrorKind::Mismatch);
    let grey = Tensor::zeros(DType::U8, vec![1, 8, 8, 1]).unwrap();
    let error = encode_bytes(&spec("webp75"), &grey).unwrap_err();
    assert!(matches!(error, CodecError::Shape { .. }), "{error}");
    let rgb = Tensor::zeros(DType::U8, vec![1, 8, 8, 3]).unwrap();
    let error = encode_bytes(&CodecSpec::Jpeg { quality: 0 }, &rgb).unwrap_err();
    assert!(matches!(error, CodecError::Quality { quality: 0, .. }));
    let long = Tensor::zeros(DType::U8, vec![1, 1, 70_000, 3]).unwrap();
    let error = encode_bytes(&spec("jpeg75"), &long).unwrap_err();
    assert_eq!(error.kind(), CodecErrorKind::Value, "{error}");
    assert!(error.to_string().contains("at most 65535 pixels a side"));
}

/// The peer's fault, in words.
fn refused(spec: &CodecSpec, dtype: DType, shape: &[usize], payload: &[u8]) -> String {
    let error = decode(spec, dtype, shape, payload).unwrap_err();
    assert_eq!(error.kind(), CodecErrorKind::Payload, "{error}");
    error.to_string()
}

/// A payload of one file.
fn framed(file: &[u8]) -> Vec<u8> {
    [&(file.len() as u32).to_le_bytes()[..], file].concat()
}

#[test]
fn a_payload_cut_short_is_refused_at_every_length() {
    let scene = scene([2, 24, 24, 3]);
    for name in ["png", "jpeg75", "webp75", "zstd"] {
        if !is_here(name) {
            continue;
        }
        let payload = encode_bytes(&spec(name), &scene).unwrap();
        for length in 0..payload.len() {
            refused(&spec(name), DType::U8, scene.shape(), &payload[..length]);
        }
        let more = [&payload[..], &[0]].concat();
        refused(&spec(name), DType::U8, scene.shape(), &more);
        // The same cut within a file whose stated length is right: nothing is filled in.
        if name == "png" || name == "jpeg75" {
            let length = u32::from_le_bytes(*payload.first_chunk().unwrap()) as usize;
            let file = &payload[4..4 + length];
            for length in 0..file.len() {
                let payload = framed(&file[..length]);
                refused(&spec(name), DType::U8, &[1, 24, 24, 3], &payload);
            }
        }
    }
}

#[test]
fn a_picture_of_another_kind_is_refused_by_its_header() {
    let scene = scene([1, 24, 32, 3]);
    for name in ["png", "jpeg75", "webp75"] {
        if !is_here(name) {
            continue;
        }
        let payload = encode_bytes(&spec(name), &scene).unwrap();
        for shape in [
            [1, 32, 24, 3],
            [1, 24, 31, 3],
            [1, 23, 32, 3],
            [1, 48, 64, 3],
        ] {
            let text = refused(&spec(name), DType::U8, &shape, &payload);
            assert!(text.contains("has 32 × 24 pixels of 3 channels"), "{text}");
        }
        let text = refused(&spec(name), DType::U8, &[2, 24, 32, 3], &payload);
        assert!(
            text.contains("picture 1") && text.contains("missing"),
            "{text}"
        );
        for other in ["png", "jpeg75", "webp75"] {
            if other != name {
                let text = refused(&spec(other), DType::U8, scene.shape(), &payload);
                assert!(
                    text.contains(" header") || text.contains("end mark"),
                    "{text}"
                );
            }
        }
    }
    // Grey for colour.
    let grey = encode_bytes(&CodecSpec::Png, &self::scene([1, 24, 32, 1])).unwrap();
    let text = refused(&CodecSpec::Png, DType::U8, &[1, 24, 32, 3], &grey);
    assert!(text.contains("of 1 channels; expected"), "{text}");
}

/// Replaces what stands at `at` of the file in a payload of one.
fn edited(payload: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    payload[4 + at..4 + at + bytes.len()].copy_from_slice(bytes);
    payload
}

#[test]
fn what_decoders_read_differently_or_at_length_is_refused() {
    let scene = scene([1, 24, 32, 3]);
    let jpeg = encode_bytes(&spec("jpeg75"), &scene).unwrap();
    let find = |marker: u8| {
        let at = jpeg[4..].windows(2).position(|pair| pair == [0xff, marker]);
        at.unwrap()
    };
    let refuse = |payload: &[u8]| refused(&spec("jpeg75"), DType::U8, &[1, 24, 32, 3], payload);
    // Progressive, arithmetic, 12 bits, a scan of one component.
    for (at, bytes, part) in [
        (find(0xc0) + 1, 0xc2, "expected a baseline JPEG"),
        (find(0xc0) + 1, 0xc9, "expected a baseline JPEG"),
        (find(0xc0) + 4, 12, "12 bits a sample"),
        (find(0xda) + 4, 1, "scan of 1 of its 3 components"),
    ] {
        let text = refuse(&edited(&jpeg, at, &[bytes]));
        assert!(text.contains(part), "{text}");
    }
    // CMYK: four components, each of the length that three have.
    let text = refuse(&edited(&jpeg, find(0xc0) + 9, &[4]));
    assert!(text.contains("of 4 channels; expected"), "{text}");
    // A second picture, bytes of anything, and a scan more behind the first.
    let file = &jpeg[4..];
    let text = refuse(&framed(&[file, file].concat()));
    let behind = format!("{} bytes behind its end", file.len());
    assert!(text.contains(&behind), "{text}");
    refuse(&framed(&[file, b"more"].concat()));
    let (data, end) = file.split_at(file.len() - 2);
    let scan = &file[find(0xda)..];
    let text = refuse(&framed(&[data, scan].concat()));
    assert!(text.contains("0xffda behind its scan"), "{text}");
    // Fill bytes before a marker are in the standard.
    let filled = framed(&[data, b"\xff\xff", end].concat());
    decode(&spec("jpeg75"), DType::U8, &[1, 24, 32, 3], &filled).unwrap();
    let png = encode_bytes(&CodecSpec::Png, &scene).unwrap();
    let refuse = |payload: &[u8]| refused(&CodecSpec::Png, DType::U8, &[1, 24, 32, 3], payload);
    let text = refuse(&edited(&png, 24, &[16]));
    assert!(text.contains("has depth 16"), "{text}");
    let text = refuse(&edited(&png, 28, &[1]));
    assert!(text.contains("interlace 1"), "{text}");
    let file = &png[4..];
    let animated = [
        &file[..33],
        b"\0\0\0\x08acTL\0\0\0\x01\0\0\0\0\0\0\0\0",
        &file[33..],
    ]
    .concat();
    assert!(refuse(&framed(&animated)).contains("animated"));
    let text = refuse(&framed(&[file, b"more"].concat()));
    assert!(text.contains("4 bytes behind its end"), "{text}");
}

/// 2 × 2 pixels by libwebp at quality 75.
const WEBP: &str = "524946463800000057454250565038202c000000f001009d012a0200020002003425a00274ba01f80004c80000fe9717ff20b96175c8d7fe712a209379800000";

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn a_webp_decodes_without_its_encoder_and_only_in_its_simple_form() {
    let file = bytes_of(WEBP);
    let decode = |file: &[u8]| decode(&spec("webp75"), DType::U8, &[1, 2, 2, 3], &framed(file));
    let tensor = decode(&file).unwrap();
    let orange = [200u8, 100, 50].repeat(4);
    assert!(psnr(tensor.bytes(), &orange) > 30.0, "{tensor:?}");
    // The extended form may hold a frame of any size behind a canvas of the right one, or many.
    for form in [b"VP8X", b"VP8L", b"ANIM"] {
        let mut other = file.clone();
        other[12..16].copy_from_slice(form);
        let text = decode(&other).unwrap_err().to_string();
        assert!(
            text.contains("expected `VP8 `, the simple lossy form"),
            "{text}"
        );
    }
    // Not even an encoder of lossless files that means well.
    let mut lossless = Vec::new();
    image_webp::WebPEncoder::new(&mut lossless)
        .encode(&orange, 2, 2, image_webp::ColorType::Rgb8)
        .unwrap();
    let text = decode(&lossless).unwrap_err().to_string();
    assert!(text.contains("\"VP8L\""), "{text}");
    let more = [&file[..], b"EXIF\x02\0\0\0ab"].concat();
    assert!(
        decode(&more)
            .unwrap_err()
            .to_string()
            .contains("its headers state")
    );
    let mut large = file.clone();
    large[26..30].copy_from_slice(&[0xff, 0x3f, 0xff, 0x3f]);
    let text = decode(&large).unwrap_err().to_string();
    assert!(text.contains("has 16383 × 16383 pixels"), "{text}");
    let mut scaled = file;
    scaled[27] |= 0x40;
    assert!(decode(&scaled).unwrap_err().to_string().contains("scaled"));
}

#[test]
fn a_zstandard_frame_of_other_size_is_refused_before_it_is_unpacked() {
    let zeros = Tensor::zeros(DType::F32, vec![1 << 20]).unwrap();
    let payload = encode_bytes(&CodecSpec::Zstd, &zeros).unwrap();
    assert!(payload.len() < 1024, "{}", payload.len());
    let refuse =
        |shape: &[usize], payload: &[u8]| refused(&CodecSpec::Zstd, DType::F32, shape, payload);
    let text = refuse(&[1 << 10], &payload);
    assert!(
        text.contains("states 4194304 bytes; the tensor has 4096"),
        "{text}"
    );
    refuse(&[1 << 30], &payload);
    let text = refuse(&[1 << 20], &payload.repeat(2));
    assert!(text.contains("the frame has"), "{text}");
    refuse(&[1 << 20], &[0; 64]);
    // A skippable frame, and one that does not state its size.
    let skippable = bytes_of("502a4d18 08000000 0000000000000000");
    refuse(&[4], &skippable);
    let text = refuse(
        &[4],
        &bytes_of("28b52ffd 00 58 410000 00000000000000000000"),
    );
    assert!(text.contains("does not state its size"), "{text}");
    let bools = encode_bytes(
        &CodecSpec::Zstd,
        &Tensor::from_vec(vec![9], vec![7u8; 9]).unwrap(),
    );
    let error = decode(&CodecSpec::Zstd, DType::Bool, &[9], &bools.unwrap()).unwrap_err();
    assert!(matches!(
        error,
        CodecError::Boolean {
            element: 0,
            value: 7
        }
    ));
}

/// The checksum of a PNG's chunk.
fn crc32(bytes: &[u8]) -> u32 {
    let fold = |crc: u32, &byte: &u8| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            crc >> 1 ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    };
    !bytes.iter().fold(u32::MAX, fold)
}

#[test]
fn data_behind_the_last_row_is_not_unpacked() {
    // 786,432 samples in 1,000 bytes, with the header of 8 × 8 pixels.
    let mut bomb = Vec::new();
    let mut encoder = png::Encoder::new(&mut bomb, 512, 512);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_deflate_compression(png::DeflateCompression::Level(9));
    encoder.set_filter(png::Filter::NoFilter);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(&[0; 512 * 512 * 3]).unwrap();
    writer.finish().unwrap();
    let refuse = |file: &[u8]| refused(&CodecSpec::Png, DType::U8, &[1, 8, 8, 3], &framed(file));
    assert!(refuse(&bomb).contains("has 512 × 512 pixels"));
    bomb[16..24].copy_from_slice(&[0, 0, 0, 8, 0, 0, 0, 8]);
    let checksum = crc32(&bomb[12..29]).to_be_bytes();
    bomb[29..33].copy_from_slice(&checksum);
    // Unpacking ends with the last row, of 8 black pixels.
    let black = decode(&CodecSpec::Png, DType::U8, &[1, 8, 8, 3], &framed(&bomb)).unwrap();
    assert!(black.bytes().iter().all(|&sample| sample == 0));
    // Zstandard: 128 KiB of zeros behind a header of 192 bytes.
    let bomb = bytes_of("28b52ffd 20 c0 030010 00");
    let text = refused(&CodecSpec::Zstd, DType::U8, &[1, 8, 8, 3], &bomb);
    assert!(text.starts_with("`zstd`: "), "{text}");
}

#[cfg(feature = "webp")]
#[test]
fn a_webp_has_room_for_the_partitions_that_it_states() {
    let scene = noise([1, 90, 130, 3]);
    let webp75 = spec("webp75");
    for (partitions, segments) in [(0, 1), (1, 4), (2, 2), (3, 4)] {
        let mut config = webp::WebPConfig::new().unwrap();
        (config.partitions, config.segments) = (partitions, segments);
        // Slower methods write one partition whatever is asked for.
        (config.quality, config.method) = (20.0, 2);
        let file = webp::Encoder::from_rgb(scene.bytes(), 130, 90)
            .encode_advanced(&config)
            .unwrap();
        let decode = |file: &[u8]| decode(&webp75, DType::U8, scene.shape(), &framed(file));
        decode(&file).unwrap();
        let first = u32::from_le_bytes([file[20], file[21], file[22], 0]) as usize >> 5;
        for at in (0..(1 << partitions) - 1).map(|index| 30 + first + 3 * index) {
            let mut large = file.to_vec();
            large[at + 2] = 0xff;
            let text = decode(&large).unwrap_err().to_string();
            assert!(text.contains("bytes for partitions of 16"), "{text}");
        }
        let mut large = file.to_vec();
        large[22] = 0xff;
        let text = decode(&large).unwrap_err().to_string();
        assert!(text.contains("ends within its first partition"), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(0x5ea3_2222),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn png_gives_back_every_sample(
        (count, height, width) in (0usize..4, 0usize..24, 0usize..24),
        channels in prop_oneof![Just(1usize), Just(3)],
        seed in proptest::collection::vec(any::<u8>(), 1..50),
    ) {
        let tensor = pictures([count, height, width, channels], |y, x, channel| {
            seed[(y * 31 + x * 7 + channel) % seed.len()]
        });
        let (bytes, back) = trip("png", &tensor);
        prop_assert_eq!(back.bytes(), tensor.bytes());
        prop_assert_eq!(bytes == 0, tensor.is_empty());
    }

    #[test]
    fn changed_files_never_panic(
        name in proptest::sample::select(&["png", "jpeg85", "webp75"][..]),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        if can_encode(&spec(name)) {
            let scene = scene([1, 20, 24, 3]);
            let mut payload = encode_bytes(&spec(name), &scene).unwrap().to_vec();
            for (at, byte) in flips {
                let at = at.index(payload.len());
                payload[at] = byte;
            }
            match decode(&spec(name), DType::U8, scene.shape(), &payload) {
                Ok(back) => prop_assert_eq!(back.shape(), scene.shape()),
                Err(error) => prop_assert_eq!(error.kind(), CodecErrorKind::Payload),
            }
        }
    }
}
