//! The module's sections of INFO: counters since the start, and totals over all filters.
//!
//! A total is the difference of two sums: one over filters made, one over filters freed. Background
//! threads free filters too; only the main thread makes and changes them. So the second sum needs
//! atomic additions, and the first, on the hot path, only a load and a store.

use std::{
    ffi::{CStr, c_char, c_int},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use super::{
    api::{call, raw},
    huge_pages,
    panic_guard::guarded,
};
use crate::{
    codec::native::kinds::Load,
    filter::{Filter, Layer, paged::Paged},
};

/// A sum modulo 2^64.
pub(crate) struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `count`. Only the main thread may call this.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    /// The number now.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds `count`. Any thread may call this, if no thread calls [`Counter::add`].
    fn add_shared(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }
}

/// Items that commands tried to add.
pub(crate) static ADDS: Counter = Counter::new();
/// Items that commands tried to delete.
pub(crate) static DELETES: Counter = Counter::new();
/// Items that commands tried to delete, that tested present and were not deleted.
pub(crate) static UNDELETED: Counter = Counter::new();
/// Items that commands queried.
pub(crate) static CHECKS: Counter = Counter::new();
/// Items that commands queried and that tested present.
pub(crate) static POSITIVES: Counter = Counter::new();
/// Filters that were read from RDB or RESTORE, completed by BF.LOADCHUNK, or made by BF.LOAD or
/// BF.IMPORT.
pub(crate) static LOADS: Counter = Counter::new();
/// Queries and deletions of a missing key.
pub(crate) static MISSING: Counter = Counter::new();
/// Refusals to create a filter, to add a layer, or to add to a full non-scaling filter.
pub(crate) static REFUSED: Counter = Counter::new();
/// Refusals to add a layer.
pub(crate) static REFUSED_GROWTH: Counter = Counter::new();
/// Refusals to add to a full non-scaling filter.
pub(crate) static REFUSED_FULL: Counter = Counter::new();
/// Commands of clients that stopped at an item of another shard, or named another shard than the
/// filter is.
pub(crate) static MISROUTED: Counter = Counter::new();
/// Commands from a primary, an AOF or a slot migration that could not be applied.
pub(crate) static UNAPPLIED: Counter = Counter::new();
/// Layers that were added to full filters.
static SCALED: Counter = Counter::new();
/// Generations that were begun in filters with a window: opened, or empty and started anew.
pub(crate) static SHIFTS: Counter = Counter::new();
/// Generations that were given back.
pub(crate) static FORGOTTEN: Counter = Counter::new();
/// Non-scaling filters that became full.
pub(crate) static FILLED: Counter = Counter::new();

/// Allocations that active defragmentation moved.
pub(crate) static DEFRAG_HITS: Counter = Counter::new();
/// Allocations that active defragmentation was offered and left in place.
pub(crate) static DEFRAG_MISSES: Counter = Counter::new();

/// Sums over filters, modulo 2^64. Only forged counts exceed 2^64; the sums are correct again once
/// the forged filters are freed.
struct Totals {
    filters: Counter,
    bytes: Counter,
    items: Counter,
    capacity: Counter,
    layers: Counter,
    windows: Counter,
}

impl Totals {
    const fn new() -> Self {
        Self {
            filters: Counter::new(),
            bytes: Counter::new(),
            items: Counter::new(),
            capacity: Counter::new(),
            layers: Counter::new(),
            windows: Counter::new(),
        }
    }
}

/// Sums over all filters ever made, with their current numbers, or those when they were freed.
static MADE: Totals = Totals::new();
/// Sums over all freed filters.
static FREED: Totals = Totals::new();

/// What a filter adds to the totals, modulo 2^64.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    bytes: u64,
    items: u64,
    capacity: u64,
    layers: u64,
    windows: u64,
}

/// A time at which every generation that a window has is alive.
pub(crate) const BEFORE_ALL: i64 = i64::MIN;

impl Share {
    /// That of a filter of layers. Its own sums saturate, so these are sums over layers.
    pub(crate) fn of_layers(filter: &Filter) -> Self {
        Self {
            bytes: filter.bytes(),
            items: items_of(filter),
            capacity: filter.layers().map(Layer::capacity).fold(0, u64::wrapping_add),
            layers: filter.layers().len() as u64,
            windows: 0,
        }
    }

    /// That of a filter of pages: the layers are those of [`Paged::stack`].
    pub(crate) fn of_pages(paged: &Paged) -> Self {
        let items = paged.items(BEFORE_ALL);
        let (layers, capacity) = paged.stack(items);
        let windows = paged.window().is_some().into();
        Self { bytes: paged.bytes(), items, capacity, layers, windows }
    }

    /// That of a filter that BF.LOADCHUNK is filling, as far as chunks change it.
    pub(crate) fn of_part(load: &Load) -> Self {
        let items = match load {
            Load::Layers(load) => load.filter().newest().counted(),
            Load::Pages(_) => 0,
        };
        Self { bytes: load.bytes(), items, ..Self::default() }
    }

