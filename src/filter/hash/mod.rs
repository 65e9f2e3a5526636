//! One hash per item: XXH3-128 with the filter's 64-bit seed. Filters of another family fill the
//! two words with another hash (`foreign/mod.rs`).
//!
//! ```text
//!   item ── xxh3_128(seed) ──┬── block  (64 bits): picks the block in each layer
//!                            └── probes (64 bits): starts the probe sequence in it (probe.rs)
//! ```
//!
//! Items above 240 bytes get a whole secret that is expanded from the seed: XXH3's own seeding lets
//! prepared pairs collide under one seed in 64 (`tests/filter/adversary.rs`). That costs 27 ns per
//! long item. XXH3 is not a keyed PRF: docs/internals/hash.md says what the seed stops.

pub(super) mod probe;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_secret, xxh3_128_with_seed};

/// The longest item that XXH3 hashes with 64x64-bit products only, each word mixed with the seed.
const MAX_SEEDED_LEN: usize = 240;
/// Bytes of a secret, as many as XXH3's own has.
const SECRET_BYTES: usize = 192;

/// The 128-bit hash of one item with one seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hash {
    /// Picks the block: uniform over all of `u64`. In a classic layer, a of the positions a + i b.
    pub block: u64,
    /// Starts the probe sequence in the block. In a classic layer, b of the positions a + i b.
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

/// Not inlined: the secret takes stack space, which shorter items should not pay for.
#[inline(never)]
fn of_long(item: &[u8], seed: u64) -> u128 {
    xxh3_128_with_secret(item, &expand(seed))
}

/// Expands `seed` to a secret of unrelated words with SplitMix64.
///
/// Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014).
fn expand(seed: u64) -> [u8; SECRET_BYTES] {
    let mut secret = [0; SECRET_BYTES];
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

/// XXH3-64 of stored bytes, without a key: detects damage, not malice.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}
