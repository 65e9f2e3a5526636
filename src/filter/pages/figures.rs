//! The memory and the rate of pages: on average for a number of items, and the rate from the slots.
//!
//! The items of a block have a Poisson distribution. It gives the mean and the variance of the
//! words of a block, and then of a page. The words of a page are nearly normally distributed. So
//! its expected size is a sum over the few size classes (`memory.rs`) that pages of a level have.
//! The size of a short page follows from its items alone.
//!
//! A slot with t bits of tag left matches a query of its page with probability 2^-t / 1984, and no
//! query matches two slots of a bucket. So the rate is the mean, over all addresses, of the sum
//! over the slots of the page. At most `MOST` addresses are read: half a millisecond. They follow
//! no pattern, because pages whose numbers have equal low bits were split at about the same time.

use super::{
    Pages, Slot, block, memory,
    page::{BLOCKS, HEADER, LEAST_WORDS, PAGE_BUCKETS, REST_BITS},
    plan::{MAX_PAGES, Plan},
    slot::Format,
};
use crate::filter::{error::Error, hash::scale};

/// Has the size of a `Page` on a server. In browsers, which compute plans, too, that is smaller.
type Entry = [u64; 3];
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Entry>() == size_of::<super::Page>());

/// Standard deviations that no page exceeds.
const FAR: f64 = 8.0;

/// The most addresses whose pages are read.
const MOST: u64 = 128;

/// 2^64 divided by the golden ratio: its multiples are spread evenly.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// What slots show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Probability that an item which was never added matches a slot of a generation that is alive.
    pub error_rate: f64,
    /// Slots with the highest payload.
    pub saturated: u64,
}

impl Pages {
    /// Reads the slots of some pages: the same ones, and the same numbers, on every machine.
    pub fn sample(&self) -> Sample {
        let generations = self.generations();
        // The sum of 2^-t in units of 2^-64, and the saturated slots, each divided by the number of
        // addresses of its page.
        let (mut matching, mut saturated) = (0_u128, 0.0);
        let mut note = |Slot { known, payload, .. }, level: u32, addresses: f64| {
            matching +=
                u128::from(generations.is_alive(payload)) << (u64::BITS + level - u32::from(known));
            saturated += f64::from(u8::from(payload == generations.most)) / addresses;
        };
        // The levels of a table are this one and the next.
        let pages = self.table.len();
        let all = 2_u64 << pages.ilog2();
        let read = all.min(MOST);
        for i in 0..read {
            let address = match all <= MOST {
                true => i,
                false => scale((i + 1).wrapping_mul(GOLDEN), all),
            };
            let (number, level) = self.levels.page(address, pages);
            let addresses = (all >> level) as f64;
            Slot::of_page(&self.plan, &self.table[number], number as u64, level)
                .for_each(|slot| note(slot, level, addresses));
        }
        let error_rate = matching as f64 * libm::exp2(-64.0) / (read as f64 * PAGE_BUCKETS as f64);
        let saturated = saturated * all as f64 / read as f64;
        Sample { error_rate: error_rate.min(1.0), saturated: saturated as u64 }
    }
}

impl Plan {
    /// The bytes of a structure with `items` items, on average over all seeds. From ten pages on, a
    /// structure rarely differs by 1 %.
    ///
    /// # Errors
    /// `Error::Ceiling` if they need more than `MAX_PAGES`.
    pub fn expected_bytes(&self, items: u64) -> Result<u64, Error> {
        let pages = items.div_ceil(self.page_slots.into()).max(self.first_pages.into());
        if pages > MAX_PAGES {
            let bytes = |pages: u64| pages.saturating_mul(self.page_slots.into());
            return Err(Error::Ceiling { wanted: bytes(pages), ceiling: bytes(MAX_PAGES) });
        }
        let level = pages.ilog2();
        let split = pages - (1 << level);
        let table = memory::bytes::<Entry>(pages as usize);
        if pages == 1 {
            let format = self.format(0);
            let long = || long_page_bytes(format, items as f64) as u64;
            return Ok(table + short_bytes(format, items as usize).unwrap_or_else(long));
        }
        let of_level = |level: u32, pages: u64| {
            let mean = items as f64 / (1_u64 << level) as f64;
            pages as f64 * page_bytes(self.format(level), mean)
        };
        let all = of_level(level, (1 << level) - split) + of_level(level + 1, 2 * split);
        Ok(table + all as u64)
    }

    /// The rate with `items` items that are alive, on average over all seeds; see `plan.rs`.
    pub fn expected_rate(&self, items: u64) -> f64 {
        let of_level = |level: u32| {
            let bits = level + u32::from(self.format(level).tag_bits);
            libm::exp2(-f64::from(bits)) / PAGE_BUCKETS as f64
        };
        // The rate that one item adds when `split` pages of the level have been split.
        let each = |level: u32, split: f64| {
            let share = split / (1_u64 << level) as f64;
            of_level(level) * (1.0 - share) + of_level(level + 1) * share
        };
        let slots = u64::from(self.page_slots);
        let mut pages = u64::from(self.first_pages);
        let level = pages.ilog2();
        let first = items.min(self.most_slots(pages));
        let mut rate = first as f64 * each(level, (pages - (1 << level)) as f64);
        let mut left = items - first;
        while left > 0 {
            let level = pages.ilog2();
            // Each split adds room for `slots` items. A step ends at the next power of two.
            let (split, most) = ((pages - (1 << level)) as f64, (2 << level) - pages);
            let full = most.min(left / slots);
            let mean = split + (full as f64 + 1.0) / 2.0;
            rate += (full * slots) as f64 * each(level, mean);
            pages += full;
            left -= full * slots;
            if full < most {
                rate += left as f64 * each(level, split + full as f64 + 1.0);
                left = 0;
            }
        }
        rate.min(1.0)
    }
}

/// The bytes of a short page of this many items; `None` if they need a long one.
fn short_bytes(long: Format, items: usize) -> Option<u64> {
    let format = Format { tag_bits: long.tag_bits + REST_BITS, ..long };
    let words = block::words_of(items, format);
    let bytes = if items == 0 { 0 } else { memory::bytes::<u64>(words) };
    (words < LEAST_WORDS).then_some(bytes)
}

/// The bytes of a page of `items` items on average.
fn page_bytes(format: Format, items: f64) -> f64 {
    let (mut bytes, mut share, mut count) = (0.0, libm::exp(-items), 0);
    // The pages that are long, and their items.
    let (mut long, mut rest) = (1.0, items);
    while let Some(short) = short_bytes(format, count) {
        bytes += share * short as f64;
        (long, rest) = (long - share, rest - share * count as f64);
        count += 1;
        share *= items / count as f64;
    }
    if long < 1e-9 { bytes } else { bytes + long * long_page_bytes(format, rest / long) }
}

/// The bytes of a long page of `items` items on average.
fn long_page_bytes(format: Format, items: f64) -> f64 {
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
    expected
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
