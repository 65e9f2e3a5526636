//! The blocked Bloom layer: every bit of an item lies in one block.
//!
//! ```text
//!   hash.block ──scale──▶ block b of 0 .. blocks
//!   ┌──────────┬──────────┬──────────┬ ─ ─ ─ ┬──────────┐
//!   │ block 0  │ block 1  │    b     │       │          │     each block_words * 64 bits
//!   └──────────┴──────────┴──┬───┬───┴ ─ ─ ─ ┴──────────┘
//!                            └───┴── k bits in it, in groups of four per line (hash/probe.rs)
//! ```
//!
//! Putze, Sanders and Singler (2007). An item touches one block; in a classic filter it touches k
//! lines and k memory pages. So an insert while the server has forked for a snapshot copies one
//! page, and not k. `probing.rs` tests and sets the bits inside a block.
//!
//! Low rates have long blocks. A chunk of lookups reads them in two stages: the line of the first
//! four probes of each item, and the remaining lines of the items that passed. A full layer below
//! pages always uses the stages: most lookups in it miss. See docs/internals/design.md.

mod line;
mod prefetch;
mod probing;
mod simd;

pub(in crate::filter) use prefetch::BlockAddress;

/// Whether batches are tested by AVX-512 instructions here, not by portable code.
pub fn uses_avx512() -> bool {
    simd::detected().is_some()
}

use line::{LineProbe, Scalar};
use prefetch::{WHOLE_BLOCK, block_start, prefetch_line, prefetch_sequence};
use probing::Probing;

use super::{
    bits::Bits,
    item_set::{CHUNK, ItemSet},
};
use crate::filter::{
    geometry::{Geometry, LINE_WORDS, PROBE_GROUP},
    hash::{
        Hash,
        probe::{ProbeGroup, ProbeSequence},
    },
};

/// Above this many words (4 MiB) lookups wait for memory.
const MEMORY_BOUND_WORDS: usize = 1 << 19;

/// A bit array cut into equal blocks.
#[derive(Debug)]
pub(in crate::filter) struct Blocked {
    pub(super) bits: Bits,
    blocks: u32,
    block_words: u16,
    probes: u8,
    probing: Probing,
}

impl Blocked {
    /// Makes a layer over these bits, which may be too few until the first query.
    pub(super) fn new(geometry: Geometry, bits: Bits) -> Self {
        let Geometry { blocks, block_words, probes } = geometry;
        Self { bits, blocks, block_words, probes, probing: Probing::of(geometry) }
    }

    #[inline]
    pub(super) fn geometry(&self) -> Geometry {
        Geometry { blocks: self.blocks, block_words: self.block_words, probes: self.probes }
    }

    /// The first word of the item's block.
    fn block_start(&self, hash: Hash) -> usize {
        block_start(hash, self.geometry())
    }

    fn block_words(&self) -> usize {
        usize::from(self.block_words)
    }

    fn is_long(&self) -> bool {
        self.block_words() > WHOLE_BLOCK
    }

    /// Prefetches the cache lines that a lookup of the item reads first.
    #[inline]
    pub(super) fn prefetch(&self, hash: Hash) {
        if let Some(block_address) = self.block_address() {
            block_address.prefetch(hash);
        }
    }

    /// Address and shape of the blocks; `None` for an array small enough to stay cached.
    #[inline]
    pub(in crate::filter) fn block_address(&self) -> Option<BlockAddress> {
        self.bits
            .is_uncached()
            .then(|| BlockAddress { words: self.address(0), geometry: self.geometry() })
    }

    /// Whether the blocks begin at this address. The shape is not compared: with another shape,
    /// prefetches are useless, but harmless.
    pub(in crate::filter) fn is_at(&self, block_address: BlockAddress) -> bool {
        block_address.words == self.address(0)
    }

    /// The address of a word, for a prefetch.
    #[inline]
    fn address(&self, word: usize) -> *const u64 {
        self.bits.words().as_ptr().wrapping_add(word)
    }

