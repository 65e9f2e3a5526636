//! The module's section of INFO: counters since the start, and totals over all filters.
//!
//! A total is the difference of two sums: over filters made, and over filters freed. Background
//! threads free filters, too, so that sum needs atomic additions. Only the main thread adds to all
//! other numbers, by a load and a store, which take less time.

use std::{
    ffi::c_int,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use redis_module::raw::{self, Status, add_info_field_unsigned_long_long, add_info_section};

use super::guarded;
use crate::{
    codec::native::Load,
    filter::{Filter, Layer, paged::Paged},
};

/// A sum modulo 2^64, which only the main thread changes.
pub(crate) struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Declares the counters. The field of INFO is the name in small letters
/// (`docs/reference/metrics.md`); exporters read it.
macro_rules! counters {
    ($($counter:ident)+) => {
        $(pub(crate) static $counter: Counter = Counter::new();)+
        const COUNTERS: &[(&str, &Counter)] = &[$((stringify!($counter), &$counter)),+];
    };
}

counters! {
    ADDS CHECKS POSITIVES MISSING LOADS
    REFUSED REFUSED_GROWTH REFUSED_FULL
    SCALED FILLED DELETES UNDELETED MISROUTED UNAPPLIED
    SHIFTS FORGOTTEN DEFRAG_HITS DEFRAG_MISSES
}

/// The fields of INFO that are sums over all filters, modulo 2^64. Only forged counts exceed 2^64;
/// the sums are correct again once the forged filters are freed.
const TOTALS: [&str; 6] = ["bytes", "filters", "layers", "items", "capacity", "windows"];
const BYTES: usize = 0;
const LAYERS: usize = 2;
const ITEMS: usize = 3;
const CAPACITY: usize = 4;

/// Sums over all filters ever made, with their current numbers, or those when they were freed.
static MADE: [Counter; 6] = [const { Counter::new() }; 6];
/// Sums over all freed filters.
static FREED: [AtomicU64; 6] = [const { AtomicU64::new(0) }; 6];

/// What a filter adds to the sums.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share([u64; 6]);

/// A time at which every generation that a window has is alive. The number of items by then is the
/// same in all copies, whatever their clocks show.
pub(crate) const BEFORE_ALL: i64 = i64::MIN;

impl Share {
    /// The share of a filter of layers. The filter's own sums saturate, so this sums its layers.
    pub(crate) fn of_layers(filter: &Filter) -> Self {
        let sum =
            |number: fn(&Layer) -> u64| filter.layers().map(number).fold(0, u64::wrapping_add);
        let layers = filter.layers().len() as u64;
        let (items, capacity) = (sum(|layer| layer.counted), sum(|layer| layer.capacity));
        Self([filter.bytes(), 1, layers, items, capacity, 0])
    }

    /// The share of a filter of pages. [`Paged::stack`] counts its layers.
    pub(crate) fn of_pages(paged: &Paged) -> Self {
        Self::of_pages_with(paged, paged.bytes(), paged.items(BEFORE_ALL))
    }

    /// The share of a filter of pages when it had this many bytes and items.
    pub(crate) fn of_pages_with(paged: &Paged, bytes: u64, items: u64) -> Self {
        let (layers, capacity) = paged.stack(items);
        Self([bytes, 1, layers, items, capacity, paged.window().is_some().into()])
    }

    /// The share of a filter that BF.LOADCHUNK is filling, as far as chunks change it.
    pub(crate) fn of_part(load: &Load) -> Self {
        let items = load.layered().map_or(0, |filter| filter.newest().counted);
        Self([load.bytes(), 1, 0, items, 0, 0])
    }

    /// [`Self::changed`] of a filter that became larger. Returns how many layers it gained.
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
    Share::default().changed(share);
}

/// Counts a filter that is about to be freed. Any thread may call this.
pub(crate) fn freed(share: Share) {
    for (freed, number) in FREED.iter().zip(share.0) {
        freed.fetch_add(number, Relaxed);
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
        MADE[CAPACITY].add(layer.capacity);
        let boxed = Layer::boxed_bytes(layer.shape());
        MADE[BYTES].add((size_of_val(layer.bits().words()) + size_of::<Layer>() + boxed) as u64);
    }
}

/// Fills the module's section of INFO.
pub(super) unsafe extern "C" fn info(ctx: *mut raw::RedisModuleInfoCtx, _: c_int) {
    guarded(c"info", (), || {
        // The server refuses a section that the client did not ask for.
        if add_info_section(ctx, None) != Status::Ok {
            return;
        }
        let field = |name: &str, number| add_info_field_unsigned_long_long(ctx, name, number);
        for (name, (made, freed)) in TOTALS.iter().zip(MADE.iter().zip(&FREED)) {
            field(name, made.get().wrapping_sub(freed.load(Relaxed)));
        }
        for (name, counter) in COUNTERS {
            field(&name.to_ascii_lowercase(), counter.get());
        }
    });
}
