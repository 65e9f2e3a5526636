//! One layer of a filter: a bit array of some kind, with the plan it was built to.
//!
//! The kinds are a closed set. Every match over them is in this file, `other.rs`, `shape.rs` or
//! `counts.rs`, a kind is a file beside them that knows no other, and a new kind is one file and
//! one arm per match. Every kind but `Blocked` belongs in a box: there is one `Layer` in every
//! filter, and people keep millions of small filters.

pub(super) mod bits;
mod blocked;
mod classic;
mod counting;
pub(super) mod item_set;
mod shape;

pub(super) use blocked::BlockAddress;
pub use blocked::Blocked;
pub use classic::{Classic, ClassicLayer, MAX_BITS, MAX_CLASSIC_PROBES, Rule, Start};
pub use counting::CountingLayer;
pub use shape::{Counting, Shape};

use bits::Bits;
use counting::{Lowered, counters};
use item_set::{FirstGroups, ItemSet};

use super::{error::Error, hash::Hash};

/// A fixed-size part of a filter, made for `capacity` items at `error_rate`.
#[derive(Debug)]
pub struct Layer {
    kind: Kind,
    /// Items counted so far: those that tested absent when they were added, less those that did
    /// once they were deleted. Above `capacity` only in a layer of counters (`fullness.rs`).
    counted: u64,
    /// Items that it was sized for, at least 1.
    capacity: u64,
    /// The false positive rate that it stays below up to its capacity, in (0, 1).
    error_rate: f64,
}

/// The kind that new filters of bits have is in place, the others are behind a pointer: there is
/// one `Layer` in every filter, and people keep millions of small filters.
#[derive(Debug)]
enum Kind {
    Blocked(Blocked),
    Classic(Box<ClassicLayer>),
    Counting(Box<CountingLayer>),
}

// The tag of `Kind` lies in a niche of `Blocked`: more kinds take no more memory.
const _: () = assert!(size_of::<Kind>() == size_of::<Blocked>());

/// How many times as many words as have arrived of a layer get room. Each time the room is used up,
/// the words that are there are copied: a seventh of the layer in all, at most. A larger factor
/// lets a forged size allocate more, a smaller one copies more.
const AHEAD: u64 = 8;

/// Fewer items than this are few ([`Layer::filter_present_staged`]).
const FEW: usize = 32;

/// How many words get room when the first `words` of a layer have arrived.
fn with_room(shape: Shape, words: u64) -> u64 {
    words.saturating_mul(AHEAD).min(shape.words()).max(1)
}

impl Layer {
    /// An empty layer of the given shape and plan. The shape is sound (`check.rs`).
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn new(shape: Shape, capacity: u64, error_rate: f64) -> Result<Self, Error> {
        Ok(Self::over(Bits::zeroed(shape.words())?, shape, capacity, error_rate))
    }

