//! Many items at once: hash a chunk, ask for its memory, then probe.
//!
//! A probe into a large filter waits some 100 ns for memory. A chunk of 64 items has 64 such loads under way at once,
//! so that the wait is paid about once a chunk:
//!
//! ```text
//!   hash 64 items, prefetch the newest layer
//!   layer n     probe those not found yet, prefetch layer n-1 for what is still missing
//!   layer n-1   probe ...
//! ```
//!
//! Nothing is allocated: the chunk's hashes (1 KiB) are on the stack, the items found are a set in a `u64` (`chunk.rs`).

use super::{
    chunk::{CHUNK, Set},
    error::Error,
    hash::Hash,
    layer::Layer,
    scaling::Filter,
};

/// Fewer items than this are few (see `found_in`).
const FEW: usize = 32;

impl Filter {
    /// Answers for each item, in order, whether it may have been added.
    #[inline]
    pub fn contains_each<'a>(&self, mut items: impl Iterator<Item = &'a [u8]>, mut answer: impl FnMut(bool)) {
        let mut chunk = [Hash::default(); CHUNK];
        loop {
            let hashes = self.hash_chunk(&mut items, &mut chunk);
            if hashes.is_empty() {
                return;
            }
            let items = Set::first(hashes.len());
            let mut found = self.newest().among(hashes, items);
            let missing = items.without(found);
            let older = self.older();
            if let Some(layer) = older.clone().next()
                && !missing.is_empty()
            {
                layer.prefetch_each(hashes, missing);
                found = found.with(found_in(older, hashes, missing));
            }
            for i in 0..hashes.len() {
                answer(found.has(i));
            }
        }
    }

    /// Adds each item in order and answers as [`Filter::add`]. The first error is the last answer: the items after it
    /// are not tried.
    #[inline]
    pub fn add_each<'a>(
        &mut self,
        mut items: impl Iterator<Item = &'a [u8]>,
        ceiling: impl Fn(u64) -> u64,
        mut answer: impl FnMut(Result<bool, Error>),
    ) {
        if self.counts() {
            return self.add_each_counted(&mut items, ceiling, answer);
        }
        let mut chunk = [Hash::default(); CHUNK];
        loop {
            let hashes = self.hash_chunk(&mut items, &mut chunk);
            if hashes.is_empty() {
                return;
            }
            let items = Set::first(hashes.len());
            let older = self.older();
            let layers = older.len();
            if let Some(layer) = older.clone().next() {
                layer.prefetch_each(hashes, items);
            }
            let in_older = found_in(older, hashes, items);
            self.newest().prefetch_rest(hashes, items.without(in_older));
            let may_grow = self.newest().room() < hashes.len() as u64;
            for (i, &hash) in hashes.iter().enumerate() {
                let outcome = if in_older.has(i) {
                    Ok(false)
                } else if may_grow && (self.newest().is_full() || self.older().len() != layers) {
                    // A layer became full within this chunk: what was looked up no longer covers every layer.
                    self.add(hash, &ceiling)
                } else {
                    Ok(self.add_to_newest(hash))
                };
                let failed = outcome.is_err();
                answer(outcome);
                if failed {
                    return;
                }
            }
        }
    }

    /// Hashes the next items, at most a chunk of them, and prefetches the newest layer for each.
    #[inline]
    pub(super) fn hash_chunk<'c, 'a>(
        &self,
        items: &mut impl Iterator<Item = &'a [u8]>,
        chunk: &'c mut [Hash; CHUNK],
    ) -> &'c [Hash] {
        let mut count = 0;
        for (slot, item) in chunk.iter_mut().zip(items) {
            *slot = self.hash(item);
            self.newest().prefetch(*slot);
            count += 1;
        }
        &chunk[..count]
    }
}

/// Which of these items of a chunk some older layer holds. They have been prefetched for the first of them.
///
/// Of few items the next layer is prefetched before a layer is looked at, as they are looked at sooner than memory answers;
/// of many after it, and only for those that it does not hold.
#[inline]
pub(super) fn found_in<'a>(older: impl Iterator<Item = &'a Layer>, hashes: &[Hash], items: Set) -> Set {
    let few = hashes.len() < FEW;
    let mut layers = older.peekable();
    let mut missing = items;
    while let Some(layer) = layers.next() {
        let next = layers.peek();
        if let (Some(next), true) = (next, few) {
            next.prefetch_each(hashes, missing);
        }
        missing = missing.without(layer.among_strangers(hashes, missing));
        if missing.is_empty() {
            break;
        }
        if let (Some(next), false) = (next, few) {
            next.prefetch_each(hashes, missing);
        }
    }
    items.without(missing)
}
