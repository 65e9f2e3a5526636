//! The identity of a filter: 64 bits that no addition changes, and that tell it from other filters.
//!
//! ```text
//!   SipHash-2-4, keyed by the seed, of what a filter keeps from its creation on
//! ```
//!
//! Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012). The output of a pseudorandom
//! function does not give its key away, so clients may see the identity, and not the seed.
//!
//! Two filters with random seeds have equal identities with probability 2^-64. Filters with one
//! public seed, and families that have no seed, differ only by their parameters.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;

use super::{
    foreign::{Family, RedisBloom, Valkey},
    paged::Span,
    plan::Plan,
};

impl Plan {
    /// The identity: equal for a filter and its copies, however far they have grown.
    pub fn identity(&self) -> u64 {
        let (family, key, public): (u64, u128, u128) = match self.family {
            Family::Native => (0, self.seed.into(), 0),
            Family::RedisBloom(RedisBloom { hash64, rounds }) => {
                (1, 0, u128::from(hash64) << 1 | u128::from(rounds))
            }
            Family::Valkey(Valkey { seed, .. }) => {
                let half = |from| u128::from_le_bytes(std::array::from_fn(|at| seed[from + at]));
                (2, half(0), half(16))
            }
            Family::Guava => (3, 0, 0),
        };
        let params = self.params();
        let mut hash = SipHasher24::new_with_key(&key.to_le_bytes());
        let mut note = |number: u64| hash.write(&number.to_le_bytes());
        note(family);
        note(public as u64);
        note((public >> 64) as u64);
        note(params.error_rate.to_bits());
        note(params.expansion.factor().unwrap_or(0).into());
        note(params.counts.into());
        note(params.capacity);
        note(
            self.shard.map_or(0, |shard| u64::from(shard.count()) << 16 | u64::from(shard.index())),
        );
        if let Some(window) = self.paged.as_ref().and_then(|paged| paged.window.as_ref()) {
            let rules = window.rules;
            note(match rules.span {
                Span::Time(milliseconds) => milliseconds,
                Span::Items => 0,
            });
            note(rules.generations.into());
            note(rules.refresh.into());
        }
        hash.finish()
    }
}
