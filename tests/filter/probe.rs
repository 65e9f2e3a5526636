//! From a hash to block and probes: nothing of it is lost on the way.

use redis_bloom::filter::{Hash, Walk, scale};

#[test]
fn a_walk_depends_on_both_halves_of_the_hash() {
    let start = Hash {
        block: 0x0123_4567_89AB_CDEF,
        probes: 0xFEDC_BA98_7654_3210,
    };
    let positions = |hash| {
        let mut walk = Walk::new(hash);
        std::array::from_fn::<u64, 12, _>(|_| walk.next(32_768))
    };
    for bit in 0..64 {
        let (block, probes) = (start.block ^ 1 << bit, start.probes ^ 1 << bit);
        let other_block = positions(Hash { block, ..start });
        let other_probes = positions(Hash { probes, ..start });
        // The last positions, where a difference in the lowest bits has come up.
        assert_ne!(positions(start)[9..], other_block[9..], "bit {bit} of the block");
        assert_ne!(
            positions(start)[9..],
            other_probes[9..],
            "bit {bit} of the probes"
        );
    }
}

#[test]
fn a_fraction_scales_to_all_integers_below_n_and_no_other() {
    for n in [1, 2, 3, 7, 64, 1000, 1 << 31, u64::from(u32::MAX), u64::MAX] {
        assert_eq!(scale(0, n), 0, "n = {n}");
        assert_eq!(scale(u64::MAX, n), n - 1, "n = {n}");
        // The first fraction of each of some integers, and the one before.
        for i in [1, 2, n / 3, n / 2, n - 1]
            .into_iter()
            .filter(|&i| (1..n).contains(&i))
        {
            let first = ((u128::from(i) << 64).div_ceil(u128::from(n))) as u64;
            assert_eq!((scale(first, n), scale(first - 1, n)), (i, i - 1), "n = {n}");
        }
    }
}
