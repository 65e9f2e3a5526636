//! Active defragmentation: the server moves a filter's allocations to reduce fragmentation.
//!
//! The callback moves the struct first, then the bit arrays, oldest layer first, or the pages. The
//! server gives a large value little time per call. The cursor then stores the number of layers or
//! pages done, and the next call continues with the next one.
//!
//! What stays in place:
//! * an array above `LARGEST`: the allocator gives it whole pages, which cannot be fragmented, and
//!   a copy would stall the server;
//! * lists of layers, pages or generations, at most one of each in a filter;
//! * boxes: of a layer of another product, of what only few filters have, and of a load.

use std::ffi::{c_int, c_void};

use redis_module::{defrag::DefragContext, raw, raw::Status};

use super::Stored;
use crate::{
    filter::Filter,
    module::{guarded, stats},
};

/// The largest array that is moved, in bytes. A copy of this size takes about 100 microseconds.
const LARGEST: usize = 1 << 20;

/// The callback of the data type. Returns 0 if the value is done, 1 if the server must call again.
pub(super) unsafe extern "C" fn defrag(
    ctx: *mut raw::RedisModuleDefragCtx,
    _: *mut raw::RedisModuleString,
    value: *mut *mut c_void,
) -> c_int {
    guarded(c"defrag", 0, || {
        // SAFETY: the server passes its own context, for this call.
        let defrag = &unsafe { DefragContext::new(ctx) };
        // There is none in the first call for a value.
        let done = defrag.get_cursor().unwrap_or(0);
        // SAFETY: the server passes its pointer to a live value, for this call alone.
        let place = unsafe { &mut *value };
        if done == 0 {
            *place = offer(defrag, place.cast()).cast();
        }
        // SAFETY: the value is live, and nothing else refers to it during defragmentation.
        let value = unsafe { &mut *place.cast::<Stored>() };
        let next = match value {
            Stored::Layers(filter) => move_layers(defrag, filter, done),
            Stored::Pages(paged) => {
                let mover = |array: *mut u8, bytes| offer_array(defrag, array, bytes);
                // SAFETY: as in `move_layers`.
                unsafe { paged.relocate(done, mover, || defrag.should_stop()) }
            }
            Stored::Partial(load) => {
                load.filter.as_mut().and_then(|filter| move_layers(defrag, filter, done))
            }
        };
        next.is_some_and(|next| defrag.set_cursor(next) == Status::Ok).into()
    })
}

/// Moves the bits of layers from number `from` on, until it is time to stop. Returns the number of
/// the next layer then.
fn move_layers(defrag: &DefragContext, filter: &mut Filter, from: u64) -> Option<u64> {
    let (first, newest) = (usize::try_from(from).unwrap_or(0), filter.older().len());
    for (number, layer) in (first..).zip(filter.layers_from_mut(first)) {
        let mover = |array: *mut u8, bytes| offer_array(defrag, array, bytes);
        // SAFETY: the server moves the allocation with its content and frees the old one, or leaves
        // it in place.
        unsafe { layer.bits_mut().relocate(mover) };
        if number < newest && defrag.should_stop() {
            return Some((number as u64).saturating_add(1));
        }
    }
    None
}

/// Offers an array of this many bytes to the server, unless it is too large.
fn offer_array(defrag: &DefragContext, array: *mut u8, bytes: usize) -> *mut u8 {
    if bytes <= LARGEST { offer(defrag, array) } else { array }
}

/// Offers an allocation to the server. Returns its address, which may be another one then.
fn offer(defrag: &DefragContext, allocation: *mut u8) -> *mut u8 {
    // SAFETY: the allocation belongs to the value, whose owner replaces the address.
    let moved = unsafe { defrag.defrag_realloc(allocation) };
    let counter = if moved == allocation { &stats::DEFRAG_MISSES } else { &stats::DEFRAG_HITS };
    counter.add(1);
    moved
}
