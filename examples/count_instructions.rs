//! Adds N items in batches of 100 and queries them, with as many that are absent. N is the only
//! argument. The difference of two runs in an emulator that counts instructions is the cost of an
//! item: `scripts/count-arm64` counts so where valgrind cannot.

use std::hint::black_box;

use redis_bloom::filter::{Expansion, Filter, Params, Plan};

/// The largest N. All runs make this many items of both sorts, so that their difference leaves that
/// out.
const MOST: usize = 3_000;

fn main() {
    let argument = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let count: usize = argument.expect("a number of items");
    assert!(count <= MOST, "at most {MOST} items");
    let params = Params {
        error_rate: 0.01,
        capacity: 100_000,
        expansion: Expansion::new(2).expect("a factor in range"),
        seed: 7,
        ..Plan::default().params()
    };
    let mut filter = Filter::new(&params, u64::MAX).expect("memory for the filter");
    let items: Vec<String> = (0..2 * MOST).map(|number| format!("item-{number:011}")).collect();
    for batch in items[..count].chunks(100) {
        let batch = batch.iter().map(String::as_bytes);
        filter.add_each(batch, |_| u64::MAX, |_| ()).expect("memory for another layer");
    }
    let mut found = 0;
    for batch in items[..2 * count].chunks(100) {
        filter.contains_each(batch.iter().map(String::as_bytes), |there| found += there.ones());
    }
    assert!(black_box(found) >= count, "an item is missing");
}
