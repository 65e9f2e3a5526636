//! Counting filters: additions and deletions. Their layers have counters in the place of bits
//! (`layer/counting/mod.rs`).
//!
//! ```text
//!             newest        older
//!   add       increment     test         always increments: an item may test present by accident,
//!                                        because of another item, and would vanish with that item
//!   delete    test          test         present in one layer: decrement there
//!                                        in none: nothing to delete; in several: refused
//!   contains  test          test         as in any filter
//! ```
//!
//! The guarantee: if only items are deleted that were added before, an item with more additions
//! than deletions never tests absent. Each addition increments the item's counters in one layer. A
//! deletion must decrement them in that layer. A layer that holds the item tests positive, so if
//! exactly one layer does, it is the right one. If two test positive, the right one is unknown: the
//! other may do so by accident, or the item was added to both. Then the filter does not change, and
//! the item remains "maybe present", which a Bloom filter may always answer.
//!
//! Two misuses cannot be detected. Deleting an item that was never added decrements counters of
//! other items, and may lose those. Never deleting an item because it tested present when it was
//! added leaves it in for ever. Such items collect in the fullest blocks, and in the end the rate
//! rises although the layer is no fuller (`tests/filter/fullness.rs`).
//!
//! An older layer takes no additions, so it is dropped when its last counter is back at 0. All
//! copies of the filter drop it, because they make the same deletion.
//!
//! An answer of "deleted" means that a counter was decremented. If all counters of an item are at
//! 15, the item stays for ever, and the deletion is refused.
//!
//! `layer/counting/fullness.rs` estimates how many items a layer holds and when it is full.

use super::{
    error::Error,
    hash::Hash,
    layer::{
        Layer,
        item_set::{Answers, CHUNK, ItemSet, NO_GROUP},
    },
    plan::Demand,
    stack::Filter,
};

impl Filter {
    /// Returns whether items can be deleted from the filter.
    #[inline]
    #[must_use]
    pub fn counts(&self) -> bool {
        self.newest().counts()
    }

    /// [`Self::add`] for a counting filter.
    // Not inlined, so that the path of filters of bits stays short.
    #[inline(never)]
    pub(super) fn add_counted(
        &mut self,
        hash: Hash,
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<bool, Error> {
        let in_older = self.in_older(hash);
        self.increment(hash, in_older, ceiling)
    }

    /// Adds an item when it is known whether an older layer holds it.
    fn increment(
        &mut self,
        hash: Hash,
        in_older: bool,
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<bool, Error> {
        // An item that tests present takes no room.
        if self.newest().is_full() && !self.newest().contains(hash) {
            self.grow(ceiling)?;
        }
        Ok(self.newest_mut().increment(hash) && !in_older)
    }

    /// [`Self::add_each`] for a counting filter.
    #[inline(never)]
    pub(super) fn add_each_counted<'a>(
        &mut self,
        items: &mut impl Iterator<Item = &'a [u8]>,
        ceiling: impl Fn(Demand) -> u64,
        mut answer: impl FnMut(Answers),
    ) -> Result<(), Error> {
        let mut chunk = [Hash::default(); CHUNK];
        loop {
            // `by_ref` gives this caller its own type, and so its own copy of `hash_chunk`. With
            // one more caller, the copy for filters of bits would not be inlined into its loop.
            let hashes = self.hash_chunk(&mut items.by_ref(), &mut chunk, true);
            if hashes.is_empty() {
                return Ok(());
            }
            let number = self.newest_number();
            let found = self.found_below(1, hashes, ItemSet::first(hashes.len()));
            let mut answers = Answers::default();
            let outcome = hashes.iter().enumerate().try_for_each(|(i, &hash)| {
                // A layer that became full within this chunk holds items that were added after
                // `found` was computed.
                let in_older =
                    if self.newest_number() == number { found.has(i) } else { self.in_older(hash) };
                answers.push(self.increment(hash, in_older, &ceiling)?);
                Ok(())
            });
            answer(answers);
            outcome?;
        }
    }

    /// Deletes the item once, if exactly one layer tests positive. Returns whether a counter
    /// changed, that is, whether the filter changed. Counts a refusal
    /// ([`Self::refused_deletions`]).
    pub fn delete(&mut self, hash: Hash) -> bool {
        let deleted = self.delete_from_layer(hash);
        if deleted {
            self.drop_emptied();
        }
        deleted
    }

    /// [`Self::delete`], but an older layer that it empties stays.
    fn delete_from_layer(&mut self, hash: Hash) -> bool {
        let [first, second] = {
            let holding = (1..).zip(self.older());
            let mut holding = holding.filter(|(_, layer)| layer.contains(hash));
            [holding.next(), holding.next()].map(|found| found.map(|(layer, _)| layer))
        };
        match (first, second) {
            (None, _) => self.decrement(0, hash),
            (Some(layer), None) if !self.newest().contains(hash) => self.decrement(layer, hash),
            _ => self.note_refused_deletion(),
        }
    }

    /// Drops the older layers without a raised counter.
    fn drop_emptied(&mut self) {
        let emptied = |layer: &Layer| layer.counting().is_some_and(|layer| layer.nonzero() == 0);
        let dropped = self.extract_older(|_, layer| emptied(layer));
        let refused =
            dropped.iter().filter_map(Layer::counting).map(|layer| layer.refused_deletions);
        self.newest_mut().note_refused_deletions(refused.fold(0, u64::saturating_add));
    }

    /// Decrements the item's counters in layer `layer`, counted from the newest on, if the item
    /// tests present there. No other layer tests positive. Returns what [`Self::delete`] returns.
    fn decrement(&mut self, layer: usize, hash: Hash) -> bool {
        let number = self.newest_number().saturating_sub(layer);
        let layer = self.layers_from_mut(number).next();
        match layer.and_then(|layer| layer.decrement(hash)) {
            None => false,
            Some(true) => true,
            Some(false) => self.note_refused_deletion(),
        }
    }

    /// Counts a refused deletion, and returns false: nothing was deleted.
    fn note_refused_deletion(&mut self) -> bool {
        self.newest_mut().note_refused_deletions(1);
        false
    }

    /// Deletes each item in order, and answers as [`Self::delete`] does, one chunk at a time.
    pub fn delete_each<'a>(
        &mut self,
        items: impl Iterator<Item = &'a [u8]>,
        answer: impl FnMut(Answers),
    ) {
        let mut deleted = false;
        let delete = |filter: &mut Self, hashes: &[Hash], answers: &mut Answers| {
            filter.delete_chunk(hashes, answers);
            deleted |= answers.ones() > 0;
        };
        self.change_each(items, delete, answer);
        // Copies of the filter hear of nothing else.
        if deleted {
            self.drop_emptied();
        }
    }

