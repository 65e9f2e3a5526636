//! The memory that pages take with so many items, before there is any.
//!
//! Hashes choose blocks at random, so the items of a block are Poisson. Its words follow, and with
//! them mean and variance of the words of a page, which are nearly normal. A page takes a class of
//! the allocator (`memory.rs`): its expectation is a sum over the few classes that pages of a level
//! may have.

use super::{
    block, memory,
    page::{BLOCKS, HEADER, LEAST_WORDS, Page},
    plan::{MAX_PAGES, Plan},
    slot::Format,
    small::Small,
};
use crate::filter::error::Error;

/// Standard deviations beyond which no page is.
const FAR: f64 = 8.0;

impl Plan {
    /// The bytes that a structure of this plan takes from the allocator with `items` items, on
    /// average over all seeds. From ten pages on, hardly one differs by 1 %.
    ///
    /// # Errors
    /// `Error::Ceiling` if they need more than `MAX_PAGES`.
    pub fn expected_bytes(&self, items: u64) -> Result<u64, Error> {
        if self.first_pages == 1
            && let Some(bytes) = Small::bytes_of(self.format(0), items)
        {
            return Ok(bytes);
        }
        let pages = items.div_ceil(self.page_slots.into()).max(self.first_pages.into());
        if pages > MAX_PAGES {
            let bytes = |pages: u64| pages.saturating_mul(self.page_slots.into());
            return Err(Error::Ceiling { wanted: bytes(pages), ceiling: bytes(MAX_PAGES) });
        }
        let level = pages.ilog2();
        let split = pages - (1 << level);
        let of_level = |level: u32, pages: u64| {
            let mean = items as f64 / (1_u64 << level) as f64;
            pages as f64 * page_bytes(self.format(level), mean)
        };
        let all = of_level(level, (1 << level) - split) + of_level(level + 1, 2 * split);
        Ok(memory::bytes::<Page>(pages as usize) + all as u64)
    }
}

/// The bytes of a page of `items` items on average.
fn page_bytes(format: Format, items: f64) -> f64 {
    let (mean, variance) = block_words(format, items / BLOCKS as f64);
    let mean = HEADER as f64 + BLOCKS as f64 * mean;
    let deviation = (BLOCKS as f64 * variance).sqrt().max(f64::MIN_POSITIVE);
    let [least, most] = [-FAR, FAR].map(|far| (mean + far * deviation) as usize);
    let mut class = memory::bytes::<u64>(least);
    let mut expected = class as f64;
    while class < memory::bytes::<u64>(most) {
        let next = memory::bytes::<u64>(class as usize / size_of::<u64>() + 1);
        // The share of pages that this class does not hold.
        let distance = (class as f64 / 8.0 + 0.5 - mean) / deviation;
        expected += (next - class) as f64 * 0.5 * libm::erfc(distance / std::f64::consts::SQRT_2);
        class = next;
    }
    // A page without slots has no allocation.
    expected - memory::bytes::<u64>(LEAST_WORDS) as f64 * libm::exp(-items)
}

/// Mean and variance of the words of a block of `items` items on average.
fn block_words(format: Format, items: f64) -> (f64, f64) {
    let (mut mean, mut square, mut share) = (0.0, 0.0, libm::exp(-items));
    for count in 0..=(items + FAR * items.sqrt()) as usize + 8 {
        let words = block::words_of(count, format) as f64;
        mean += share * words;
        square += share * words * words;
        share *= items / (count + 1) as f64;
    }
    (mean, square - mean * mean)
}
