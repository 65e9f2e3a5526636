//! One hash per item: XXH3-128 under the filter's 64-bit seed. The only file that names `xxhash-rust`. (Filters of another
//! family fill the same two words with another hash: `family.rs`.)
//!
//! Every layer of a filter reuses the two halves, so an item is hashed once however deep the stack is:
//!
//! ```text
//!   item ── xxh3_128(seed) ──┬── block  (64 bits): picks the block of each layer
//!                            └── probes (64 bits): starts the walk inside that block (probe.rs)
//! ```
//!
//! 128 bits, not 64, for two reasons. Double hashing wants two independent words. And XXH3-64 has a published pair of
//! 32-byte items that collides under about one in 1,400 of all seeds (xxHash issue 1127), which would put a floor under
//! the error rate that an attacker can reach without knowing the seed; the same pair collided under none of 4 million
//! seeds with 128 bits. XXH3 is not a keyed PRF: the seed stops collisions prepared offline, it does not stop an
//! attacker who may query at length.

use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

/// The 128-bit hash of one item under one seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hash {
    /// Picks the block: uniform over all of `u64`. In a classic layer: where the walk starts.
    pub block: u64,
    /// Starts the probes inside the block: uniform, independent of `block`. In a classic layer: the step of the walk.
    pub probes: u64,
}

impl Hash {
    /// Hashes `item` (any length, empty included) under `seed`.
    #[inline]
    #[must_use]
    pub fn of(item: &[u8], seed: u64) -> Self {
        let hash = xxh3_128_with_seed(item, seed);
        Self {
            block: (hash >> 64) as u64,
            probes: hash as u64,
        }
    }
}

/// XXH3-64 of stored bytes, unkeyed: finds damage, not malice.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}
