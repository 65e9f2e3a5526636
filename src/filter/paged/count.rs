//! Counting filters: deletions and counts. Additions are in `add.rs`.
//!
//! An item matches at most one slot, so a deletion is never ambiguous. One misuse cannot be
//! detected: deleting an item that was never added, and is a false positive.
//!
//! A slot at the highest count no longer shows how many items there are. It stays for ever, and its
//! deletion is refused.

use super::Paged;
use crate::filter::{
    hash::Hash,
    layer::item_set::{Answers, CHUNK},
};

impl Paged {
    /// Deletes each item once, in order. Answers, one chunk at a time, whether it was there and was
    /// deleted, that is, whether the filter changed. Counts refusals
    /// ([`Self::refused_deletions`]). Deletes nothing from a filter that does not count.
    pub fn delete_each<'a>(
        &mut self,
        mut items: impl Iterator<Item = &'a [u8]>,
        mut answer: impl FnMut(Answers),
    ) {
        let (counts, highest) = (self.counts(), self.pages.plan().payload.most() + 1);
        let (mut chunk, mut refused) = ([Hash::default(); CHUNK], 0_u32);
        while let Some(hashes) = self.hash_chunk(&mut items, &mut chunk) {
            let mut answers = Answers::default();
            let mut lowered = |before| {
                answers.push(before > 0 && before < highest);
                refused += u32::from(before == highest);
            };
            if counts {
                self.pages.lower_chunk(hashes, lowered);
            } else {
                hashes.iter().for_each(|_| lowered(0));
            }
            answer(answers);
        }
        if refused > 0 {
            self.refuse(refused);
        }
    }

    /// How often the item was added and not deleted since: never too low. The highest count means
    /// "at least that often".
    pub fn count(&self, hash: Hash) -> u64 {
        if self.counts() { self.pages.count(hash) } else { 0 }
    }

    /// Refused deletions of saturated items, since the filter was made, loaded or copied here.
    pub fn refused_deletions(&self) -> u64 {
        self.rest.as_deref().map_or(0, |rest| rest.refused.into())
    }

    #[cold]
    fn refuse(&mut self, deletions: u32) {
        let rest = self.rest.get_or_insert_default();
        rest.refused = rest.refused.saturating_add(deletions);
    }
}
