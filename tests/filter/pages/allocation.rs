//! An operation that finds no memory fails, and has changed nothing.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use redis_bloom::filter::{
    Error,
    pages::{END, Growth, Pages, Payload, Pieces, Plan},
};

use super::{COUNT, Counts, crowded, hash, pages, short};

thread_local! {
    /// Allocations of this thread that succeed before the next one fails; `None`: all do.
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The system's allocator, with failures.
struct Failing;

impl Failing {
    fn fails() -> bool {
        match LEFT.get() {
            None => false,
            Some(0) => true,
            Some(left) => {
                LEFT.set(Some(left - 1));
                false
            }
        }
    }
}

// SAFETY: every call is passed on to the system's allocator, or returns null.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if Self::fails() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    // The kernel zeroes large arrays when they are first touched: other tests rely on it.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Self::fails() {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

/// Runs an operation that finds memory for `left` allocations only.
pub(crate) fn starved<T>(left: u64, work: impl FnOnce() -> T) -> T {
    // Its first call reads an environment variable, which takes memory.
    let _ = redis_bloom::filter::uses_avx512();
    LEFT.set(Some(left));
    let result = work();
    LEFT.set(None);
    result
}

/// Does each operation with memory for no, one, two ... allocations until it succeeds. Returns the
/// number of failures.
fn struggle<T>(
    pages: &mut Pages,
    steady: &mut Pages,
    operation: impl Fn(&mut Pages) -> Result<T, Error>,
) -> u64 {
    let done = |outcome: Result<T, Error>| match outcome {
        Ok(_) => true,
        Err(Error::OutOfMemory(_)) => false,
        Err(other) => panic!("{other:?}"),
    };
    let failures = (0..)
        .find(|&left| {
            let done = done(starved(left, || operation(pages)));
            if !done {
                assert_eq!(pages, steady, "a failure changed something");
            }
            done
        })
        .expect("a success");
    assert!(done(operation(steady)));
    failures
}

#[test]
fn an_operation_without_memory_changes_nothing() {
    // With tags of one bit, short pages are split.
    for (bits, payload) in [(1, Payload::Nothing), (12, Payload::Nothing), (12, COUNT)] {
        let [mut pages, mut steady] = [bits; 2].map(|bits| crowded(bits, payload));
        let mut failures = 0;
        for number in 0..6_000 {
            failures += struggle(&mut pages, &mut steady, |pages| pages.raise(hash(number)));
        }
        assert_eq!(pages, steady);
        assert!(failures > 100, "{failures}: the test shows nothing");
        if payload == Payload::Nothing {
            continue;
        }
        // A removal needs no memory. Pages that find none to join are joined by later removals.
        let mut late = 0;
        for number in 0..6_000 {
            let left = if number < 3_000 { 0 } else { u64::MAX };
            let lowered = starved(left, || pages.lower(hash(number)));
            assert_eq!(lowered, steady.lower(hash(number)), "{number}");
            late += u64::from(pages != steady);
        }
        assert!(late > 20, "{late}: the test shows nothing");
        assert_eq!(pages, steady);
        assert_eq!((pages.slot_count(), pages.pages().len()), (0, 1));
    }
}

/// The item that makes page 1 long is the one after which page 0 is split.
#[test]
fn a_short_page_is_short_again_if_a_split_finds_no_memory() {
    let plan = Plan { first_pages: 2, ..crowded(12, COUNT).plan() };
    let full = || {
        let (mut pages, mut counts) = (Pages::new(plan).expect("memory"), [0; 2]);
        // A short page has room for 102 slots of 1 + 12 + 4 + 5 bits and their zeros.
        for hash in (0..).map(hash) {
            let page = (hash.block & 1) as usize;
            if counts[page] < [410, 102][page] && pages.raise(hash) == Ok(0) {
                counts[page] += 1;
            }
            if counts == [410, 102] {
                return pages;
            }
        }
        unreachable!()
    };
    let (mut pages, mut steady) = (full(), full());
    assert!(pages.pages()[1].words().len() < 39);
    let last = (5_000..).map(hash).find(|&hash| hash.block & 1 == 1 && pages.count(hash) == 0);
    let last = last.expect("an item of page 1");
    let failures = struggle(&mut pages, &mut steady, |pages| pages.raise(last));
    assert!(failures > 5, "{failures}: the test shows nothing");
    assert_eq!((pages.pages().len(), pages.slot_count()), (3, 513));
    assert!(pages.pages()[1].words().len() > 39);
}

#[test]
fn short_pages_are_joined_when_there_is_memory() {
    let (mut pages, mut odd) = short::apart();
    let mut steady = pages.duplicate().expect("memory");
    while steady.pages().len() == 3 {
        let hash = odd.pop().expect("an item");
        assert_eq!((starved(0, || pages.lower(hash)), steady.lower(hash)), (1, 1));
    }
    let failures = (0..).find(|&left| {
        let before = pages.duplicate().expect("memory");
        let joined = starved(left, || pages.join_if_due());
        assert!(joined || pages == before);
        joined
    });
    assert!(failures > Some(3), "{failures:?}: the test shows nothing");
    assert_eq!(pages, steady);
}

#[test]
fn nothing_is_made_without_memory() {
    let mut full = pages(0.01, 10_000, Growth::Endless, Payload::Nothing);
    let made = starved(0, || Pages::new(full.plan()).map(drop));
    assert!(matches!(made, Err(Error::OutOfMemory(_))), "{made:?}");
    for number in 0..10_000 {
        full.insert(hash(number), 0, |payload| payload).expect("memory");
    }
    for left in 0..4 {
        let copied = starved(left, || full.duplicate().map(drop));
        assert!(matches!(copied, Err(Error::OutOfMemory(_))), "{copied:?}");
    }
}

/// A copy of which one half grew needs splits. If there is no memory for one, all pages stay.
#[test]
fn a_copy_without_memory_keeps_its_pages() {
    let mut original = crowded(12, Payload::Nothing);
    let mut pieces = Pieces::new(original.plan(), 0);
    for number in 0..4_000 {
        original.raise(hash(number)).expect("memory");
        if number == 2_000 {
            copy(&original, &mut pieces, END / 2);
        }
    }
    copy(&original, &mut pieces, END);
    let steady = pieces.duplicate().expect("memory").finish(0).expect("memory");
    assert!((0..2_000).all(|number| steady.find(hash(number)).is_some()));
    let mut failures = 0;
    for left in 0.. {
        match starved(left, || pieces.finish(0)) {
            Ok(pages) => {
                assert_eq!(pages, steady);
                break;
            }
            Err(Error::OutOfMemory(_)) => failures += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(failures > 1, "{failures}: the test shows nothing");
}

/// Adds the pages of a structure up to a position.
fn copy(pages: &Pages, pieces: &mut Pieces, end: u64) {
    while pieces.end() < end {
        let Some((reach, page)) = pages.page_at(pieces.end()) else {
            panic!("no page");
        };
        assert_eq!(reach.start, pieces.end());
        pieces.push(reach.level, page.words()).expect("sound words");
    }
}
