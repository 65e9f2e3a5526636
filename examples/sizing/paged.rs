//! Measurements and tables of filters of pages: those that grow, count, or forget.

use redis_bloom::filter::{Author, Expansion, Params, Rules, Span, paged::Paged};

use crate::{
    measure::{Set, filter, full, size},
    tables::{item_text, rate_text, table},
};

/// The first moment of a simulation, in milliseconds since 1970.
pub(crate) const BEGIN: i64 = 1_790_000_000_000;
/// Milliseconds of a day.
pub(crate) const DAY: u64 = 24 * 60 * 60 * 1_000;

/// The capacity of a filter that was not reserved.
const DEFAULT: u64 = 100;

/// A filter of pages, and what was added to it.
pub(crate) struct Stream {
    pub(crate) filter: Paged,
    /// How many distinct items were added.
    pub(crate) added: u64,
}

impl Stream {
    /// An empty filter; an expansion of 0 is NONSCALING.
    pub(crate) fn new(
        rate: f64,
        capacity: u64,
        expansion: u64,
        counts: bool,
        rules: Option<Rules>,
    ) -> Self {
        let params = params(rate, capacity, expansion, counts);
        let filter = Paged::new(&params, rules, u64::MAX).expect("memory for a filter");
        Self { filter, added: 0 }
    }

    /// A filter that was not reserved.
    pub(crate) fn growing(rate: f64) -> Self {
        Self::new(rate, DEFAULT, 2, false, None)
    }

    /// A filter that was reserved for `capacity` items, and has just become full.
    pub(crate) fn overflowing(rate: f64, capacity: u64) -> Self {
        let filling = full(rate, capacity, 2, 0);
        let base = filling.filter.newest().duplicate().expect("memory for a layer");
        let params = Params { seed: filling.filter.seed(), ..params(rate, capacity, 2, false) };
        let filter = Paged::above(|| base, &params).expect("a full layer");
        Self { filter, added: filling.distinct }
    }

    /// A window of which each generation takes a second, or an equal part of the items.
    fn window(rate: f64, capacity: u64, expansion: u64, items: bool, generations: u8) -> Self {
        let span = if items { Span::Items } else { Span::Time(u64::from(generations) * SECOND) };
        let rules = Rules { span, generations, refresh: true };
        Self::new(rate, capacity, expansion, false, Some(rules))
    }

    /// Adds `count` new items at `now`, as a client does.
    pub(crate) fn add(&mut self, count: u64, now: i64) {
        self.add_items(self.added..self.added + count, now);
        self.added += count;
    }

    /// Adds items that may have been added before.
    fn add_items(&mut self, numbers: std::ops::Range<u64>, now: i64) {
        for batch in Set::Added.batches(numbers) {
            self.filter.turn(now);
            let items = batch.iter().map(<[u8; 16]>::as_slice);
            let outcome = self.filter.add_each(items, Author::Client(now), |_| u64::MAX, |_| {});
            outcome.expect("room for an item");
        }
    }

    /// Adds new items until the filter counts `items`.
    pub(crate) fn up_to(&mut self, items: u64) {
        while self.filter.items(0) < items {
            self.add(items - self.filter.items(0), 0);
        }
    }

    /// Bits of memory by items.
    pub(crate) fn bits(&self) -> f64 {
        self.filter.bytes() as f64 * 8.0 / self.filter.items(0) as f64
    }

    /// The share of the absent items with these numbers that test positive.
    pub(crate) fn wrong(&self, numbers: std::ops::Range<u64>) -> f64 {
        let queries = (numbers.end - numbers.start) as f64;
        let mut wrong = 0;
        for batch in Set::Absent.batches(numbers) {
            let items = batch.iter().map(<[u8; 16]>::as_slice);
            self.filter.contains_each(items, 0, |found| wrong += found.ones());
        }
        wrong as f64 / queries
    }
}

fn params(rate: f64, capacity: u64, expansion: u64, counts: bool) -> Params {
    Params {
        error_rate: rate,
        capacity,
        expansion: Expansion::new(expansion).expect("a small expansion"),
        seed: 0x9E37_79B9_7F4A_7C15,
        counts,
        shard: None,
    }
}

/// Bits an item of RedisBloom's layers, by its formula, for a filter reserved for `capacity`.
pub(crate) fn redisbloom_stack(rate: f64, capacity: u64, items: u64) -> f64 {
    let (mut bits, mut held, mut layer) = (0.0, 0, capacity);
    for index in 0.. {
        bits += crate::measure::redisbloom(rate, index, true) * layer as f64;
        held += layer;
        if held >= items {
            break;
        }
        layer *= 2;
    }
    bits / items as f64
}

fn one_decimal(bits: f64) -> String {
    format!("{bits:.1}")
}

