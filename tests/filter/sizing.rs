//! The sizing function: it is defined for all arguments, deterministic, and (nearly) monotonic.

use std::{
    f64::consts::LN_2,
    hint::black_box,
    time::{Duration, Instant},
};

use redis_bloom::filter::{Geometry, MAX_PROBES, geometry};

/// Just above zero to just below one.
const RATES: [f64; 24] = [
    5e-324,
    f64::MIN_POSITIVE,
    1e-300,
    1e-31,
    1e-30,
    1e-29,
    1e-20,
    1e-15,
    1e-12,
    1e-9,
    1e-7,
    1e-6,
    1e-5,
    1e-4,
    0.001,
    0.01,
    0.05,
    0.1,
    0.25,
    0.5,
    0.75,
    0.9,
    0.999_999,
    1.0 - f64::EPSILON / 2.0,
];

/// Powers of two and their neighbours.
fn capacities() -> impl Iterator<Item = u64> {
    (0..=62)
        .flat_map(|i| [(1_u64 << i) - 1, 1 << i, (1 << i) + 1])
        .filter(|capacity| (1..=1 << 62).contains(capacity))
}

/// The least bits that a Bloom filter needs. Rates under 1e-30 are sized as 1e-30.
fn least_bits(capacity: u64, rate: f64) -> f64 {
    -rate.max(1e-30).ln() / (LN_2 * LN_2) * capacity as f64
}

#[test]
fn every_geometry_is_large_enough() {
    for rate in RATES {
        let mut given = true;
        for capacity in capacities() {
            let least = least_bits(capacity, rate);
            let Some(shape) = geometry(capacity, rate) else {
                // The longest blocks, 2^32 - 1 of them, have 2^50 bits. Above 10 %, 8 bits are
                // enough for any item, including the uncounted ones.
                let enough = if rate > 0.1 { 8.0 * capacity as f64 } else { 1.07 * least };
                assert!(
                    enough > 2f64.powi(50),
                    "{capacity} items at {rate}: none, and {enough} bits are enough"
                );
                given = false;
                continue;
            };
            assert!(given, "{capacity} items at {rate}: {shape:?}, but fewer items have none");
            let Geometry { blocks, block_words, probes } = shape;
            assert!(
                blocks > 0 && block_words > 0 && probes > 0,
                "{capacity} items at {rate}: {shape:?}"
            );
            assert!(probes <= MAX_PROBES, "{capacity} items at {rate}: {shape:?}");
            let bits = shape.words() as f64 * 64.0;
            assert!(
                bits >= least,
                "{capacity} items at {rate}: {shape:?} has {bits} of {least} bits"
            );
        }
    }
}

#[test]
fn there_is_a_geometry_for_everything_below_2_to_the_50_bits() {
    for rate in RATES.into_iter().filter(|&rate| rate <= 0.1) {
        // The sizing may use 1.06 times the optimum, and a few bits of rounding.
        let capacity = 2f64.powi(50) / (1.07 * least_bits(1, rate));
        for share in [1.0, 0.9, 0.5, 0.1, 0.01] {
            let capacity = (capacity * share) as u64;
            assert!(geometry(capacity, rate).is_some(), "{capacity} items at {rate}");
        }
    }
}

#[test]
fn a_filter_beyond_2_to_the_50_bits_has_no_geometry() {
    // A geometry with too few bits would silently exceed the requested rate.
    for (capacity, rate) in [
        (1 << 46, 1e-6),
        (1 << 47, 0.01),
        (1 << 50, 0.5),
        (1 << 60, 1e-300),
        (1 << 62, 0.01),
        (1 << 62, 1.0 - f64::EPSILON / 2.0),
        (u64::MAX, 5e-324),
    ] {
        assert_eq!(geometry(capacity, rate), None, "{capacity} items at {rate}");
    }
}

#[test]
fn more_items_never_take_noticeably_fewer_words() {
    // "Noticeably": block size and number of probes are integers. Where one of them steps, a filter
    // for one item more can be a little smaller, by at most 4.2 % (2,381 items at 0.1 %).
    const STEP: f64 = 0.958;
    for rate in RATES.into_iter().chain([0.2, 0.3, 0.075, 0.02, 0.0075, 0.003, 0.0003]) {
        let mut before = (0, 0);
        // Every capacity up to 6,000, then steps of 0.5 %.
        let every = (1..6_000).chain((0..2_500).map(|i| (6_000.0 * 1.005_f64.powi(i)) as u64));
        for capacity in every {
            let words = geometry(capacity, rate).map_or(0, |shape| shape.words());
            assert!(
                words as f64 >= STEP * before.1 as f64,
                "at {rate} {capacity} items take {words} words, {} items take {}",
                before.0,
                before.1
            );
            before = (capacity, words);
        }
    }
}

#[test]
fn a_lower_rate_never_takes_noticeably_fewer_words() {
    // Block size and number of probes are integers, so the size may step back by 4 % and one word:
    // 100 items take five words at 38.9 % with one probe, four at 38 % with two.
    for capacity in [1, 10, 100, 1_000, 10_000, 1_000_000, 10_000_000_000] {
        let mut before = (1.0, 0);
        for i in 1..3_000 {
            let rate = 10f64.powf(-f64::from(i) / 100.0);
            let words = geometry(capacity, rate).expect("some terabytes at most").words();
            assert!(
                (words + 1) as f64 >= 0.96 * before.1 as f64,
                "{capacity} items at {rate} take {words} words, at {} {}",
                before.0,
                before.1
            );
            before = (rate, words);
        }
    }
}

#[test]
fn equal_arguments_have_equal_geometries() {
    // Also on several threads: the result depends on no cache and no rounding mode.
    let all = || -> Vec<_> {
        RATES
            .into_iter()
            .flat_map(|rate| capacities().map(move |capacity| geometry(capacity, rate)))
            .collect()
    };
    let here = all();
    let there = std::thread::spawn(all).join().expect("no panic");
    assert_eq!(here, there);
}

#[test]
fn sizing_takes_microseconds_for_all_arguments() {
    // The bound detects hangs. The time is printed, because it depends on the machine.
    const HANG: Duration = Duration::from_millis(100);
    let mut table = String::from("microseconds of one sizing call, the best of 9\n    rate");
    let columns = [1, 100, 10_000, 1_000_000, 10_000_000_000, 1 << 48, 1 << 62];
    for capacity in columns {
        table.push_str(&format!("{:>12}", format!("{:.0e}", capacity as f64)));
    }
    for rate in RATES {
        table.push_str(&format!("\n{rate:>8.0e}"));
        for capacity in columns {
            let call = || {
                let start = Instant::now();
                black_box(geometry(black_box(capacity), black_box(rate)));
                start.elapsed()
            };
            let best = (0..9).map(|_| call()).min().expect("nine calls");
            assert!(best < HANG, "{capacity} items at {rate}: {best:?}");
            table.push_str(&format!("{:>12.1}", best.as_secs_f64() * 1e6));
        }
    }
    println!("{table}");
}
