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

/// Filters that were passed to the server, and those of them that were freed.
static FILTERS: [Counter; 2] = [Counter::new(), Counter::new()];

/// Numbers of filters that are summed, modulo 2^64. Only forged counts exceed 2^64; the sums are
/// correct again once the forged filters are freed.
const BYTES: usize = 0;
const ITEMS: usize = 1;
const CAPACITY: usize = 2;
const LAYERS: usize = 3;
const WINDOWS: usize = 4;

/// Sums over all filters ever made, with their current numbers, or those when they were freed.
static MADE: [Counter; 5] = [const { Counter::new() }; 5];
/// Sums over all freed filters.
static FREED: [Counter; 5] = [const { Counter::new() }; 5];

/// What a filter adds to the sums.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share([u64; 5]);

/// A time at which every generation that a window has is alive.
pub(crate) const BEFORE_ALL: i64 = i64::MIN;

impl Share {
    /// That of a filter of layers. Its own sums saturate, so these are sums over layers.
    pub(crate) fn of_layers(filter: &Filter) -> Self {
        let sum =
            |number: fn(&Layer) -> u64| filter.layers().map(number).fold(0, u64::wrapping_add);
        let layers = filter.layers().len() as u64;
        Self([filter.bytes(), sum(Layer::counted), sum(Layer::capacity), layers, 0])
    }

    /// That of a filter of pages: the layers are those of [`Paged::stack`].
    pub(crate) fn of_pages(paged: &Paged) -> Self {
        let items = paged.items(BEFORE_ALL);
        let (layers, capacity) = paged.stack(items);
        Self([paged.bytes(), items, capacity, layers, paged.window().is_some().into()])
    }

    /// That of a filter that BF.LOADCHUNK is filling, as far as chunks change it.
    pub(crate) fn of_part(load: &Load) -> Self {
        let items = match load {
            Load::Layers(load) => load.filter().newest().counted(),
            Load::Pages(_) => 0,
        };
        Self([load.bytes(), items, 0, 0, 0])
    }

    /// Counts the change of a filter that became larger. Returns the layers that it has more, which
    /// it counts as added to full ones.
    pub(crate) fn grew(self, after: Self) -> u64 {
        self.changed(after);
        let layers = after.0[LAYERS].saturating_sub(self.0[LAYERS]);
        SCALED.add(layers);
        layers
    }

    /// Counts the change of a filter.
    pub(crate) fn changed(self, after: Self) {
        for ((made, before), after) in MADE.iter().zip(&self.0).zip(&after.0) {
            made.add(after.wrapping_sub(*before));
        }
    }
}

/// Counts a filter that was passed to the server.
pub(crate) fn made(share: Share) {
    FILTERS[0].add(1);
    Share::default().changed(share);
}

/// Counts a filter that is about to be freed. Any thread may call this.
pub(crate) fn freed(share: Share) {
    FILTERS[1].add_shared(1);
    for (freed, number) in FREED.iter().zip(share.0) {
        freed.add_shared(number);
    }
}

/// Counts items that were added to a filter.
#[inline]
pub(crate) fn added(items: u64) {
    MADE[ITEMS].add(items);
}

/// Counts the newest `layers` layers of a filter, which were just added to it.
#[cold]
pub(crate) fn scaled(filter: &Filter, layers: usize) {
    SCALED.add(layers as u64);
    MADE[LAYERS].add(layers as u64);
    for layer in filter.layers().rev().take(layers) {
        MADE[CAPACITY].add(layer.capacity());
        let boxed = Layer::boxed_bytes(layer.shape());
        MADE[BYTES].add((size_of_val(layer.bits().words()) + size_of::<Layer>() + boxed) as u64);
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

const OWN: [Field; 22] = [
    (c"filters", || difference(&FILTERS[0], &FILTERS[1])),
    (c"bytes", || difference(&MADE[BYTES], &FREED[BYTES])),
    (c"items", || difference(&MADE[ITEMS], &FREED[ITEMS])),
    (c"capacity", || difference(&MADE[CAPACITY], &FREED[CAPACITY])),
    (c"layers", || difference(&MADE[LAYERS], &FREED[LAYERS])),
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
    (c"windows", || difference(&MADE[WINDOWS], &FREED[WINDOWS])),
    (c"shifts", || SHIFTS.get()),
    (c"forgotten", || FORGOTTEN.get()),
];

const VALKEYS: [Field; 5] = [
    (c"bloom_total_memory_bytes", || difference(&MADE[BYTES], &FREED[BYTES])),
    (c"bloom_num_objects", || difference(&FILTERS[0], &FILTERS[1])),
    (c"bloom_num_filters_across_objects", || difference(&MADE[LAYERS], &FREED[LAYERS])),
    (c"bloom_num_items_across_objects", || difference(&MADE[ITEMS], &FREED[ITEMS])),
    (c"bloom_capacity_across_objects", || difference(&MADE[CAPACITY], &FREED[CAPACITY])),
];

const DEFRAG: [Field; 2] = [
    (c"bloom_defrag_hits", || DEFRAG_HITS.get()),
    (c"bloom_defrag_misses", || DEFRAG_MISSES.get()),
];

fn difference(made: &Counter, freed: &Counter) -> u64 {
    // Only the main thread makes filters, and it runs this, so none is made between the two reads.
    made.get().wrapping_sub(freed.get())
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
