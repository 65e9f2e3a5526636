//! The classic Bloom layer: the k bits of an item lie anywhere in the array. For filters that other
//! products made.
//!
//! ```text
//!   ┌──────────────────────────────────────────────────────────┐
//!   │    a          a+b                a+2b            ...     │
//!   └────┴───────────┴──────────────────┴──────────────────────┘
//!   positions (a + i b mod 2^64) mod bits, i in 0 .. k
//! ```
//!
//! These are RedisBloom's positions; `positions.rs` has all rules.
//!
//! Bloom (1970), with the double hashing of Kirsch and Mitzenmacher (2006). Two things reduce the
//! cost of k cache lines:
//!
//! * **No division per probe.** Each position follows from the one before. Adding b mod bits gives
//!   the right remainder, except that a sum a + i b that passes 2^64 loses 2^64 mod bits. So there
//!   are two possible steps, and a subtraction if the position passes `bits`.
//! * **Prefetch of all positions** of every item of a batch, before the first one is read.

mod positions;

use super::{bits::Bits, item_set::ItemSet};
use crate::filter::hash::Hash;

/// How positions follow from a and b.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// RedisBloom: the remainder by the number of bits.
    Remainder,
    /// RedisBloom: the lowest bits; stored differently.
    LowBits,
    /// valkey-bloom: the remainder by the largest prime below 2^64, then by the number of bits.
    Prime,
    /// Guava's `MURMUR128_MITZ_32`: a and b are the halves of 64 bits.
    Mitz32,
    /// Guava's `MURMUR128_MITZ_64`: 63 bits of the sum.
    Mitz64,
}

/// Shape of a classic layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classic {
    /// Number of positions, in [1, `MAX_BITS`]; a power of two with `Rule::LowBits`.
    pub bits: u64,
    /// Bytes of the array as its product stores it, at least `bits` / 8; in memory, whole words.
    pub bytes: u64,
    /// Bits set per item, in [1, `MAX_CLASSIC_PROBES`].
    pub probes: u16,
    /// How positions are computed.
    pub rule: Rule,
}

/// Where a layer begins in its filter: bytes of all layers below it, also those to arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Bytes as the product that made the filter stores them (`Classic::bytes`).
    pub stored: u64,
    /// Bytes in memory, in whole words.
    pub memory: u64,
}

/// The most positions: the sum of two of them fits in a word.
pub const MAX_BITS: u64 = 1 << 62;

/// Arrays up to this many bytes stay in the processor's caches. Prefetching them costs more than it
/// saves (at 135 KiB, 12 of 40 ns per item; at 27 MiB it saves 40 of 170 ns).
const CACHED: u64 = 256 << 10;

/// The most probes: for the smallest double, 5e-324, RedisBloom asks for 1,075.
pub const MAX_CLASSIC_PROBES: u16 = 1_100;

impl Classic {
    /// Words of the whole layer.
    pub fn words(&self) -> u64 {
        self.bytes.div_ceil(8)
    }

    /// Returns whether the shape is valid: positions inside the array, numbers in range.
    pub fn is_sound(&self) -> bool {
        (1..=MAX_BITS).contains(&self.bits)
            && self.bits.div_ceil(8) <= self.bytes
            && (1..=MAX_CLASSIC_PROBES).contains(&self.probes)
            && (self.rule != Rule::LowBits || self.bits.is_power_of_two())
    }

    /// Whether `each` is true for all positions of an item, up to the first for which it is not.
    /// `passing` is the field of the layer.
    #[inline]
    fn all(&self, passing: u64, hash: Hash, each: impl FnMut(u64) -> bool) -> bool {
        let Self { bits, probes, rule, .. } = *self;
        match rule {
            Rule::Remainder | Rule::LowBits => {
                positions::remainder(hash, probes, bits, passing).all(each)
            }
            Rule::Prime => positions::prime(hash, probes, bits).all(each),
            Rule::Mitz32 => positions::mitz32(hash, probes, bits).all(each),
            Rule::Mitz64 => positions::mitz64(hash, probes, bits).all(each),
        }
    }
}

/// A bit array probed by one of the rules.
#[derive(Debug)]
pub(super) struct ClassicLayer {
    pub(super) bits: Bits,
    pub(super) shape: Classic,
    /// `bits` minus (2^64 mod `bits`): added to a sum that passed 2^64 and so lost 2^64 mod `bits`.
    pub(super) passing: u64,
    /// Kept, so that the layer of a chunk is found by binary search.
    pub(super) start: Start,
}

impl ClassicLayer {
    /// Makes a layer over these bits, which may be too few until the first query.
    pub(super) fn new(shape: Classic, bits: Bits) -> Self {
        debug_assert!(shape.is_sound());
        // 2^64 - bits and 2^64 have the same remainder.
        let passing = shape.bits - shape.bits.wrapping_neg() % shape.bits;
        Self { bits, shape, passing, start: Start::default() }
    }

    /// Where the next layer begins.
    pub(super) fn end(&self) -> Start {
        let Start { stored, memory } = self.start;
        Start {
            stored: stored.saturating_add(self.shape.bytes),
            memory: memory.saturating_add(self.shape.words().saturating_mul(8)),
        }
    }

    /// Prefetches the lines that the item needs. This function and the other `inline(never)` ones
    /// wait for memory anyway. Inlined, they would lengthen the hot path of blocked layers.
    #[inline(never)]
    pub(super) fn prefetch(&self, hash: Hash) {
        self.prefetch_lines(hash);
    }

    #[inline(never)]
    pub(super) fn prefetch_each(&self, hashes: &[Hash], items: ItemSet) {
        items.members().for_each(|i| self.prefetch_lines(hashes[i]));
    }

    #[inline(always)]
    fn prefetch_lines(&self, hash: Hash) {
        if self.shape.bytes <= CACHED {
            return;
        }
        self.shape.all(self.passing, hash, |position| {
            self.bits.prefetch((position / 64) as usize);
            true
        });
    }

    /// Prefetches position `start` modulo the bits, which is the first position of some rules.
    #[inline]
    pub(super) fn prefetch_start(&self, start: u64) {
        self.bits.prefetch((start % self.shape.bits / 64) as usize);
    }

    #[inline(never)]
    pub(super) fn contains(&self, hash: Hash) -> bool {
        self.holds(hash)
    }

    #[inline(never)]
    pub(super) fn filter_present(&self, hashes: &[Hash], items: ItemSet) -> ItemSet {
        items.keep(|i| u64::from(self.holds(hashes[i])))
    }

    #[inline(always)]
    fn holds(&self, hash: Hash) -> bool {
        let words = self.bits.words();
        self.shape.all(self.passing, hash, |position| {
            words[(position / 64) as usize] >> (position % 64) & 1 == 1
        })
    }

    /// Sets every bit of the item, and returns whether one was clear.
    #[inline(never)]
    pub(super) fn add(&mut self, hash: Hash) -> bool {
        if self.holds(hash) {
            return false;
        }
        let words = self.bits.words_mut();
        self.shape.all(self.passing, hash, |position| {
            words[(position / 64) as usize] |= 1 << (position % 64);
            true
        });
        true
    }
}
