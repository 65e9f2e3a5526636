//! The allocator: the server's, so that `used_memory`, `maxmemory` and MEMORY USAGE see every byte
//! of a filter.
//!
//! Not the one of the `redis-module` crate, which has no zeroed allocation (so a new 1 GiB filter
//! would be a memset), aborts when memory is out, and promises alignments that the server does not
//! give. This one
//! * zeroes lazily: `RedisModule_TryCalloc` hands out untouched pages;
//! * can fail: where the server has the Try functions, null reaches Rust, and `filter::bits` makes
//!   an error reply of it;
//! * leaves alignments above 8 to the system: a server that keeps sizes itself hands out malloc's
//!   address plus 8;
//! * is the system's allocator as long as there is no server: unit tests, benches and fuzzers link
//!   this crate too. The table is filled by the first line of the load entry, before anything is
//!   allocated, so nothing ever changes hands.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    ptr::null_mut,
};

use redis_module::raw;

/// See the essay of this file.
struct Server;

#[global_allocator]
static ALLOCATOR: Server = Server;

/// What the server's allocator aligns to at least, on every build.
const ALIGNMENT: usize = 8;

/// From this size on, a plain Calloc (which aborts when memory is out) is first tried by an
/// allocation that may fail.
const TRIED: usize = 64 * 1024;

/// Whether the server takes this allocation. The same answer for all calls about one allocation.
fn served(layout: Layout) -> bool {
    // SAFETY: the table is written once, by the load entry, before any other thread runs code of
    // this module.
    let alloc = unsafe { raw::RedisModule_TryAlloc };
    alloc.is_some() && layout.align() <= ALIGNMENT
}

// SAFETY: 1. each block goes back to the allocator it came from, since `served` depends on the
// layout and on a table that is filled before the first allocation. 2. The server's functions are
// malloc, calloc, realloc and free, aligned to 8.
unsafe impl GlobalAlloc for Server {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !served(layout) {
            // SAFETY: the caller's promises are the same.
            return unsafe { System.alloc(layout) };
        }
        // SAFETY: a copy of a pointer that is written once.
        match unsafe { raw::RedisModule_TryAlloc } {
            // SAFETY: any size is allowed.
            Some(alloc) => unsafe { alloc(layout.size()) }.cast(),
            None => null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !served(layout) {
            // SAFETY: the caller's promises are the same.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: a copy of a pointer that is written once.
        if let Some(calloc) = unsafe { raw::RedisModule_TryCalloc } {
            // SAFETY: any size is allowed.
            return unsafe { calloc(1, layout.size()) }.cast();
        }
        // Redis 7.0 has no TryCalloc. An allocation of the same size that may fail goes first; the
        // pages of neither are touched.
        if layout.size() >= TRIED {
            // SAFETY: the caller's promises are the same.
            let probe = unsafe { self.alloc(layout) };
            if probe.is_null() {
                return probe;
            }
            // SAFETY: it was allocated by the line above with this layout.
            unsafe { self.dealloc(probe, layout) };
        }
        // SAFETY: a copy of a pointer that is written once.
        match unsafe { raw::RedisModule_Calloc } {
            // SAFETY: any size is allowed.
            Some(calloc) => unsafe { calloc(1, layout.size()) }.cast(),
            None => null_mut(),
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if !served(layout) {
            // SAFETY: the caller's promises are the same.
            return unsafe { System.dealloc(pointer, layout) };
        }
        // SAFETY: a copy of a pointer that is written once.
        if let Some(free) = unsafe { raw::RedisModule_Free } {
            // SAFETY: `pointer` came from the server's allocator.
            unsafe { free(pointer.cast()) };
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !served(layout) {
            // SAFETY: the caller's promises are the same.
            return unsafe { System.realloc(pointer, layout, size) };
        }
        // SAFETY: a copy of a pointer that is written once.
        let fallible = unsafe { raw::RedisModule_TryRealloc };
        // SAFETY: a copy of a pointer that is written once.
        match fallible.or(unsafe { raw::RedisModule_Realloc }) {
            // SAFETY: `pointer` came from the server's allocator, `size` is not zero.
            Some(realloc) => unsafe { realloc(pointer.cast(), size) }.cast(),
            None => null_mut(),
        }
    }
}
