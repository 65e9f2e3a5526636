//! The capacity of a shard: how improbable it is that a shard has more items.

use crate::sharding::shard_capacity;

/// A mean number of items a shard, and a bound on the probability that a shard has more items than
/// its capacity, for this mean and every larger one.
pub(crate) const BOUNDS: [(f64, f64); 5] =
    [(10.0, 2.6e-7), (100.0, 1.3e-8), (1e3, 2.6e-9), (1e4, 1.4e-9), (1e5, 1.1e-9)];

#[test]
fn capacity_of_a_shard() {
    // Mean 78,125,000, deviation 8,838.8.
    assert_eq!(shard_capacity(10_000_000_000, 128), Some(78_178_034));
    assert_eq!(shard_capacity(100, 1), Some(160));
    assert_eq!(shard_capacity(1, 4), Some(4));
    assert_eq!(shard_capacity(0, 8), Some(0));
    assert_eq!(shard_capacity(1, 0), None);
}

/// The probability that a binomial variable of `trials` and `1 / count` is above `most`: the sum of
/// its terms from there on, each from the one before. Above the mean they fall, so what is left out
/// at the end is below the rounding of the sum.
fn binomial_tail(trials: u64, count: u16, most: u64) -> f64 {
    let (trials, chance, mut at) = (trials as f64, 1.0 / f64::from(count), most as f64 + 1.0);
    let choices =
        libm::lgamma(trials + 1.0) - libm::lgamma(at + 1.0) - libm::lgamma(trials - at + 1.0);
    let mut term =
        libm::exp(choices + at * libm::log(chance) + (trials - at) * libm::log1p(-chance));
    let mut sum = 0.0;
    while term > sum * 1e-16 {
        sum += term;
        term *= (trials - at) / (at + 1.0) * chance / (1.0 - chance);
        at += 1.0;
    }
    sum
}

/// Means in 100 steps a decade up to a million, and the bound that holds from each on. `lgamma` is
/// exact to some 1e-15 of numbers up to 1e11, so a probability is exact to about 1e-4 of itself.
#[test]
fn a_shard_is_full_too_early_as_rarely_as_the_documents_say() {
    for count in [2_u16, 3, 8, 64, 128, 1024] {
        for step in 0..500 {
            let items = (10.0 * libm::exp10(f64::from(step) / 100.0) * f64::from(count)).ceil();
            let mean = items / f64::from(count);
            let capacity = shard_capacity(items as u64, count).expect("shards");
            let bound =
                BOUNDS.iter().rev().find(|(least, _)| mean >= *least).expect("from 10 on").1;
            let more = binomial_tail(items as u64, count, capacity);
            assert!(more <= bound, "{count} shards, {mean} items each: {more:e} above {bound:e}");
        }
    }
    // The bounds are not far above what they bound, and six deviations are not five.
    let [first, last] = [(10_u64, 29), (10_000, 10_600)].map(|(mean, capacity)| {
        assert_eq!(shard_capacity(mean * 1024, 1024), Some(capacity));
        binomial_tail(mean * 1024, 1024, capacity)
    });
    assert!(first > 1e-7 && last > 1e-9, "{first:e} {last:e}");
}
