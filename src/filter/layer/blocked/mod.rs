//! The blocked Bloom layer: every bit of an item lies in one block.
//!
//! ```text
//!   hash.block ──scale──▶ block b of 0 .. blocks
//!   ┌──────────┬──────────┬──────────┬ ─ ─ ─ ┬──────────┐
//!   │ block 0  │ block 1  │    b     │       │          │     each block_words * 64 bits
//!   └──────────┴──────────┴──┬───┬───┴ ─ ─ ─ ┴──────────┘
//!                            └───┴── k bits in it, in groups of four per line (hash.rs)
//! ```
//!
//! Putze, Sanders and Singler (2007). An insert while the server has forked for a snapshot copies
//! one memory page, where a classic filter copies k.
//!
//! Low rates have long blocks. A chunk of lookups may read them in two stages: the line of the
//! first four probes of each item, and the remaining lines of the items that passed.

mod probing;
#[cfg(target_arch = "x86_64")]
mod simd;

/// Other processors never have the instructions.
#[cfg(not(target_arch = "x86_64"))]
mod simd {
    pub(super) use super::probing::Scalar as Avx512;

    pub(super) fn detected() -> Option<Avx512> {
        None
    }
}

use probing::{LineProbe, Scalar};
use simd::{Avx512, detected};

use super::{
    Geometry,
    bits::{Bits, prefetch},
    item_set::{CHUNK, ItemSet},
};
use crate::filter::hash::{Hash, LINE_WORDS, PROBE_GROUP, ProbeGroup, ProbeSequence, scale};

/// Blocks up to this many words (two cache lines) are prefetched whole.
const WHOLE_BLOCK: usize = 16;

/// Above this many words (4 MiB) lookups wait for memory.
const MEMORY_BOUND_WORDS: usize = 1 << 19;

/// Whether batches are tested by AVX-512 instructions here, not by portable code.
pub fn uses_avx512() -> bool {
    detected().is_some()
}

/// How the blocks of a layer are probed.
#[derive(Clone, Copy, Debug)]
enum Probing {
    /// Each probe lies anywhere in its block.
    Anywhere,
    /// Four probes share a line; a block has a whole number of lines.
    Lines(Scalar),
    /// Four probes share a line, and the processor tests them at once.
    Avx512(Avx512),
}

impl Probing {
    fn of(geometry: Geometry) -> Self {
        match (geometry.lines(), detected()) {
            (None, _) => Self::Anywhere,
            (Some(_), None) => Self::Lines(Scalar),
            (Some(_), Some(avx512)) => Self::Avx512(avx512),
        }
    }
}

/// A bit array cut into equal blocks.
#[derive(Debug)]
pub(in crate::filter) struct Blocked {
    pub(super) bits: Bits,
    // The fields of a `Geometry`: as one, it would take a word more with `probing`.
    blocks: u32,
    block_words: u16,
    probes: u8,
    probing: Probing,
}

impl Blocked {
    /// Makes a layer over bits, which may be too few until the first query.
    pub(super) fn new(geometry: Geometry, bits: Bits) -> Self {
        let Geometry { blocks, block_words, probes } = geometry;
        Self { bits, blocks, block_words, probes, probing: Probing::of(geometry) }
    }

    #[inline]
    pub(super) fn geometry(&self) -> Geometry {
        Geometry { blocks: self.blocks, block_words: self.block_words, probes: self.probes }
    }

    fn block_words(&self) -> usize {
        usize::from(self.block_words)
    }

    fn is_long(&self) -> bool {
        self.block_words() > WHOLE_BLOCK
    }

    /// Address and shape of the blocks; `None` for an array small enough to stay cached.
    #[inline]
    pub(in crate::filter) fn block_address(&self) -> Option<BlockAddress> {
        let words = self.bits.words().as_ptr();
        self.bits.is_uncached().then(|| BlockAddress { words, geometry: self.geometry() })
    }

    /// Whether the array is so large that out-of-order execution does not hide its waits.
    #[inline]
    pub(in crate::filter) fn is_memory_bound(&self) -> bool {
        self.is_long() && self.bits.words().len() > MEMORY_BOUND_WORDS
    }

    #[inline(always)]
    fn block(&self, hash: Hash) -> &[u64] {
        let start = block_start(hash, self.geometry());
        &self.bits.words()[start..start + self.block_words()]
    }

