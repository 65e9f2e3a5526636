//! The kinds of layers behind a pointer.

use super::{classic::ClassicLayer, counting::CountingLayer, item_set::Set};
use crate::filter::hash::Hash;

/// A layer of another kind than new filters of bits have.
#[derive(Debug)]
pub(super) enum Other {
    Classic(ClassicLayer),
    Counting(CountingLayer),
}

// None of these is inlined: a call an item is nothing beside the waits for memory of these kinds, and the path of the
// blocked layers, in which they would stand as the other arm of a match, stays short.
impl Other {
    #[inline(never)]
    pub(super) fn prefetch(&self, hash: Hash) {
        match self {
            Self::Classic(layer) => layer.prefetch(hash),
            Self::Counting(layer) => layer.prefetch(hash),
        }
    }

    #[inline(never)]
    pub(super) fn contains(&self, hash: Hash) -> bool {
        match self {
            Self::Classic(layer) => layer.contains(hash),
            Self::Counting(layer) => layer.contains(hash),
        }
    }

    /// [`Self::prefetch`] of each of these items, or of what tells that most of them are not there.
    #[inline(never)]
    pub(super) fn prefetch_each(&self, hashes: &[Hash], items: Set) {
        match self {
            Self::Classic(layer) => items.members().for_each(|i| layer.prefetch(hashes[i])),
            Self::Counting(layer) => layer.prefetch_each(hashes, items),
        }
    }
}
