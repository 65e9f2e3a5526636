//! The k positions of an item in classic layers, from the two words of its hash.
//!
//! ```text
//!   remainder (a + i b mod 2^64) mod bits for i in 0 .. k: RedisBloom's
//!   low bits  as remainder, but bits is a power of two: RedisBloom's rounded form
//!   prime     a, b, then (a + i b mod 2^64) mod P for i in 2 .. k, each mod bits
//!             P = 2^64 - 59
//!   mitz32    l + i h for i in 1 ..= k, in 32 bits; its complement if negative; mod bits
//!             a = h, l (32 bits each)
//!   mitz64    a + i b for i in 0 .. k, its lowest 63 bits mod bits
//! ```
//!
//! `remainder` and `low bits` take no division per probe. The others do: the remainder of one
//! position does not give the next one if a prime, a complement or truncated bits lie in between.

use std::hint::select_unpredictable;

use crate::filter::hash::Hash;

/// The largest prime below 2^64.
const PRIME: u64 = 0xFFFF_FFFF_FFFF_FFC5;

/// RedisBloom. `passing` is the field of the layer.
#[inline]
pub(super) fn remainder(
    hash: Hash,
    mut probes: u16,
    bits: u64,
    passing: u64,
) -> impl Iterator<Item = u64> {
    let step = hash.probes % bits;
    // The step of a sum that passes 2^64: (b - 2^64) mod bits.
    let passing = step + passing;
    let passing = if passing >= bits { passing - bits } else { passing };
    let (mut sum, mut position) = (hash.block, hash.block % bits);
    std::iter::from_fn(move || {
        probes = probes.checked_sub(1)?;
        let here = position;
        let (next, passes) = sum.overflowing_add(hash.probes);
        sum = next;
        // Both conditions are coin flips: selected, not branched on.
        let there = here + select_unpredictable(passes, passing, step);
        position = select_unpredictable(there >= bits, there.wrapping_sub(bits), there);
        Some(here)
    })
}

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
