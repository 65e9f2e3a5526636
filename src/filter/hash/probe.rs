//! Where the k bits of an item lie inside its block: four in each cache line that is chosen, by
//! double hashing with a multiplicative step.
//!
//! One word of the hash is the start x, the other (remixed) the increment y. Each step gives a
//! group of four probes in one line of 512 bits. The last group has what is left of k.
//!
//! ```text
//!   block    ┌────────┬────────┬────────┬────────┐
//!            │ line 0 │ line 1 │ line 2 │   ...  │
//!            └────────┴────────┴─▲▲▲▲───┴────────┘
//!                                └┴┴┴── x
//!
//!   x * lines = line * 2^64 + places       a product of 128 bits
//!   probe i of the group                   bits 9 i .. 9 i + 8 of places, from the top
//!   x <- x * A + y  (mod 2^64)             A = the multiplier of a good 64-bit generator
//! ```
//!
//! Lang, Neumann, Kemper and Boncz, "Performance-Optimal Filtering" (2019), call such filters
//! cache-sectorized.
//!
//! Some blocks do not consist of whole lines: the single block of a small layer, and at the lowest
//! rates the blocks of a layer with few blocks. There each step is one probe anywhere in the block:
//! `(x * bits) >> 64`.

use super::Hash;

/// Words of a cache line.
pub(in crate::filter) const LINE_WORDS: usize = 8;

/// Probes that share one line.
pub(in crate::filter) const PROBE_GROUP: u8 = 4;

/// Multiplier of the step: from Steele and Vigna, "Computationally easy, spectrally good
/// multipliers for congruential pseudorandom number generators" (2022), table for m = 2^64.
const MULTIPLIER: u64 = 0xD134_2543_DE82_EF95;
/// Items of one block share the high bits of `Hash::block`; the product moves the low bits to the
/// top.
const REMIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Maps the fraction `x / 2^64` to an integer in `[0, n)`, without a division: Lemire, "Fast Random
/// Integer Generation in an Interval" (2019).
#[inline]
pub fn scale(x: u64, n: u64) -> u64 {
    ((u128::from(x) * u128::from(n)) >> 64) as u64
}

/// Bits of a place in a line.
const PLACE_BITS: u32 = (LINE_WORDS as u32 * 64).ilog2();

/// The probe sequence of one item in a block. It is endless; the caller takes k probes.
#[derive(Clone, Copy, Debug)]
pub(in crate::filter) struct ProbeSequence {
    x: u64,
    y: u64,
}

impl ProbeSequence {
    /// Starts at the first probe of the item.
    #[inline]
    pub(in crate::filter) fn new(hash: Hash) -> Self {
        Self { x: hash.probes, y: hash.block.wrapping_mul(REMIX) }
    }

    /// The next four probes, in a block of `lines` lines.
    #[inline]
    pub(in crate::filter) fn group(&mut self, lines: u64) -> ProbeGroup {
        let product = u128::from(self.x) * u128::from(lines);
        self.step();
        ProbeGroup { line: (product >> 64) as usize, places: product as u64 }
    }

    /// The position of the next probe in a block of `bits` bits that is not of whole lines.
    #[inline]
    pub(in crate::filter) fn one(&mut self, bits: u64) -> u64 {
        let position = scale(self.x, bits);
        self.step();
        position
    }

    #[inline]
    pub(in crate::filter) fn step(&mut self) {
        self.x = self.x.wrapping_mul(MULTIPLIER).wrapping_add(self.y);
    }
}

/// Four probes in one line of a block.
#[derive(Clone, Copy, Debug)]
pub(in crate::filter) struct ProbeGroup {
    /// The line, counted from the start of the block.
    pub(in crate::filter) line: usize,
    /// Four places in the line, nine bits each, from the top.
    pub(in crate::filter) places: u64,
}

impl ProbeGroup {
    /// The word of the line, and the bit in that word, of probe `i`, in `[0, 4)`.
    #[inline]
    pub(in crate::filter) fn at(self, i: u8) -> (usize, u32) {
        let place = (self.places << (PLACE_BITS * u32::from(i))) >> (64 - PLACE_BITS);
        ((place / 64) as usize, (place % 64) as u32)
    }
}
