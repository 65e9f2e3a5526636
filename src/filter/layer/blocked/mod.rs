//! The blocked Bloom layer: every bit of an item lies in one block.
//!
//! ```text
//!   hash.block ──scale──▶ block b of 0 .. blocks
//!   ┌──────────┬──────────┬──────────┬ ─ ─ ─ ┬──────────┐
//!   │ block 0  │ block 1  │    b     │       │          │     each block_words * 64 bits
//!   └──────────┴──────────┴──┬───┬───┴ ─ ─ ─ ┴──────────┘
//!                            └───┴── k bits inside it, four by four in a line (probe.rs)
//! ```
//!
//! Putze, Sanders and Singler (2007). One item touches one block: one page, or two that meet, at
//! rates down to 1e-6, one cache line where the block is 512 bits. A classic filter touches k lines
//! and k pages, which is what a query costs once the array outgrows the caches, and copies k pages
//! an insert while the server forks for a snapshot. What is done inside a block: `probing.rs`.
//!
//! Long blocks, those of low rates and of deep stacks, are of many cache lines, and how many are
//! under way is what limits a batch. So a chunk goes through older layers in two stages, each of
//! which fetches its lines for all items that are still in question before it looks at the first:
//! the line of the first four probes (a glance, after which 15 of 16 of the absent items are
//! settled), then the rest, which hardly any but the items that are there need. The lines of a
//! glance are fetched while the layer above is glanced at, and where they are is kept until then
//! (an aim). An item that is to be added needs all its lines at once.
//!
//! What it is worth that four probes share a line: time in one process, of the time when each lay
//! anywhere in the block (commit 22683b9), arrays on whole lines as a server's are:
//!
//! | filter                           | batch | hit  | miss | new  |
//! |----------------------------------|-------|------|------|------|
//! | one layer at 0.1 %, 2 M items    | 100   | 0.96 | 0.83 | 0.88 |
//! |                                  | 1     | 0.96 | 0.92 |      |
//! | one layer at 0.01 %, 2 M items   | 100   | 0.69 | 0.85 | 0.79 |
//! |                                  | 1     | 0.88 | 0.85 |      |
//! | 8 layers at 1 %, 0.8 M items     | 100   | 0.77 | 0.76 | 0.77 |
//! |                                  | 1     | 0.88 | 0.86 |      |
//! | 12 layers at 1 %, 4.2 M items    | 100   | 0.57 | 0.72 | 0.67 |
//! |                                  | 1     | 0.79 | 0.80 |      |
//!
//! In the newest layer, where an item that is there most likely is, and which is the only one of
//! most filters, a glance costs a hit more than it gains a miss while a processor hides the waits
//! by running ahead; so there it is taken beyond 4 MiB. In older layers, most of what is asked for
//! is absent.

mod line_probe;
mod prefetch;
mod probing;
mod simd;

pub(in crate::filter) use prefetch::BlockAddress;

use line_probe::{LineProbe, Scalar};
use prefetch::{WHOLE_BLOCK, block_start, prefetch_line, prefetch_sequence};
use probing::Probing;

use super::{
    bits::Bits,
    item_set::{FirstGroup, FirstGroups, ItemSet},
};
use crate::filter::{
    geometry::{Geometry, LINE_WORDS, PROBE_GROUP},
    hash::{
        Hash,
        probe::{ProbeGroup, ProbeSequence},
    },
};

/// Arrays up to this many words (4 MiB) are in the processor's second cache for the most part, or
/// one step beyond.
const FAR_WORDS: usize = 1 << 19;

/// A bit array cut into equal blocks.
#[derive(Debug)]
pub struct Blocked {
    bits: Bits,
    blocks: u32,
    block_words: u16,
    probes: u8,
    probing: Probing,
}

impl Blocked {
    /// A layer of the given shape over these bits, which become as many before it is asked
    /// anything.
    #[must_use]
    pub fn new(geometry: Geometry, bits: Bits) -> Self {
        let Geometry { blocks, block_words, probes } = geometry;
        Self { bits, blocks, block_words, probes, probing: Probing::of(geometry) }
    }

