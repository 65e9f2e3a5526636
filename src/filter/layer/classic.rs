//! The classic Bloom layer of other products: the k bits of an item lie anywhere in the array.
//!
//! Bloom (1970), with the double hashing of Kirsch and Mitzenmacher (2006). In a batch, all
//! positions of every item are prefetched before the first one is read.

use std::hint::select_unpredictable;

use super::{bits::Bits, item_set::ItemSet};
use crate::filter::hash::Hash;

/// How positions follow from the hash (`Classic::position`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// RedisBloom.
    Remainder,
    /// RedisBloom's rounded form: bits is a power of two. Stored differently.
    LowBits,
    /// valkey-bloom.
    Prime,
    /// Guava's `MURMUR128_MITZ_32`, in Java's `int` arithmetic.
    Mitz32,
    /// Guava's `MURMUR128_MITZ_64`.
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

/// The largest prime below 2^64: P.
const PRIME: u64 = 0xFFFF_FFFF_FFFF_FFC5;

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
            Rule::Remainder | Rule::LowBits => remainder(hash, probes, bits, passing).all(each),
            _ => (0..probes.into()).map(|i| self.position(hash, i)).all(each),
        }
    }

    /// Position i of an item, from the two words of its hash: a and b.
    #[inline]
    fn position(&self, hash: Hash, i: u64) -> u64 {
        let Hash { block: a, probes: b } = hash;
        let sum = a.wrapping_add(i.wrapping_mul(b));
        let number = match (self.rule, i) {
            (Rule::Remainder | Rule::LowBits, _) => sum,
            (Rule::Prime, 0) => a,
            (Rule::Prime, 1) => b,
            // Below 2 P, so the remainder by P is a subtraction.
            (Rule::Prime, _) => sum.checked_sub(PRIME).unwrap_or(sum),
            (Rule::Mitz32, _) => {
                let (low, high) = (a as i32, (a >> 32) as i32);
                let sum = low.wrapping_add((i as i32 + 1).wrapping_mul(high));
                // Either the number or its complement is not negative: a number of 31 bits.
                u64::from((if sum < 0 { !sum } else { sum }) as u32)
            }
            (Rule::Mitz64, _) => sum & i64::MAX as u64,
        };
        number % self.bits
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

    /// Prefetches the lines that the item needs. This function and the other `inline(never)` ones
    /// wait for memory anyway. Inlined, they would lengthen the hot path of blocked layers.
    #[inline(never)]
    fn prefetch_lines(&self, hash: Hash) {
        self.shape.all(self.passing, hash, |position| {
            self.bits.prefetch((position / 64) as usize);
            true
        });
    }

    /// Prefetches the lines that the item needs, if the layer does not stay cached.
    #[inline]
    pub(super) fn prefetch(&self, hash: Hash) {
        if self.shape.bytes > CACHED {
            self.prefetch_lines(hash);
        }
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

/// The positions (a + i b mod 2^64) mod bits, without a division per probe. Adding b mod bits gives
/// the right remainder, except that a sum that passes 2^64 loses 2^64 mod bits. So there are two
/// possible steps, and a subtraction if the position passes `bits`.
#[inline]
fn remainder(hash: Hash, mut probes: u16, bits: u64, passing: u64) -> impl Iterator<Item = u64> {
    let step = hash.probes % bits;
    // The step of a sum that passes 2^64: (b - 2^64) mod bits.
    let passing = step + passing;
    let passing = if passing >= bits { passing - bits } else { passing };
    let (mut sum, mut position) = (hash.block, hash.block % bits);
    std::iter::from_fn(move || {
        probes = probes.checked_sub(1)?;
        let here = position;
        let (next, passes) = sum.overflowing_add(hash.probes);
        sum = next;
        // Both conditions are coin flips: selected, not branched on.
        let there = here + select_unpredictable(passes, passing, step);
        position = select_unpredictable(there >= bits, there.wrapping_sub(bits), there);
        Some(here)
    })
}
