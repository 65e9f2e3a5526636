//! MurmurHash3 by Austin Appleby (public domain), in the 128-bit form for 64-bit machines, as
//! Guava's `Hashing.murmur3_128()` has it with seed 0.
//!
//! ```text
//!   each 16 bytes, as two words k1, k2:      k1 *= C1; k1 <<<= 31; k1 *= C2; h1 ^= k1
//!                                            h1 <<<= 27; h1 += h2; h1 = 5 h1 + 0x52dce729
//!                                            k2 *= C2; k2 <<<= 33; k2 *= C1; h2 ^= k2
//!                                            h2 <<<= 31; h2 += h1; h2 = 5 h2 + 0x38495ab5
//!   last, under 16 bytes, zero-extended:     the first line of each half
//!   end:                                     h1 ^= len; h2 ^= len; mixed into each other
//! ```
//!
//! Only for filters made with it: it has no secret. Words are read as little-endian on every
//! machine.

const C1: u64 = 0x87C3_7B91_1142_53D5;
const C2: u64 = 0x4CF5_AD43_2745_937F;

/// The two words of the hash; the first is Guava's `asLong`.
pub(super) fn hash128(item: &[u8]) -> [u64; 2] {
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
    // Zero words change nothing, so empty `extra` needs no case of its own.
    h1 ^= first(k1) ^ item.len() as u64;
    h2 ^= second(k2) ^ item.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    (h1, h2) = (finish(h1), finish(h2));
    h1 = h1.wrapping_add(h2);
    [h1, h2.wrapping_add(h1)]
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
