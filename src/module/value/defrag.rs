//! Active defragmentation: the server moves a filter's allocations to reduce fragmentation.
//!
//! The callback moves the struct first, then the bit arrays, oldest layer first. The server gives a
//! large value little time per call. The cursor then stores the number of layers done, and the next
//! call continues with the next layer.
//!
//! Four kinds of allocation stay in place:
//! * an array above `LARGEST`: the allocator gives it whole pages, which cannot be fragmented, and
//!   a copy would stall the server;
//! * the list of older layers: one small allocation, only in a filter that grew;
//! * the generations of a window, and the box of such a filter: three small allocations;
//! * the box of a layer: only in filters with counters and in those of other products.

use std::ffi::{c_int, c_ulong, c_void};

use super::Value;
use crate::module::{
    api::{call, raw},
    panic_guard::guarded,
    stats,
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
        let filter = unsafe { &mut *place.cast::<Value>() }.filter_mut();
        let (first, newest) = (usize::try_from(done).unwrap_or(0), filter.newest_number());
        for (number, layer) in (first..).zip(filter.layers_from_mut(first)) {
            if size_of_val(layer.bits().words()) <= LARGEST {
                let mover = |words: *mut u64| offer(ctx, words.cast()).cast();
                // SAFETY: the server moves the allocation with its content and frees the old one,
                // or returns null and leaves it in place.
                unsafe { layer.relocate(mover) };
            }
            if number < newest && call!(RedisModule_DefragShouldStop(ctx)) != 0 {
                let kept: c_int =
                    call!(RedisModule_DefragCursorSet(ctx, number.saturating_add(1) as c_ulong));
                if kept == raw::REDISMODULE_OK as c_int {
                    return 1;
                }
            }
        }
        0
    })
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
