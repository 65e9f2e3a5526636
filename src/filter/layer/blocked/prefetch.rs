//! Where the blocks of a layer are: enough to ask for the cache lines of an item, and not to read
//! them.

use crate::filter::{
    geometry::{Geometry, LINE_WORDS, PROBE_GROUP},
    hash::{
        Hash,
        probe::{ProbeSequence, scale},
    },
    layer::bits::prefetch,
};

/// Blocks up to this many words (two cache lines) are prefetched whole; longer ones in stages
/// (`blocked.rs`).
pub(super) const WHOLE_BLOCK: usize = 16;

/// The place of a layer of blocks. The layer need not be there any more: an address to prefetch is
/// never read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::filter) struct BlockAddress {
    words: *const u64,
    geometry: Geometry,
}

impl BlockAddress {
    /// The blocks that begin at `words`.
    #[inline]
    pub(in crate::filter) fn new(words: *const u64, geometry: Geometry) -> Self {
        Self { words, geometry }
    }

    /// Where they begin.
    pub(in crate::filter) fn words(self) -> *const u64 {
        self.words
    }

    /// Their shape.
    pub(in crate::filter) fn geometry(self) -> Geometry {
        self.geometry
    }

    /// Whether the blocks begin there. Their shape is not asked: that of another filter at the same
    /// address costs a prefetch.
    #[inline]
    pub(super) fn begins_at(self, words: *const u64) -> bool {
        self.words == words
    }

    /// Asks for the cache lines that the item needs first: its whole block, or a few probes of a
    /// long one.
    #[inline]
    pub(in crate::filter) fn prefetch(self, hash: Hash) {
        let geometry = self.geometry;
        let start = self.words.wrapping_add(block_start(hash, geometry));
        if usize::from(geometry.block_words) > WHOLE_BLOCK {
            prefetch_sequence(
                start,
                geometry,
                ProbeSequence::new(hash),
                geometry.probes.min(PROBE_GROUP),
            );
        } else {
            prefetch_block(start, geometry);
        }
    }
}

/// The first word of an item's block.
#[inline]
pub(super) fn block_start(hash: Hash, geometry: Geometry) -> usize {
    scale(hash.block, u64::from(geometry.blocks)) as usize * usize::from(geometry.block_words)
}

/// Asks for a line of a block. Under an allocator that does not put arrays on whole lines it lies
/// in two, and then both are asked for.
#[inline]
pub(super) fn prefetch_line(start: *const u64) {
    prefetch(start);
    prefetch(start.wrapping_add(LINE_WORDS - 1));
}

/// Asks for the cache lines of a short block.
#[inline]
fn prefetch_block(start: *const u64, geometry: Geometry) {
    let words = usize::from(geometry.block_words);
    // The last word too: a block need not start on a cache line.
    prefetch(start);
    prefetch(start.wrapping_add(words / 2));
    prefetch(start.wrapping_add(words - 1));
}

/// Asks for the cache lines of the next `probes` bits on a walk over a block.
#[inline]
pub(super) fn prefetch_sequence(
    start: *const u64,
    geometry: Geometry,
    mut sequence: ProbeSequence,
    probes: u8,
) {
    match geometry.lines() {
        Some(lines) => (0..probes.div_ceil(PROBE_GROUP)).for_each(|_| {
            prefetch_line(start.wrapping_add(sequence.group(lines).line * LINE_WORDS));
        }),
        None => (0..probes).for_each(|_| {
            let at = sequence.one(u64::from(geometry.block_words) * 64);
            prefetch(start.wrapping_add((at / 64) as usize));
        }),
    }
}
