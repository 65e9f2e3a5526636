//! Many items at once: hash a chunk, prefetch its memory, then probe.
//!
//! A probe into a large filter waits some 100 ns for memory. A chunk of 64 items issues 64 such
//! loads at once, so the wait is paid about once per chunk:
//!
//! ```text
//!   hash 64 items, prefetch the newest layer
//!   layer n     probe the items not found yet; meanwhile prefetch layer n-1 for them
//!   layer n-1   probe ...
//! ```
//!
//! Nothing is allocated. The hashes of a chunk (1 KiB) are on the stack, and so are the first probe
//! groups that older layers need (1 KiB). The items found are a set in a `u64`
//! (`layer/item_set.rs`).

use super::{
    error::Error,
    hash::Hash,
    layer::item_set::{Answers, CHUNK, ItemSet, NO_GROUP},
    plan::Demand,
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
        let memory_bound = self.newest().is_memory_bound();
        loop {
            let hashes = self.hash_chunk(&mut items, &mut chunk, !memory_bound);
            if hashes.is_empty() {
                return;
            }
            let items = ItemSet::first(hashes.len());
            let found = if memory_bound {
                self.found_below(0, hashes, items)
            } else {
                let found = self.newest().filter_present(hashes, items);
                found.with(self.found_below(1, hashes, items.without(found)))
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
            let in_older = self.found_below(1, hashes, items);
            let missing = items.without(in_older);
            self.newest().prefetch_remaining(hashes, missing);
            if self.newest().room() < missing.len() {
                self.add_growing(hashes, in_older, &ceiling, &mut answer)?;
            } else {
                let new = self.newest_mut().add_chunk(hashes, missing);
                answer(Answers::new(new, hashes.len()));
            }
        }
    }

    /// Adds the items of a chunk when the newest layer may become full during the chunk. `in_older`
    /// are the items that older layers hold.
    #[inline(never)]
    fn add_growing(
        &mut self,
        hashes: &[Hash],
        in_older: ItemSet,
        ceiling: &impl Fn(Demand) -> u64,
        answer: &mut impl FnMut(Answers),
    ) -> Result<(), Error> {
        let number = self.newest_number();
        let mut answers = Answers::default();
        let outcome = hashes.iter().enumerate().try_for_each(|(i, &hash)| {
            answers.push(if in_older.has(i) {
                false
            } else if self.newest().is_full() || self.newest_number() != number {
                // A new layer was added, so `in_older` no longer covers every older layer.
                self.add(hash, ceiling)?
            } else {
                self.newest_mut().add(hash)
            });
            Ok(())
        });
        answer(answers);
        outcome
    }

    /// Adds items that must not be refused, as [`Self::add_each`] does. If there is no room, an
    /// item is added uncounted: it is never lost, but the error rate is guaranteed only up to the
    /// capacity.
    #[cold]
    pub fn add_each_uncounted<'a>(
        &mut self,
        mut items: impl Iterator<Item = &'a [u8]>,
        mut answer: impl FnMut(Answers),
    ) {
        let mut chunk = [Hash::default(); CHUNK];
        loop {
            // `by_ref` gives this caller its own copy of `hash_chunk`. With one more caller, that
            // of `add_each` would not be inlined into its loop.
            let hashes = self.hash_chunk(&mut items.by_ref(), &mut chunk, true);
            if hashes.is_empty() {
                return;
            }
            let mut answers = Answers::default();
            hashes.iter().for_each(|&hash| answers.push(self.add_uncounted(hash)));
            answer(answers);
        }
    }

    /// Hashes the next items, at most one chunk. With `prefetch`, prefetches the newest layer for
    /// each.
    #[inline]
    fn hash_chunk<'c, 'a>(
        &self,
        items: &mut impl Iterator<Item = &'a [u8]>,
        chunk: &'c mut [Hash; CHUNK],
        prefetch: bool,
    ) -> &'c [Hash] {
        let newest = self.newest();
        // One loop for each case: the loop of a large blocked layer has no branch on the kind.
        match newest.block_address() {
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

    /// Returns which of these items some layer holds, ignoring the `above` newest layers. Each
    /// layer is asked only for the items that no newer layer holds. Not inlined: most filters have
    /// one layer.
    #[inline(never)]
    fn found_below(&self, above: usize, hashes: &[Hash], items: ItemSet) -> ItemSet {
        let layers = self.layers().rev().skip(above);
        let mut layers = layers.peekable();
        let Some(first) = layers.peek().filter(|_| !items.is_empty()) else {
            return ItemSet::default();
        };
        let mut first_groups = [NO_GROUP; CHUNK];
        first.prefetch_first_lines(hashes, items, &mut first_groups);
        let mut missing = items;
        while let Some(layer) = layers.next()
            && !missing.is_empty()
        {
            let found = layer.filter_present_staged(
                hashes,
                missing,
                &mut first_groups,
                layers.peek().copied(),
            );
            missing = missing.without(found);
        }
        items.without(missing)
    }
}
