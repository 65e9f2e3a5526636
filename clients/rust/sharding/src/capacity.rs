//! The capacity of a shard.

/// The capacity with which each of `count` shards is reserved, for `items` items in all: their mean
/// plus six standard deviations, rounded up.
///
/// The number of items of a shard is binomial, with a variance below its mean. The table has, by
/// the mean, a bound on the probability that a shard exceeds its capacity before `items` items are
/// in. For the probability that any of the `count` shards does so, the bound is `count` times as
/// high (exact sums, in the tests):
///
/// ```text
///   mean of at least   10       100      1,000    10,000   100,000
///   probability        2.6e-7   1.3e-8   2.6e-9   1.4e-9   1.1e-9
/// ```
///
/// `None` if `count` is 0.
#[must_use]
pub fn shard_capacity(items: u64, count: u16) -> Option<u64> {
    if count == 0 {
        return None;
    }
    let mean = items as f64 / f64::from(count);
    Some((mean + 6.0 * mean.sqrt()).ceil() as u64)
}
