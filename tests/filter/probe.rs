//! The block and the probe positions that follow from a hash.

use redis_bloom::filter::{Geometry, Hash, LayerPlan, Shape, scale};

/// The positions of an item in its block, by the recipe of `src/filter/hash.rs`.
pub(crate) fn all_positions(hash: Hash, geometry: Geometry) -> Vec<u64> {
    let (mut x, y) = (hash.probes, hash.block.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut all = Vec::new();
    while all.len() < usize::from(geometry.probes) {
        if let Some(lines) = geometry.lines() {
            let product = u128::from(x) * u128::from(lines);
            let (line, places) = ((product >> 64) as u64, product as u64);
            all.extend([0, 9, 18, 27].map(|from| line * 512 + (places << from >> 55)));
        } else {
            all.push(scale(x, u64::from(geometry.block_words) * 64));
        }
        x = x.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(y);
    }
    all.truncate(geometry.probes.into());
    all
}

/// The positions of the first `N` probes of an item in its block.
pub(crate) fn positions<const N: usize>(hash: Hash, block_words: u16) -> [u64; N] {
    let geometry = Geometry { blocks: 2, block_words, probes: N as u8 };
    all_positions(hash, geometry).try_into().expect("N positions")
}

/// Layers set the positions above, for single items and for batches, and no others.
#[test]
fn a_layer_sets_the_positions_of_its_items() {
    for (blocks, block_words) in [(1, 8), (1, 15), (3, 8), (3, 15), (2, 64), (2, 512)] {
        for (probes, number) in (1..=128_u8).zip(0_u64..) {
            let geometry = Geometry { blocks, block_words, probes };
            let hash = Hash::of(&number.to_le_bytes(), 1);
            let shape = Shape::Blocked(geometry);
            let plan = LayerPlan { capacity: 10, items: 0, error_rate: 0.5, shape };
            let mut layer = plan.empty().expect("memory");
            assert!(layer.add(hash) && layer.contains(hash));
            let mut words = vec![0_u64; geometry.words() as usize];
            let start = scale(hash.block, blocks.into()) * u64::from(block_words) * 64;
            for at in all_positions(hash, geometry) {
                words[((start + at) / 64) as usize] |= 1 << (at % 64);
            }
            assert_eq!(layer.bits().words(), words, "{geometry:?}");
        }
    }
}

#[test]
fn the_positions_depend_on_both_halves_of_the_hash() {
    let start = Hash { block: 0x0123_4567_89AB_CDEF, probes: 0xFEDC_BA98_7654_3210 };
    // A block of whole lines, and one that is not.
    for words in [512, 511] {
        let last = |hash| positions::<12>(hash, words)[4..].to_owned();
        for bit in 0..64 {
            let (block, probes) = (start.block ^ 1 << bit, start.probes ^ 1 << bit);
            // Not the first probe group: a difference in the lowest bits does not change it.
            assert_ne!(last(start), last(Hash { block, ..start }), "bit {bit} of the block");
            assert_ne!(last(start), last(Hash { probes, ..start }), "bit {bit} of the probes");
        }
    }
}

#[test]
fn a_fraction_scales_to_all_integers_below_n_and_no_other() {
    for n in [1, 2, 3, 7, 64, 1000, 1 << 31, u64::from(u32::MAX), u64::MAX] {
        assert_eq!(scale(0, n), 0, "n = {n}");
        assert_eq!(scale(u64::MAX, n), n - 1, "n = {n}");
        // The smallest fraction that scales to `i`, and the fraction before it.
        for i in [1, 2, n / 3, n / 2, n - 1].into_iter().filter(|&i| (1..n).contains(&i)) {
            let first = ((u128::from(i) << 64).div_ceil(u128::from(n))) as u64;
            assert_eq!((scale(first, n), scale(first - 1, n)), (i, i - 1), "n = {n}");
        }
    }
}

#[test]
fn four_probes_lie_in_one_line_of_a_block_of_whole_lines() {
    for words in [8, 16, 24, 512, 4096] {
        let mut lines = std::collections::HashSet::new();
        for number in 0..10_000_u64 {
            let hash = Hash::of(&number.to_le_bytes(), 1);
            for four in positions::<15>(hash, words).chunks(4) {
                assert!(four.iter().all(|at| at / 512 == four[0] / 512), "{four:?}");
                lines.insert(four[0] / 512);
            }
        }
        // 40,000 groups in at most 512 lines leave a line empty with a chance of 512 e^-78.
        assert_eq!(lines.len(), usize::from(words) / 8, "blocks of {words} words");
    }
}

#[test]
fn each_probe_goes_anywhere_in_its_line_or_block() {
    // 4,000 items for each position on average. The chance that any of 10,304 counts deviates by 6
    // standard deviations is 2e-5.
    for words in [8_u16, 15] {
        let bits = u64::from(words) * 64;
        let mut seen = vec![[0_u32; 7]; bits as usize];
        for number in 0..bits * 4_000 {
            let hash = Hash::of(&number.to_le_bytes(), 1);
            for (probe, at) in positions::<7>(hash, words).into_iter().enumerate() {
                seen[at as usize][probe] += 1;
            }
        }
        for (at, counts) in seen.iter().enumerate() {
            for count in counts {
                let off = f64::from(*count) - 4_000.0;
                assert!(off.abs() < 6.0 * 4_000_f64.sqrt(), "position {at}: {count}");
            }
        }
    }
}
