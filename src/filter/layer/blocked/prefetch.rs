//! The address and shape of a layer's blocks: enough to prefetch the lines of an item, not to read
//! them.

use crate::filter::{
    geometry::{Geometry, LINE_WORDS, PROBE_GROUP},
    hash::{
        Hash,
        probe::{ProbeSequence, scale},
    },
    layer::bits::prefetch,
};

/// Blocks up to this many words (two cache lines) are prefetched whole.
pub(super) const WHOLE_BLOCK: usize = 16;

/// Address and shape of a layer's blocks. This value may outlive the layer: nothing is read at the
/// address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::filter) struct BlockAddress {
    pub(super) words: *const u64,
    pub(super) geometry: Geometry,
}

impl BlockAddress {
    /// Prefetches the lines that a lookup reads first: the block, or four probes in a long block.
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

/// Prefetches a line of a block, which spans two cache lines if the array is not aligned.
#[inline]
pub(super) fn prefetch_line(start: *const u64) {
    prefetch(start);
    prefetch(start.wrapping_add(LINE_WORDS - 1));
}

#[inline]
fn prefetch_block(start: *const u64, geometry: Geometry) {
    let words = usize::from(geometry.block_words);
    // The last word too: a block need not start on a cache line.
    prefetch(start);
    prefetch(start.wrapping_add(words / 2));
    prefetch(start.wrapping_add(words - 1));
}

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
