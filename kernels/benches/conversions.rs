//! How fast the codec's conversions are: against the scalar reference (against the `half` crate
//! for half precision), and against `memcpy`, which is the limit that memory sets.
//!
//! `cargo bench -p seamline-kernels` prints a table; with `-- --json`, one line of JSON a row:
//! `ours`, `peer_value` and `limit` in `unit`, medians over interleaved rounds; `spread` is the
//! distance between the quartiles of `ours`, over its median. GB/s count the bytes of the
//! tensor's side (f32, integers, a byte a boolean). A copy reads and writes those bytes, so that
//! what only reads (`abs_max`, `min_max`) or writes less can pass it.

use std::hint::black_box;
use std::time::Instant;

use half::slice::HalfFloatSliceExt;
use seamline_kernels as kernels;
use seamline_kernels::{Isa, reference};

/// Rounds of each measurement.
const ROUNDS: usize = 25;

/// Bytes that one measurement runs over, by repetition where the tensor is smaller.
const BYTES_PER_ROUND: usize = 32 << 20;

/// Bytes of the tensor: one that lies in the second-level cache, one that does not.
const SIZES: [(&str, usize); 2] = [("256KiB", 256 << 10), ("16MiB", 16 << 20)];

struct Row {
    case: String,
    peer: &'static str,
    ours: Vec<f64>,
    theirs: Vec<f64>,
    copy: Vec<f64>,
}

/// GB/s of `work`, which goes through `bytes` of tensor.
fn rate(bytes: usize, work: &mut dyn FnMut()) -> f64 {
    let repeats = (BYTES_PER_ROUND / bytes).max(1);
    let start = Instant::now();
    for _ in 0..repeats {
        work();
    }
    (bytes * repeats) as f64 / start.elapsed().as_secs_f64() / 1e9
}

/// Measures ours, the peer and a copy in alternation.
fn measure(
    case: String,
    peer: &'static str,
    bytes: usize,
    ours: &mut dyn FnMut(),
    theirs: &mut dyn FnMut(),
) -> Row {
    let src = vec![1u8; bytes];
    let mut dst = vec![0u8; bytes];
    let mut copy = || black_box(&mut dst[..]).copy_from_slice(black_box(&src));
    let mut row = Row {
        case,
        peer,
        ours: Vec::new(),
        theirs: Vec::new(),
        copy: Vec::new(),
    };
    for round in 0..=ROUNDS {
        let rates = (
            rate(bytes, ours),
            rate(bytes, theirs),
            rate(bytes, &mut copy),
        );
        // The first round warms up caches, pages and dispatch.
        if round > 0 {
            row.ours.push(rates.0);
            row.theirs.push(rates.1);
            row.copy.push(rates.2);
        }
    }
    row
}

/// The value at `quantile` of the sorted rates.
fn quantile(rates: &[f64], quantile: usize) -> f64 {
    let mut sorted = rates.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() - 1) * quantile / 100]
}

fn print(row: &Row, json: bool) {
    let ours = quantile(&row.ours, 50);
    let theirs = quantile(&row.theirs, 50);
    let limit = quantile(&row.copy, 50);
    let spread = (quantile(&row.ours, 75) - quantile(&row.ours, 25)) / ours;
    let ratio = ours / theirs;
    if json {
        println!(
            "{{\"bench\":\"conversions\",\"case\":\"{}\",\"ours\":{ours:.2},\"peer\":\"{}\",\
             \"peer_value\":{theirs:.2},\"unit\":\"GB/s\",\"ratio\":{ratio:.2},\
             \"limit\":{limit:.2},\"spread\":{spread:.3}}}",
            row.case, row.peer
        );
    } else {
        println!(
            "{:<26} {ours:>7.1} GB/s ±{:<4.0}%  {:<10} {theirs:>7.1} GB/s  ×{ratio:<6.2} memcpy {limit:.1} GB/s",
            row.case,
            spread * 50.0,
            row.peer
        );
    }
}

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    if !json {
        let isas: Vec<&str> = Isa::ALL
            .into_iter()
            .filter(|isa| isa.is_available())
            .map(Isa::name)
            .collect();
        println!("instruction sets: {}", isas.join(", "));
    }
    for (size, bytes) in SIZES {
        for row in floats(size, bytes).into_iter().chain(integers(size, bytes)) {
            print(&row, json);
        }
    }
}

