//! What the targets share: seeds as files, and a bound on what a run may allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

thread_local! {
    /// Bytes that this thread holds now beyond what it held when the count began, and the most.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

struct Counting;

fn count(bytes: isize) {
    // The counter may be gone while a thread ends; then nobody counts.
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        let now = now + bytes;
        held.set((now, most.max(now)));
    });
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps `dealloc`'s contract, and the allocation is the system's.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `work`, which may hold at most `most` bytes at any time; more is a find.
pub fn bounded<T>(most: usize, work: impl FnOnce() -> T) -> T {
    HELD.set((0, 0));
    let result = work();
    let (_, held) = HELD.get();
    assert!(
        held <= most as isize,
        "{held} bytes were held; at most {most} are in proportion to the input"
    );
    result
}

/// Writes the seeds into the folder that the environment names, where it names one.
pub fn plant(seeds: impl IntoIterator<Item = Vec<u8>>) {
    let Some(folder) = std::env::var_os("SEEDS") else {
        return;
    };
    for (index, seed) in seeds.into_iter().enumerate() {
        let path = Path::new(&folder).join(format!("seed-{index}"));
        std::fs::write(path, seed).expect("the corpus folder can be written");
    }
}

/// Bytes that steer a run, taken from the front of an input.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next byte, 0 at the end.
    pub fn byte(&mut self) -> u8 {
        let (byte, rest) = self
            .0
            .split_first()
            .map_or((0, self.0), |(b, rest)| (*b, rest));
        self.0 = rest;
        byte
    }

    /// The next eight bytes as a number.
    pub fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| word << 8 | u64::from(self.byte()))
    }
}
