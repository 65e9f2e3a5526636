//! Many items at once: hash a chunk, prefetch its memory, then probe.
//!
//! A probe into a large filter waits some 100 ns for memory. A chunk of 64 items issues 64 such
//! loads at the same time, so a chunk waits about once:
//!
//! ```text
//!   hash 64 items, prefetch the newest layer
//!   layer n     probe the items
//!   layer n-1   prefetch and probe the items not found yet
//!   ...
//! ```

use super::{
    error::{Demand, Error},
    foreign::Tag,
    hash::Hash,
    layer::{
        BlockAddress, Blocked,
        item_set::{Answers, CHUNK, ItemSet},
    },
    stack::Filter,
};

impl Filter {
    /// Answers whether each item may have been added, in order, one chunk at a time.
    #[inline]
    pub fn contains_each<'a>(
        &self,
        mut items: impl Iterator<Item = &'a [u8]>,
        mut answer: impl FnMut(Answers),
    ) {
        let mut chunk = [Hash::default(); CHUNK];
        let memory_bound = self.newest().blocks().filter(|blocks| blocks.is_memory_bound());
        loop {
            let hashes = self.hash_chunk(&mut items, &mut chunk, memory_bound.is_none());
            if hashes.is_empty() {
                return;
            }
            let items = ItemSet::first(hashes.len());
            let found = if let Some(only) = memory_bound {
                only.present(hashes)
            } else {
                let found = self.newest().filter_present(hashes, items);
                found.with(self.found_in_stack(hashes, items.without(found)))
            };
            answer(Answers::new(found, hashes.len()));
        }
    }

    /// Adds each item in order, as [`Filter::add`] does. Answers, one chunk at a time, whether each
    /// item tested absent before.
    ///
    /// # Errors
    /// Those of [`Filter::add`]. The first item that fails and all items after it are not added and
    /// get no answer.
    #[inline]
    pub fn add_each<'a>(
        &mut self,
        mut items: impl Iterator<Item = &'a [u8]>,
        ceiling: impl Fn(Demand) -> u64,
        mut answer: impl FnMut(Answers),
    ) -> Result<(), Error> {
        let mut chunk = [Hash::default(); CHUNK];
        loop {
            let hashes = self.hash_chunk(&mut items, &mut chunk, true);
            if hashes.is_empty() {
                return Ok(());
            }
            let items = ItemSet::first(hashes.len());
            let missing = items.without(self.found_in_stack(hashes, items));
            if let Some(blocks) = self.newest().blocks() {
                blocks.prefetch_remaining(hashes, missing);
            }
            if self.newest().room() < missing.len() {
                self.add_growing(hashes, &ceiling, &mut answer)?;
            } else {
                let new = self.newest_mut().add_chunk(hashes, missing);
                answer(Answers::new(new, hashes.len()));
            }
        }
    }

    #[inline(never)]
    fn add_growing(
        &mut self,
        hashes: &[Hash],
        ceiling: &impl Fn(Demand) -> u64,
        answer: &mut impl FnMut(Answers),
    ) -> Result<(), Error> {
        let mut answers = Answers::default();
        let outcome = hashes.iter().try_for_each(|&hash| {
            answers.push(self.add(hash, ceiling)?);
            Ok(())
        });
        answer(answers);
        outcome
    }

    /// [`Self::add_each`] of items that must not be refused. Without room, an item is added
    /// uncounted: it is never lost, but the error rate is guaranteed only up to the capacity.
    #[cold]
    pub fn add_each_uncounted<'a>(
        &mut self,
        items: impl Iterator<Item = &'a [u8]>,
        mut answer: impl FnMut(Answers),
    ) {
        let mut answers = Answers::default();
        for item in items {
            let hash = self.hash(item);
            let added = self.add(hash, |_| u64::MAX);
            answers.push(added.unwrap_or_else(|_| self.newest_mut().add(hash)));
            if answers.count() == CHUNK {
                answer(std::mem::take(&mut answers));
            }
        }
        answer(answers);
    }

    /// Hashes the next items, at most one chunk, and prefetches the newest layer for each if asked.
    #[inline]
    fn hash_chunk<'c, 'a>(
        &self,
        items: &mut impl Iterator<Item = &'a [u8]>,
        chunk: &'c mut [Hash; CHUNK],
        prefetch: bool,
    ) -> &'c [Hash] {
        let newest = self.newest();
        // One loop for each case: the loop for a large blocked layer has no branch on the kind.
        match newest.blocks().and_then(Blocked::block_address) {
            Some(blocks) if prefetch => self.hash_into(chunk, items, |hash| blocks.prefetch(hash)),
            _ if prefetch => self.hash_into(chunk, items, |hash| newest.prefetch(hash)),
            _ => self.hash_into(chunk, items, |_| {}),
        }
    }

    /// Hashes the next items, at most one chunk, and passes each hash to `prefetch`.
    #[inline]
    fn hash_into<'c, 'a>(
        &self,
        chunk: &'c mut [Hash; CHUNK],
        items: &mut impl Iterator<Item = &'a [u8]>,
        prefetch: impl Fn(Hash),
    ) -> &'c [Hash] {
        let mut count = 0;
        for (slot, item) in chunk.iter_mut().zip(items) {
            *slot = self.hash(item);
            prefetch(*slot);
            count += 1;
        }
        &chunk[..count]
    }

    /// Which of these items an older layer may hold. Not inlined: most filters have none.
    #[inline(never)]
    fn found_in_stack(&self, hashes: &[Hash], items: ItemSet) -> ItemSet {
        let mut missing = items;
        for layer in self.older().iter().rev() {
            if missing.is_empty() {
                break;
            }
            missing.members().for_each(|i| layer.prefetch(hashes[i]));
            missing = missing.without(layer.filter_present(hashes, missing));
        }
        items.without(missing)
    }
}

/// Prefetches the cache lines of an item before its filter is known, by the filter's seed and the
/// address of its blocks. Nothing is read there, so a hint may outlive its filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefetchHint {
    seed: u64,
    blocks: BlockAddress,
}

impl PrefetchHint {
    /// The hint for a filter; `None` if its newest layer stays cached, or its hash is not native.
    #[inline]
    pub fn of(filter: &Filter) -> Option<Self> {
        let blocks = filter.newest().blocks()?.block_address()?;
        (filter.family == Tag::Native).then(|| Self { seed: filter.seed(), blocks })
    }

    /// Hashes an item, and prefetches its cache lines; for every filter that this hint
    /// [fits](Self::fits).
    #[inline]
    pub fn hash(&self, item: &[u8]) -> Hash {
        let hash = Hash::of(item, self.seed);
        self.blocks.prefetch(hash);
        hash
    }

    /// Whether the filter has the hint's seed, and its bits at the hint's address. The shape is not
    /// compared: with another shape, prefetches are useless, but harmless. A second native hash
    /// would have to be compared.
    #[inline]
    pub fn fits(&self, filter: &Filter) -> bool {
        filter.family == Tag::Native
            && filter.seed() == self.seed
            && filter.newest().bits().words().as_ptr() == self.blocks.words
    }
}
