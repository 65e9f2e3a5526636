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
//! | miss, 12 layers           | 529 ns   | 327 ns  | 627 ns     |
//! | hit, 12 layers            | 170 ns   | 210 ns  | 396 ns     |
//! | new, 12 layers            | 561 ns   | 485 ns  | 1033 ns    |
//!
//! Of long blocks only the first stride is prefetched: what it does not settle is rare in all layers but the one that has
//! the item (hence the one figure that rose), and lines under way are what a deep stack runs out of. Without any prefetch of
//! older layers the miss costs 475 ns; strides of two and three lie within 5 % of four.

use crate::filter::{
    bits::Bits,
    error::Error,
    hash::Hash,
    probe::{Walk, scale},
    sizing::Geometry,
};

/// Blocks up to this many words (two cache lines) are prefetched whole; of longer ones the words probed first.
const WHOLE_BLOCK: usize = 16;

/// Probes that are looked at together, without a branch between them (see the essay).
const STRIDE: u8 = 4;

/// Arrays up to this many words (128 KiB) stay in the processor's own caches: a prefetch would only cost its instructions.
const CACHED_WORDS: usize = 16_384;

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

    /// Asks for the cache lines that the item needs first, without waiting for them.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        if self.bits.words().len() <= CACHED_WORDS {
            return;
        }
        let start = self.block_start(hash);
        let words = usize::from(self.block_words);
        if words <= WHOLE_BLOCK {
            // The last word too: a block need not start on a cache line.
            self.bits.prefetch(start);
            self.bits.prefetch(start + words / 2);
            self.bits.prefetch(start + words - 1);
        } else {
            let mut walk = Walk::new(hash);
            for _ in 0..self.probes.min(STRIDE) {
                self.bits
                    .prefetch(start + (walk.next(self.block_bits()) / 64) as usize);
            }
        }
    }

    /// Whether every bit of the item is set.
    #[inline]
    #[must_use]
    pub fn contains(&self, hash: Hash) -> bool {
        let start = self.block_start(hash);
        let bits = self.block_bits();
        let block = &self.bits.words()[start..start + usize::from(self.block_words)];
        let mut walk = Walk::new(hash);
        let mut bit = || {
            let at = walk.next(bits);
            block[(at / 64) as usize] >> (at % 64)
        };
        let mut left = self.probes;
        while left >= STRIDE {
            if bit() & bit() & bit() & bit() & 1 == 0 {
                return false;
            }
            left -= STRIDE;
        }
        (0..left).fold(1, |all, _| all & bit()) == 1
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
