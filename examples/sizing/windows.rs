//! Measurements and the table of filters that forget.

use redis_bloom::filter::{Author, CellKind, Dropped, Expansion, Params, Rules, Span, Window};

use crate::{
    measure::Set,
    tables::{grouped, table},
};

/// The first moment of a simulation, in milliseconds since 1970.
pub(crate) const BEGIN: i64 = 1_790_000_000_000;
/// Milliseconds of a day.
pub(crate) const DAY: u64 = 24 * 60 * 60 * 1_000;

/// A window, and what was added to it: distinct items, one by one.
pub(crate) struct Stream {
    pub(crate) window: Window,
    added: u64,
}

impl Stream {
    /// An empty window of `capacity` items; an expansion of 0 is NONSCALING.
    pub(crate) fn new(
        rate: f64,
        capacity: u64,
        expansion: u64,
        span: Span,
        generations: u8,
    ) -> Self {
        let params = Params {
            error_rate: rate,
            capacity,
            expansion: Expansion::new(expansion).expect("a small expansion"),
            seed: 0x9E37_79B9_7F4A_7C15,
            cells: CellKind::Bits,
        };
        let rules = Rules { span, generations, refresh: true };
        let window = Window::new(&params, rules, u64::MAX).expect("memory for a filter");
        Self { window, added: 0 }
    }

    /// Adds `count` new items at `now`, as a client does.
    pub(crate) fn add(&mut self, count: u64, now: i64) {
        let (window, dropped) = (&mut self.window, &mut Dropped::default());
        for batch in Set::Added.batches(self.added..self.added + count) {
            let (_, outcome) = window.turn(now, |_| u64::MAX, dropped);
            outcome.expect("memory for a generation");
            let items = batch.iter().map(<[u8; 16]>::as_slice);
            let outcome =
                window.add_each(items, Author::Client(now), |_| u64::MAX, dropped, |_| {});
            outcome.expect("room for an item");
        }
        self.added += count;
    }
}

/// Bits and bytes by the number of generations, when all of them are there.
pub(crate) fn by_generations() -> String {
    const ITEMS: u64 = 1_000_000;
    let row = |generations: u8| {
        let slot = 1_000;
        let bytes = |rate, expansion, span| {
            let mut stream = Stream::new(rate, ITEMS, expansion, span, generations);
            for generation in 0..=u64::from(generations) {
                // A generation of a window of time is as large with one item as with all.
                let count = match span {
                    Span::Time(_) => 1,
                    Span::Items => ITEMS.div_ceil(generations.into()) * 101 / 100,
                };
                stream.add(count, BEGIN + (generation * slot) as i64);
            }
            assert_eq!(stream.window.ring().generations.len(), usize::from(generations) + 1);
            stream.window.filter().bytes()
        };
        let time = Span::Time(slot * u64::from(generations));
        let bits = |bytes: u64| format!("{:.1}", bytes as f64 * 8.0 / ITEMS as f64);
        let mut cells = vec![generations.to_string()];
        for rate in [0.01, 0.001] {
            let grows = bytes(rate, 2, time);
            let others = [bytes(rate, 0, time), bytes(rate, 0, Span::Items)];
            cells.extend([grouped(grows), bits(grows)]);
            cells.extend(others.map(bits));
        }
        cells
    };
    table(
        &[
            "GENERATIONS",
            "1 %",
            "bits",
            "NONSCALING",
            "COUNT",
            "0.1 %",
            "bits",
            "NONSCALING",
            "COUNT",
        ],
        [1, 2, 4, 8, 16, 32].map(row),
    )
}