/// Bits an item of filters that were not reserved.
pub(crate) fn growing() -> String {
    const RATES: [f64; 2] = [0.01, 0.001];
    const MOST: u64 = 10_000_000;
    let sizes: Vec<_> = (1..=7).map(|power| 10_u64.pow(power)).collect();
    let mut rows: Vec<_> = sizes.iter().map(|&items| vec![item_text(items)]).collect();
    for rate in RATES {
        let mut stream = Stream::growing(rate);
        for (row, &items) in rows.iter_mut().zip(&sizes) {
            stream.up_to(items);
            let here = stream.bits();
            let mut most = here;
            // In steps of a quarter of a percent, or of one item.
            while items < MOST && stream.filter.items(0) < items * 10 {
                let now = stream.filter.items(0);
                stream.up_to((now + now.div_ceil(400)).min(items * 10));
                most = most.max(stream.bits());
            }
            let most = if items < MOST { one_decimal(most) } else { "-".to_owned() };
            row.extend([
                one_decimal(here),
                most,
                if items > DEFAULT {
                    one_decimal(size(rate, items, true) as f64 * 8.0 / items as f64)
                } else {
                    "-".to_owned()
                },
                one_decimal(redisbloom_stack(rate, DEFAULT, items)),
            ]);
        }
    }
    table(
        &[
            "items",
            "1 %",
            "most below the next row",
            "reserved",
            "RedisBloom",
            "0.1 %",
            "most below the next row",
            "reserved",
            "RedisBloom",
        ],
        rows,
    )
}

/// Bits an item of filters that hold more items than they were reserved for.
pub(crate) fn overflow() -> String {
    const RESERVED: u64 = 100_000;
    let shares = [100, 101, 110, 150, 200, 400, 1_000, 10_000];
    let mut rows: Vec<_> = shares.map(|share| vec![item_text(RESERVED / 100 * share)]).to_vec();
    for rate in [0.01, 0.001] {
        let (mut above, mut growing) = (Stream::overflowing(rate, RESERVED), Stream::growing(rate));
        for (row, share) in rows.iter_mut().zip(shares) {
            let items = RESERVED / 100 * share;
            above.up_to(items);
            growing.up_to(items);
            // A filter that is just full has no pages yet.
            let bits = if items == RESERVED {
                filter(rate, RESERVED, 2, 0).bytes() as f64 * 8.0 / items as f64
            } else {
                above.bits()
            };
            row.extend(
                [bits, growing.bits(), redisbloom_stack(rate, RESERVED, items)].map(one_decimal),
            );
        }
    }
    table(
        &["items", "1 %", "not reserved", "RedisBloom", "0.1 %", "not reserved", "RedisBloom"],
        rows,
    )
}

/// Bits an item of full counting filters.
pub(crate) fn counting() -> String {
    let row = |(items, rate)| {
        let bits = |capacity, expansion| {
            let mut stream = Stream::new(rate, capacity, expansion, true, None);
            stream.up_to(items);
            one_decimal(stream.bits())
        };
        vec![
            item_text(items),
            rate_text(rate),
            bits(items, 0),
            bits(items, 2),
            bits(DEFAULT, 2),
            one_decimal(size(rate, items, true) as f64 * 8.0 / items as f64),
        ]
    };
    let sizes = [1_000, 10_000, 100_000, 1_000_000];
    let shapes = sizes.into_iter().flat_map(|items| [0.01, 0.001, 1e-6].map(|rate| (items, rate)));
    table(
        &["items", "rate", "NONSCALING", "reserved", "not reserved", "without counts, reserved"],
        shapes.map(row),
    )
}

/// Milliseconds of a generation in the table of windows.
const SECOND: u64 = 1_000;

/// The most bits an item of the window while it is in use: of items that come once, and of as many
/// that come in every generation.
pub(crate) fn windows() -> String {
    const ITEMS: u64 = 200_000;
    let row = |generations: u8| {
        let parts = u64::from(generations);
        let most = |rate, expansion, items, returning| {
            let mut stream = Stream::window(rate, ITEMS, expansion, items, generations);
            let mut most = 0;
            // Three windows: in the first one, the filter fills.
            for part in 0..3 * parts {
                let now = BEGIN + (part * SECOND) as i64;
                if returning {
                    stream.add_items(0..ITEMS, now);
                } else {
                    stream.add(ITEMS / parts, now);
                }
                most = most.max(stream.filter.bytes());
            }
            one_decimal(most as f64 * 8.0 / ITEMS as f64)
        };
        let cells = [0.01, 0.001].into_iter().flat_map(|rate| {
            [
                most(rate, 2, false, true),
                most(rate, 2, false, false),
                most(rate, 0, false, true),
                most(rate, 0, true, false),
            ]
        });
        std::iter::once(generations.to_string()).chain(cells).collect()
    };
    table(
        &[
            "GENERATIONS",
            "1 %, items that return",
            "that come once",
            "NONSCALING, that return",
            "COUNT",
            "0.1 %, items that return",
            "that come once",
            "NONSCALING, that return",
            "COUNT",
        ],
        [1, 2, 4, 8, 16, 32].map(row),
    )
}
