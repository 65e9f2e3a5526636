//! Arrays that take whole size classes of the allocator, no more and no less.
//!
//! jemalloc, the allocator of Redis and Valkey on Linux, rounds a size up to its next class: 16,
//! 32, 48 ... 128 bytes, then four classes for each doubling: 160, 192, 224, 256, 320 ... So the
//! memory of an array follows from its length. With other allocators it takes the same.

use crate::filter::error::Error;

/// The size class of a number of bytes.
pub(super) fn class(bytes: usize) -> usize {
    match bytes {
        0..=128 => bytes.next_multiple_of(16),
        _ => bytes.next_multiple_of(1 << ((bytes - 1).ilog2() - 2)),
    }
}

pub(super) fn room<T>(len: usize) -> usize {
    class(len.saturating_mul(size_of::<T>())) / size_of::<T>()
}

/// Makes room for `len` elements. After an error the array is unchanged.
pub(super) fn reserve<T>(array: &mut Vec<T>, len: usize) -> Result<(), Error> {
    if len <= array.capacity() {
        return Ok(());
    }
    let wanted = room::<T>(len);
    array
        .try_reserve_exact(wanted - array.len())
        .map_err(|_| Error::OutOfMemory((wanted.saturating_mul(size_of::<T>())) as u64))
}

/// Moves the elements to a smaller array if they fit into a lower class. Does nothing if the
/// allocator has no memory for that array.
pub(super) fn fit<T>(array: &mut Vec<T>) {
    let wanted = room::<T>(array.len());
    // Not `shrink_to`: it aborts the process if the allocator refuses.
    let mut smaller = Vec::new();
    if wanted < array.capacity() && smaller.try_reserve_exact(wanted).is_ok() {
        smaller.append(array);
        *array = smaller;
    }
}

/// The bytes that `len` elements take.
pub(super) fn bytes<T>(len: usize) -> u64 {
    class(len * size_of::<T>()) as u64
}
