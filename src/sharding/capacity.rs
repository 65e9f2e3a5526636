//! The capacity of a shard.

/// The capacity with which each of `count` shards is reserved, for `items` items in all: their mean
/// plus six standard deviations, rounded up.
///
/// The number of items of a shard is binomial, with a variance below its mean. So a shard is full
/// before `items` items are in with a probability below 1e-9, and one of 1024 shards below 1e-6.
/// `None` if `count` is 0.
#[must_use]
pub fn shard_capacity(items: u64, count: u16) -> Option<u64> {
    if count == 0 {
        return None;
    }
    let mean = items as f64 / f64::from(count);
    Some((mean + 6.0 * mean.sqrt()).ceil() as u64)
}
