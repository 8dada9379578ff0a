//! No allocation a request once the queue has reached its size.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use seamline_cloud::batcher::{BatchLimits, Batcher, Decision, Request, Taken};

/// The system's allocator, counting what this thread asks for.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // Fails only while the thread ends, when nobody counts any more.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed on to `System` unchanged; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System` by `alloc` or `realloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `dealloc`; the new size is the caller's to vouch for.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One period of mixed load: pushes to changing keys with priorities and deadlines, cancels,
/// expiries and batches.
fn period(batcher: &mut Batcher<u64, u64>, now: &mut Instant, taken: &mut Vec<Taken<u64>>) -> u64 {
    let mut started = 0;
    for n in 0..4096u64 {
        *now += Duration::from_micros(3);
        let priority = u8::try_from(n % 5).unwrap();
        let deadline = (n % 3 == 0).then(|| *now + Duration::from_micros(40 + 100 * (n % 7)));
        let request = Request {
            priority,
            deadline,
            ..Request::new(n)
        };
        // Keys come and go: each is used for a while only.
        if let Ok(ticket) = batcher.push(*now, (n / 64) * 16 + n % 16, request)
            && n % 11 == 0
        {
            batcher.cancel(ticket);
        }
        batcher.take_expired(*now, taken);
        if n % 4 == 0
            && let Decision::Run(batch) = batcher.next(*now, taken)
        {
            started += batch.len as u64;
        }
        taken.clear();
    }
    batcher.take_all(taken);
    taken.clear();
    started
}

#[test]
fn steady_state_does_not_allocate() {
    for max_queue_delay in [Duration::ZERO, Duration::from_micros(100)] {
        let limits = BatchLimits {
            max_batch_size: 8,
            preferred_batch_sizes: vec![4, 8],
            max_queue_delay,
            max_queue_len: 512,
        };
        let mut batcher = Batcher::new(limits).unwrap();
        let mut now = Instant::now();
        let mut taken = Vec::with_capacity(1024);
        for _ in 0..2 {
            period(&mut batcher, &mut now, &mut taken);
        }
        let before = ALLOCATIONS.get();
        let mut started = 0;
        for _ in 0..20 {
            started += period(&mut batcher, &mut now, &mut taken);
        }
        let allocations = ALLOCATIONS.get() - before;
        assert!(
            started > 10_000,
            "the load must be real: {started} requests started"
        );
        assert_eq!(
            allocations, 0,
            "in {started} requests, queue delay {max_queue_delay:?}"
        );
    }
}
