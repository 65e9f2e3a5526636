//! Active defragmentation: the server moves a filter's allocations to reduce fragmentation.
//!
//! The callback moves the struct first, then the bit arrays, oldest layer first, or the pages. The
//! server gives a large value little time per call. The cursor then stores the number of layers or
//! pages done, and the next call continues with the next one.
//!
//! What stays in place:
//! * an array above `LARGEST`: the allocator gives it whole pages, which cannot be fragmented, and
//!   a copy would stall the server;
//! * lists: of older layers, of pages, of generations. There is one of each in a filter that has
//!   them;
//! * boxes: of a layer of another product, of what only few filters have, and of a load.

use std::ffi::{c_int, c_ulong, c_void};

use super::Value;
use crate::{
    codec::native::kinds::Load,
    filter::{Filter, paged::Paged},
    module::{
        api::{call, raw},
        panic_guard::guarded,
        stats,
    },
};

/// The largest array that is moved, in bytes. A copy of this size takes about 100 microseconds.
const LARGEST: usize = 1 << 20;

/// The callback of the data type. Returns 0 if the value is done, 1 if the server must call again.
pub(super) unsafe extern "C" fn defrag(
    ctx: *mut raw::RedisModuleDefragCtx,
    _: *mut raw::RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    guarded("defrag", 0, || {
        let mut done: c_ulong = 0;
        call!(RedisModule_DefragCursorGet(ctx, &raw mut done));
        // SAFETY: the server passes a pointer to its pointer to a live value, and nothing else uses
        // that pointer during this call.
        let place = unsafe { &mut *value };
        if done == 0 {
            let moved = offer(ctx, *place);
            if !moved.is_null() {
                *place = moved;
            }
        }
        // SAFETY: the value is live, and nothing else refers to it during defragmentation.
        let value = unsafe { &mut *place.cast::<Value>() };
        let stop = || call!(RedisModule_DefragShouldStop(ctx)) != 0;
        let next = match value {
            Value::Ready(filter) => move_layers(ctx, filter, done, stop),
            Value::Paged(paged) => move_pages(ctx, paged, done, stop),
            Value::Loading(load) => match load.as_mut() {
                Load::Layers(load) => move_layers(ctx, load.filter_mut(), done, stop),
                Load::Pages(_) => None,
            },
        };
        let kept = next.is_some_and(|next| {
            let kept: c_int = call!(RedisModule_DefragCursorSet(ctx, next as c_ulong));
            kept == raw::REDISMODULE_OK as c_int
        });
        kept.into()
    })
}

/// Moves the bits of layers from number `from` on, until it is time to stop. Returns the number of
/// the next layer then.
fn move_layers(
    ctx: *mut raw::RedisModuleDefragCtx,
    filter: &mut Filter,
    from: u64,
    stop: impl Fn() -> bool,
) -> Option<u64> {
    let (first, newest) = (usize::try_from(from).unwrap_or(0), filter.older().len());
    for (number, layer) in (first..).zip(filter.layers_from_mut(first)) {
        let bytes = size_of_val(layer.bits().words());
        let mover = |words: *mut u64| offer_array(ctx, words.cast(), bytes).cast();
        // SAFETY: the server moves the allocation with its content and frees the old one, or
        // returns null and leaves it in place.
        unsafe { layer.relocate(mover) };
        if number < newest && stop() {
            return Some((number as u64).saturating_add(1));
        }
    }
    None
}

/// As [`move_layers`], for pages.
fn move_pages(
    ctx: *mut raw::RedisModuleDefragCtx,
    paged: &mut Paged,
    from: u64,
    stop: impl Fn() -> bool,
) -> Option<u64> {
    let mover = |array: *mut u8, bytes| offer_array(ctx, array.cast(), bytes).cast();
    // SAFETY: as above.
    unsafe { paged.relocate(from, mover, stop) }
}

/// Offers an array of so many bytes to the server, unless it is too large.
fn offer_array(
    ctx: *mut raw::RedisModuleDefragCtx,
    array: *mut c_void,
    bytes: usize,
) -> *mut c_void {
    if bytes <= LARGEST { offer(ctx, array) } else { std::ptr::null_mut() }
}

/// Offers an allocation to the server. Returns its new address, or null if it stays in place.
fn offer(ctx: *mut raw::RedisModuleDefragCtx, allocation: *mut c_void) -> *mut c_void {
    let moved: *mut c_void = call!(RedisModule_DefragAlloc(ctx, allocation));
    if moved.is_null() {
        stats::DEFRAG_MISSES.add(1);
    } else {
        stats::DEFRAG_HITS.add(1);
    }
    moved
}
