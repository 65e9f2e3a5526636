//! An allocator that counts, so that a test can say how much memory hostile bytes made the decoder
//! ask for.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// The system's allocator, with two counters for each thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Bytes that this thread holds.
    static LIVE: Cell<usize> = const { Cell::new(0) };
    /// The most it ever held.
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn taken(bytes: usize) {
    let live = LIVE.get().wrapping_add(bytes);
    LIVE.set(live);
    // What another thread allocated and this one freed makes the counter "negative".
    if live < usize::MAX / 2 {
        PEAK.set(PEAK.get().max(live));
    }
}

fn given(bytes: usize) {
    LIVE.set(LIVE.get().wrapping_sub(bytes));
}

// SAFETY: each method hands its arguments to `System`, which keeps the contract. The counters are
// constants at first and have no destructor, so touching them never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller keeps the contract of this method, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        taken(layout.size());
        // SAFETY: the caller keeps the contract of this method, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        taken(size);
        given(layout.size());
        // SAFETY: the caller keeps the contract of this method, which is the same.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        given(layout.size());
        // SAFETY: the caller keeps the contract of this method, which is the same.
        unsafe { System.dealloc(memory, layout) };
    }
}

/// Runs `work`; its result, and the most bytes it held beyond those held before. A refused
/// allocation counts as well.
pub(crate) fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    LIVE.set(0);
    PEAK.set(0);
    let result = work();
    (result, PEAK.get())
}

#[test]
fn the_peak_of_an_allocation_is_seen() {
    let (bytes, most) = peak(|| vec![0_u8; 1 << 20]);
    assert!((1 << 20..(1 << 20) + 100).contains(&most), "{most}");
    drop(bytes);
    let (freed, most) = peak(|| drop(vec![0_u8; 1 << 20]));
    assert!(most >= 1 << 20, "{freed:?} {most}");
    let ((), most) = peak(|| ());
    assert_eq!(most, 0);
}
