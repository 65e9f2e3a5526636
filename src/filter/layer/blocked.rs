//! The blocked Bloom layer: every bit of an item lies in one block.
//!
//! ```text
//!   hash.block ──scale──▶ block b of 0 .. blocks
//!   ┌──────────┬──────────┬──────────┬ ─ ─ ─ ┬──────────┐
//!   │ block 0  │ block 1  │    b     │       │          │     each block_words * 64 bits
//!   └──────────┴──────────┴──┬───┬───┴ ─ ─ ─ ┴──────────┘
//!                            └───┴── k bits inside it (probe.rs)
//! ```
//!
//! Putze, Sanders and Singler (2007). One item touches one block: one page always, one cache line where the block is
//! 512 bits. A classic filter touches k lines and k pages, which is what a query costs once the array outgrows the
//! caches, and copies k pages an insert while the server forks for a snapshot. What is done inside a block: `block.rs`.
//!
//! Long blocks, those of low rates and of deep stacks, are of many cache lines, and how many are under way is what limits
//! a batch. So a chunk goes through them in stages, each of which fetches its lines for all items that are still in
//! question before it looks at the first: two probes (a glance, after which 3/4 of the absent items are settled), four
//! more, then the rest, which hardly any but the items that are there need. The lines of a glance are fetched while the layer
//! above is glanced at, and where they are is kept until then (an aim). An item that is to be added needs all its
//! lines at once. Time in one process with stages, of the time with one prefetch of four probes an item:
//!
//! | filter                         | batch | hit  | miss | new  |
//! |--------------------------------|-------|------|------|------|
//! | one layer at 0.01 %, 3 M items | 100   | 0.7  | 0.8  | 0.5  |
//! |                                | 10    | 0.75 | 1.1  |      |
//! | one layer at 0.1 %, 4 M items  | 100   | 0.8  | 0.95 | 0.65 |
//! |                                | 10    | 0.85 | 0.85 |      |
//! | 12 layers at 1 %, 4.5 M items  | 100   | 0.75 | 0.7  | 0.7  |
//! |                                | 10    | 0.85 | 0.75 |      |
//! | 8 layers at 1 %, 1 M items     | 100   | 0.95 | 0.75 | 0.7  |
//! |                                | 10    | 0.9  | 0.9  |      |
//! | 2 layers at 1 %, 2.5 M items   | 100   | 1.0  | 0.95 | 1.0  |
//! |                                | 10    | 1.1  | 1.05 |      |
//!
//! What small batches lose is 5 ns of the 100 or more that an item then costs in the server.
//!
//! In the newest layer, where an item that is there most likely is, and which is the only one of most filters, a glance
//! costs a hit more than it gains a miss while a processor hides the waits by running ahead: 1.4 to 0.8 times for 1 million
//! items at 0.1 % (1.8 MB), 1.1 to 0.8 at 3.7 MB, 0.8 to 0.8 at 7.4 MB. So there it is taken beyond 4 MiB. In older layers, most of
//! what is asked for is absent.

use super::{
    block::{self, STRIDE},
    site::{Site, WHOLE_BLOCK, block_start, prefetch_block, prefetch_walk},
};
use crate::filter::{
    bits::Bits,
    chunk::{Aim, Aims, Set},
    error::Error,
    hash::Hash,
    probe::Walk,
    sizing::Geometry,
};

/// Probes at which all items of a chunk are looked at first.
const GLANCE: u8 = 2;

/// Arrays up to this many words (4 MiB) are in the processor's second cache for the most part, or one step beyond.
const FAR_WORDS: usize = 1 << 19;

/// A bit array cut into equal blocks.
#[derive(Debug)]
pub struct Blocked {
    bits: Bits,
    blocks: u32,
    block_words: u16,
    probes: u8,
}

impl Blocked {
    /// An empty layer of the given shape.
    ///
    /// # Errors
    /// `Error::OutOfMemory`.
    pub fn new(geometry: Geometry) -> Result<Self, Error> {
        let Geometry {
            blocks,
            block_words,
            probes,
        } = geometry;
        Ok(Self {
            bits: Bits::zeroed(geometry.words())?,
            blocks,
            block_words,
            probes,
        })
    }

