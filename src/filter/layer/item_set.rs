//! A chunk: up to 64 items that pass through the layers together, and sets of them.

use crate::filter::hash::Hash;

/// Items in a chunk: as many as an [`ItemSet`] has bits.
pub(in crate::filter) const CHUNK: usize = u64::BITS as usize;

/// A set of items of a chunk, by their indices: bit i is item i.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::filter) struct ItemSet(u64);

impl ItemSet {
    /// The first `count` items, at most a chunk.
    #[inline]
    pub(in crate::filter) fn first(count: usize) -> Self {
        Self(u64::MAX.checked_shr((CHUNK - count) as u32).unwrap_or(0))
    }

    pub(in crate::filter) fn single(i: usize) -> Self {
        Self(1 << i)
    }

    pub(in crate::filter) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(in crate::filter) fn len(self) -> u64 {
        u64::from(self.0.count_ones())
    }

    pub(in crate::filter) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(in crate::filter) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The items for which `test` returns 1 rather than 0. No branch depends on its results.
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

    /// The items of a chunk for which `test` returns 1 rather than 0.
    #[inline(always)]
    pub(in crate::filter) fn of(hashes: &[Hash], mut test: impl FnMut(Hash) -> u64) -> Self {
        let chosen = hashes.iter().enumerate().map(|(i, &hash)| test(hash) << i);
        Self(chosen.fold(0, |all, one| all | one))
    }

    /// The indices of the items, in order.
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

/// The yes-or-no answers for consecutive items, at most a chunk of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    ones: ItemSet,
    count: usize,
}

impl Answers {
    /// The answers for `count` items: yes for those in `ones`.
    #[inline]
    pub(in crate::filter) fn new(ones: ItemSet, count: usize) -> Self {
        Self { ones, count }
    }

    /// Adds the answer for the next item. There must be fewer than [`CHUNK`] answers before.
    #[inline]
    pub(in crate::filter) fn push(&mut self, yes: bool) {
        debug_assert!(self.count < CHUNK);
        self.ones.0 |= u64::from(yes) << self.count;
        self.count += 1;
    }

    /// The number of answers, in `[0, CHUNK]`.
    pub fn count(self) -> usize {
        self.count
    }

    /// The number of answers that are yes.
    pub fn ones(self) -> usize {
        self.ones.len() as usize
    }

    /// The answers as bits: bit i is that of item i.
    pub fn bits(self) -> u64 {
        self.ones.0
    }

    /// The answers, in order.
    #[inline]
    pub fn each(self) -> impl Iterator<Item = bool> {
        (0..self.count).map(move |i| self.ones.0 >> i & 1 == 1)
    }
}
