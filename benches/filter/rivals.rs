//! A common trait for Bloom filters in process: this crate's, single and in batches, and those of
//! the crates `fastbloom` and `bloomfilter`, which have one layer, do not grow, and do not count.

use redis_bloom::filter::{Expansion, Filter, Params};

/// A filter to measure.
pub(crate) trait Rival {
    /// Its name in tables.
    const NAME: &'static str;

    fn new(capacity: u64, rate: f64) -> Self;
    fn add(&mut self, item: &[u8]) -> bool;
    fn has(&self, item: &[u8]) -> bool;

    /// Adds items of `len` bytes each; returns how many were new.
    fn add_all(&mut self, items: &[u8], len: usize) -> usize {
        items.chunks_exact(len).filter(|item| self.add(item)).count()
    }

    /// Queries items of `len` bytes each; returns how many were found.
    fn count(&self, items: &[u8], len: usize) -> usize {
        items.chunks_exact(len).filter(|item| self.has(item)).count()
    }
}

/// This crate's filter, of one layer.
impl Rival for Filter {
    const NAME: &'static str = "redis-bloom";

    fn new(capacity: u64, rate: f64) -> Self {
        let params = Params {
            error_rate: rate,
            capacity,
            expansion: Expansion::new(2).expect("a factor in range"),
            seed: 42,
            counts: false,
            shard: None,
        };
        Filter::new(&params, u64::MAX).expect("memory for the filter")
    }

    fn add(&mut self, item: &[u8]) -> bool {
        let hash = self.hash(item);
        Filter::add(self, hash, |_| u64::MAX).expect("room in the layer")
    }

    fn has(&self, item: &[u8]) -> bool {
        self.contains(self.hash(item))
    }
}

/// This crate's filter, in batches of `BATCH` items.
pub(crate) struct Batched(pub(crate) Filter);

pub(crate) const BATCH: usize = 100;

impl Rival for Batched {
    const NAME: &'static str = "redis-bloom, batches";

    fn new(capacity: u64, rate: f64) -> Self {
        Self(Rival::new(capacity, rate))
    }

    fn add(&mut self, item: &[u8]) -> bool {
        Rival::add(&mut self.0, item)
    }

    fn has(&self, item: &[u8]) -> bool {
        self.0.has(item)
    }

    fn add_all(&mut self, items: &[u8], len: usize) -> usize {
        let mut new = 0;
        for batch in items.chunks(BATCH * len) {
            self.0
                .add_each(batch.chunks_exact(len), |_| u64::MAX, |answers| new += answers.ones())
                .expect("memory for another layer");
        }
        new
    }

    fn count(&self, items: &[u8], len: usize) -> usize {
        let mut found = 0;
        for batch in items.chunks(BATCH * len) {
            self.0.contains_each(batch.chunks_exact(len), |there| found += there.ones());
        }
        found
    }
}

impl Rival for fastbloom::BloomFilter {
    const NAME: &'static str = "fastbloom";

    fn new(capacity: u64, rate: f64) -> Self {
        fastbloom::BloomFilter::with_false_pos(rate).seed(&42).expected_items(capacity as usize)
    }

    fn add(&mut self, item: &[u8]) -> bool {
        !self.insert(item)
    }

    fn has(&self, item: &[u8]) -> bool {
        self.contains(item)
    }
}

impl Rival for bloomfilter::Bloom<[u8]> {
    const NAME: &'static str = "bloomfilter";

    fn new(capacity: u64, rate: f64) -> Self {
        Self::new_for_fp_rate_with_seed(capacity as usize, rate, &[42; 32])
            .expect("memory for the filter")
    }

    fn add(&mut self, item: &[u8]) -> bool {
        !self.check_and_set(item)
    }

    fn has(&self, item: &[u8]) -> bool {
        self.check(item)
    }
}

/// Writes the items `numbers`, of `len` bytes each (at least 8), to `out`. Numbers are multiplied,
/// so that consecutive items differ in all of their 8 bytes.
pub(crate) fn items(numbers: impl Iterator<Item = u64>, len: usize, out: &mut Vec<u8>) {
    out.clear();
    for number in numbers {
        let start = out.len();
        out.resize(start + len, b'.');
        // A bijection: distinct numbers stay distinct.
        out[start..start + 8]
            .copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    }
}

/// Numbers of items that are never added begin here.
pub(crate) const STRANGERS: u64 = 1 << 40;
