//! The error rate of a window at its worst moment: all generations are there and full, and the next
//! addition opens another.
//!
//! The bound and its power are those of `rate.rs`: S windows under S seeds, and a mean of at most
//! 4.5 standard errors above the rate. Each row states the largest standard error that it may have,
//! relative to the rate; one of 0.43 % shows an excess of 3 %.
//!
//! Three shares are measured for each window: of items that were never added, at the worst moment
//! and after the next generation is opened; and of items whose generation was just forgotten.

use redis_bloom::filter::{Rules, Window};

use super::{check, has};
use crate::{
    rate::{ERRORS, mean},
    support::{add_at, item, last_items, params, time, window},
};

const NOW: i64 = 1_790_000_000_000;
/// T/G.
const SLOT: u64 = 1_000;

struct Row {
    rate: f64,
    /// Items of the whole window.
    capacity: u64,
    expansion: u64,
    rules: Rules,
    /// Full layers of each generation.
    layers: usize,
    seeds: u64,
    /// Queries of each window.
    queries: u64,
    precision: f64,
}

/// Adds items of set `set` at `now` until generation number `set` has so many layers, and the
/// newest of them is full.
fn fill(window: &mut Window, set: u64, now: i64, layers: usize) {
    let most = 100 * window.filter().capacity() + 1_000;
    let done = |window: &Window| {
        window.ring().generations.len() as u64 == set + 1
            && window.ring().newest().layers as usize == layers
            && window.filter().newest().is_full()
    };
    let mut number = 0;
    while !done(window) {
        add_at(window, &item(set, number), now);
        number += 1;
        assert!(number < most, "{number} items do not fill generation {set}");
    }
}

/// The share of the first items of `set` that test positive.
fn share(window: &Window, set: u64, queries: u64, now: i64) -> f64 {
    let found = (0..queries).filter(|&number| has(window, &item(set, number), now)).count();
    found as f64 / queries as f64
}

/// Measures the three shares of a window: at the worst moment, after the next shift, and of the
/// items of the generation that this one dropped.
fn measured(row: &Row, seed: u64) -> [f64; 3] {
    let seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut window = window(&params(row.rate, row.capacity, row.expansion, seed), row.rules);
    let count = u64::from(row.rules.generations) + 1;
    let at = |generation: u64| NOW + (generation * SLOT) as i64;
    for generation in 0..count {
        fill(&mut window, generation, at(generation), row.layers);
    }
    assert_eq!(window.ring().generations.len() as u64, count);
    let last = at(count) - 1;
    check(&window, last);
    let absent = u64::MAX;
    let worst = share(&window, absent, row.queries, last);
    add_at(&mut window, b"next", at(count));
    check(&window, at(count));
    let after = share(&window, absent, row.queries, at(count));
    // Items that the first generation took.
    let old = row.capacity / u64::from(row.rules.generations);
    let forgotten = share(&window, 0, old.min(row.queries), at(count));
    [worst, after, forgotten]
}

#[track_caller]
fn check_rows(title: &str, rows: &[Row]) {
    let mut table = format!("{title}\n    rate  capacity   G  worst           after   forgotten\n");
    let mut hold = true;
    for row in rows {
        let shares: Vec<[f64; 3]> = (0..row.seeds).map(|seed| measured(row, seed)).collect();
        let [worst, after, forgotten] =
            [0, 1, 2].map(|which| mean(shares.iter().map(|shares| shares[which])));
        let generations = f64::from(row.rules.generations);
        // After a shift one generation is empty.
        let rest = row.rate * generations / (generations + 1.0);
        let holds = [(worst, row.rate), (after, rest), (forgotten, row.rate)]
            .into_iter()
            .all(|((mean, error), rate)| mean <= rate + ERRORS * error)
            && worst.1 <= row.precision * row.rate;
        hold &= holds;
        table += &format!(
            "{:>8} {:>9} {:>3}  {:.3} ± {:.4}  {:.3}   {:.3}{}\n",
            row.rate,
            row.capacity,
            generations,
            worst.0 / row.rate,
            worst.1 / row.rate,
            after.0 / row.rate,
            forgotten.0 / row.rate,
            if holds { "" } else { "  FAILS" }
        );
    }
    println!("{table}");
    assert!(hold, "{table}");
}

/// Rate, seeds, queries of each window, precision.
const RATES: [(f64, u64, u64, f64); 4] = [
    (0.25, 96, 4_000, 0.004_3),
    (0.01, 64, 10_000, 0.016),
    (0.001, 64, 20_000, 0.036),
    (0.000_1, 64, 40_000, 0.07),
];

/// A row for each rate and each number of generations. `rules` returns the rules, the expansion,
/// and the layers of each generation.
fn rows(capacity: u64, generations: &[u8], rules: impl Fn(u8) -> (Rules, u64, usize)) -> Vec<Row> {
    let row = |&generations: &u8| {
        let (rules, expansion, layers) = rules(generations);
        RATES.map(|(rate, seeds, queries, precision)| Row {
            rate,
            capacity,
            expansion,
            rules,
            layers,
            seeds,
            queries,
            precision,
        })
    };
    generations.iter().flat_map(row).collect()
}

fn timed(generations: u8) -> Rules {
    time(SLOT * u64::from(generations), generations, true)
}

#[test]
fn a_window_of_items_keeps_its_rate_before_every_shift() {
    check_rows(
        "the last N items",
        &rows(2_000, &[1, 2, 4, 10], |generations| (last_items(generations, true), 0, 1)),
    );
}

#[test]
fn a_window_of_time_keeps_its_rate_when_every_generation_is_full() {
    check_rows("NONSCALING", &rows(2_000, &[1, 4, 32], |generations| (timed(generations), 0, 1)));
}

#[test]
fn a_window_of_time_keeps_its_rate_when_every_generation_grew() {
    // Each generation is made for an eighth more than the three layers of the one before it.
    check_rows("EXPANSION 1", &rows(100, &[2, 4], |generations| (timed(generations), 1, 3)));
}

#[test]
fn small_windows_keep_their_rate_on_average() {
    let small = rows(100, &[4], |generations| (timed(generations), 0, 1));
    let small = small.into_iter().take(2);
    let small = small.map(|row| Row { seeds: 500, precision: 0.02, queries: 2_000, ..row });
    check_rows("100 items", &small.collect::<Vec<_>>());
}

#[test]
fn large_windows_keep_their_rate() {
    let of = |capacity, rules, expansion| Row {
        rate: 0.01,
        capacity,
        expansion,
        rules,
        layers: 1,
        seeds: 4,
        queries: 500_000,
        precision: 0.02,
    };
    check_rows(
        "large",
        &[
            of(100_000, last_items(4, true), 0),
            of(1_000_000, last_items(4, true), 0),
            of(1_000_000, timed(4), 2),
        ],
    );
}
