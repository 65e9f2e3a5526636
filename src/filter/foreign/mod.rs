//! The family of a filter: where it comes from, which decides how its items are hashed and how it
//! grows.
//!
//! ```text
//!   family       hash of an item                      layers     growth
//!   Native       XXH3-128 under a secret seed         blocked    budget.rs, sizing.rs
//!   RedisBloom   MurmurHash2, twice, seeds public     classic    redisbloom.rs
//!   Valkey       SipHash-1-3 under two secret keys    classic    valkey.rs
//!   Guava        MurmurHash3, 128 bits, no seed       classic    never
//! ```
//!
//! A filter that another product made keeps its family for ever, for its bits mean nothing under
//! another hash; a new filter is native. Bloom filters cannot be hashed anew: the items are not in
//! them.
//!
//! A family is a tag of two bytes in every filter. One that needs more (Valkey's has a key of 32
//! bytes) keeps that behind the pointer to the older layers, not in the filter: people hold
//! millions of small filters.

pub mod guava;
mod murmur2;
mod murmur3;
pub mod redisbloom;
mod valkey_bloom;

pub use valkey_bloom::{FIXED_SEED, TIGHTENING, Valkey};

use super::hash::Hash;

/// Which product's rules a filter follows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Family {
    /// This module's own.
    #[default]
    Native,
    /// RedisBloom's.
    RedisBloom(RedisBloom),
    /// valkey-bloom's.
    Valkey(Valkey),
    /// Guava's, and that of bitmaps filled by its recipe. Such a filter does not grow.
    Guava,
}

/// A family as every filter carries it: without what is too large for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::filter) enum Tag {
    Native,
    RedisBloom(RedisBloom),
    Valkey,
    Guava,
}

impl Family {
    /// The part that every filter carries.
    pub(in crate::filter) fn tag(self) -> Tag {
        match self {
            Self::Native => Tag::Native,
            Self::RedisBloom(family) => Tag::RedisBloom(family),
            Self::Valkey(_) => Tag::Valkey,
            Self::Guava => Tag::Guava,
        }
    }
}

/// What differs among RedisBloom's versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedisBloom {
    /// MurmurHash64A (since 2.0), or MurmurHash2 with its 32 bits.
    pub hash64: bool,
    /// Whether a new layer is rounded up to a power of two of bits (before 2.2).
    pub rounds: bool,
}

/// First seed of the 64-bit hash; the second is the first hash. RedisBloom, `deps/bloom/bloom.c`.
const SEED_64: u64 = 0xC6A4_A793_5BD1_E995;
/// First seed of the 32-bit hash.
const SEED_32: u32 = 0x9747_B28C;

impl RedisBloom {
    /// The hash of an item: the start of its walk over a classic layer and the step.
    pub(in crate::filter) fn hash(self, item: &[u8]) -> Hash {
        let (start, step) = if self.hash64 {
            let start = murmur2::hash64(item, SEED_64);
            (start, murmur2::hash64(item, start))
        } else {
            let start = murmur2::hash32(item, SEED_32);
            (u64::from(start), u64::from(murmur2::hash32(item, start)))
        };
        Hash { block: start, probes: step }
    }
}
