//! One hash per item: XXH3-128 with the filter's 64-bit seed. Filters of another family fill the
//! two words with another hash (`foreign/mod.rs`).
//!
//! ```text
//!   item ── xxh3_128(seed) ──┬── block  (64 bits): picks the block in each layer
//!                            └── probes (64 bits): starts the probe sequence in it
//! ```
//!
//! Items above 240 bytes get a whole secret that is expanded from the seed: XXH3's own seeding lets
//! prepared pairs collide under one seed in 64 (`tests/filter/adversary.rs`). That costs 27 ns per
//! long item. XXH3 is not a keyed PRF: docs/internals/hash.md says what the seed stops.
//!
//! # Probes
//! The k bits of an item in its block: four in each cache line that is chosen, by double hashing
//! with a multiplicative step.
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

use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_secret, xxh3_128_with_seed};

/// The longest item that XXH3 hashes with 64x64-bit products only, each word mixed with the seed.
const MAX_SEEDED_LEN: usize = 240;
/// Bytes of a secret, as many as XXH3's own has.
const SECRET_BYTES: usize = 192;

/// Words of a cache line.
pub(in crate::filter) const LINE_WORDS: usize = 8;

/// Probes that share one line.
pub(in crate::filter) const PROBE_GROUP: u8 = 4;

/// The 128-bit hash of one item with one seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hash {
    /// Picks the block: uniform over all of `u64`. In pages, the page, then the tag. In a classic
    /// layer, a of the positions a + i b.
    pub block: u64,
    /// Starts the probe sequence in the block. In pages, the place. In a classic layer, b of the
    /// positions a + i b.
    pub probes: u64,
}

impl Hash {
    /// Hashes `item` with `seed`.
    #[inline]
    pub fn of(item: &[u8], seed: u64) -> Self {
        let hash = if item.len() <= MAX_SEEDED_LEN {
            xxh3_128_with_seed(item, seed)
        } else {
            of_long(item, seed)
        };
        Self { block: (hash >> 64) as u64, probes: hash as u64 }
    }
}

/// Hashes with a secret of unrelated words, which SplitMix64 expands from `seed`: Steele, Lea and
/// Flood, "Fast Splittable Pseudorandom Number Generators" (2014). Not inlined: the secret takes
/// stack space, which shorter items should not pay for.
#[inline(never)]
fn of_long(item: &[u8], seed: u64) -> u128 {
    let mut secret = [0; SECRET_BYTES];
    let mut state = seed;
    for word in secret.as_chunks_mut::<8>().0 {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        *word = (z ^ z >> 31).to_le_bytes();
    }
    xxh3_128_with_secret(item, &secret)
}

/// XXH3-64 of stored bytes, without a key: detects damage, not malice.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

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