    /// Deletes the items of one chunk by their hashes.
    fn delete_chunk(&mut self, hashes: &[Hash], answers: &mut Answers) {
        if self.older().len() == 0 {
            return hashes.iter().for_each(|&hash| answers.push(self.decrement(0, hash)));
        }
        for (&hash, held) in hashes.iter().zip(self.held(hashes)) {
            answers.push(match held {
                Held::Nowhere => false,
                Held::In(layer) => self.decrement(layer, hash),
                Held::InSeveral => self.delete_from_layer(hash),
            });
        }
    }

    /// Finds which layers hold the items of a chunk, layer by layer. The deletion of one item can
    /// make another test absent in a layer, never present. So `In` may be outdated, which
    /// `decrement` detects, and items in several layers must be tested again.
    fn held(&self, hashes: &[Hash]) -> [Held; CHUNK] {
        let mut held = [Held::Nowhere; CHUNK];
        let items = ItemSet::first(hashes.len());
        let layers = std::iter::once(self.newest()).chain(self.older());
        let mut layers = layers.enumerate().peekable();
        // Counting layers use no first groups.
        let mut first_groups = [NO_GROUP; CHUNK];
        while let Some((index, layer)) = layers.next() {
            if let Some((_, next)) = layers.peek() {
                next.prefetch_first_lines(hashes, items, &mut first_groups);
            }
            for i in layer.filter_present(hashes, items).members() {
                held[i] = match held[i] {
                    Held::Nowhere => Held::In(index),
                    Held::In(_) | Held::InSeveral => Held::InSeveral,
                };
            }
        }
        held
    }

    /// An upper bound of how often the item was added and not deleted since: its smallest counter,
    /// summed over the layers. A counter at 15 may count more items.
    #[must_use]
    pub fn count(&self, hash: Hash) -> u64 {
        self.layers().filter_map(Layer::counting).map(|layer| layer.least(hash)).sum()
    }

    /// Refused deletions of items that tested present, since this filter was made, loaded or copied
    /// on this server.
    #[must_use]
    pub fn refused_deletions(&self) -> u64 {
        let layers = self.layers().filter_map(Layer::counting);
        layers.map(|layer| layer.refused_deletions).fold(0, u64::saturating_add)
    }
}

/// Where an item tests positive.
#[derive(Clone, Copy)]
enum Held {
    Nowhere,
    /// In one layer, counted from the newest on.
    In(usize),
    InSeveral,
}
