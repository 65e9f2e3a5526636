//! Counters of four bits, sixteen in a word.

/// Words of counters for each word of bits; also the bits of a counter.
pub(in crate::filter::layer) const WIDTH: usize = 4;
/// Counters in a word.
pub(in crate::filter::layer) const PER_WORD: u64 = u64::BITS as u64 / WIDTH as u64;
/// The value at which a counter stays for ever.
pub(in crate::filter::layer) const SATURATED: u64 = (1 << WIDTH) - 1;
/// The lowest bit of each counter of a word.
const LOWEST: u64 = 0x1111_1111_1111_1111;
/// The lower counter of each byte of a word.
const LOW_HALVES: u64 = 0x0F0F_0F0F_0F0F_0F0F;
/// The lowest bit of each byte of a word.
const BYTES: u64 = 0x0101_0101_0101_0101;

/// The word of counter `at` of a block, and the shift in that word.
#[inline]
pub(in crate::filter::layer) fn place(at: u64) -> (usize, u32) {
    ((at / PER_WORD) as usize, (at % PER_WORD) as u32 * WIDTH as u32)
}

/// The number of counters of a word that are not 0.
pub(in crate::filter::layer) fn nonzero(word: u64) -> u32 {
    let pairs = word | word >> 1;
    ((pairs | pairs >> 2) & LOWEST).count_ones()
}

/// The number of counters of a word that are at 15.
pub(in crate::filter::layer) fn saturated(word: u64) -> u32 {
    let pairs = word & word >> 1;
    (pairs & pairs >> 2 & LOWEST).count_ones()
}

/// Adds the counters of two words one by one. A sum above 15 stays at 15.
pub(in crate::filter::layer) fn add(a: u64, b: u64) -> u64 {
    // Eight sums of at most 30, each in a byte.
    let pairs = |a: u64, b: u64| {
        let sum = (a & LOW_HALVES) + (b & LOW_HALVES);
        let over = sum >> WIDTH & BYTES;
        (sum | (over * SATURATED)) & LOW_HALVES
    };
    pairs(a, b) | pairs(a >> WIDTH, b >> WIDTH) << WIDTH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_two_words_are_added_one_by_one_up_to_15() {
        for (a, b) in (0..16_u64).flat_map(|a| (0..16).map(move |b| (a, b))) {
            for at in 0..16 {
                // The other counters of the word are at their least and at their most.
                for others in [0, u64::MAX] {
                    let others = others & !(SATURATED << (4 * at));
                    let sum = add(a << (4 * at) | others, b << (4 * at) | others);
                    let expected = (a + b).min(15) << (4 * at) | others;
                    assert_eq!(sum, expected, "{a} + {b}, counter {at}, others {others:x}");
                }
            }
        }
    }

    #[test]
    fn counters_of_a_word_are_counted_one_by_one() {
        let mut word = 0x0123_4567_89AB_CDEF_u64;
        for _ in 0..10_000 {
            word = word.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(1);
            // Sparse and dense words too.
            for word in [word, word & word >> 7 & word << 9, word | word >> 7 | word << 9] {
                let counters = || (0..16).map(|i| word >> (4 * i) & SATURATED);
                let count = |is: fn(&u64) -> bool| counters().filter(is).count() as u32;
                assert_eq!(nonzero(word), count(|&counter| counter != 0), "{word:#018x}");
                assert_eq!(saturated(word), count(|&counter| counter == SATURATED), "{word:#018x}");
            }
        }
    }
}