    /// An empty layer whose bits are still to come, with room for the first `words` words of them
    /// ([`Self::make_room`]). It must be whole ([`Self::is_whole`]) before it is queried or added
    /// to.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn arriving(
        shape: Shape,
        capacity: u64,
        error_rate: f64,
        words: u64,
    ) -> Result<Self, Error> {
        Ok(Self::over(Bits::zeroed(with_room(shape, words))?, shape, capacity, error_rate))
    }

    fn over(bits: Bits, shape: Shape, capacity: u64, error_rate: f64) -> Self {
        let kind = match shape {
            Shape::Blocked(geometry) => Kind::Blocked(Blocked::new(geometry, bits)),
            Shape::Classic(classic) => Kind::Classic(Box::new(ClassicLayer::new(classic, bits))),
            Shape::Counting(counting) => {
                let layer = CountingLayer::new(counting, capacity, error_rate, bits);
                Kind::Counting(Box::new(layer))
            }
        };
        Self { kind, counted: 0, capacity, error_rate }
    }

    /// Makes room for its first `words` words, and ahead of time for more of them, up to eight
    /// times as many in all.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; the layer is unchanged then.
    pub fn make_room(&mut self, words: u64) -> Result<(), Error> {
        if words <= self.bits().words().len() as u64 {
            return Ok(());
        }
        let words = with_room(self.shape(), words);
        self.bits_to_move().grow(words)
    }

    /// Makes room for all its words.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; the layer is unchanged then.
    pub fn make_whole(&mut self) -> Result<(), Error> {
        self.make_room(self.shape().words())
    }

    /// Whether all its words have room.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.bits().words().len() as u64 == self.shape().words()
    }

    /// A copy.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn duplicate(&self) -> Result<Self, Error> {
        let kind = match &self.kind {
            Kind::Blocked(layer) => {
                Kind::Blocked(Blocked::new(layer.geometry(), layer.bits().duplicate()?))
            }
            Kind::Classic(layer) => {
                let mut copy = ClassicLayer::new(layer.shape(), layer.bits().duplicate()?);
                copy.set_start(layer.start());
                Kind::Classic(Box::new(copy))
            }
            Kind::Counting(layer) => Kind::Counting(Box::new(layer.duplicate()?)),
        };
        Ok(Self { kind, ..*self })
    }

    /// Items in it, as far as it can know: those counted, or of one with counters what those and
    /// the counters say together (`fullness.rs`). Never above the capacity.
    #[must_use]
    pub fn items(&self) -> u64 {
        match self.counting() {
            None => self.counted,
            Some(layer) => layer.items(self.counted),
        }
    }

    /// Items counted so far: what is stored.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.counted
    }

    /// Sets the count of a layer whose bits were read from a stored one.
    pub fn set_counted(&mut self, items: u64) {
        self.counted = items;
    }

    /// Items that it was sized for.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The rate that it stays below up to its capacity.
    #[must_use]
    pub fn error_rate(&self) -> f64 {
        self.error_rate
    }

    /// Whether it holds as many items as it was sized for.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        match self.counting() {
            None => self.counted >= self.capacity,
            Some(layer) => layer.is_full(self.counted),
        }
    }

    /// How many more items it takes.
    #[inline]
    pub(super) fn room(&self) -> u64 {
        self.capacity.saturating_sub(self.items())
    }

    /// The shape of its bit array.
    #[must_use]
    pub fn shape(&self) -> Shape {
        match &self.kind {
            Kind::Blocked(layer) => layer.geometry().into(),
            Kind::Classic(layer) => layer.shape().into(),
            Kind::Counting(layer) => layer.shape().into(),
        }
    }

    /// Address and size of the box of a kind that has one, for accounting.
    #[must_use]
    pub fn boxed(&self) -> Option<(*const u8, usize)> {
        match &self.kind {
            Kind::Blocked(_) => None,
            Kind::Classic(layer) => {
                Some((std::ptr::from_ref(&**layer).cast(), size_of_val(&**layer)))
            }
            Kind::Counting(layer) => {
                Some((std::ptr::from_ref(&**layer).cast(), size_of_val(&**layer)))
            }
        }
    }

    /// The bit array.
    #[must_use]
    pub fn bits(&self) -> &Bits {
        match &self.kind {
            Kind::Blocked(layer) => layer.bits(),
            Kind::Classic(layer) => layer.bits(),
            Kind::Counting(layer) => layer.bits(),
        }
    }

    /// Where a classic layer begins in its filter, and where it ends; the other kinds do not know.
    pub(super) fn span(&self) -> Option<(Start, Start)> {
        match &self.kind {
            Kind::Classic(layer) => Some((layer.start(), layer.end())),
            Kind::Blocked(_) | Kind::Counting(_) => None,
        }
    }

    /// Notes, in a classic layer, that it begins where `below` ends.
    pub(super) fn put_on(&mut self, below: &Self) {
        if let Some((_, end)) = below.span()
            && let Kind::Classic(layer) = &mut self.kind
        {
            layer.set_start(end);
        }
    }

    /// Sets the bits of `words` from word `from` on, and keeps those that are set; false when there
    /// are no more words. The only way in from outside, since counters that are written are also
    /// counted.
    pub fn merge(&mut self, from: usize, words: &mut impl Iterator<Item = u64>) -> bool {
        match &mut self.kind {
            Kind::Blocked(layer) => layer.bits_mut().merge(from, words, |_, _| {}),
            Kind::Classic(layer) => layer.bits_mut().merge(from, words, |_, _| {}),
            Kind::Counting(layer) => layer.merge(from, words),
        }
    }

    /// Lets an allocator move the bit array ([`Bits::relocate`]).
    ///
    /// # Safety
    /// As there.
    pub unsafe fn relocate(&mut self, mover: impl FnOnce(*mut u64) -> *mut u64) {
        // SAFETY: the caller's promise.
        unsafe { self.bits_to_move().relocate(mover) }
    }

    fn bits_to_move(&mut self) -> &mut Bits {
        match &mut self.kind {
            Kind::Blocked(layer) => layer.bits_mut(),
            Kind::Classic(layer) => layer.bits_mut(),
            Kind::Counting(layer) => layer.bits_to_move(),
        }
    }

    /// Asks for the memory that the item needs first, without waiting for it.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        match &self.kind {
            Kind::Blocked(layer) => layer.prefetch(hash),
            boxed => boxed.prefetch(hash),
        }
    }

    /// Where its blocks are, of a layer that has some; `None` where they are cached anyway.
    #[inline]
    pub(super) fn address_of_blocks(&self) -> Option<BlockAddress> {
        match &self.kind {
            Kind::Blocked(layer) => layer.address_of_blocks(),
            Kind::Classic(_) | Kind::Counting(_) => None,
        }
    }

    /// Whether that is where its blocks are.
    #[inline]
    pub(super) fn is_at(&self, address_of_blocks: BlockAddress) -> bool {
        matches!(&self.kind, Kind::Blocked(layer) if layer.is_at(address_of_blocks))
    }

    /// [`Self::prefetch`] of the first position of a walk that starts there, in a layer of
    /// positions; no other has one.
    pub fn prefetch_start(&self, start: u64) {
        if let Kind::Classic(layer) = &self.kind {
            layer.prefetch_start(start);
        }
    }

    /// Whether the item may be in this layer.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: Hash) -> bool {
        match &self.kind {
            Kind::Blocked(layer) => layer.contains(hash),
            boxed => boxed.contains(hash),
        }
    }

    /// Asks for the memory that a first look at each of these items needs, and aims there where a
    /// kind can.
    #[inline]
    pub(super) fn prefetch_first(
        &self,
        hashes: &[Hash],
        items: ItemSet,
        first_groups: &mut FirstGroups,
    ) {
        match &self.kind {
            Kind::Blocked(layer) => layer.prefetch_first(hashes, items, first_groups),
            boxed => boxed.prefetch_each(hashes, items),
        }
    }

    /// After [`Self::prefetch`], asks for what else is needed to add these items.
    #[inline]
    pub(super) fn prefetch_remaining(&self, hashes: &[Hash], items: ItemSet) {
        if let Kind::Blocked(layer) = &self.kind {
            layer.prefetch_remaining(hashes, items);
        }
    }

    /// Which of these items of a chunk may be in this layer. They have been prefetched.
    #[inline]
    pub(super) fn filter_present(&self, hashes: &[Hash], items: ItemSet) -> ItemSet {
        match &self.kind {
            Kind::Blocked(layer) => layer.filter_present(hashes, items),
            boxed => boxed.filter_present(hashes, items),
        }
    }

    /// The same, quickest where most of them are not: of items aimed at this layer
    /// ([`Self::prefetch_first`]). Those that may be in an older one are aimed at the `next` on the
    /// way.
    #[inline]
    pub(super) fn filter_present_staged(
        &self,
        hashes: &[Hash],
        items: ItemSet,
        first_groups: &mut FirstGroups,
        next: Option<&Self>,
    ) -> ItemSet {
        match &self.kind {
            Kind::Blocked(layer) => {
                // Never of another kind (`check.rs`), and then it would do without.
                let next = next.and_then(|next| match &next.kind {
                    Kind::Blocked(next) => Some(next),
                    Kind::Classic(_) | Kind::Counting(_) => None,
                });
                layer.filter_present_staged(hashes, items, first_groups, next)
            }
            Kind::Classic(_) | Kind::Counting(_) => {
                // Few items are looked at in the next layer sooner than memory answers. Of many,
                // those are left out that are here. In 8 layers of 250,000 items batches of 10 take
                // a fifth longer the other way round.
                let few = hashes.len() < FEW;
                if let (Some(next), true) = (next, few) {
                    next.prefetch_first(hashes, items, first_groups);
                }
                let found = self.filter_present(hashes, items);
                if let (Some(next), false) = (next, few) {
                    next.prefetch_first(hashes, items.without(found), first_groups);
                }
                found
            }
        }
    }

    /// Whether a first look at all items of a chunk is worth its while even where most of them are
    /// there: a wait that a processor does not hide by itself.
    #[inline]
    pub(super) fn is_far(&self) -> bool {
        matches!(&self.kind, Kind::Blocked(layer) if layer.is_far())
    }

    /// Adds an item and counts it if it tested absent; whether it did. The layer must not be full.
    #[inline]
    pub fn add(&mut self, hash: Hash) -> bool {
        debug_assert!(!self.is_full());
        let absent = match &mut self.kind {
            Kind::Blocked(layer) => layer.add(hash),
            boxed => boxed.add(hash),
        };
        self.counted = self.counted.saturating_add(u64::from(absent));
        absent
    }

    /// [`Self::add`] of these items of a chunk; which of them tested absent. There must be room for
    /// all. They have been prefetched.
    #[inline]
    pub(super) fn add_chunk(&mut self, hashes: &[Hash], items: ItemSet) -> ItemSet {
        debug_assert!(self.room() >= items.len());
        let absent = match &mut self.kind {
            Kind::Blocked(layer) => layer.add_chunk(hashes, items),
            boxed => items.keep(|i| u64::from(boxed.add(hashes[i]))),
        };
        self.counted = self.counted.saturating_add(absent.len());
        absent
    }

    /// Adds an item to a layer that may be full; whether it tested absent. A full layer of bits
    /// does not count the item; one of counters does, because a deletion of the item takes it off
    /// the count again.
    pub(super) fn add_uncounted(&mut self, hash: Hash) -> bool {
        let absent = match &mut self.kind {
            Kind::Blocked(layer) => layer.add(hash),
            Kind::Classic(layer) => layer.add(hash),
            Kind::Counting(layer) => layer.raise(hash),
        };
        self.counted = self.counted.saturating_add(u64::from(absent));
        if !self.counts() {
            self.counted = self.counted.min(self.capacity);
        }
        absent
    }

    pub(super) fn counting(&self) -> Option<&CountingLayer> {
        match &self.kind {
            Kind::Counting(layer) => Some(layer),
            Kind::Blocked(_) | Kind::Classic(_) => None,
        }
    }

    fn counting_mut(&mut self) -> Option<&mut CountingLayer> {
        match &mut self.kind {
            Kind::Counting(layer) => Some(layer),
            Kind::Blocked(_) | Kind::Classic(_) => None,
        }
    }

    /// Whether it has counters.
    #[inline]
    #[must_use]
    pub fn counts(&self) -> bool {
        self.counting().is_some()
    }

    /// Raises the counters of an item, and counts it if it tested absent; whether it did. The count
    /// may pass the capacity (`fullness.rs`).
    pub(super) fn raise(&mut self, hash: Hash) -> bool {
        let absent = self.counting_mut().is_some_and(|layer| layer.raise(hash));
        self.counted = self.counted.saturating_add(u64::from(absent));
        absent
    }

    /// Lowers the counters of an item, and counts it no more if it tests absent then; whether a
    /// counter went down, or `None` if it tests absent now.
    pub(super) fn lower(&mut self, hash: Hash) -> Option<bool> {
        let lowered = self.counting_mut()?.lower(hash)?;
        self.counted = match lowered {
            Lowered { last: true, .. } => 0,
            Lowered { absent, .. } => self.counted.saturating_sub(u64::from(absent)),
        };
        Some(lowered.any)
    }

    /// The least of the counters of an item, in [0, 15].
    #[must_use]
    pub fn least(&self, hash: Hash) -> u64 {
        self.counting().map_or(0, |layer| layer.least(hash))
    }

    /// Deletions that were refused while this was the newest layer, on this server.
    #[must_use]
    pub fn refused_deletions(&self) -> u64 {
        self.counting().map_or(0, |layer| layer.refused)
    }

    /// Counts a refused deletion.
    pub(super) fn note_refused_deletion(&mut self) {
        if let Some(layer) = self.counting_mut() {
            layer.refused = layer.refused.saturating_add(1);
        }
    }

    /// Counters that reached 15 and stay there; `None` without counters.
    #[must_use]
    pub fn saturated(&self) -> Option<u64> {
        self.counting().map(CountingLayer::saturated)
    }

    /// Counters that are not 0; `None` without counters.
    #[must_use]
    pub fn nonzero(&self) -> Option<u64> {
        self.counting().map(CountingLayer::nonzero)
    }

    /// Share of counters that are not 0, in [0, 1]; `None` without counters.
    pub(super) fn fill(&self) -> Option<f64> {
        self.counting().map(CountingLayer::fill)
    }

    /// How many positions of a word of `bits` are taken, and how many there are.
    pub(super) fn taken(&self, word: u64) -> (u32, u32) {
        if self.counts() {
            (counters::nonzero(word), counters::PER_WORD as u32)
        } else {
            (word.count_ones(), u64::BITS)
        }
    }
}

