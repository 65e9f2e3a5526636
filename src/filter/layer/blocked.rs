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
//! caches, and copies k pages an insert while the server forks for a snapshot.
//!
//! Probes are looked at in strides of four, without a branch between them. Half of the bits of a full layer are set, so a
//! branch after each probe of an absent item is a coin toss, and a toss that the processor loses costs more than three
//! probes; after four it is right 15 times of 16. Server CPU per item in batches of 100, with a branch each time and so,
//! in one run each, RedisBloom 2.8 beside it:
//!
//! | work                      | branches | strides | RedisBloom |
//! |---------------------------|----------|---------|------------|
//! | miss, 2 M items           | 101 ns   | 86 ns   | 215 ns     |
//! | hit, 2 M items            | 101 ns   | 85 ns   | 231 ns     |
//!
//! Long blocks, those of low rates and of deep stacks, are of many cache lines, and how many are under way is what limits
//! a batch. So a chunk goes through them in stages, each of which fetches its lines for all items that are still in
//! question before it looks at the first: two probes (a glance, after which 3/4 of the absent items are settled), four
//! more, then the rest, which hardly any but the items that are there need. An item that is to be added needs all its lines
//! at once. Time in one process with stages, of the time with one prefetch of four probes an item:
//!
//! | filter                         | batch | hit  | miss | new  |
//! |--------------------------------|-------|------|------|------|
//! | one layer at 0.01 %, 3 M items | 100   | 0.7  | 0.8  | 0.75 |
//! |                                | 10    | 1.2  | 1.15 |      |
//! | one layer at 0.1 %, 4 M items  | 100   | 0.75 | 0.9  | 0.6  |
//! |                                | 10    | 1.0  | 1.05 |      |
//! | 12 layers at 1 %, 4.5 M items  | 100   | 0.75 | 0.9  | 0.75 |
//! |                                | 10    | 1.2  | 1.0  |      |
//! | 8 layers at 1 %, 1 M items     | 100   | 1.0  | 0.85 | 0.9  |
//! |                                | 10    | 1.25 | 1.05 |      |
//! | 2 layers at 1 %, 2.5 M items   | 100   | 1.05 | 0.95 | 0.95 |
//! |                                | 10    | 1.15 | 1.0  |      |
//!
//! What batches of 10 lose is 5 to 20 ns of the 100 or 200 that an item then costs in the server.
//!
//! In the newest layer, where an item that is there most likely is, and which is the only one of most filters, a glance
//! costs a hit more than it gains a miss while a processor hides the waits by running ahead: 1.4 to 0.8 times for 1 million
//! items at 0.1 % (1.8 MB), 1.1 to 0.8 at 3.7 MB, 0.8 to 0.8 at 7.4 MB. So there it is taken beyond 4 MiB. In older layers, most of
//! what is asked for is absent.

use crate::filter::{
    bits::Bits,
    chunk::Set,
    error::Error,
    hash::Hash,
    probe::{Walk, scale},
    sizing::Geometry,
};

/// Blocks up to this many words (two cache lines) are prefetched whole; longer ones in stages (see the essay).
const WHOLE_BLOCK: usize = 16;

