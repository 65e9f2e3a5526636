//! The k positions of an item in classic layers of valkey-bloom and Guava, from the two words of
//! its hash.
//!
//! ```text
//!   prime     a, b, then (a + i b mod 2^64) mod P for i in 2 .. k, each mod bits
//!             P = 2^64 - 59
//!   mitz32    l + i h for i in 1 ..= k, in 32 bits; its complement if negative; mod bits
//!             a = h, l (32 bits each)
//!   mitz64    a + i b for i in 0 .. k, its lowest 63 bits mod bits
//! ```
//!
//! Unlike in `mod.rs`, each probe takes a division. The remainder of one position does not give the
//! next one if a prime, a complement or truncated bits lie in between.

use crate::filter::hash::Hash;

/// The largest prime below 2^64.
const PRIME: u64 = 0xFFFF_FFFF_FFFF_FFC5;

/// The crate `bloomfilter`: the two hashes themselves, then combinations of them.
#[inline]
pub(super) fn prime(hash: Hash, probes: u16, bits: u64) -> impl Iterator<Item = u64> {
    (0..u64::from(probes)).map(move |i| {
        let at = match i {
            0 => hash.block,
            1 => hash.probes,
            // Below 2 P, so the remainder is a subtraction.
            _ => match hash.block.wrapping_add(i.wrapping_mul(hash.probes)) {
                sum if sum >= PRIME => sum - PRIME,
                sum => sum,
            },
        };
        at % bits
    })
}

/// Guava's `MURMUR128_MITZ_32`: Java's `int` arithmetic.
#[inline]
pub(super) fn mitz32(hash: Hash, probes: u16, bits: u64) -> impl Iterator<Item = u64> {
    let (low, high) = (hash.block as i32, (hash.block >> 32) as i32);
    (1..=i32::from(probes)).map(move |i| {
        let sum = low.wrapping_add(i.wrapping_mul(high));
        // Either the number or its complement is not negative: a number of 31 bits.
        u64::from((if sum < 0 { !sum } else { sum }) as u32) % bits
    })
}

#[inline]
pub(super) fn mitz64(hash: Hash, probes: u16, bits: u64) -> impl Iterator<Item = u64> {
    (0..u64::from(probes)).map(move |i| {
        let sum = hash.block.wrapping_add(i.wrapping_mul(hash.probes));
        (sum & i64::MAX as u64) % bits
    })
}
