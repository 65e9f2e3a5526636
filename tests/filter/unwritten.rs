//! Adding an item that is present writes nothing. During a snapshot, even a write that changes
//! nothing makes the kernel copy the page. Comparing bits cannot show such a write, so the tests
//! put the bits in read-only memory, where a write ends the process.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{c_int, c_void};

use redis_bloom::filter::{
    Classic, Expansion, Filter, Geometry, Hash, Layer, LayerPlan, Plan, Rule, Shape,
};

const PAGE: usize = 4096;
const PROT_READ: c_int = 1;
const PROT_WRITE: c_int = 2;

unsafe extern "C" {
    fn mprotect(address: *mut c_void, len: usize, protection: c_int) -> c_int;
}

/// Moves `bytes` bytes from `old`, of layout `from`, to a new allocation of layout `to`.
///
/// # Safety
/// `old` was allocated with `from` and holds `bytes` bytes; both layouts have at least that size.
unsafe fn moved(old: *mut u64, bytes: usize, from: Layout, to: Layout) -> *mut u64 {
    // SAFETY: no layout here is of size zero.
    let new = unsafe { alloc(to) };
    assert!(!new.is_null());
    // SAFETY: both are at least `bytes` long by the caller's promise, and different allocations.
    unsafe { std::ptr::copy_nonoverlapping(old.cast::<u8>(), new, bytes) };
    // SAFETY: the caller's promise.
    unsafe { dealloc(old.cast(), from) };
    new.cast()
}

/// Moves the words of the layer to read-only memory; returns the layout of that memory.
fn protected(layer: &mut Layer) -> Layout {
    let (bytes, own) = words_of(layer);
    let whole =
        Layout::from_size_align(bytes.next_multiple_of(PAGE), PAGE).expect("they are there");
    // SAFETY: the words were allocated as an array of them.
    let away = |old: *mut u8, _| unsafe { moved(old.cast(), bytes, own, whole).cast() };
    // SAFETY: the new memory has the same content. `released` moves it back before the layer is
    // dropped, unless the process ends.
    unsafe { layer.bits_mut().relocate(away) };
    let at = layer.bits().words().as_ptr().cast_mut().cast();
    // SAFETY: whole pages that hold nothing else.
    assert_eq!(unsafe { mprotect(at, whole.size(), PROT_READ) }, 0);
    whole
}

/// Moves the words back to writable memory.
fn released(layer: &mut Layer, whole: Layout) {
    let (bytes, own) = words_of(layer);
    let at = layer.bits().words().as_ptr().cast_mut().cast();
    // SAFETY: the pages of `protected`.
    assert_eq!(unsafe { mprotect(at, whole.size(), PROT_READ | PROT_WRITE) }, 0);
    // SAFETY: `protected` allocated them with the layout `whole`.
    let back = |old: *mut u8, _| unsafe { moved(old.cast(), bytes, whole, own).cast() };
    // SAFETY: the new memory has the same content and the layout of an array of words.
    unsafe { layer.bits_mut().relocate(back) };
}

/// Bytes of the words of a layer, and the layout of an array of these words.
fn words_of(layer: &Layer) -> (usize, Layout) {
    let words = layer.bits().words().len();
    (words * 8, Layout::array::<u64>(words).expect("they are there"))
}

/// Shapes for all paths of the code: blocks of a word, of a line, and longer; fewer and more probes
/// than a group of four.
fn shapes() -> impl Iterator<Item = Shape> {
    let blocked = [1, 8, 16, 64].into_iter().flat_map(|block_words| {
        [1, 3, 4, 7, 8, 13]
            .map(|probes| Shape::Blocked(Geometry { blocks: 50, block_words, probes }))
    });
    let classic = Classic { bits: 4_000, bytes: 500, probes: 7, rule: Rule::Remainder };
    blocked.chain([Shape::Classic(classic)])
}

fn empty(shape: Shape) -> Layer {
    let plan = LayerPlan { capacity: 1_000, items: 0, error_rate: 0.01, shape };
    plan.empty().expect("there is memory")
}

#[test]
fn adding_a_present_item_writes_nothing() {
    for shape in shapes() {
        let mut layer = empty(shape);
        let hashes: Vec<Hash> = (0..100_u64).map(|i| Hash::of(&i.to_le_bytes(), 7)).collect();
        let new = hashes.iter().filter(|&&hash| layer.add(hash)).count();
        assert!(new > 0, "{shape:?}");
        let counted = layer.counted;
        let away = protected(&mut layer);
        for &hash in &hashes {
            assert!(!layer.add(hash), "{shape:?}");
        }
        released(&mut layer, away);
        assert_eq!(layer.counted, counted, "{shape:?}");
        assert!(hashes.iter().all(|&hash| layer.contains(hash)), "{shape:?}");
    }
}

/// A batch takes another path where the processor has AVX-512VL (`layer/blocked/simd.rs`).
#[test]
fn adding_a_batch_of_present_items_writes_nothing() {
    for shape in shapes() {
        let layer = empty(shape);
        let expansion = Expansion::new(2).expect("in range");
        let plan = Plan { seed: 7, error_rate: 0.01, expansion, ..Plan::default() };
        let mut filter = plan.with_layers(vec![layer]).expect("a layer");
        let items: Vec<[u8; 8]> = (0..100_u64).map(u64::to_le_bytes).collect();
        let add_all = |filter: &mut Filter| {
            let mut new = 0;
            let items = items.iter().map(<[u8; 8]>::as_slice);
            filter.add_each(items, |_| u64::MAX, |answers| new += answers.ones()).expect("room");
            new as u64
        };
        let new = add_all(&mut filter);
        assert!(new > 0, "{shape:?}");
        let layer = filter.layers_from_mut(0).next().expect("a layer");
        let away = protected(layer);
        assert_eq!(add_all(&mut filter), 0, "{shape:?}");
        released(filter.layers_from_mut(0).next().expect("a layer"), away);
        assert_eq!(filter.items(), new, "{shape:?}");
    }
}