    /// The shape.
    #[inline]
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        Geometry { blocks: self.blocks, block_words: self.block_words, probes: self.probes }
    }

    /// The bit array.
    #[must_use]
    pub fn bits(&self) -> &Bits {
        &self.bits
    }

    /// The bit array, to fill from a stored one.
    pub fn bits_mut(&mut self) -> &mut Bits {
        &mut self.bits
    }

    /// The first word of the item's block.
    #[inline]
    fn block_start(&self, hash: Hash) -> usize {
        block_start(hash, self.geometry())
    }

    /// Words of a block.
    #[inline]
    fn block_words(&self) -> usize {
        usize::from(self.block_words)
    }

    /// The lines of a block, where four probes share one.
    #[inline]
    fn lines(&self) -> Option<u64> {
        match self.probing {
            Probing::Anywhere => None,
            Probing::Lines(_) | Probing::Avx512(_) => {
                Some((self.block_words() / LINE_WORDS) as u64)
            }
        }
    }

    /// Whether a block is too long to be prefetched whole.
    #[inline]
    fn is_long(&self) -> bool {
        self.block_words() > WHOLE_BLOCK
    }

    /// Asks for the cache lines that the item needs first, without waiting for them.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        if let Some(address_of_blocks) = self.address_of_blocks() {
            address_of_blocks.prefetch(hash);
        }
    }

    /// Where the blocks are; `None` of an array that is cached anyway.
    #[inline]
    pub(super) fn address_of_blocks(&self) -> Option<BlockAddress> {
        self.bits.is_uncached().then(|| BlockAddress::new(self.address(0), self.geometry()))
    }

    /// Whether that is where the blocks are.
    #[inline]
    pub(super) fn is_at(&self, address_of_blocks: BlockAddress) -> bool {
        address_of_blocks.begins_at(self.address(0))
    }

    /// Where that word is, for a prefetch.
    #[inline]
    fn address(&self, word: usize) -> *const u64 {
        self.bits.words().as_ptr().wrapping_add(word)
    }

    /// The block of an item.
    #[inline(always)]
    fn block(&self, hash: Hash) -> &[u64] {
        let start = self.block_start(hash);
        &self.bits.words()[start..start + self.block_words()]
    }

    /// The same, to change it.
    #[inline(always)]
    fn block_mut(&mut self, hash: Hash) -> &mut [u64] {
        let (start, words) = (self.block_start(hash), self.block_words());
        &mut self.bits.words_mut()[start..start + words]
    }

    /// Whether every bit of the item is set.
    #[inline(always)]
    #[must_use]
    pub fn contains(&self, hash: Hash) -> bool {
        let (block, sequence) = (self.block(hash), ProbeSequence::new(hash));
        match self.probing {
            Probing::Anywhere => probing::all_set_anywhere(block, sequence, self.probes),
            Probing::Lines(_) | Probing::Avx512(_) => {
                probing::all_set(Scalar, block, sequence, self.probes)
            }
        }
    }

    /// Which of these items have every bit set. They have been prefetched.
    #[inline]
    pub(super) fn filter_present(&self, hashes: &[Hash], items: ItemSet) -> ItemSet {
        match self.probing {
            Probing::Anywhere => items.keep(|i| u64::from(self.contains(hashes[i]))),
            Probing::Lines(line_probe) => self.filter_present_with(line_probe, hashes, items),
            Probing::Avx512(line_probe) => self.filter_present_with(line_probe, hashes, items),
        }
    }

    /// The same in lines.
    #[inline(always)]
    fn filter_present_with(
        &self,
        line_probe: impl LineProbe,
        hashes: &[Hash],
        items: ItemSet,
    ) -> ItemSet {
        line_probe.run(|| {
            items.keep(|i| {
                let sequence = ProbeSequence::new(hashes[i]);
                u64::from(probing::all_set(
                    line_probe,
                    self.block(hashes[i]),
                    sequence,
                    self.probes,
                ))
            })
        })
    }

    /// Asks for the line that a first look at each of these items needs, and aims there.
    #[inline(never)]
    pub(super) fn prefetch_first(
        &self,
        hashes: &[Hash],
        items: ItemSet,
        first_groups: &mut FirstGroups,
    ) {
        match self.lines() {
            Some(lines) => items
                .members()
                .for_each(|i| first_groups[i] = self.prefetch_first_of(lines, hashes[i])),
            None => items.members().for_each(|i| self.prefetch(hashes[i])),
        }
    }

    /// The same for one item, in blocks of `lines` lines. Those of small arrays are asked for too:
    /// to tell them apart, item by item, costs the large ones more than that costs the small.
    #[inline(always)]
    fn prefetch_first_of(&self, lines: u64, hash: Hash) -> FirstGroup {
        let group = ProbeSequence::new(hash).group(lines);
        let start = self.block_start(hash) + group.line * LINE_WORDS;
        prefetch_line(self.address(start));
        FirstGroup { start, places: group.places }
    }

    /// Which of these items, at which `first_groups` aims, have every bit set, in two stages (see
    /// the essay). Those that may be in the `next` layer are aimed there on the way.
    #[inline]
    pub(super) fn filter_present_staged(
        &self,
        hashes: &[Hash],
        items: ItemSet,
        first_groups: &mut FirstGroups,
        next: Option<&Self>,
    ) -> ItemSet {
        match self.probing {
            Probing::Anywhere => {
                let found = self.filter_present(hashes, items);
                if let Some(next) = next {
                    next.prefetch_first(hashes, items.without(found), first_groups);
                }
                found
            }
            Probing::Lines(line_probe) => {
                self.filter_present_staged_with(line_probe, hashes, items, first_groups, next)
            }
            Probing::Avx512(line_probe) => {
                self.filter_present_staged_with(line_probe, hashes, items, first_groups, next)
            }
        }
    }

    /// The same in lines.
    #[inline]
    fn filter_present_staged_with(
        &self,
        line_probe: impl LineProbe,
        hashes: &[Hash],
        items: ItemSet,
        first_groups: &mut FirstGroups,
        next: Option<&Self>,
    ) -> ItemSet {
        if let Some(next) = next
            && let Some(lines) = next.lines()
            && self.probes >= PROBE_GROUP
        {
            let stood = line_probe.run(|| {
                items.keep(|i| {
                    let prefetch_first = std::mem::replace(
                        &mut first_groups[i],
                        next.prefetch_first_of(lines, hashes[i]),
                    );
                    self.set_at(line_probe, prefetch_first, PROBE_GROUP)
                })
            });
            return self.filter_present_remaining(line_probe, hashes, stood);
        }
        let found = self.filter_present_last(line_probe, hashes, items, first_groups);
        if let Some(next) = next {
            next.prefetch_first(hashes, items.without(found), first_groups);
        }
        found
    }

    /// The same in the last layer, or in one before blocks that are not of whole lines.
    #[inline(never)]
    fn filter_present_last(
        &self,
        line_probe: impl LineProbe,
        hashes: &[Hash],
        items: ItemSet,
        first_groups: &FirstGroups,
    ) -> ItemSet {
        let count = self.probes.min(PROBE_GROUP);
        let stood =
            line_probe.run(|| items.keep(|i| self.set_at(line_probe, first_groups[i], count)));
        self.filter_present_remaining(line_probe, hashes, stood)
    }

    /// Whether the first `count` bits of an item are set, at most four, where it is aimed: 1 if
    /// they are, else 0.
    #[inline(always)]
    fn set_at(
        &self,
        line_probe: impl LineProbe,
        FirstGroup { start, places }: FirstGroup,
        count: u8,
    ) -> u64 {
        let line = self.bits.words()[start..].first_chunk();
        line.map_or(0, |line| line_probe.set_in_line(line, ProbeGroup { line: 0, places }, count))
    }

    /// Which of these items have their bits from the fifth on set.
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
        // Of a block of two lines, too, only the first has been asked for.
        if self.bits.is_uncached() {
            self.prefetch_after_four(hashes, items);
        }
        line_probe.run(|| {
            items.keep(|i| {
                let sequence = self.after_four(hashes[i]);
                u64::from(probing::all_set(line_probe, self.block(hashes[i]), sequence, left))
            })
        })
    }

    /// Whether an item has lines that are not fetched at first.
    #[inline]
    fn is_staged(&self) -> bool {
        self.is_long() && self.bits.is_uncached()
    }

    /// Whether its lines are a wait that a processor does not hide by itself, running ahead.
    #[inline]
    pub(super) fn is_far(&self) -> bool {
        self.is_long() && self.bits.words().len() > FAR_WORDS
    }

    /// After [`Self::prefetch`], asks for the other cache lines of these items.
    #[inline]
    pub(super) fn prefetch_remaining(&self, hashes: &[Hash], items: ItemSet) {
        if self.is_staged() {
            self.prefetch_after_four(hashes, items);
        }
    }

    /// Asks for the cache lines of these items after the first.
    #[inline]
    fn prefetch_after_four(&self, hashes: &[Hash], items: ItemSet) {
        let left = self.probes.saturating_sub(PROBE_GROUP);
        for i in items.members() {
            let start = self.address(self.block_start(hashes[i]));
            prefetch_sequence(start, self.geometry(), self.after_four(hashes[i]), left);
        }
    }

    /// The walk of an item without its first four probes.
    #[inline]
    fn after_four(&self, hash: Hash) -> ProbeSequence {
        let mut sequence = ProbeSequence::new(hash);
        let steps = if self.lines().is_some() { 1 } else { PROBE_GROUP };
        (0..steps).for_each(|_| sequence.step());
        sequence
    }

    /// Sets every bit of the item; whether one was not set.
    ///
    /// Writes nothing where all were: a write that changes nothing would still copy the page while
    /// the server forks for a snapshot.
    #[inline(always)]
    pub fn add(&mut self, hash: Hash) -> bool {
        let (probing, sequence, probes) = (self.probing, ProbeSequence::new(hash), self.probes);
        let block = self.block_mut(hash);
        match probing {
            Probing::Anywhere => probing::add_anywhere(block, sequence, probes),
            Probing::Lines(_) | Probing::Avx512(_) => probing::add(Scalar, block, sequence, probes),
        }
    }

    /// [`Self::add`] of these items; for which of them it is so. They have been prefetched.
    #[inline]
    pub(super) fn add_chunk(&mut self, hashes: &[Hash], items: ItemSet) -> ItemSet {
        match self.probing {
            Probing::Anywhere => items.keep(|i| u64::from(self.add(hashes[i]))),
            Probing::Lines(line_probe) => self.add_chunk_with(line_probe, hashes, items),
            Probing::Avx512(line_probe) => self.add_chunk_with(line_probe, hashes, items),
        }
    }

    /// The same in lines.
    #[inline(always)]
    fn add_chunk_with(
        &mut self,
        line_probe: impl LineProbe,
        hashes: &[Hash],
        items: ItemSet,
    ) -> ItemSet {
        let probes = self.probes;
        line_probe.run(|| {
            items.keep(|i| {
                let sequence = ProbeSequence::new(hashes[i]);
                u64::from(probing::add(line_probe, self.block_mut(hashes[i]), sequence, probes))
            })
        })
    }
}