// None of these is inlined: a call an item is nothing beside the waits for memory of the kinds
// behind a pointer, and the path of the blocked layers, in which they would stand as other arms of
// a match, stays short.
impl Kind {
    #[inline(never)]
    fn prefetch(&self, hash: Hash) {
        match self {
            Self::Blocked(layer) => layer.prefetch(hash),
            Self::Classic(layer) => layer.prefetch(hash),
            Self::Counting(layer) => layer.prefetch(hash),
        }
    }

    #[inline(never)]
    fn prefetch_each(&self, hashes: &[Hash], items: ItemSet) {
        match self {
            Self::Blocked(layer) => items.members().for_each(|i| layer.prefetch(hashes[i])),
            Self::Classic(layer) => items.members().for_each(|i| layer.prefetch(hashes[i])),
            Self::Counting(layer) => layer.prefetch_each(hashes, items),
        }
    }

    #[inline(never)]
    fn contains(&self, hash: Hash) -> bool {
        match self {
            Self::Blocked(layer) => layer.contains(hash),
            Self::Classic(layer) => layer.contains(hash),
            Self::Counting(layer) => layer.contains(hash),
        }
    }

    #[inline(never)]
    fn filter_present(&self, hashes: &[Hash], items: ItemSet) -> ItemSet {
        match self {
            Self::Blocked(layer) => layer.filter_present(hashes, items),
            Self::Classic(layer) => items.keep(|i| u64::from(layer.contains(hashes[i]))),
            Self::Counting(layer) => layer.filter_present(hashes, items),
        }
    }

    #[inline(never)]
    fn add(&mut self, hash: Hash) -> bool {
        match self {
            Self::Blocked(layer) => layer.add(hash),
            Self::Classic(layer) => layer.add(hash),
            Self::Counting(layer) => layer.raise(hash),
        }
    }
}
