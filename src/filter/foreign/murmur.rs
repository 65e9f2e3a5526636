//! MurmurHash by Austin Appleby (public domain), in the forms of RedisBloom and Guava.
//!
//! Only for filters made with it: it has no secret, and collisions for any seed are known. Words
//! are read as little-endian on every machine.

use crate::filter::hash::Hash;

const M64: u64 = 0xC6A4_A793_5BD1_E995;
const M32: u32 = 0x5BD1_E995;

/// `MurmurHash64A`.
pub(super) fn hash64(item: &[u8], seed: u64) -> u64 {
    let (words, extra) = item.as_chunks::<8>();
    let mut hash = seed ^ (item.len() as u64).wrapping_mul(M64);
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(M64);
        word ^= word >> 47;
        hash = (hash ^ word.wrapping_mul(M64)).wrapping_mul(M64);
    }
    if !extra.is_empty() {
        let word = extra.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        hash = (hash ^ word).wrapping_mul(M64);
    }
    hash ^= hash >> 47;
    hash = hash.wrapping_mul(M64);
    hash ^ hash >> 47
}

/// `MurmurHash2`, of 32 bits.
pub(super) fn hash32(item: &[u8], seed: u32) -> u32 {
    let (words, extra) = item.as_chunks::<4>();
    let mut hash = seed ^ item.len() as u32;
    for word in words {
        let mut word = u32::from_le_bytes(*word).wrapping_mul(M32);
        word ^= word >> 24;
        hash = hash.wrapping_mul(M32) ^ word.wrapping_mul(M32);
    }
    if !extra.is_empty() {
        let word = extra.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
        hash = (hash ^ word).wrapping_mul(M32);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M32);
    hash ^ hash >> 15
}

const C1: u64 = 0x87C3_7B91_1142_53D5;
const C2: u64 = 0x4CF5_AD43_2745_937F;

/// `MurmurHash3`, the 128 bits for 64-bit machines, with seed 0: Guava's `murmur3_128()`. The first
/// word is Guava's `asLong`.
pub(in crate::filter) fn hash128(item: &[u8]) -> Hash {
    let (blocks, extra) = item.as_chunks::<16>();
    let (mut h1, mut h2) = (0_u64, 0_u64);
    for block in blocks {
        let [k1, k2] = words(block);
        h1 = (h1 ^ first(k1)).rotate_left(27).wrapping_add(h2);
        h1 = h1.wrapping_mul(5).wrapping_add(0x52DC_E729);
        h2 = (h2 ^ second(k2)).rotate_left(31).wrapping_add(h1);
        h2 = h2.wrapping_mul(5).wrapping_add(0x3849_5AB5);
    }
    let mut last = [0; 16];
    last[..extra.len()].copy_from_slice(extra);
    let [k1, k2] = words(&last);
    // Zero words change nothing, so there is no case for empty `extra`.
    h1 ^= first(k1) ^ item.len() as u64;
    h2 ^= second(k2) ^ item.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2) = (finish(h1), finish(h2));
    h1 = h1.wrapping_add(h2);
    Hash { block: h1, probes: h2.wrapping_add(h1) }
}

fn words(block: &[u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(*block);
    [both as u64, (both >> 64) as u64]
}

fn first(word: u64) -> u64 {
    word.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn second(word: u64) -> u64 {
    word.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn finish(mut word: u64) -> u64 {
    word ^= word >> 33;
    word = word.wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    word ^= word >> 33;
    word = word.wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    word ^ word >> 33
}
