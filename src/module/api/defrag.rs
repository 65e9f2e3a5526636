//! A call of active defragmentation.

use std::{
    ffi::{c_int, c_ulong, c_void},
    marker::PhantomData,
};

use super::raw;

/// A call of active defragmentation, for one value.
#[derive(Clone, Copy)]
pub(crate) struct Defrag<'a>(
    *mut raw::RedisModuleDefragCtx,
    PhantomData<&'a raw::RedisModuleDefragCtx>,
);

impl Defrag<'_> {
    /// Wraps the context that the server passed to the callback.
    ///
    /// # Safety
    /// `ctx` is alive as long as this is.
    pub(crate) unsafe fn new(ctx: *mut raw::RedisModuleDefragCtx) -> Self {
        Self(ctx, PhantomData)
    }

    /// What the last call for this value kept; 0 in the first.
    pub(crate) fn cursor(self) -> u64 {
        let mut cursor: c_ulong = 0;
        call!(RedisModule_DefragCursorGet(self.0, &raw mut cursor));
        cursor
    }

    /// Keeps a number for the next call; false if there will be none.
    pub(crate) fn set_cursor(self, cursor: u64) -> bool {
        let kept: c_int = call!(RedisModule_DefragCursorSet(self.0, cursor as c_ulong));
        kept == raw::REDISMODULE_OK as c_int
    }

    /// Whether the time of this call is over.
    pub(crate) fn should_stop(self) -> bool {
        call!(RedisModule_DefragShouldStop(self.0)) != 0
    }

    /// Offers an allocation to the server. Returns its new address, with the old content, or null
    /// if it stays in place.
    ///
    /// # Safety
    /// The server's allocator has returned `allocation`, nothing else uses it, and the caller uses
    /// the new address from now on.
    pub(crate) unsafe fn offer(self, allocation: *mut c_void) -> *mut c_void {
        call!(RedisModule_DefragAlloc(self.0, allocation))
    }
}
