//! One hash per item: XXH3-128 under the filter's 64-bit seed. The only file that names
//! `xxhash-rust`. (Filters of another family fill the same two words with another hash:
//! `foreign/mod.rs`.)
//!
//! Every layer of a filter reuses the two halves, so an item is hashed once however deep the stack
//! is:
//!
//! ```text
//!   item ── xxh3_128(seed) ──┬── block  (64 bits): picks the block of each layer
//!                            └── probes (64 bits): starts the walk inside that block (probe.rs)
//! ```
//!
//! 128 bits, not 64, for two reasons. Double hashing wants two independent words. And XXH3-64 has a
//! published pair of 32-byte items that collides under about one in 1,400 of all seeds (xxHash
//! issue 1127), which would put a floor under the error rate that an attacker can reach without
//! knowing the seed; the same pair collided under none of 4 million seeds with 128 bits.
//!
//! Above 240 bytes the seed is not given to XXH3 but expanded to a whole secret. XXH3 itself makes
//! the 24 words of its secret there by adding the seed to 24 public ones (or subtracting it), so
//! that the XOR of two of them is often known: for words 0 and 12 half of the bits are the same
//! under one seed in 64. Two additions of 32 by 32 bits to one lane then cancel, and a pair of
//! items made for it, by anyone, collides in all 128 bits under that one in 64 of all seeds,
//! measured (`tests/filter/adversary.rs`, which makes such pairs). Words that are hashes of the
//! seed have no such relation. It costs 27 ns an item of that length.
//!
//! XXH3 is not a keyed PRF: the seed stops collisions prepared offline, as far as docs/security.md
//! says, it does not stop an attacker who may query at length.

pub(super) mod probe;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_secret, xxh3_128_with_seed};

/// The longest item of which XXH3 mixes each word with the seed and multiplies 64 by 64 bits.
const SEEDED: usize = 240;
/// Bytes of a secret, as long as XXH3's own.
const SECRET: usize = 192;

/// The 128-bit hash of one item under one seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hash {
    /// Picks the block: uniform over all of `u64`. In a classic layer: where the walk starts.
    pub block: u64,
    /// Starts the probes inside the block: uniform, independent of `block`. In a classic layer: the
    /// step of the walk.
    pub probes: u64,
}

impl Hash {
    /// Hashes `item` (any length, empty included) under `seed`.
    #[inline]
    #[must_use]
    pub fn of(item: &[u8], seed: u64) -> Self {
        let hash =
            if item.len() <= SEEDED { xxh3_128_with_seed(item, seed) } else { of_long(item, seed) };
        Self { block: (hash >> 64) as u64, probes: hash as u64 }
    }
}

/// Not inlined: the secret takes room on the stack, and shorter items would pay for that.
#[inline(never)]
fn of_long(item: &[u8], seed: u64) -> u128 {
    xxh3_128_with_secret(item, &expand(seed))
}

/// A secret whose words tell nothing of each other: SplitMix64 from `seed` on.
///
/// Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014), with the
/// constants of Vigna's code.
fn expand(seed: u64) -> [u8; SECRET] {
    let mut secret = [0; SECRET];
    let mut state = seed;
    for word in secret.as_chunks_mut::<8>().0 {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        *word = (z ^ z >> 31).to_le_bytes();
    }
    secret
}

/// XXH3-64 of stored bytes, unkeyed: finds damage, not malice.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}