    #[inline(always)]
    fn block_mut(&mut self, hash: Hash) -> &mut [u64] {
        let (start, words) = (block_start(hash, self.geometry()), self.block_words());
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

    /// Which items of a chunk have every bit set. Not inlined: the loop that hashes leaves too few
    /// registers.
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
                if let Some(blocks) = self.block_address() {
                    hashes.iter().for_each(|&hash| blocks.prefetch(hash));
                }
                self.filter_present(hashes)
            }
            Probing::Lines(line_probe) => self.present_with(line_probe, hashes),
            Probing::Avx512(line_probe) => self.present_with(line_probe, hashes),
        }
    }

    #[inline]
    fn present_with(&self, line_probe: impl LineProbe, hashes: &[Hash]) -> ItemSet {
        let lines = (self.block_words() / LINE_WORDS) as u64;
        // The first word of each item's first line, and the places of its bits there.
        let mut firsts = [(0, 0); CHUNK];
        for (first, &hash) in firsts.iter_mut().zip(hashes) {
            let group = ProbeSequence::new(hash).group(lines);
            let start = block_start(hash, self.geometry()) + group.line * LINE_WORDS;
            // Small arrays too: to skip them costs a test per item, which large arrays would pay.
            prefetch_line(self.bits.words().as_ptr().wrapping_add(start));
            *first = (start, group.places);
        }
        let count = self.probes.min(PROBE_GROUP);
        let passed = line_probe.run(|| {
            ItemSet::first(hashes.len()).keep(|i| {
                let (start, places) = firsts[i];
                let group = ProbeGroup { line: 0, places };
                let line = self.bits.words()[start..].first_chunk();
                line.map_or(0, |line| line_probe.test_group(line, group, count))
            })
        });
        self.filter_present_remaining(line_probe, hashes, passed)
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

    /// Prefetches what [`BlockAddress::prefetch`] left out of these items: an addition needs all
    /// lines of an item together.
    #[inline]
    pub(in crate::filter) fn prefetch_remaining(&self, hashes: &[Hash], items: ItemSet) {
        if self.is_long() && self.bits.is_uncached() {
            self.prefetch_after_first_group(hashes, items);
        }
    }

    #[inline]
    fn prefetch_after_first_group(&self, hashes: &[Hash], items: ItemSet) {
        let left = self.probes.saturating_sub(PROBE_GROUP);
        for i in items.members() {
            let start = block_start(hashes[i], self.geometry());
            let start = self.bits.words().as_ptr().wrapping_add(start);
            let sequence = self.sequence_after_first_group(hashes[i]);
            prefetch_sequence(start, self.geometry(), sequence, left);
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

/// The first word of an item's block.
#[inline]
fn block_start(hash: Hash, geometry: Geometry) -> usize {
    scale(hash.block, u64::from(geometry.blocks)) as usize * usize::from(geometry.block_words)
}

/// Address and shape of a layer's blocks, for prefetches. It may outlive the layer: nothing is read
/// at the address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::filter) struct BlockAddress {
    pub(in crate::filter) words: *const u64,
    geometry: Geometry,
}

impl BlockAddress {
    /// Prefetches the lines that a lookup reads first: the block, or four probes in a long block.
    #[inline]
    pub(in crate::filter) fn prefetch(self, hash: Hash) {
        let geometry = self.geometry;
        let start = self.words.wrapping_add(block_start(hash, geometry));
        let len = usize::from(geometry.block_words);
        if len > WHOLE_BLOCK {
            let probes = geometry.probes.min(PROBE_GROUP);
            prefetch_sequence(start, geometry, ProbeSequence::new(hash), probes);
        } else {
            // The last word too: a block need not start on a cache line.
            prefetch(start);
            prefetch(start.wrapping_add(len / 2));
            prefetch(start.wrapping_add(len - 1));
        }
    }
}

/// Prefetches a line of a block, which spans two cache lines if the array is not aligned.
#[inline]
fn prefetch_line(start: *const u64) {
    prefetch(start);
    prefetch(start.wrapping_add(LINE_WORDS - 1));
}

/// Prefetches the lines of the next `probes` probes of a sequence in the block at `start`.
#[inline]
fn prefetch_sequence(
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
