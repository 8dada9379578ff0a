//! In steady state a request allocates nothing, and a hostile payload makes nobody allocate more
//! than the tensor that was declared.

#![allow(
    clippy::unwrap_used,
    reason = "helpers of tests, which clippy does not know as such"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use seamline_codec::{decode, decode_into, encode, encode_bytes};
use seamline_plan::{CodecSpec, DType, Tensor};

thread_local! {
    /// Bytes that this thread asked for.
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // The counter may be gone while a thread ends; then nobody counts.
        let _ = ASKED.try_with(|asked| asked.set(asked.get() + layout.size()));
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
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

/// Every codec, with a tensor of 2 × 3 × 100 or of 5 × 700 elements.
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
