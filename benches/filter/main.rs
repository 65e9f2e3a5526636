//! Nanoseconds per item in one process, without a server: add, hit and miss, for sizes, rates,
//! growth and item lengths.
//!
//! `cargo bench -p redis-bloom-benches --bench filter` prints criterion's report. `make bench` also
//! tabulates the results in `docs/internals/benchmarks/in-process.md`. With `-- pages` it prints
//! the table of `pages.rs`; a number after it is the largest filter, of 10,000 items and more.
//!
//! One filter serves all three measurements, because filling 100 million items takes longer than
//! querying:
//!
//! ```text
//!   fill to half ─▶ add (new items; a new filter when full) ─▶ fill to capacity ─▶ hit, miss
//! ```
//!
//! Items are made between the timed turns of 8,192 items, so neither the time nor the memory to
//! make them counts.

mod pages;
mod rivals;

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput};
use redis_bloom::filter::Filter;

use rivals::{Batched, Rival, STRANGERS, items};

/// Items in a timed turn; in small filters at most a quarter of the capacity.
const TURN: u64 = 8192;

/// A filter and its items.
struct Case {
    title: &'static str,
    /// Items of the full filter.
    capacity: u64,
    rate: f64,
    /// How many times the items that it is reserved for.
    growth: u64,
    /// Bytes of an item.
    len: usize,
}

const CASES: [Case; 13] = [
    case("1 k items at 1 %", 1_000, 0.01, 1, 16),
    case("10 k items at 1 %", 10_000, 0.01, 1, 16),
    case("10 k items at 0.1 %", 10_000, 0.001, 1, 16),
    case("1 M items at 1 %", 1_000_000, 0.01, 1, 16),
    case("1 M items at 0.1 %", 1_000_000, 0.001, 1, 16),
    case("100 M items at 1 %", 100_000_000, 0.01, 1, 16),
    case("100 M items at 0.1 %", 100_000_000, 0.001, 1, 16),
    case("10 M items at 0.01 %", 10_000_000, 0.000_1, 1, 16),
    case("3 M items at 1 %, reserved for 1 M", 3_000_000, 0.01, 3, 16),
    case("1 M items at 1 %, reserved for 4 k", 1_000_000, 0.01, 255, 16),
    case("1 M items at 1 %, 8 bytes each", 1_000_000, 0.01, 1, 8),
    case("1 M items at 1 %, 100 bytes each", 1_000_000, 0.01, 1, 100),
    case("1 M items at 1 %, 1000 bytes each", 1_000_000, 0.01, 1, 1000),
];

const fn case(title: &'static str, capacity: u64, rate: f64, growth: u64, len: usize) -> Case {
    Case { title, capacity, rate, growth, len }
}

impl Case {
    fn filter<R: Rival>(&self) -> R {
        R::new(self.capacity.div_ceil(self.growth), self.rate)
    }

    /// Items in a timed turn.
    fn turn(&self) -> u64 {
        TURN.min(self.capacity / 4)
    }

    /// Adds the members `from..to`.
    fn fill<R: Rival>(&self, filter: &mut R, from: u64, to: u64) {
        let mut buffer = Vec::new();
        for start in (from..to).step_by(TURN as usize) {
            items(start..to.min(start + TURN), self.len, &mut buffer);
            filter.add_all(&buffer, self.len);
        }
    }
}

fn measure<R: Rival>(criterion: &mut Criterion, case: &Case) {
    let (half, len) = (case.capacity / 2, case.len);
    let mut filter: R = case.filter();
    case.fill(&mut filter, 0, half);
    let mut members = half;
    let mut group = criterion.benchmark_group(case.title);
    group.throughput(Throughput::Elements(1));
    group.bench_function(format!("add/{}", R::NAME), |bencher| {
        bencher.iter_custom(|count| {
            timed(count, case.turn(), |take, buffer| {
                if members + take > case.capacity {
                    filter = case.filter();
                    case.fill(&mut filter, 0, half);
                    members = half;
                }
                items(members..members + take, len, buffer);
                members += take;
                let begin = Instant::now();
                black_box(filter.add_all(black_box(buffer), len));
                begin.elapsed()
            })
        });
    });
    case.fill(&mut filter, members, case.capacity);
    for (name, first, below) in [("hit", 0, case.capacity), ("miss", STRANGERS, 1 << 40)] {
        let mut next = 0_u64;
        group.bench_function(format!("{name}/{}", R::NAME), |bencher| {
            bencher.iter_custom(|count| {
                timed(count, case.turn(), |take, buffer| {
                    // Scattered: in the order of addition the hardware prefetcher would predict the
                    // addresses.
                    let numbers = (next..next + take)
                        .map(|i| first + i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % below);
                    items(numbers, len, buffer);
                    next += take;
                    let begin = Instant::now();
                    let found = black_box(filter.count(black_box(buffer), len));
                    let elapsed = begin.elapsed();
                    assert!(
                        name == "miss" || found as u64 == take,
                        "{}: a member is not found",
                        R::NAME
                    );
                    elapsed
                })
            });
        });
    }
    group.finish();
}

/// Times `count` items in turns of at most `most` items. `turn` makes the items and returns the
/// time of the measured part.
fn timed(count: u64, most: u64, mut turn: impl FnMut(u64, &mut Vec<u8>) -> Duration) -> Duration {
    let mut buffer = Vec::new();
    let (mut left, mut time) = (count, Duration::ZERO);
    while left > 0 {
        let take = left.min(most);
        time += turn(take, &mut buffer);
        left -= take;
    }
    time
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("pages") {
        let most = arguments.find_map(|most| most.parse().ok());
        return pages::run(most.unwrap_or(u64::MAX));
    }
    let mut criterion = Criterion::default()
        .configure_from_args()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(300));
    for case in &CASES {
        measure::<Filter>(&mut criterion, case);
        measure::<Batched>(&mut criterion, case);
        if case.growth == 1 {
            measure::<fastbloom::BloomFilter>(&mut criterion, case);
            measure::<bloomfilter::Bloom<[u8]>>(&mut criterion, case);
        }
    }
    criterion.final_summary();
}
