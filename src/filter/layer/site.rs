//! Where the blocks of a layer are: enough to ask for the cache lines of an item, and not to read them.

use super::block::STRIDE;
use crate::filter::{
    bits::prefetch,
    hash::Hash,
    probe::{Walk, scale},
    sizing::Geometry,
};

/// Blocks up to this many words (two cache lines) are prefetched whole; longer ones in stages (`blocked.rs`).
pub(super) const WHOLE_BLOCK: usize = 16;

/// The place of a layer of blocks. The layer need not be there any more: an address to prefetch is never read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::filter) struct Site {
    words: *const u64,
    geometry: Geometry,
}

impl Site {
    /// The blocks that begin at `words`.
    #[inline]
    pub(super) fn new(words: *const u64, geometry: Geometry) -> Self {
        Self { words, geometry }
    }

    /// Whether blocks begin at `words`.
    #[inline]
    pub(super) fn is_at(self, words: *const u64) -> bool {
        std::ptr::eq(self.words, words)
    }

    /// Asks for the cache lines that the item needs first: its whole block, or a few probes of a long one.
    #[inline]
    pub(in crate::filter) fn prefetch(self, hash: Hash) {
        let Geometry {
            blocks,
            block_words,
            probes,
        } = self.geometry;
        let start = self.words.wrapping_add(block_start(hash, blocks, block_words));
        if usize::from(block_words) > WHOLE_BLOCK {
            prefetch_walk(start, block_words, Walk::new(hash), probes.min(STRIDE));
        } else {
            prefetch_block(start, block_words);
        }
    }
}

/// The first word of an item's block.
#[inline]
pub(super) fn block_start(hash: Hash, blocks: u32, block_words: u16) -> usize {
    scale(hash.block, u64::from(blocks)) as usize * usize::from(block_words)
}

/// Asks for the cache lines of a short block.
#[inline]
pub(super) fn prefetch_block(start: *const u64, block_words: u16) {
    let words = usize::from(block_words);
    // The last word too: a block need not start on a cache line.
    prefetch(start);
    prefetch(start.wrapping_add(words / 2));
    prefetch(start.wrapping_add(words - 1));
}

/// Asks for the cache lines of the next `probes` bits on a walk over a block.
#[inline]
pub(super) fn prefetch_walk(start: *const u64, block_words: u16, mut walk: Walk, probes: u8) {
    for _ in 0..probes {
        let at = walk.next(u64::from(block_words) * 64);
        prefetch(start.wrapping_add((at / 64) as usize));
    }
}
