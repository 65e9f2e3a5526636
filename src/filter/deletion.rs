//! Filters that also delete: their layers have counters where others have bits
//! (`layer/counting/mod.rs`).
//!
//! ```text
//!             newest        older
//!   add       raise         ask                 always raised: what tests present may be another item's doing, and would
//!                                               vanish with that item
//!   delete    ask           ask                 present in one layer: lower there
//!                                               in none: there is nothing to delete; in several: refused
//!   contains  ask           ask                 as of any filter
//! ```
//!
//! The promise: as long as only items are deleted that were added, no item tests absent whose
//! additions exceed its deletions. For each addition of an item raised counters in some layer, and
//! each deletion lowered them in the same one: a layer that holds the item tests positive, and a
//! deletion lowers only where no other layer does. Two that test positive leave open which one the
//! item went into (the other may do so by accident, or the item was added to both), so the filter
//! stays as it is. The item remains "maybe present", which is what a Bloom filter may always say.
//!
//! Who deletes what was never added lowers counters of other items, and may lose those. Nothing in
//! the filter can tell. Who never deletes what tested present when it was added leaves it in for
//! ever, and such items gather in the fullest blocks: in the end the rate rises, though the layer
//! is no fuller (`tests/filter/fullness.rs`).
//!
//! An answer of "deleted" says that a counter went down. Where none could, because all are stuck,
//! the item stays for ever, and the answer is that of a refusal.
//!
//! How many items there are, and when a layer is full, a layer judges by two numbers
//! (`layer/counting/fullness.rs`): those that tested absent when they came, less those that test
//! absent once they went; and the counters that are not 0.

use super::{
    error::Error,
    hash::Hash,
    layer::{
        Layer,
        item_set::{Answers, CHUNK, ItemSet, NO_GROUP},
    },
    stack::Filter,
};

impl Filter {
    /// Whether items can be deleted from it.
    #[inline]
    #[must_use]
    pub fn counts(&self) -> bool {
        self.newest().counts()
    }

    /// [`Self::add`] of a filter of counters.
    // Not inlined, as what follows: the path of filters of bits stays short.
    #[inline(never)]
    pub(super) fn add_counted(
        &mut self,
        hash: Hash,
        ceiling: impl FnOnce(u64) -> u64,
    ) -> Result<bool, Error> {
        let in_older = self.in_older(hash);
        self.raise(hash, in_older, ceiling)
    }

    /// The same for an item of which the older layers were asked.
    fn raise(
        &mut self,
        hash: Hash,
        in_older: bool,
        ceiling: impl FnOnce(u64) -> u64,
    ) -> Result<bool, Error> {
        // An item that tests present takes no room.
        if self.newest().is_full() && !self.newest().contains(hash) {
            self.grow(ceiling(self.bit_bytes()))?;
        }
        Ok(self.newest_mut().raise(hash) && !in_older)
    }

    /// [`Self::add_each`] of a filter of counters.
    #[inline(never)]
    pub(super) fn add_each_counted<'a>(
        &mut self,
        items: &mut impl Iterator<Item = &'a [u8]>,
        ceiling: impl Fn(u64) -> u64,
        mut answer: impl FnMut(Answers),
    ) -> Result<(), Error> {
        let mut chunk = [Hash::default(); CHUNK];
        loop {
            // By reference: a type, and so a copy of `hash_chunk`, of its own. With one more caller
            // the copy of the filters of bits would not be inlined into their loop.
            let hashes = self.hash_chunk(&mut items.by_ref(), &mut chunk, true);
            if hashes.is_empty() {
                return Ok(());
            }
            let layers = self.older().len();
            let found = self.found_below(1, hashes, ItemSet::first(hashes.len()));
            let mut answers = Answers::default();
            let outcome = hashes.iter().enumerate().try_for_each(|(i, &hash)| {
                // A layer that became full within this chunk holds items that were not there when
                // it was asked.
                let in_older =
                    if self.older().len() == layers { found.has(i) } else { self.in_older(hash) };
                answers.push(self.raise(hash, in_older, &ceiling)?);
                Ok(())
            });
            answer(answers);
            outcome?;
        }
    }

    /// Deletes the item once, if exactly one layer tests positive; whether a counter went down,
    /// that is whether the filter changed. A refusal is noted ([`Self::refused`]).
    pub fn delete(&mut self, hash: Hash) -> bool {
        let [first, second] = {
            let holding = (1..).zip(self.older());
            let mut holding = holding.filter(|(_, layer)| layer.contains(hash));
            [holding.next(), holding.next()].map(|found| found.map(|(layer, _)| layer))
        };
        match (first, second) {
            (None, _) => self.lower(0, hash),
            (Some(layer), None) if !self.newest().contains(hash) => self.lower(layer, hash),
            _ => self.note_refused_deletion(),
        }
    }

    /// Lowers the item in a layer, counted from the newest on: the one that tests positive, if any
    /// does. The answer of [`Self::delete`].
    fn lower(&mut self, layer: usize, hash: Hash) -> bool {
        let lowered = match layer.checked_sub(1) {
            None => self.newest_mut().lower(hash),
            Some(older) => self.older_mut().nth(older).and_then(|layer| layer.lower(hash)),
        };
        match lowered {
            None => false,
            Some(true) => true,
            Some(false) => self.note_refused_deletion(),
        }
    }

    /// Notes a refusal: not deleted.
    fn note_refused_deletion(&mut self) -> bool {
        self.newest_mut().note_refused_deletion();
        false
    }

    /// Deletes each item in order, and answers as [`Self::delete`], chunk by chunk.
    pub fn delete_each<'a>(
        &mut self,
        items: impl Iterator<Item = &'a [u8]>,
        answer: impl FnMut(Answers),
    ) {
        self.change_each(items, Self::delete_chunk, answer);
    }

    /// The same for the hashes of a chunk.
    fn delete_chunk(&mut self, hashes: &[Hash], answers: &mut Answers) {
        if self.older().len() == 0 {
            return hashes.iter().for_each(|&hash| answers.push(self.lower(0, hash)));
        }
        for (&hash, held) in hashes.iter().zip(self.held(hashes)) {
            answers.push(match held {
                Held::Nowhere => false,
                Held::In(layer) => self.lower(layer, hash),
                Held::InSeveral => self.delete(hash),
            });
        }
    }

    /// Where the items of a chunk are held, layer by layer, as `found_below` asks. What is lowered
    /// for one of them may end what another tests positive by: one layer may have become none, and
    /// several are to be asked again. None have become more.
    fn held(&self, hashes: &[Hash]) -> [Held; CHUNK] {
        let mut held = [Held::Nowhere; CHUNK];
        let items = ItemSet::first(hashes.len());
        let layers = std::iter::once(self.newest()).chain(self.older());
        let mut layers = layers.enumerate().peekable();
        // Layers of counters are not aimed at, only asked for.
        let mut first_groups = [NO_GROUP; CHUNK];
        while let Some((index, layer)) = layers.next() {
            if let Some((_, next)) = layers.peek() {
                next.prefetch_first(hashes, items, &mut first_groups);
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

    /// At most how often the item was added and not deleted since: the least of its counters,
    /// summed over layers. A counter that is stuck at 15 may stand for more.
    #[must_use]
    pub fn count(&self, hash: Hash) -> u64 {
        self.layers().map(|layer| layer.least(hash)).sum()
    }

    /// Deletions of items that tested present and were refused, since this filter was made, loaded
    /// or copied here.
    #[must_use]
    pub fn refused_deletions(&self) -> u64 {
        self.layers().map(Layer::refused_deletions).fold(0, u64::saturating_add)
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
