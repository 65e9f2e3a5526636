//! What INFO shows of the module: counters since the start, and totals over all filters.
//!
//! A total grows where a value is handed to the server or changes, and shrinks where one is freed.
//! Freeing happens in background threads too, everything else in the server's main thread alone; so
//! what is freed is counted apart, with atomic additions, and the hot path gets by with a load and
//! a store.

use std::{
    ffi::{CStr, c_int},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{
    api::{call, raw},
    panic_guard::guarded,
};
use crate::filter::{Filter, Layer};

/// A number that the main thread alone adds to.
pub(crate) struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds; from the main thread only.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// The number now.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds, from any thread.
    fn add_shared(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }
}

/// Items that commands tried to add.
pub(crate) static ADDS: Counter = Counter::new();
/// Items that commands tried to delete.
pub(crate) static DELETES: Counter = Counter::new();
/// Those of them that tested present and were not deleted.
pub(crate) static UNDELETED: Counter = Counter::new();
/// Items that commands asked for.
pub(crate) static CHECKS: Counter = Counter::new();
/// Those of them that a filter answered "probably there" for.
pub(crate) static POSITIVES: Counter = Counter::new();
/// Filters that were read from RDB or RESTORE, or completed by BF.LOADCHUNK.
pub(crate) static LOADS: Counter = Counter::new();
/// Commands that were refused a filter, a layer, or room in a full non-scaling filter.
pub(crate) static REFUSED: Counter = Counter::new();
/// Commands of a primary, an AOF or a slot migration that could not be applied here.
pub(crate) static UNAPPLIED: Counter = Counter::new();
/// Layers that full filters were given.
static SCALED: Counter = Counter::new();
/// Non-scaling filters that became full.
pub(crate) static FILLED: Counter = Counter::new();

/// Sums over filters, modulo 2^64. Only forged counts pass that, and the sums are right again when
/// the filters with them are gone.
struct Totals {
    filters: Counter,
    bytes: Counter,
    items: Counter,
    capacity: Counter,
    layers: Counter,
}

impl Totals {
    const fn new() -> Self {
        Self {
            filters: Counter::new(),
            bytes: Counter::new(),
            items: Counter::new(),
            capacity: Counter::new(),
            layers: Counter::new(),
        }
    }
}

/// All filters that were ever made: what they have, or had when they were freed.
static MADE: Totals = Totals::new();
/// All filters that were freed.
static FREED: Totals = Totals::new();

/// A filter was handed to the server.
pub(crate) fn made(filter: &Filter) {
    MADE.filters.add(1);
    MADE.bytes.add(filter.bytes());
    MADE.layers.add(filter.layers().len() as u64);
    // Layer by layer: the filter's own sums stay at the end of `u64`.
    for layer in filter.layers() {
        MADE.items.add(layer.items());
        MADE.capacity.add(layer.capacity());
    }
}

/// A filter is about to be freed, in any thread.
pub(crate) fn freed(filter: &Filter) {
    FREED.filters.add_shared(1);
    FREED.bytes.add_shared(filter.bytes());
    FREED.layers.add_shared(filter.layers().len() as u64);
    for layer in filter.layers() {
        FREED.items.add_shared(layer.items());
        FREED.capacity.add_shared(layer.capacity());
    }
}

/// The items of a filter modulo 2^64: [`Filter::items`] stays at the end of `u64`.
pub(crate) fn items_of(filter: &Filter) -> u64 {
    filter.layers().map(Layer::items).fold(0, u64::wrapping_add)
}

/// The items of a filter of the server changed ([`items_of`]): fewer by a deletion, and at times one
/// more, when the counters get more of a say (`filter/layer/counting/fullness.rs`).
pub(crate) fn changed(before: u64, after: u64) {
    MADE.items.add(after.wrapping_sub(before));
}

/// Items were added to a filter of the server.
#[inline]
pub(crate) fn added(items: u64) {
    MADE.items.add(items);
}

/// A filter of the server was given its newest `layers` layers.
#[cold]
pub(crate) fn scaled(filter: &Filter, layers: usize) {
    SCALED.add(layers as u64);
    MADE.layers.add(layers as u64);
    for layer in filter.layers().rev().take(layers) {
        MADE.capacity.add(layer.capacity());
        let boxed = layer.boxed().map_or(0, |(_, size)| size);
        MADE.bytes.add((size_of_val(layer.bits().words()) + size_of::<Layer>() + boxed) as u64);
    }
}

/// A filter of the server that BF.LOADCHUNK is filling was given room for more bytes of bits.
pub(crate) fn given_room(bytes: u64) {
    MADE.bytes.add(bytes);
}

/// A name and how to get its value.
type Field = (&'static CStr, fn() -> u64);

/// Every field of the section, in order. The names are an interface: exporters read them.
const FIELDS: [Field; 15] = [
    (c"filters", || total(|totals| &totals.filters)),
    (c"bytes", || total(|totals| &totals.bytes)),
    (c"items", || total(|totals| &totals.items)),
    (c"capacity", || total(|totals| &totals.capacity)),
    (c"layers", || total(|totals| &totals.layers)),
    (c"adds", || ADDS.0.load(Relaxed)),
    (c"checks", || CHECKS.0.load(Relaxed)),
    (c"positives", || POSITIVES.0.load(Relaxed)),
    (c"loads", || LOADS.0.load(Relaxed)),
    (c"refused", || REFUSED.0.load(Relaxed)),
    (c"scaled", || SCALED.0.load(Relaxed)),
    (c"filled", || FILLED.0.load(Relaxed)),
    (c"deletes", || DELETES.0.load(Relaxed)),
    (c"undeleted", || UNDELETED.0.load(Relaxed)),
    (c"unapplied", || UNAPPLIED.0.load(Relaxed)),
];

fn total(of: fn(&Totals) -> &Counter) -> u64 {
    // A filter made between the two reads cannot be freed in between: it is the main thread that
    // reads.
    of(&MADE).0.load(Relaxed).wrapping_sub(of(&FREED).0.load(Relaxed))
}

/// Fills the section `bf` of INFO.
pub(super) unsafe extern "C" fn info(ctx: *mut raw::RedisModuleInfoCtx, _: c_int) {
    guarded("info", (), || {
        let section: c_int = call!(RedisModule_InfoAddSection(ctx, std::ptr::null()));
        if section == raw::REDISMODULE_OK as c_int {
            for (name, value) in FIELDS {
                call!(RedisModule_InfoAddFieldULongLong(ctx, name.as_ptr(), value()));
            }
        }
    });
}
