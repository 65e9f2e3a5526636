//! The allocator: the server's, so that `used_memory`, `maxmemory` and MEMORY USAGE see every byte
//! of a filter.
//!
//! Unlike that of the `redis-module` crate it zeroes lazily (`RedisModule_TryCalloc` returns
//! untouched pages) and can return null, which becomes an error reply. It uses the system's
//! * for alignments above 8: a server that stores the sizes itself returns malloc's address plus 8;
//! * where there is no server: unit tests, benches and fuzzers link this crate too. The load entry
//!   fills the table before the first allocation, so the allocator that returned a block frees it.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ptr::null_mut,
};

use redis_module::raw;

struct Server;

#[global_allocator]
static ALLOCATOR: Server = Server;

/// The alignment in bytes that the server's allocator guarantees on every build.
const ALIGNMENT: usize = 8;

/// From this size in bytes on, an allocation that can fail precedes a Calloc, which aborts instead.
const CHECKED_FROM: usize = 64 * 1024;

/// Whether the server's allocator owns an allocation with this layout. The result is equal for all
/// calls about one allocation.
fn served(layout: Layout) -> bool {
    // SAFETY: the table is written once, by the load entry, before any other thread runs code of
    // this module.
    let alloc = unsafe { raw::RedisModule_TryAlloc };
    alloc.is_some() && layout.align() <= ALIGNMENT
}

// SAFETY: 1. each block is freed by the allocator that returned it, because `served` depends only
// on the layout and on a table that is filled before the first allocation. 2. The server's
// functions are malloc, calloc, realloc and free, aligned to 8. 3. Callers guarantee the same for
// this allocator as for the system's. 4. The functions of the table are copied as in `served`.
unsafe impl GlobalAlloc for Server {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: 4.
        match unsafe { raw::RedisModule_TryAlloc } {
            // SAFETY: any size is allowed.
            Some(alloc) if served(layout) => unsafe { alloc(layout.size()) }.cast(),
            // SAFETY: 3.
            _ => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !served(layout) {
            // SAFETY: 3.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: 4.
        let fallible = unsafe { raw::RedisModule_TryCalloc };
        // Redis 7.0 has no TryCalloc. A TryAlloc of the same size checks first whether there is
        // memory; neither call touches the pages.
        if fallible.is_none() && layout.size() >= CHECKED_FROM {
            // SAFETY: 3.
            let trial = unsafe { self.alloc(layout) };
            if trial.is_null() {
                return trial;
            }
            // SAFETY: `self.alloc` above returned it for this layout.
            unsafe { self.dealloc(trial, layout) };
        }
        // SAFETY: 4.
        match fallible.or(unsafe { raw::RedisModule_Calloc }) {
            // SAFETY: any size is allowed.
            Some(calloc) => unsafe { calloc(1, layout.size()) }.cast(),
            None => null_mut(),
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: 4.
        match unsafe { raw::RedisModule_Free } {
            // SAFETY: 1.
            Some(free) if served(layout) => unsafe { free(pointer.cast()) },
            // SAFETY: 3.
            _ => unsafe { System.dealloc(pointer, layout) },
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: 4.
        match unsafe { raw::RedisModule_TryRealloc }.or(unsafe { raw::RedisModule_Realloc }) {
            // SAFETY: `pointer` is from the server's allocator by 1, and `size` is not zero by 3.
            Some(realloc) if served(layout) => unsafe { realloc(pointer.cast(), size) }.cast(),
            // SAFETY: 3.
            _ => unsafe { System.realloc(pointer, layout, size) },
        }
    }
}
