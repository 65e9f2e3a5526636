//! The family of a filter: the product that made it. The family decides how items are hashed and
//! how the filter grows.
//!
//! ```text
//!   family       hash of an item                      layers     growth
//!   Native       XXH3-128 with a secret seed          blocked    sizing/
//!   RedisBloom   MurmurHash2, twice, public seeds     classic    redisbloom.rs
//!   Valkey       SipHash-1-3 with two secret keys     classic    valkey_bloom.rs
//!   Guava        MurmurHash3, 128 bits, no seed       classic    never
//! ```
//!
//! A foreign filter keeps its family for ever: a Bloom filter does not contain its items, so they
//! cannot be hashed again. New filters are native, unless the setting `layout` or the command of
//! another product says otherwise (`module/commands/reserve.rs`).

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
pub enum Family {
    /// This module.
    #[default]
    Native,
    /// RedisBloom.
    RedisBloom(RedisBloom),
    /// valkey-bloom.
    Valkey(Valkey),
    /// Guava. Such a filter does not grow.
    Guava,
}

/// The part of a family that every filter carries: all but valkey-bloom's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::filter) enum Tag {
    Native,
    RedisBloom(RedisBloom),
    Valkey,
    Guava,
}

impl Family {
    pub(in crate::filter) fn tag(self) -> Tag {
        match self {
            Self::Native => Tag::Native,
            Self::RedisBloom(family) => Tag::RedisBloom(family),
            Self::Valkey(_) => Tag::Valkey,
            Self::Guava => Tag::Guava,
        }
    }
}