/// Values of the size of activations.
fn activations(count: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    };
    (0..count)
        .map(|_| (next() >> 8) as f32 / 1e6 - 8.0)
        .collect()
}

fn floats(size: &str, bytes: usize) -> Vec<Row> {
    let src = activations(bytes / 4);
    let (mut out, mut out2) = (vec![0.0f32; src.len()], vec![0.0f32; src.len()]);
    let (mut halves, mut halves2) = (vec![[0u8; 2]; src.len()], vec![half::f16::ZERO; src.len()]);
    let (mut levels, mut levels2) = (vec![0i8; src.len()], vec![0i8; src.len()]);
    let case = |name: &str| format!("{name}/{size}");
    vec![
        measure(
            case("f32_to_f16"),
            "half",
            bytes,
            &mut || kernels::f32_to_f16(black_box(&src), black_box(&mut halves)),
            &mut || black_box(&mut halves2[..]).convert_from_f32_slice(black_box(&src)),
        ),
        measure(
            case("f16_to_f32"),
            "half",
            bytes,
            &mut || kernels::f16_to_f32(black_box(&halves), black_box(&mut out)),
            &mut || black_box(&halves2[..]).convert_to_f32_slice(black_box(&mut out2)),
        ),
        measure(
            case("abs_max"),
            "reference",
            bytes,
            &mut || {
                black_box(kernels::abs_max(black_box(&src)));
            },
            &mut || {
                black_box(reference::abs_max(black_box(&src)));
            },
        ),
        measure(
            case("quantize_i8"),
            "reference",
            bytes,
            &mut || kernels::quantize_i8(black_box(&src), 15.0, black_box(&mut levels)),
            &mut || reference::quantize_i8(black_box(&src), 15.0, black_box(&mut levels2)),
        ),
        measure(
            case("dequantize_i8"),
            "reference",
            bytes,
            &mut || kernels::dequantize_i8(black_box(&levels), 0.06, black_box(&mut out)),
            &mut || reference::dequantize_i8(black_box(&levels2), 0.06, black_box(&mut out2)),
        ),
    ]
}

fn integers(size: &str, bytes: usize) -> Vec<Row> {
    let src: Vec<u64> = (0..bytes as u64 / 8).map(|x| 1000 + x % 30_000).collect();
    let (mut out, mut out2) = (vec![0u64; src.len()], vec![0u64; src.len()]);
    let (mut packed, mut packed2) = (vec![[0u8; 2]; src.len()], vec![[0u8; 2]; src.len()]);
    let bools: Vec<u8> = (0..bytes).map(|x| u8::from(x % 3 == 0)).collect();
    let (mut unpacked, mut unpacked2) = (vec![0u8; bytes], vec![0u8; bytes]);
    let (mut bits, mut bits2) = (vec![0u8; bytes / 8], vec![0u8; bytes / 8]);
    let case = |name: &str| format!("{name}/{size}");
    vec![
        measure(
            case("min_max_u64"),
            "reference",
            bytes,
            &mut || {
                black_box(kernels::min_max_u64(black_box(&src)));
            },
            &mut || {
                black_box(reference::min_max(black_box(&src[..])));
            },
        ),
        measure(
            case("narrow_u64_to_2"),
            "reference",
            bytes,
            &mut || kernels::narrow_u64_to_2(black_box(&src), 1000, black_box(&mut packed)),
            &mut || reference::narrow_u64_to_2(black_box(&src), 1000, black_box(&mut packed2)),
        ),
        measure(
            case("widen_2_to_u64"),
            "reference",
            bytes,
            &mut || {
                black_box(kernels::widen_2_to_u64(
                    black_box(&packed),
                    1000,
                    black_box(&mut out),
                ));
            },
            &mut || {
                black_box(reference::widen_2_to_u64(
                    black_box(&packed2),
                    1000,
                    black_box(&mut out2),
                ));
            },
        ),
        measure(
            case("pack_bools"),
            "reference",
            bytes,
            &mut || kernels::pack_bools(black_box(&bools), black_box(&mut bits)),
            &mut || reference::pack_bools(black_box(&bools), black_box(&mut bits2)),
        ),
        measure(
            case("unpack_bools"),
            "reference",
            bytes,
            &mut || kernels::unpack_bools(black_box(&bits), black_box(&mut unpacked)),
            &mut || reference::unpack_bools(black_box(&bits2), black_box(&mut unpacked2)),
        ),
    ]
}
