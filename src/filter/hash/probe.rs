//! Where the k bits of an item lie inside its block: four by four in a cache line, by a walk with a
//! multiplicative step.
//!
//! Both words of the hash go in, one as the start x and one (remixed) as the increment y. Each step
//! of the walk gives four probes, in one line of 512 bits (the last step what is left of k):
//!
//! ```text
//!   block    ┌────────┬────────┬────────┬────────┐
//!            │ line 0 │ line 1 │ line 2 │   ...  │         x * lines = line * 2^64 + places    a product of 128 bits
//!            └────────┴────────┴─▲▲▲▲───┴────────┘         probe i of four = bits 9 i .. 9 i + 8 of places, from the top
//!                                └┴┴┴── x                  x <- x * A + y  (mod 2^64)          A = the multiplier of a
//!                                                                                              good 64-bit generator
//! ```
//!
//! So a block is touched in k / 4 of its lines, not in k: at rates of 0.1 % and below, and in the
//! deep stacks that divide a rate among their layers, blocks have many lines. Of what is absent, 15
//! of 16 items are settled by one line a layer. The lines of a block are loaded less evenly than
//! its bits would be; the sizing knows (`block_rate.rs`), and pays with up to 0.8 % of memory, 1.3
//! % below 1e-9. Lang, Neumann, Kemper and Boncz, "Performance-Optimal Filtering" (2019), call
//! filters of this kind cache-sectorized.
//!
//! A layer of a single block is small, and takes the memory that it needs to the word; as do, at
//! the lowest rates, layers of few blocks that are not of whole lines. There each step is one
//! probe, anywhere in the block: `(x * bits) >> 64`.
//!
//! Plain double hashing (x += y; Kirsch and Mitzenmacher, 2006) and enhanced double hashing (x +=
//! y, y += i; Dillinger and Manolios, 2004) are made for arrays of millions of bits. Inside a block
//! of B bits two items walk the same way as soon as their (x, y) agree to log2(B) bits or so each,
//! which happens with probability near 1 / (k B^2), and every such pair is a false positive however
//! many probes there are. Multiplying spreads a difference in any bit of x over all later
//! positions, so items part within a probe or two. Measured rate relative to the asked rate, +- one
//! standard deviation. The model predicts 0.99 for the first three; the middle column has each
//! probe anywhere in the block, and is sized for 0.97:
//!
//! | items, asked rate   | block      | enhanced, fractions | this file       |
//! |---------------------|------------|---------------------|-----------------|
//! | 1 M at 0.1 %        | 1024 bits  | 0.991 +- 0.007      | 0.989 +- 0.002  |
//! | 1 M at 0.01 %       | 4096 bits  | 0.977 +- 0.007      | 0.990 +- 0.005  |
//! | 200 k at 1e-6       | 16384 bits | 1.03 +- 0.05        | 0.990 +- 0.016  |
//! | 10 at 0.01 %        | 256 bits   | 1.04 +- 0.02        | 0.858 +- 0.003  |
//! | 10 at 1e-5          | 256 bits   | 1.13 +- 0.07        | 0.835 +- 0.006  |
//!
//! Plain double hashing reaches 1.5 at 0.1 % and 2.8 at 0.01 %.

use super::Hash;
use crate::filter::geometry::{Geometry, LINE_WORDS, PROBE_GROUP};

/// Multiplier of the walk: from Steele and Vigna, "Computationally easy, spectrally good
/// multipliers for congruential pseudorandom number generators" (2022), table for m = 2^64.
const MULTIPLIER: u64 = 0xD134_2543_DE82_EF95;
/// Odd. Items of one block share the high bits of `Hash::block`; this product lifts the low bits,
/// where they differ.
const REMIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// The integer in `[0, n)` that the fraction `x / 2^64` points at.
///
/// Lemire, "Fast Random Integer Generation in an Interval" (2019): no division, and `n` need not be
/// a power of two.
#[inline]
#[must_use]
pub fn scale(x: u64, n: u64) -> u64 {
    ((u128::from(x) * u128::from(n)) >> 64) as u64
}

/// Bits of a cache line.
const LINE_BITS: u64 = LINE_WORDS as u64 * 64;

/// Bits of a place in a line.
const PLACE_BITS: u32 = LINE_BITS.ilog2();

/// The walk of one item through a block; endless, the caller takes its k.
#[derive(Clone, Copy, Debug)]
pub(in crate::filter) struct ProbeSequence {
    x: u64,
    y: u64,
}

impl ProbeSequence {
    /// Starts at the first probe of the item. The same start serves every layer and block length.
    #[inline]
    #[must_use]
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

    /// The next probe in a block of `bits` bits that is not of whole lines: its position, in `[0,
    /// bits)`.
    #[inline]
    pub(in crate::filter) fn one(&mut self, bits: u64) -> u64 {
        let position = scale(self.x, bits);
        self.step();
        position
    }

    /// Goes on without looking.
    #[inline]
    pub(in crate::filter) fn step(&mut self) {
        self.x = self.x.wrapping_mul(MULTIPLIER).wrapping_add(self.y);
    }
}

/// Four probes, in one line of a block.
#[derive(Clone, Copy, Debug)]
pub(in crate::filter) struct ProbeGroup {
    /// The line, counted from the start of the block.
    pub(in crate::filter) line: usize,
    /// Nine bits each, from the top.
    pub(in crate::filter) places: u64,
}

impl ProbeGroup {
    /// The place in the line of probe `i` in `[0, 4)`.
    #[inline]
    fn place(self, i: u8) -> u64 {
        (self.places << (PLACE_BITS * u32::from(i))) >> (64 - PLACE_BITS)
    }

    /// The word of the line and the bit in that word of probe `i` in `[0, 4)`.
    #[inline]
    #[must_use]
    pub(in crate::filter) fn at(self, i: u8) -> (usize, u32) {
        let place = self.place(i);
        ((place / 64) as usize, (place % 64) as u32)
    }

    /// Their positions in the block.
    #[inline]
    fn positions(self) -> [u64; PROBE_GROUP as usize] {
        let first = self.line as u64 * LINE_BITS;
        [0, 1, 2, 3].map(|i| first + self.place(i))
    }
}

/// Hands the positions of an item in its block of a layer of that shape, in `[0, block_words *
/// 64)`, to `test`, four by four, the last of them fewer, until it says no; whether it never did.
#[inline(always)]
pub fn all_positions(hash: Hash, geometry: Geometry, mut test: impl FnMut(&[u64]) -> bool) -> bool {
    let (mut sequence, bits) = (ProbeSequence::new(hash), u64::from(geometry.block_words) * 64);
    let lines = geometry.lines();
    let mut next = || match lines {
        Some(lines) => sequence.group(lines).positions(),
        None => std::array::from_fn(|_| sequence.one(bits)),
    };
    let mut left = geometry.probes;
    while left >= PROBE_GROUP {
        if !test(&next()) {
            return false;
        }
        left -= PROBE_GROUP;
    }
    // A copy of `test` for each length, in which nothing is left of a loop.
    match left {
        0 => true,
        1 => test(&next()[..1]),
        2 => test(&next()[..2]),
        _ => test(&next()[..3]),
    }
}