    /// Counts the change of a filter that became larger. Returns the layers that it has more, which
    /// it counts as added to full ones.
    pub(crate) fn grew(self, after: Self) -> u64 {
        self.changed(after);
        let layers = after.layers.saturating_sub(self.layers);
        SCALED.add(layers);
        layers
    }

    /// Counts the change of a filter.
    pub(crate) fn changed(self, after: Self) {
        MADE.bytes.add(after.bytes.wrapping_sub(self.bytes));
        MADE.items.add(after.items.wrapping_sub(self.items));
        MADE.capacity.add(after.capacity.wrapping_sub(self.capacity));
        MADE.layers.add(after.layers.wrapping_sub(self.layers));
        MADE.windows.add(after.windows.wrapping_sub(self.windows));
    }
}

/// Counts a filter that was passed to the server.
pub(crate) fn made(share: Share) {
    MADE.filters.add(1);
    Share::default().changed(share);
}

/// Counts a filter that is about to be freed. Any thread may call this.
pub(crate) fn freed(share: Share) {
    FREED.filters.add_shared(1);
    FREED.bytes.add_shared(share.bytes);
    FREED.items.add_shared(share.items);
    FREED.capacity.add_shared(share.capacity);
    FREED.layers.add_shared(share.layers);
    FREED.windows.add_shared(share.windows);
}

/// The items of a filter of layers modulo 2^64; [`Filter::items`] saturates instead.
pub(crate) fn items_of(filter: &Filter) -> u64 {
    filter.layers().map(Layer::counted).fold(0, u64::wrapping_add)
}

/// Counts items that were added to a filter.
#[inline]
pub(crate) fn added(items: u64) {
    MADE.items.add(items);
}

/// Counts the newest `layers` layers of a filter, which were just added to it.
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

/// A name and a function that returns the value.
type Field = (&'static CStr, fn() -> u64);

/// Every section: its name and its fields, in order. A null name stands for the module's. The names
/// are stable: exporters read them.
///
/// The other two sections repeat numbers under the names of valkey-bloom, which exporters of
/// metrics know.
const SECTIONS: [(*const c_char, &[Field]); 3] = [
    (std::ptr::null(), &OWN),
    (c"bloom_core_metrics".as_ptr(), &VALKEYS),
    (c"bloom_defrag_metrics".as_ptr(), &DEFRAG),
];

const OWN: [Field; 23] = [
    (c"filters", || total(|totals| &totals.filters)),
    (c"bytes", || total(|totals| &totals.bytes)),
    (c"items", || total(|totals| &totals.items)),
    (c"capacity", || total(|totals| &totals.capacity)),
    (c"layers", || total(|totals| &totals.layers)),
    (c"adds", || ADDS.get()),
    (c"checks", || CHECKS.get()),
    (c"positives", || POSITIVES.get()),
    (c"missing", || MISSING.get()),
    (c"loads", || LOADS.get()),
    (c"refused", || REFUSED.get()),
    (c"refused_growth", || REFUSED_GROWTH.get()),
    (c"refused_full", || REFUSED_FULL.get()),
    (c"scaled", || SCALED.get()),
    (c"filled", || FILLED.get()),
    (c"deletes", || DELETES.get()),
    (c"undeleted", || UNDELETED.get()),
    (c"misrouted", || MISROUTED.get()),
    (c"unapplied", || UNAPPLIED.get()),
    (c"huge_page_bytes", huge_pages::bytes),
    (c"windows", || total(|totals| &totals.windows)),
    (c"shifts", || SHIFTS.get()),
    (c"forgotten", || FORGOTTEN.get()),
];

const VALKEYS: [Field; 5] = [
    (c"bloom_total_memory_bytes", || total(|totals| &totals.bytes)),
    (c"bloom_num_objects", || total(|totals| &totals.filters)),
    (c"bloom_num_filters_across_objects", || total(|totals| &totals.layers)),
    (c"bloom_num_items_across_objects", || total(|totals| &totals.items)),
    (c"bloom_capacity_across_objects", || total(|totals| &totals.capacity)),
];

const DEFRAG: [Field; 2] = [
    (c"bloom_defrag_hits", || DEFRAG_HITS.get()),
    (c"bloom_defrag_misses", || DEFRAG_MISSES.get()),
];

fn total(of: fn(&Totals) -> &Counter) -> u64 {
    // Only the main thread makes filters, and it runs this, so none is made between the two reads.
    of(&MADE).get().wrapping_sub(of(&FREED).get())
}

/// Fills the module's sections of INFO.
pub(super) unsafe extern "C" fn info(ctx: *mut raw::RedisModuleInfoCtx, _: c_int) {
    guarded("info", (), || {
        for (name, fields) in SECTIONS {
            let section: c_int = call!(RedisModule_InfoAddSection(ctx, name));
            // The server refuses a section that the client did not ask for.
            if section == raw::REDISMODULE_OK as c_int {
                for (name, value) in fields {
                    call!(RedisModule_InfoAddFieldULongLong(ctx, name.as_ptr(), value()));
                }
            }
        }
    });
}
