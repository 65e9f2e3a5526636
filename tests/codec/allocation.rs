//! A counting allocator, to measure how much memory hostile bytes make the decoder allocate.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

/// The system's allocator with two counters for each thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static LIVE: Cell<usize> = const { Cell::new(0) };
    /// The highest value of `LIVE`.
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn count_allocated(bytes: usize) {
    let live = LIVE.get().wrapping_add(bytes);
    LIVE.set(live);
    // The counter is "negative" if this thread freed memory that another thread allocated.
    if live < usize::MAX / 2 {
        PEAK.set(PEAK.get().max(live));
    }
}

fn count_freed(bytes: usize) {
    LIVE.set(LIVE.get().wrapping_sub(bytes));
}

// SAFETY: each method passes its arguments to `System`, which keeps the contract. The counters have
// constant initializers and no destructor, so access to them never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocated(layout.size());
        // SAFETY: the caller keeps the contract of this method, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocated(layout.size());
        // SAFETY: the caller keeps the contract of this method, which is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count_allocated(size);
        count_freed(layout.size());
        // SAFETY: the caller keeps the contract of this method, which is the same.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count_freed(layout.size());
        // SAFETY: the caller keeps the contract of this method, which is the same.
        unsafe { System.dealloc(memory, layout) };
    }
}

/// Runs `work` and returns its result and its peak of allocated bytes, without those allocated
/// before. A failed allocation counts as well.
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