    #[inline(always)]
    fn block(&self, hash: Hash) -> &[u64] {
        let start = self.block_start(hash);
        &self.bits.words()[start..start + self.block_words()]
    }

    #[inline(always)]
    fn block_mut(&mut self, hash: Hash) -> &mut [u64] {
        let (start, words) = (self.block_start(hash), self.block_words());
        &mut self.bits.words_mut()[start..start + words]
    }

    /// Returns whether every bit of the item is set.
    #[inline(always)]
    pub(super) fn contains(&self, hash: Hash) -> bool {
        let (block, sequence) = (self.block(hash), ProbeSequence::new(hash));
        match self.probing {
            Probing::Anywhere => probing::all_set_anywhere(block, sequence, self.probes),
            Probing::Lines(_) | Probing::Avx512(_) => {
                probing::all_set(Scalar, block, sequence, self.probes)
            }
        }
    }

    /// Which items of a chunk have every bit set. Not inlined: beside the loop that hashes, too few
    /// registers are left for this one.
    #[inline(never)]
    pub(super) fn filter_present(&self, hashes: &[Hash]) -> ItemSet {
        match self.probing {
            Probing::Anywhere => ItemSet::of(hashes, |hash| u64::from(self.contains(hash))),
            Probing::Lines(line_probe) => self.filter_present_with(line_probe, hashes),
            Probing::Avx512(line_probe) => self.filter_present_with(line_probe, hashes),
        }
    }

    #[inline(always)]
    fn filter_present_with(&self, line_probe: impl LineProbe, hashes: &[Hash]) -> ItemSet {
        line_probe.run(|| {
            ItemSet::of(hashes, |hash| {
                let sequence = ProbeSequence::new(hash);
                u64::from(probing::all_set(line_probe, self.block(hash), sequence, self.probes))
            })
        })
    }

    /// Returns which items of a chunk have every bit set, in two stages. Prefetches.
    #[inline(never)]
    pub(in crate::filter) fn present(&self, hashes: &[Hash]) -> ItemSet {
        match self.probing {
            Probing::Anywhere => {
                hashes.iter().for_each(|&hash| self.prefetch(hash));
                self.filter_present(hashes)
            }
            Probing::Lines(line_probe) => self.present_with(line_probe, hashes),
            Probing::Avx512(line_probe) => self.present_with(line_probe, hashes),
        }
    }

    #[inline]
    fn present_with(&self, line_probe: impl LineProbe, hashes: &[Hash]) -> ItemSet {
        let lines = (self.block_words() / LINE_WORDS) as u64;
        let mut groups = [(0, 0); CHUNK];
        for (group, &hash) in groups.iter_mut().zip(hashes) {
            *group = self.prefetch_first_line(lines, hash);
        }
        let items = ItemSet::first(hashes.len());
        let count = self.probes.min(PROBE_GROUP);
        let passed =
            line_probe.run(|| items.keep(|i| self.test_first_group(line_probe, groups[i], count)));
        self.filter_present_remaining(line_probe, hashes, passed)
    }

    /// Prefetches the first line of an item; returns its first word, and the places of the four
    /// bits. Small arrays too: to skip them costs a test per item, which large arrays would pay.
    #[inline(always)]
    fn prefetch_first_line(&self, lines: u64, hash: Hash) -> (usize, u64) {
        let group = ProbeSequence::new(hash).group(lines);
        let start = self.block_start(hash) + group.line * LINE_WORDS;
        prefetch_line(self.address(start));
        (start, group.places)
    }

    /// Tests the first `count` bits of an item, at most four: 1 if all are set, else 0.
    #[inline(always)]
    fn test_first_group(
        &self,
        line_probe: impl LineProbe,
        (start, places): (usize, u64),
        count: u8,
    ) -> u64 {
        let line = self.bits.words()[start..].first_chunk();
        line.map_or(0, |line| line_probe.test_group(line, ProbeGroup { line: 0, places }, count))
    }

