//! The cache lines of a single item, prefetched before its key is looked up.
//!
//! A single command waits for the block of its item. The server looks up the key first, which takes
//! some 300 instructions: time enough for memory to answer. So the module remembers the last filter
//! that is too large for the processor's caches, by the name of its key.
//!
//! By now the name may lead to another filter, or to none. A prefetched address is never read, and
//! the hash is used only if the filter's family, seed and block address are the remembered ones. So
//! a wrong guess costs only time, and the length and the end of the name are enough.

use std::cell::Cell;

use crate::filter::{Filter, Hash, PrefetchHint};

/// The last filter of a single command that gains by a prefetch.
static LAST: Memory = Memory(Cell::new(None));

struct Memory(Cell<Option<(End, PrefetchHint)>>);

// SAFETY: `LAST` is the only value, and only commands use it. The server runs commands one at a
// time: in its main thread, or in a thread that holds the server's lock.
unsafe impl Sync for Memory {}

/// Length and last eight bytes of a name. Names that share both count as the same name.
type End = (usize, u64);

#[inline]
fn end_of(name: &[u8]) -> End {
    let short = || name.iter().fold(0, |bytes, &byte| bytes << 8 | u64::from(byte));
    (name.len(), name.last_chunk().map_or_else(short, |end| u64::from_le_bytes(*end)))
}

/// The item of a command, before its filter is known.
pub(crate) struct Lookahead<'a> {
    name: &'a [u8],
    item: &'a [u8],
    /// What is remembered of the name, and the item's hash under it.
    hashed: Option<(PrefetchHint, Hash)>,
}

impl<'a> Lookahead<'a> {
    /// Prefetches the item's cache lines, if the name is remembered.
    #[inline]
    pub(crate) fn new(name: &'a [u8], item: &'a [u8]) -> Self {
        let last = LAST.0.get().filter(|(end, _)| *end == end_of(name));
        Self { name, item, hashed: last.map(|(_, hint)| (hint, hint.hash(item))) }
    }

    /// The item's hash in the filter that the name led to.
    #[inline(always)]
    pub(crate) fn hash(self, filter: &Filter) -> Hash {
        if let Some((hint, hash)) = self.hashed
            && hint.fits(filter)
        {
            return hash;
        }
        let hint = PrefetchHint::of(filter);
        if self.hashed.is_some() || hint.is_some() {
            remember(self.name, hint);
        }
        filter.hash(self.item)
    }
}

#[inline(never)] // Most commands find their filter remembered, or one not worth remembering.
fn remember(name: &[u8], hint: Option<PrefetchHint>) {
    LAST.0.set(hint.map(|hint| (end_of(name), hint)));
}
