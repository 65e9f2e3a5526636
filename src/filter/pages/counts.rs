//! Slots that count: how often an item was added and not deleted since.
//!
//! The payload is the count minus 1. The highest payload stays for ever, because it no longer shows
//! how many items there are: of 4 bits, counts of 1 to 15 are exact but for items with equal tags,
//! and 16 means "16 or more". A void slot that a split copies gets the highest payload, because
//! both copies stand for the items of both.

use super::{Change, Pages};
use crate::filter::{error::Error, hash::Hash};

impl Pages {
    /// Adds an item once more; returns its count before.
    ///
    /// # Errors
    /// `Error::OutOfMemory`; nothing has changed then.
    #[inline]
    pub fn raise(&mut self, hash: Hash) -> Result<u64, Error> {
        let most = self.plan().payload.most();
        let before = self.insert(hash, 0, |payload| (payload + 1).min(most))?;
        Ok(before.map_or(0, |payload| payload + 1))
    }

    /// Deletes an item once; returns its count before. An item at the highest count stays there.
    #[inline]
    pub fn lower(&mut self, hash: Hash) -> u64 {
        let mut count = 0;
        self.lower_chunk(&[hash], |before| count = before);
        count
    }

    /// Deletes each item of a chunk of at most 64 in order, as [`Self::lower`] does. Calls `answer`
    /// with the count of each before.
    #[inline]
    pub fn lower_chunk(&mut self, hashes: &[Hash], mut answer: impl FnMut(u64)) {
        let most = self.plan().payload.most();
        let change = |payload| match payload {
            _ if payload == most => Change::Nothing,
            0 => Change::Remove,
            _ => Change::Payload(payload - 1),
        };
        self.alter_chunk(hashes, change, |before| answer(before.map_or(0, |payload| payload + 1)));
    }

    /// How often an item was added and not deleted since: never less than it was. The highest count
    /// means "at least so often".
    #[inline]
    #[must_use]
    pub fn count(&self, hash: Hash) -> u64 {
        self.find(hash).map_or(0, |payload| payload + 1)
    }

    /// The highest count.
    #[must_use]
    pub fn highest_count(&self) -> u64 {
        self.plan().payload.most() + 1
    }
}
