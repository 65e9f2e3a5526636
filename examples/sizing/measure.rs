//! Measurements of filters of this crate. Seeds and items are fixed, so the numbers change only
//! when the filter changes.

use std::f64::consts::LN_2;

use redis_bloom::filter::{Expansion, Filter, Layer, Params, Shape, geometry, layer_rate};

/// Items in one call of the batch functions.
const BATCH: u64 = 1024;

/// An empty filter of bits; an expansion of 0 is NONSCALING.
pub(crate) fn filter(rate: f64, capacity: u64, expansion: u64, seed: u64) -> Filter {
    let params = Params {
        error_rate: rate,
        capacity,
        expansion: Expansion::new(expansion).expect("a small expansion"),
        seed: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15),
        counts: false,
        shard: None,
    };
    Filter::new(&params, u64::MAX).expect("memory for a filter")
}

/// Two disjoint sets of items: those that are added, and those that never are.
#[derive(Clone, Copy)]
pub(crate) enum Set {
    Added,
    Absent,
}

impl Set {
    fn item(self, number: u64) -> [u8; 16] {
        (u128::from(number) << 8 | self as u128).to_le_bytes()
    }

    /// The items with these numbers, batch by batch.
    pub(crate) fn batches(
        self,
        numbers: std::ops::Range<u64>,
    ) -> impl Iterator<Item = Vec<[u8; 16]>> {
        let end = numbers.end;
        numbers.step_by(BATCH as usize).map(move |first| {
            (first..end.min(first + BATCH)).map(|number| self.item(number)).collect()
        })
    }
}

/// A filter, and the number of distinct items added to it.
pub(crate) struct Filling {
    pub(crate) filter: Filter,
    pub(crate) distinct: u64,
}

impl Filling {
    pub(crate) fn new(filter: Filter) -> Self {
        Self { filter, distinct: 0 }
    }

    /// Adds distinct items until the filter counts `items`.
    pub(crate) fn up_to(&mut self, items: u64) {
        while self.filter.items() < items {
            // Adds at most the missing number, because each item may or may not be counted.
            let end = self.distinct + items - self.filter.items();
            for batch in Set::Added.batches(self.distinct..end) {
                let batch = batch.iter().map(<[u8; 16]>::as_slice);
                let outcome = self.filter.add_each(batch, |_| u64::MAX, |_| {});
                outcome.expect("room for an item");
            }
            self.distinct = end;
        }
    }
}

/// A filter that has as many items as it was reserved for. An expansion of 0 is NONSCALING.
pub(crate) fn full(rate: f64, capacity: u64, expansion: u64, seed: u64) -> Filling {
    let mut filling = Filling::new(filter(rate, capacity, expansion, seed));
    filling.up_to(capacity);
    filling
}

/// The share of the absent items with these numbers that test positive.
pub(crate) fn wrong(filter: &Filter, numbers: std::ops::Range<u64>) -> f64 {
    let queries = (numbers.end - numbers.start) as f64;
    let mut wrong = 0;
    for batch in Set::Absent.batches(numbers) {
        filter.contains_each(batch.iter().map(<[u8; 16]>::as_slice), |found| {
            wrong += found.ones();
        });
    }
    wrong as f64 / queries
}

/// The answers of two filters to the same absent items.
pub(crate) struct Together {
    /// The share of items that both filters answer with yes.
    pub(crate) both: f64,
    /// The product of the shares of the two filters.
    pub(crate) product: f64,
}

/// Two full NONSCALING filters with `common` items in both, under these seeds, queried for ten
/// million absent items.
pub(crate) fn both_wrong(rate: f64, capacity: u64, common: u64, seeds: [u64; 2]) -> Together {
    const QUERIES: u64 = 10_000_000;
    // The other items have numbers that only one filter holds.
    let [first, second] = [(seeds[0], common), (seeds[1], 1 << 40)].map(|(seed, own)| {
        let mut filling = Filling::new(filter(rate, capacity, 0, seed));
        filling.up_to(common);
        filling.distinct = own.max(filling.distinct);
        filling.up_to(capacity);
        filling.filter
    });
    let (mut wrong, mut both) = ([0, 0], 0);
    for batch in Set::Absent.batches(0..QUERIES) {
        let answers = [&first, &second].map(|filter| {
            let mut answers = Vec::new();
            let items = batch.iter().map(<[u8; 16]>::as_slice);
            filter.contains_each(items, |found| answers.extend(found.each()));
            answers
        });
        for (of_one, answers) in wrong.iter_mut().zip(&answers) {
            *of_one += answers.iter().filter(|&&found| found).count();
        }
        both +=
            answers[0].iter().zip(&answers[1]).filter(|&(&first, &second)| first && second).count();
    }
    let share = |count: usize| count as f64 / QUERIES as f64;
    Together { both: share(both), product: share(wrong[0]) * share(wrong[1]) }
}

/// The rate by all bits (`Filter::estimate` reads a sample): the chance that some layer has a
/// random item test positive in a random block. In blocks of whole cache lines, four bits of an
/// item share a line.
pub(crate) fn rate_by_bits(filter: &Filter) -> f64 {
    let absent: f64 = filter.layers().map(|layer| 1.0 - layer_rate_by_bits(layer)).product();
    1.0 - absent
}

fn layer_rate_by_bits(layer: &Layer) -> f64 {
    let Shape::Blocked(shape) = layer.shape() else { unreachable!("every new filter is blocked") };
    let (length, probes) = (usize::from(shape.block_words), i32::from(shape.probes));
    let (part, group) = match shape.lines() {
        Some(lines) => (length / lines as usize, probes.min(4)),
        None => (length, probes),
    };
    let of_part = |part: &[u64]| {
        let set: u32 = part.iter().map(|word| word.count_ones()).sum();
        f64::from(set) / (part.len() as f64 * 64.0)
    };
    let of_block = |block: &[u64]| {
        let mean = |power| {
            let parts = block.chunks_exact(part).map(|part| of_part(part).powi(power));
            parts.sum::<f64>() * part as f64 / length as f64
        };
        mean(group).powi(probes / group) * mean(probes % group)
    };
    let blocks = layer.bits().words().chunks_exact(length);
    blocks.map(of_block).sum::<f64>() / f64::from(shape.blocks)
}

/// Mean and standard deviation.
pub(crate) fn spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (mean, (squares / (count - 1.0)).sqrt())
}

/// Bits of the bit array of a filter.
pub(crate) fn array_bits(rate: f64, capacity: u64, scales: bool) -> u64 {
    let shape = geometry(capacity, layer_rate(rate, scales)).expect("less than 128 TiB");
    shape.words() * 64
}

/// Bytes of a new filter of bits, as in `BF.INFO key SIZE`.
pub(crate) fn size(rate: f64, capacity: u64, scales: bool) -> u64 {
    array_bits(rate, capacity, scales) / 8 + size_of::<Filter>() as u64
}

/// The classic optimum in bits per item: a Bloom filter with a real number of probes.
pub(crate) fn optimum(rate: f64) -> f64 {
    -rate.ln() / (LN_2 * LN_2)
}

/// RedisBloom's formula for layer `index`, in bits per item: half the rate for the first layer,
/// half of that for the second, and so on; the whole rate for a non-scaling filter.
pub(crate) fn redisbloom(rate: f64, index: usize, scales: bool) -> f64 {
    let halvings = if scales { index as i32 + 1 } else { 0 };
    optimum(rate * 0.5_f64.powi(halvings))
}
