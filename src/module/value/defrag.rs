//! Active defragmentation: lets the server move a filter's memory to where less is wasted.
//!
//! The struct first, then the bit arrays, oldest layer first. For a large value the server gives
//! little time per call; then the cursor keeps the number of layers done, and the next call goes on
//! there. An array above `LARGEST` is left where it is: the allocator gives it pages of its own,
//! which cannot be fragmented, and copying it would stall the server. The list of older layers
//! stays too: it is one small allocation that only a filter which grew has. So does the box of a
//! layer that has one, which only filters that count and those of other products have.

use std::ffi::{c_int, c_ulong, c_void};

use super::Value;
use crate::module::{
    api::{call, raw},
    panic_guard::guarded,
};

/// The largest array that is moved, in bytes: above this one copy takes more than some 100
/// microseconds.
const LARGEST: usize = 1 << 20;

/// 0: done; 1: call again.
pub(super) unsafe extern "C" fn defrag(
    ctx: *mut raw::RedisModuleDefragCtx,
    _: *mut raw::RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    guarded("defrag", 0, || {
        let mut done: c_ulong = 0;
        call!(RedisModule_DefragCursorGet(ctx, &raw mut done));
        // SAFETY: the server passes the place of a live value's pointer, its own to read and write.
        let place = unsafe { &mut *value };
        if done == 0 {
            let moved: *mut c_void = call!(RedisModule_DefragAlloc(ctx, *place));
            if !moved.is_null() {
                *place = moved;
            }
        }
        // SAFETY: the value is live and nothing else refers to it while the server defragments.
        let filter = unsafe { &mut *place.cast::<Value>() }.filter_mut();
        let count = filter.layers().len();
        for (index, layer) in
            filter.layers_mut().enumerate().skip(usize::try_from(done).unwrap_or(0))
        {
            if size_of_val(layer.bits().words()) <= LARGEST {
                let mover =
                    |words: *mut u64| call!(RedisModule_DefragAlloc(ctx, words.cast())).cast();
                // SAFETY: the server moves the allocation with its content and frees the old one,
                // or answers null and leaves it.
                unsafe { layer.relocate(mover) };
            }
            let next = index.saturating_add(1);
            if next < count && call!(RedisModule_DefragShouldStop(ctx)) != 0 {
                let kept: c_int = call!(RedisModule_DefragCursorSet(ctx, next as c_ulong));
                if kept == raw::REDISMODULE_OK as c_int {
                    return 1;
                }
            }
        }
        0
    })
}