/// Probes that are looked at together, without a branch between them (see the essay).
const STRIDE: u8 = 4;
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
        scale(hash.block, u64::from(self.blocks)) as usize * usize::from(self.block_words)
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

    /// Asks for the cache lines that the item needs first, without waiting for them: its whole block, or a few probes of
    /// a long one.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        if !self.bits.is_uncached() {
            return;
        }
        let start = self.block_start(hash);
        if self.is_long() {
            let mut walk = Walk::new(hash);
            for _ in 0..self.probes.min(self.first_probes()) {
                let at = walk.next(self.block_bits());
                self.bits.prefetch(start + (at / 64) as usize);
            }
        } else {
            let words = usize::from(self.block_words);
            // The last word too: a block need not start on a cache line.
            self.bits.prefetch(start);
            self.bits.prefetch(start + words / 2);
            self.bits.prefetch(start + words - 1);
        }
    }

    /// Whether every bit of the item is set.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: Hash) -> bool {
        self.all_set(hash, Walk::new(hash), self.probes)
    }

    /// Whether the next `left` bits on the walk of the item are set.
    #[inline]
    fn all_set(&self, hash: Hash, mut walk: Walk, mut left: u8) -> bool {
        let start = self.block_start(hash);
        let bits = self.block_bits();
        let block = &self.bits.words()[start..start + usize::from(self.block_words)];
        let mut bit = || {
            let at = walk.next(bits);
            block[(at / 64) as usize] >> (at % 64)
        };
        while left >= STRIDE {
            if bit() & bit() & bit() & bit() & 1 == 0 {
                return false;
            }
            left -= STRIDE;
        }
        (0..left).fold(1, |all, _| all & bit()) == 1
    }

    /// Which of these items have every bit set.
    #[inline]
    pub(super) fn among(&self, hashes: &[Hash], items: Set) -> Set {
        if self.is_long() && self.is_far() {
            self.among_strangers(hashes, items)
        } else {
            items.keep(|i| u64::from(self.contains(hashes[i])))
        }
    }

    /// The same by stages (see the essay), of which the first settles most of what is absent.
    #[inline]
    pub(super) fn among_strangers(&self, hashes: &[Hash], items: Set) -> Set {
        let stood = self.glance(hashes, items);
        let to = self.probes.min(GLANCE + STRIDE);
        let stood = self.stage(hashes, stood, GLANCE, to);
        self.stage(hashes, stood, to, self.probes)
    }

    /// Whether an item has lines that are not fetched at first.
    #[inline]
    fn is_staged(&self) -> bool {
        self.is_long() && self.bits.is_uncached()
    }

    /// Whether its lines are a wait that a processor does not hide by itself, running ahead.
    #[inline]
    fn is_far(&self) -> bool {
        self.bits.words().len() > FAR_WORDS
    }

    /// Probes of a long block that are fetched at first.
    #[inline]
    fn first_probes(&self) -> u8 {
        if self.is_far() { GLANCE } else { STRIDE }
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
            self.prefetch_probes(hashes, items, self.first_probes(), self.probes);
        }
    }

    /// Asks for the cache lines of the probes of these items from `from` up to `to`.
    #[inline]
    fn prefetch_probes(&self, hashes: &[Hash], items: Set, from: u8, to: u8) {
        for i in items.members() {
            let start = self.block_start(hashes[i]);
            let mut walk = walk_from(hashes[i], from);
            for _ in from..to {
                let at = walk.next(self.block_bits());
                self.bits.prefetch(start + (at / 64) as usize);
            }
        }
    }

    /// Which of these items have their first two bits set; the first where there is no second.
    #[inline]
    fn glance(&self, hashes: &[Hash], items: Set) -> Set {
        let bits = self.block_bits();
        let words = self.bits.words();
        let no_second = u64::from(self.probes < GLANCE);
        items.keep(|i| {
            let start = self.block_start(hashes[i]);
            let mut walk = Walk::new(hashes[i]);
            let mut bit = || {
                let at = walk.next(bits);
                words[start + (at / 64) as usize] >> (at % 64)
            };
            bit() & (bit() | no_second)
        })
    }

    /// Sets every bit of the item.
    ///
    /// Callers ask `contains` first and insert only what is absent: a write that changes nothing would still copy the
    /// page while the server forks for a snapshot.
    #[inline]
    pub fn insert(&mut self, hash: Hash) {
        let start = self.block_start(hash);
        let bits = self.block_bits();
        let block = &mut self.bits.words_mut()[start..start + usize::from(self.block_words)];
        let mut walk = Walk::new(hash);
        for _ in 0..self.probes {
            let at = walk.next(bits);
            block[(at / 64) as usize] |= 1 << (at % 64);
        }
    }
}

/// The walk of an item without its first `probes`.
#[inline]
fn walk_from(hash: Hash, probes: u8) -> Walk {
    let mut walk = Walk::new(hash);
    (0..probes).for_each(|_| walk.step());
    walk
}
