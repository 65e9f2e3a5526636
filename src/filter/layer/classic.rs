//! The classic Bloom layer of other products: the k bits of an item lie anywhere in the array.
//! Their positions follow from the two words of the item's hash, a and b:
//!
//! ```text
//!   remainder (a + i b mod 2^64) mod bits for i in 0 .. k: RedisBloom's
//!   low bits  as remainder, but bits is a power of two: RedisBloom's rounded form
//!   prime     a, b, then (a + i b mod 2^64) mod P for i in 2 .. k, each mod bits
//!             P = 2^64 - 59
//!   mitz32    l + i h for i in 1 ..= k, in 32 bits; its complement if negative; mod bits
//!             a = h, l (32 bits each)
//!   mitz64    a + i b for i in 0 .. k, its lowest 63 bits mod bits
//! ```
//!
//! Bloom (1970), with the double hashing of Kirsch and Mitzenmacher (2006). Two things reduce the
//! cost of k cache lines:
//!
//! * **No division per probe**, if the rule is the remainder alone. Each position follows from the
//!   one before. Adding b mod bits gives the right remainder, except that a sum a + i b that passes
//!   2^64 loses 2^64 mod bits. So there are two possible steps, and a subtraction if the position
//!   passes `bits`.
//! * **Prefetch of all positions** of every item of a batch, before the first one is read.

use std::hint::select_unpredictable;

use super::{bits::Bits, item_set::ItemSet};
use crate::filter::hash::Hash;

/// How positions follow from a and b: the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// RedisBloom.
    Remainder,
    /// RedisBloom before 2.2; stored differently.
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
            Rule::Prime => prime(hash, probes, bits).all(each),
            Rule::Mitz32 => mitz32(hash, probes, bits).all(each),
            Rule::Mitz64 => mitz64(hash, probes, bits).all(each),
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

    /// Prefetches the lines that the item needs. This function and the other `inline(never)` ones
    /// wait for memory anyway. Inlined, they would lengthen the hot path of blocked layers.
    #[inline(never)]
    pub(super) fn prefetch(&self, hash: Hash) {
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

/// The largest prime below 2^64.
const PRIME: u64 = 0xFFFF_FFFF_FFFF_FFC5;

/// `passing` is the field of the layer.
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

#[inline]
fn prime(hash: Hash, probes: u16, bits: u64) -> impl Iterator<Item = u64> {
    (0..u64::from(probes)).map(move |i| {
        let at = match i {
            0 => hash.block,
            1 => hash.probes,
            // Below 2 P, so the remainder is a subtraction.
            _ => match hash.block.wrapping_add(i.wrapping_mul(hash.probes)) {
                sum if sum >= PRIME => sum - PRIME,
                sum => sum,
            },
        };
        at % bits
    })
}

#[inline]
fn mitz32(hash: Hash, probes: u16, bits: u64) -> impl Iterator<Item = u64> {
    let (low, high) = (hash.block as i32, (hash.block >> 32) as i32);
    (1..=i32::from(probes)).map(move |i| {
        let sum = low.wrapping_add(i.wrapping_mul(high));
        // Either the number or its complement is not negative: a number of 31 bits.
        u64::from((if sum < 0 { !sum } else { sum }) as u32) % bits
    })
}

#[inline]
fn mitz64(hash: Hash, probes: u16, bits: u64) -> impl Iterator<Item = u64> {
    (0..u64::from(probes)).map(move |i| {
        let sum = hash.block.wrapping_add(i.wrapping_mul(hash.probes));
        (sum & i64::MAX as u64) % bits
    })
}
