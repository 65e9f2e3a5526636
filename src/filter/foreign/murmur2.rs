//! MurmurHash2 by Austin Appleby (public domain), in the 32-bit form and the 64-bit form "A", as
//! RedisBloom uses them.
//!
//! ```text
//!   h = seed ^ len * m   (64 bits)          h = seed ^ len       (32 bits)
//!   each word k:         k *= m; k ^= k >> r; k *= m;
//!                        h = (h ^ k) * m    (64 bits)
//!                        h = (h * m) ^ k    (32 bits)
//!   last, partial word, zero-extended:      h = (h ^ word) * m
//!   end:                 h ^= h >> s; h *= m; h ^= h >> t
//! ```
//!
//! Only for filters made with it. It has no secret, and collisions for any seed are known, so new
//! filters use XXH3. Words are read as little-endian on every machine.

const M64: u64 = 0xC6A4_A793_5BD1_E995;
const M32: u32 = 0x5BD1_E995;

/// MurmurHash64A.
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
