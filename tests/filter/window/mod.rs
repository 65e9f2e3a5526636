//! Filters that forget: what they remember and for how long, their error rate, their copies.

mod crafted;
mod load;
mod model;
mod rate;
mod time;

use redis_bloom::filter::{
    Addition, Additions, Author, Dropped, Error, Filter, Plan, Rules, Shift, Window,
};

use crate::support::{self, Strings, params};

/// An empty window without a ceiling; an expansion of 0 makes it non-scaling.
#[track_caller]
pub(crate) fn window(error_rate: f64, capacity: u64, expansion: u64, rules: Rules) -> Window {
    support::window(&params(error_rate, capacity, expansion, 0x5EED), rules)
}

/// For each item, whether it was new and whether it changed the filter.
pub(crate) type Done = Vec<(bool, bool)>;

/// Adds items as a client does: first the shift that is due, then the items. Returns the shift,
/// what the additions did, and the error that stopped them.
pub(crate) fn add_each(
    window: &mut Window,
    items: &[Vec<u8>],
    now: i64,
) -> (Option<Shift>, Done, Result<(), Error>) {
    let mut dropped = Dropped::default();
    let (shift, turned) = window.turn(now, |_| u64::MAX, &mut dropped);
    turned.expect("memory");
    let (done, outcome) = added(window, items, Author::Client(now), &mut dropped);
    (shift, done, outcome)
}

/// Adds an item in place, if the window changes in nothing else. Returns whether it was new and
/// whether it changed the filter.
pub(crate) fn add_in_place(
    window: &mut Window,
    item: &[u8],
    author: Author,
) -> Option<(bool, bool)> {
    let hash = window.filter().hash(item);
    window.add_in_place(hash, author).map(|Addition { new, changed }| (new, changed))
}

/// Adds items; returns for each whether it was new and whether it changed the filter.
pub(crate) fn added(
    window: &mut Window,
    items: &[Vec<u8>],
    author: Author,
    dropped: &mut Dropped,
) -> (Done, Result<(), Error>) {
    let mut done = Vec::new();
    let each = items.iter().map(Vec::as_slice);
    let outcome = window.add_each(
        each,
        author,
        |_| u64::MAX,
        dropped,
        |chunk: Additions| {
            done.extend(chunk.new.each().zip(chunk.changed.each()));
        },
    );
    (done, outcome)
}

pub(crate) fn has(window: &Window, item: &[u8], now: i64) -> bool {
    window.contains(window.filter().hash(item), now)
}

/// The stored strings of the filter; equal for equal filters.
pub(crate) fn stored(window: &Window) -> Strings {
    Strings::of(window.filter())
}

/// The window that a filter is.
#[track_caller]
pub(crate) fn window_of(filter: Filter) -> Window {
    Window::try_from(filter).expect("a window")
}

/// Checks what holds at any time: the stored numbers are valid, the generations have the layers,
/// and the rates of all generations that are alive together do not exceed the rate asked for.
#[track_caller]
pub(crate) fn check(window: &Window, now: i64) {
    let filter = window.filter();
    assert_eq!(Plan::of(filter).check(), Ok(()));
    let ring = window.ring();
    let alive = window.generations().filter(|(one, _)| ring.rules.is_alive(one.start, now));
    let (mut count, mut rates) = (0, 0.0);
    for (_, layers) in alive {
        count += 1;
        rates += layers.iter().map(|layer| layer.error_rate()).sum::<f64>();
    }
    assert!(count <= usize::from(ring.rules.generations) + 1, "{count} generations are alive");
    // A sum of some hundred numbers: its rounding errors are below a hundred units of 2^-53 each.
    assert!(rates <= filter.error_rate() * (1.0 + 1e-12), "{rates} is above the rate");
}
