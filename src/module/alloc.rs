//! The allocator: the server's, so that `used_memory`, `maxmemory` and MEMORY USAGE see every byte
//! of a filter.
//!
//! Unlike the allocator of the crate `redis-module` it zeroes lazily (`RedisModule_TryCalloc` gives
//! untouched pages) and can return null, which becomes an error reply. It uses the system's
//! * for alignments above 8: a server that stores the sizes itself returns malloc's address plus 8;
//! * where there is no server: tests that are built with the module link this crate too. The load
//!   entry fills the table before the first allocation, so the allocator that returned a block
//!   frees it.

use std::alloc::{GlobalAlloc, Layout, System};

use redis_module::raw;

struct Server;

#[global_allocator]
static ALLOCATOR: Server = Server;

/// The alignment in bytes that the server's allocator guarantees on every build.
const ALIGNMENT: usize = 8;

/// From this size in bytes on, an allocation that can fail precedes a Calloc, which aborts instead.
const CHECKED_FROM: usize = 64 * 1024;

/// The function if the server's allocator serves allocations with this layout. The answer is equal
/// for all calls about one allocation. A server without TryAlloc is refused by the load entry.
fn served<F>(function: Option<F>, layout: Layout) -> Option<F> {
    // SAFETY: 4. below.
    let is_served = unsafe { raw::RedisModule_TryAlloc }.is_some() && layout.align() <= ALIGNMENT;
    function.filter(|_| is_served)
}

// SAFETY: 1. each block is freed by the allocator that returned it, because `served` depends only
// on the layout and on a table that is filled before the first allocation. 2. The server's
// functions are malloc, calloc, realloc and free, aligned to 8. 3. Callers guarantee the same for
// this allocator as for the system's. 4. The functions of the table are copied. The load entry
// writes it once, before any other thread runs code of this module.
unsafe impl GlobalAlloc for Server {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: 4.
        match served(unsafe { raw::RedisModule_TryAlloc }, layout) {
            // SAFETY: any size is allowed.
            Some(alloc) => unsafe { alloc(layout.size()) }.cast(),
            // SAFETY: 3.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: 4.
        let fallible = unsafe { raw::RedisModule_TryCalloc };
        // Redis 7.0 has no TryCalloc. A TryAlloc of the same size checks first whether there is
        // memory; neither call touches the pages.
        if fallible.is_none() && served(Some(()), layout).is_some() && layout.size() >= CHECKED_FROM
        {
            // SAFETY: 3.
            let trial = unsafe { self.alloc(layout) };
            if trial.is_null() {
                return trial;
            }
            // SAFETY: `self.alloc` above returned it for this layout.
            unsafe { self.dealloc(trial, layout) };
        }
        // SAFETY: 4.
        match served(fallible.or(unsafe { raw::RedisModule_Calloc }), layout) {
            // SAFETY: any size is allowed.
            Some(calloc) => unsafe { calloc(1, layout.size()) }.cast(),
            // SAFETY: 3.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: 4.
        match served(unsafe { raw::RedisModule_Free }, layout) {
            // SAFETY: 1.
            Some(free) => unsafe { free(pointer.cast()) },
            // SAFETY: 3.
            None => unsafe { System.dealloc(pointer, layout) },
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: 4.
        let realloc =
            unsafe { raw::RedisModule_TryRealloc }.or(unsafe { raw::RedisModule_Realloc });
        match served(realloc, layout) {
            // SAFETY: `pointer` is from the server's allocator by 1, and `size` is not zero by 3.
            Some(realloc) => unsafe { realloc(pointer.cast(), size) }.cast(),
            // SAFETY: 3.
            None => unsafe { System.realloc(pointer, layout, size) },
        }
    }
}