    /// Stage 2: returns which of these items have all bits after the first four set.
    #[inline(never)]
    fn filter_present_remaining(
        &self,
        line_probe: impl LineProbe,
        hashes: &[Hash],
        items: ItemSet,
    ) -> ItemSet {
        let left = self.probes.saturating_sub(PROBE_GROUP);
        if left == 0 {
            return items;
        }
        // Only the first line was prefetched, even in blocks of two lines.
        if self.bits.is_uncached() {
            self.prefetch_after_first_group(hashes, items);
        }
        line_probe.run(|| {
            items.keep(|i| {
                let sequence = self.sequence_after_first_group(hashes[i]);
                u64::from(probing::all_set(line_probe, self.block(hashes[i]), sequence, left))
            })
        })
    }

    /// Whether the array is so large that out-of-order execution does not hide its waits.
    #[inline]
    pub(in crate::filter) fn is_memory_bound(&self) -> bool {
        self.is_long() && self.bits.words().len() > MEMORY_BOUND_WORDS
    }

    /// Prefetches the cache lines of these items that [`Self::prefetch`] left out: an addition
    /// needs all lines of an item together.
    #[inline]
    pub(in crate::filter) fn prefetch_remaining(&self, hashes: &[Hash], items: ItemSet) {
        if self.is_long() && self.bits.is_uncached() {
            self.prefetch_after_first_group(hashes, items);
        }
    }

    /// Prefetches the cache lines of these items after the first probe group.
    #[inline]
    fn prefetch_after_first_group(&self, hashes: &[Hash], items: ItemSet) {
        let left = self.probes.saturating_sub(PROBE_GROUP);
        for i in items.members() {
            let start = self.address(self.block_start(hashes[i]));
            prefetch_sequence(
                start,
                self.geometry(),
                self.sequence_after_first_group(hashes[i]),
                left,
            );
        }
    }

    /// The probe sequence of an item without its first four probes.
    #[inline]
    fn sequence_after_first_group(&self, hash: Hash) -> ProbeSequence {
        let mut sequence = ProbeSequence::new(hash);
        let steps = if matches!(self.probing, Probing::Anywhere) { PROBE_GROUP } else { 1 };
        (0..steps).for_each(|_| sequence.step());
        sequence
    }

    /// Sets every bit of the item, and returns whether one was clear.
    ///
    /// Writes nothing if all were set: that would copy the page while the server forks.
    #[inline(always)]
    pub(super) fn add(&mut self, hash: Hash) -> bool {
        let (probing, sequence, probes) = (self.probing, ProbeSequence::new(hash), self.probes);
        let block = self.block_mut(hash);
        match probing {
            Probing::Anywhere => probing::add_anywhere(block, sequence, probes),
            Probing::Lines(_) | Probing::Avx512(_) => probing::add(Scalar, block, sequence, probes),
        }
    }

    /// [`Self::add`] of the items of a chunk; returns which of them had a clear bit.
    #[inline]
    pub(super) fn add_chunk(&mut self, hashes: &[Hash]) -> ItemSet {
        match self.probing {
            Probing::Anywhere => ItemSet::of(hashes, |hash| u64::from(self.add(hash))),
            Probing::Lines(line_probe) => self.add_chunk_with(line_probe, hashes),
            Probing::Avx512(line_probe) => self.add_chunk_with(line_probe, hashes),
        }
    }

    #[inline(always)]
    fn add_chunk_with(&mut self, line_probe: impl LineProbe, hashes: &[Hash]) -> ItemSet {
        let probes = self.probes;
        line_probe.run(|| {
            ItemSet::of(hashes, |hash| {
                let sequence = ProbeSequence::new(hash);
                u64::from(probing::add(line_probe, self.block_mut(hash), sequence, probes))
            })
        })
    }
}