    /// The shape.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        Geometry {
            blocks: self.blocks,
            block_words: self.block_words,
            probes: self.probes,
        }
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
        block_start(hash, self.blocks, self.block_words)
    }

    /// Bits in a block.
    #[inline]
    fn block_bits(&self) -> u64 {
        u64::from(self.block_words) * 64
    }

    /// Whether a block is too long to be prefetched whole.
    #[inline]
    fn is_long(&self) -> bool {
        usize::from(self.block_words) > WHOLE_BLOCK
    }

    /// Asks for the cache lines that the item needs first, without waiting for them.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        if let Some(site) = self.site() {
            site.prefetch(hash);
        }
    }

    /// Where the blocks are; `None` of an array that is cached anyway.
    #[inline]
    pub(super) fn site(&self) -> Option<Site> {
        self.bits
            .is_uncached()
            .then(|| Site::new(self.address(0), self.geometry()))
    }

    /// Whether that is where the blocks are.
    #[inline]
    pub(super) fn is_at(&self, site: Site) -> bool {
        site.is_at(self.address(0))
    }

    /// Where that word is, for a prefetch.
    #[inline]
    fn address(&self, word: usize) -> *const u64 {
        self.bits.words().as_ptr().wrapping_add(word)
    }

    /// Whether every bit of the item is set.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: Hash) -> bool {
        self.all_set(hash, Walk::new(hash), self.probes)
    }

    /// Whether the next `left` bits on the walk of the item are set.
    #[inline(always)]
    fn all_set(&self, hash: Hash, walk: Walk, left: u8) -> bool {
        let start = self.block_start(hash);
        let block = &self.bits.words()[start..start + usize::from(self.block_words)];
        block::all_set(block, walk, left)
    }

    /// Which of these items have every bit set. They have been prefetched.
    #[inline]
    pub(super) fn among(&self, hashes: &[Hash], items: Set) -> Set {
        items.keep(|i| u64::from(self.contains(hashes[i])))
    }

    /// Aims at the first two bits of each of these items, and asks for their cache lines, or for all of a short block.
    #[inline]
    pub(super) fn aim(&self, hashes: &[Hash], items: Set, aims: &mut Aims) {
        if self.is_long() {
            items
                .members()
                .for_each(|i| aims[i] = self.aim_at::<true>(hashes[i]));
        } else {
            items
                .members()
                .for_each(|i| aims[i] = self.aim_at::<false>(hashes[i]));
        }
    }

    /// The same for one item; of a single probe, it is both. Lines of small arrays are asked for too: to tell them apart,
    /// item by item, costs the large ones more than that costs the small.
    #[inline]
    fn aim_at<const LONG: bool>(&self, hash: Hash) -> Aim {
        let bits = self.block_bits();
        let start = self.block_start(hash);
        let mut walk = Walk::new(hash);
        let mut next = || start as u64 * 64 + walk.next(bits);
        let first = next();
        let second = if self.probes > 1 { next() } else { first };
        if LONG {
            self.bits.prefetch((first / 64) as usize);
            self.bits.prefetch((second / 64) as usize);
        } else {
            prefetch_block(self.address(start), self.block_words);
        }
        [first, second]
    }

    /// Which of these items, at which `aims` aims, have every bit set, by stages (see the essay) of which the first
    /// settles most of what is absent. Meanwhile aims them at the `next` layer.
    #[inline]
    pub(super) fn among_aimed(
        &self,
        hashes: &[Hash],
        items: Set,
        aims: &mut Aims,
        next: Option<&Self>,
    ) -> Set {
        let stood = match next {
            Some(next) if next.is_long() => {
                self.glance(items, aims, |i, aim| *aim = next.aim_at::<true>(hashes[i]))
            }
            Some(next) => self.glance(items, aims, |i, aim| *aim = next.aim_at::<false>(hashes[i])),
            None => self.glance(items, aims, |_, _| {}),
        };
        let to = self.probes.min(GLANCE + STRIDE);
        let stood = self.stage(hashes, stood, GLANCE, to);
        self.stage(hashes, stood, to, self.probes)
    }

    /// Which of these items have both bits set that `aims` aims at; and what is to be done `meanwhile` with each.
    #[inline]
    fn glance(&self, items: Set, aims: &mut Aims, mut meanwhile: impl FnMut(usize, &mut Aim)) -> Set {
        let words = self.bits.words();
        let bit = |at: u64| words[(at / 64) as usize] >> (at % 64);
        items.keep(|i| {
            let [first, second] = aims[i];
            meanwhile(i, &mut aims[i]);
            bit(first) & bit(second)
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

    /// Which of these items have their bits from probe `from` up to probe `to` set.
    #[inline]
    fn stage(&self, hashes: &[Hash], items: Set, from: u8, to: u8) -> Set {
        if from >= to {
            return items;
        }
        if self.is_staged() {
            self.prefetch_probes(hashes, items, from, to);
        }
        items.keep(|i| u64::from(self.all_set(hashes[i], walk_from(hashes[i], from), to - from)))
    }

    /// After [`Self::prefetch`], asks for the other cache lines of these items.
    #[inline]
    pub(super) fn prefetch_rest(&self, hashes: &[Hash], items: Set) {
        if self.is_staged() {
            self.prefetch_probes(hashes, items, STRIDE, self.probes);
        }
    }

    /// Asks for the cache lines of the probes of these items from `from` up to `to`.
    #[inline]
    fn prefetch_probes(&self, hashes: &[Hash], items: Set, from: u8, to: u8) {
        for i in items.members() {
            let start = self.address(self.block_start(hashes[i]));
            prefetch_walk(start, self.block_words, walk_from(hashes[i], from), to - from);
        }
    }

    /// Sets every bit of the item; whether one was not set.
    ///
    /// Writes nothing where all were: a write that changes nothing would still copy the page while the server forks for a
    /// snapshot.
    #[inline]
    pub fn add(&mut self, hash: Hash) -> bool {
        let start = self.block_start(hash);
        let block = &mut self.bits.words_mut()[start..start + usize::from(self.block_words)];
        block::add(block, Walk::new(hash), self.probes)
    }
}

/// The walk of an item without its first `probes`.
#[inline]
fn walk_from(hash: Hash, probes: u8) -> Walk {
    let mut walk = Walk::new(hash);
    (0..probes).for_each(|_| walk.step());
    walk
}
