//! A few items on their way through the layers together: up to 64 hashes, and sets of them.

/// Items in a chunk: as many as there are bits in a [`ItemSet`].
pub(in crate::filter) const CHUNK: usize = u64::BITS as usize;

/// Where a first look at an item goes in a layer of blocks: a line, and four bits in it
/// (`probe.rs`).
#[derive(Clone, Copy)]
pub(in crate::filter) struct FirstGroup {
    /// The first word of the line in the array.
    pub(in crate::filter) start: usize,
    /// The places of the bits.
    pub(in crate::filter) places: u64,
}
/// Those of the items of a chunk.
pub(in crate::filter) type FirstGroups = [FirstGroup; CHUNK];
/// Before any aim. Whoever looks there is out of bounds.
pub(in crate::filter) const NO_GROUP: FirstGroup = FirstGroup { start: usize::MAX, places: 0 };

/// A set of items of a chunk, by their indices: bit i is item i.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::filter) struct ItemSet(u64);

impl ItemSet {
    /// The first `count` items, at most a chunk.
    #[inline]
    pub(in crate::filter) fn first(count: usize) -> Self {
        Self(u64::MAX.checked_shr((CHUNK - count) as u32).unwrap_or(0))
    }

    /// Whether it is empty.
    #[inline]
    pub(in crate::filter) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether item `i` is in it.
    #[inline]
    pub(in crate::filter) fn has(self, i: usize) -> bool {
        self.0 >> i & 1 == 1
    }

    /// How many are in it.
    #[inline]
    pub(in crate::filter) fn len(self) -> u64 {
        u64::from(self.0.count_ones())
    }

    /// What is in it and not in `other`.
    #[inline]
    pub(in crate::filter) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What is in either.
    #[inline]
    pub(in crate::filter) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those for which `test`, told them one by one, answers 1 and not 0. No branch depends on an
    /// answer.
    #[inline(always)]
    pub(in crate::filter) fn keep(self, mut test: impl FnMut(usize) -> u64) -> Self {
        let mut kept = 0;
        for i in self.members() {
            let answer = test(i);
            debug_assert!(answer <= 1);
            kept |= answer << i;
        }
        Self(kept)
    }

    /// The indices in it, in order.
    #[inline(always)]
    pub(in crate::filter) fn members(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| left.trailing_zeros() as usize);
            left &= left.wrapping_sub(1);
            next
        })
    }
}

/// The answers for items in a row, at most a chunk of them: whether each was new, say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    ones: ItemSet,
    count: usize,
}

impl Answers {
    /// Those of `count` items in a row.
    #[inline]
    pub(in crate::filter) fn new(ones: ItemSet, count: usize) -> Self {
        Self { ones, count }
    }

    /// Adds that of the next item, of which there must be fewer than [`CHUNK`] before.
    #[inline]
    pub(in crate::filter) fn push(&mut self, yes: bool) {
        debug_assert!(self.count < CHUNK);
        self.ones.0 |= u64::from(yes) << self.count;
        self.count += 1;
    }

    /// For how many items, in `[0, CHUNK]`.
    #[inline]
    #[must_use]
    pub fn count(self) -> usize {
        self.count
    }

    /// For how many of them it is yes.
    #[inline]
    #[must_use]
    pub fn ones(self) -> usize {
        self.ones.len() as usize
    }

    /// One by one, in order.
    #[inline]
    pub fn each(self) -> impl Iterator<Item = bool> {
        (0..self.count).map(move |i| self.ones.has(i))
    }
}
