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
//! Nothing is allocated: the chunk's hashes (1 KiB) are on the stack, the items found are the bits of a `u64`.

use super::{error::Error, hash::Hash, layer::Layer, scaling::Filter};

/// Items in a chunk: as many as there are bits in the set of those found.
pub(super) const CHUNK: usize = u64::BITS as usize;

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
            let found = found_in(std::iter::once(self.newest()).chain(self.older()), hashes);
            for i in 0..hashes.len() {
                answer(found >> i & 1 == 1);
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
            let older = self.older();
            let layers = older.len();
            if let Some(layer) = older.clone().next() {
                hashes.iter().for_each(|&hash| layer.prefetch(hash));
            }
            let in_older = found_in(older, hashes);
            for (i, &hash) in hashes.iter().enumerate() {
                let outcome = if in_older >> i & 1 == 1 {
                    Ok(false)
                } else if self.newest().is_full() || self.older().len() != layers {
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

/// Which of `hashes` (at most a chunk, prefetched for the first layer) some layer holds, as a set of bits.
#[inline]
pub(super) fn found_in<'a>(layers: impl Iterator<Item = &'a Layer>, hashes: &[Hash]) -> u64 {
    let mut layers = layers.peekable();
    let mut pending = u64::MAX >> (CHUNK - hashes.len());
    let mut found = 0;
    while let Some(layer) = layers.next() {
        let next = layers.peek();
        let mut rest = pending;
        while rest != 0 {
            let i = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            if layer.contains(hashes[i]) {
                found |= 1 << i;
            } else if let Some(next) = next {
                next.prefetch(hashes[i]);
            }
        }
        pending &= !found;
        if pending == 0 {
            break;
        }
    }
    found
}
