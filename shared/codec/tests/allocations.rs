//! In steady state a request allocates nothing, and a hostile payload makes nobody allocate more
//! than the tensor that was declared.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]
#![allow(
    clippy::cast_possible_truncation,
    reason = "samples of tests are made to fit"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use seamline_codec::{can_encode, decode, decode_into, encode, encode_bytes};
use seamline_plan::{CodecSpec, DType, Tensor};

thread_local! {
    /// Bytes that this thread asked for.
    static ASKED: Cell<usize> = const { Cell::new(0) };
    /// Bytes that this thread holds now beyond what it held when the count began, and the most.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

struct Counting;

fn hold(bytes: isize) {
    // The counter may be gone while a thread ends; then nobody counts.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        held.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ASKED.try_with(|asked| asked.set(asked.get() + layout.size()));
        hold(layout.size() as isize);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        hold(-(layout.size() as isize));
        // SAFETY: the caller keeps `dealloc`'s contract, and `alloc` above is the system's.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that `work` asks the allocator for.
fn allocated(work: impl FnOnce()) -> usize {
    let before = ASKED.get();
    work();
    ASKED.get() - before
}

/// The most bytes that `work` holds at a time.
fn held(work: impl FnOnce()) -> usize {
    HELD.set((0, 0));
    work();
    HELD.get().1.unsigned_abs()
}

/// Every codec of a fixed layout, with a tensor of 2 × 3 × 100 or of 5 × 700 elements.
fn cases() -> Vec<(CodecSpec, Tensor)> {
    let floats = |shape: Vec<usize>| {
        let count = shape.iter().product();
        let values: Vec<f32> = (0..)
            .map(|x: u16| f32::from(x) - 300.0)
            .take(count)
            .collect();
        Tensor::from_vec(shape, values).unwrap()
    };
    let integers = Tensor::from_vec(vec![600], (0..600i64).collect()).unwrap();
    let bools = Tensor::from_bools(vec![600], &[true; 600]).unwrap();
    vec![
        (CodecSpec::Raw, floats(vec![2, 3, 100])),
        (CodecSpec::F16, floats(vec![2, 3, 100])),
        (CodecSpec::Int8 { axis: 1 }, floats(vec![2, 3, 100])),
        (CodecSpec::Int8 { axis: 1 }, floats(vec![5, 700])),
        (CodecSpec::Packed, integers),
        (CodecSpec::Packed, bools),
    ]
}

#[test]
fn reused_buffers_are_enough() {
    for (spec, tensor) in cases() {
        let mut out = Vec::new();
        encode(&spec, &tensor, &mut out).unwrap();
        // At an odd address too, where elements go through blocks on the stack.
        let mut dst = vec![0; tensor.bytes().len() + 1];
        let asked = allocated(|| {
            for offset in [0, 1] {
                out.clear();
                encode(&spec, &tensor, &mut out).unwrap();
                let dst = &mut dst[offset..][..tensor.bytes().len()];
                decode_into(&spec, tensor.dtype(), tensor.shape(), &out, dst).unwrap();
            }
        });
        assert_eq!(asked, 0, "{spec} {tensor:?}");
    }
}

#[test]
fn raw_bytes_are_shared_not_copied() {
    let (spec, tensor) = &cases()[0];
    let mut payload = None;
    let asked = allocated(|| payload = Some(encode_bytes(spec, tensor).unwrap()));
    assert_eq!(asked, 0);
    assert_eq!(payload.unwrap().as_ptr(), tensor.bytes().as_ptr());
}

#[test]
fn a_hostile_payload_costs_no_more_than_the_tensor() {
    for (spec, tensor) in cases() {
        let right = encode_bytes(&spec, &tensor).unwrap();
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
        // The tensor, and some words for its shape, its owner or an error.
        let limit = tensor.bytes().len() + 512;
        for at in 0..right.len().min(64) {
            for byte in [0x00, 0x7f, 0x80, 0xff] {
                let mut payload = right.to_vec();
                payload[at] = byte;
                let asked = allocated(|| drop(decode(&spec, dtype, shape, &payload)));
                assert!(
                    asked <= limit,
                    "{spec}: {asked} bytes for byte {at} = {byte:#x}"
                );
            }
        }
        let asked = allocated(|| drop(decode(&spec, dtype, shape, &right[1..])));
        assert!(
            asked <= 512,
            "{spec}: {asked} bytes for a payload cut short"
        );
    }
}

/// Pictures [1, side, side, 3] with slopes and a fine pattern.
fn picture(side: usize) -> Tensor {
    let sample = |at: usize| (at / 5 % 200 + (at * 7 + at / 300) % 9) as u8;
    let samples = (0..side * side * 3).map(sample).collect();
    Tensor::from_vec(vec![1, side, side, 3], samples).unwrap()
}

/// What a decoder may hold at a time, the tensor included (see the crate's Costs). The Zstandard
/// library's own context is the C allocator's.
fn most_held(name: &str, tensor: &Tensor) -> usize {
    let bytes = tensor.bytes().len();
    match name {
        "png" => 2 * bytes + (160 << 10),
        "zstd" => 2 * bytes + (1 << 10),
        _ => 3 * bytes + (160 << 10),
    }
}

#[test]
fn a_hostile_picture_costs_a_bounded_multiple_of_the_tensor() {
    for name in ["png", "jpeg50", "jpeg95", "webp75", "zstd"] {
        let spec = CodecSpec::from_name(name).unwrap();
        if !can_encode(&spec) {
            eprintln!("skipped: {name}: built without the feature `webp`");
            continue;
        }
        for side in [8, 40, 256] {
            let tensor = picture(side);
            let right = encode_bytes(&spec, &tensor).unwrap();
            let limit = most_held(name, &tensor);
            let mut most = held(|| drop(decode(&spec, DType::U8, tensor.shape(), &right).unwrap()));
            let changes = if side == 256 { 60 } else { right.len() };
            for change in 0..changes * 4 {
                // All of the headers, and something of the rest.
                let at = if change % 2 == 0 {
                    change / 2
                } else {
                    change * 7919
                };
                let mut payload = right.to_vec();
                payload[at % right.len()] = [0x00, 0x7f, 0x80, 0xff][change % 4];
                most = most.max(held(|| {
                    drop(decode(&spec, DType::U8, tensor.shape(), &payload))
                }));
            }
            println!("{name} {side}: {most} bytes held of at most {limit}");
            assert!(
                most <= limit,
                "{name} {side}: {most} bytes; at most {limit}"
            );
        }
    }
}

#[test]
fn a_wrong_length_is_seen_before_a_large_tensor_is_allocated() {
    for spec in [CodecSpec::Raw, CodecSpec::F16, CodecSpec::Int8 { axis: 0 }] {
        let asked = allocated(|| drop(decode(&spec, DType::F32, &[1 << 50], &[0; 100])));
        assert!(asked <= 512, "{spec}: {asked} bytes");
    }
}

#[test]
fn a_bomb_is_seen_before_anything_is_allocated_for_it() {
    let shape = [1usize, 8, 8, 3];
    let small = Tensor::zeros(DType::U8, shape.to_vec()).unwrap();
    // 16,383 pixels a side in the header of each.
    let large = |name: &str, at: usize, side: &[u8]| {
        let spec = CodecSpec::from_name(name).unwrap();
        let mut payload = encode_bytes(&spec, &small).unwrap().to_vec();
        payload[at..at + side.len()].copy_from_slice(side);
        (spec, payload)
    };
    let jpeg = large("jpeg85", 0, &[]);
    let frame = jpeg.1.windows(2).position(|pair| pair == [0xff, 0xc0]);
    let bombs = [
        large("png", 4 + 16, &[0, 0, 0x3f, 0xff, 0, 0, 0x3f, 0xff]),
        large("jpeg85", frame.unwrap() + 5, &[0x3f, 0xff, 0x3f, 0xff]),
        {
            let zeros = Tensor::zeros(DType::U8, vec![1 << 20]).unwrap();
            let payload = encode_bytes(&CodecSpec::Zstd, &zeros).unwrap();
            (CodecSpec::Zstd, payload.to_vec())
        },
    ];
    for (spec, payload) in bombs {
        let asked = allocated(|| drop(decode(&spec, DType::U8, &shape, &payload).unwrap_err()));
        assert!(asked <= 1024, "{spec}: {asked} bytes");
    }
}
