//! The family of a filter: the product that made it. The family decides how items are hashed and
//! how the filter grows.
//!
//! ```text
//!   family       hash of an item                      layers     growth
//!   Native       XXH3-128 with a secret seed          blocked    sizing.rs
//!   RedisBloom   MurmurHash2, twice, public seeds     classic    redisbloom.rs
//!   Valkey       SipHash-1-3 with two secret keys     classic    valkey_bloom.rs
//!   Guava        MurmurHash3, 128 bits, no seed       classic    never
//! ```
//!
//! A foreign filter keeps its family for ever: a Bloom filter does not contain its items, so they
//! cannot be hashed again.

pub mod guava;
pub(super) mod murmur;
pub mod redisbloom;
mod valkey_bloom;

pub use redisbloom::RedisBloom;
pub use valkey_bloom::{FIXED_SEED, TIGHTENING, Valkey};

/// The relative error of a logarithm, a product and a division of doubles: one bit each.
const ROUNDING: f64 = 1e-15;

/// The product whose rules a filter follows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Family<K = Valkey> {
    /// This module.
    #[default]
    Native,
    /// RedisBloom.
    RedisBloom(RedisBloom),
    /// valkey-bloom.
    Valkey(K),
    /// Guava. Such a filter does not grow.
    Guava,
}

/// The part of a family that every filter carries: all but valkey-bloom's keys.
pub(in crate::filter) type Tag = Family<()>;

impl<K> Family<K> {
    pub(in crate::filter) fn map_keys<L>(self, keys: impl FnOnce(K) -> L) -> Family<L> {
        match self {
            Self::Native => Family::Native,
            Self::RedisBloom(family) => Family::RedisBloom(family),
            Self::Valkey(own) => Family::Valkey(keys(own)),
            Self::Guava => Family::Guava,
        }
    }

    pub(in crate::filter) fn tag(self) -> Tag {
        self.map_keys(|_| ())
    }
}
