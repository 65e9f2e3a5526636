//! The numbers of a paged structure, so that it keeps its error rate at every size.
//!
//! An item that is added to a page of level l with r bits of its tag matches a random query with
//! probability 2^-(l + r) / 1984: that many buckets and tags exist. Splits do not change that: the
//! bit that leaves the tag enters the address. No query matches two slots of a bucket, so the rate
//! is the sum over all slots, exactly.
//!
//! Let a page hold d slots a bucket on average. While the number of pages grows from 2^l to
//! 2^(l + 1), of which the share x is split, a new item falls into a split page with probability x:
//!
//! ```text
//!   first pages   d 2^-r (1 + x/2 - x^2/2) <= d 2^-r 9/8;   d 2^-r if a power of 2 in number
//!   a doubling    d 2^-r ∫ (1 - x/2) dx     = d 2^-r 3/4,   whatever the level
//! ```
//!
//! After D doublings the rate is at most d 2^-r (9/8 + 3/4 D): this is the sum for fixed r. After
//! the last of the doublings that are planned, each level gets tags that are one bit longer, and
//! the k-th of these doublings, from k = 0 on, takes d 2^-r 2^-k ∫ (1 - 3x/4) dx = 5/8 d 2^-r 2^-k.
//! All of them together take 5/4 d 2^-r, so the filter may grow for ever. (Dayan et al.,
//! "InfiniFilter", 2023, lengthens the tags in the same way.)
//!
//! Deletions keep the bound: at each level, there are at most the items that it is made for.

use super::{page::PAGE_BUCKETS, slot::Format};
use crate::filter::{error::Error, params::MAX_CAPACITY};

/// Doublings with tags of one length, where a structure may grow without end: then it has 1.3
/// billion items, or half a million times those that it was reserved for.
const ENDLESS: u8 = 19;

/// The fewest slots a bucket. With fewer, one bit less of each tag costs more bits for the ends of
/// the buckets, which take a bit of each bucket.
const LEAST_LOAD: f64 = 0.9;

/// The lowest rate is what pages above a layer get of 1e-12 (`paged/mod.rs`). With the longest tags
/// it is kept up to a billion items: beyond, level and tag together have more bits than
/// `Hash::block`. Above the highest rate, slots would be void after a few splits.
const RATES: std::ops::RangeInclusive<f64> = 2.5e-13..=0.25;

/// What the payload of a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// No bits.
    Nothing,
    /// Additions less deletions, minus 1. The highest number stays, because it no longer shows how
    /// many items there are.
    Count {
        /// Bits of a count, in [1, 8].
        bits: u8,
    },
    /// The number of the generation in which the item came last, modulo 2^bits.
    Generation {
        /// Bits of a number, in [1, 8].
        bits: u8,
    },
}

impl Payload {
    /// Bits of a payload.
    #[inline]
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Count { bits } | Self::Generation { bits } => bits,
        }
    }

    /// The highest payload.
    #[inline]
    #[must_use]
    pub fn most(self) -> u64 {
        super::words::low(self.bits().into())
    }
}

/// How far a structure may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It never has more items than it is reserved for.
    Never,
    /// It is best up to 2^doublings times the items that it is reserved for, and may grow without
    /// end.
    Doublings(u8),
    /// It may grow without end.
    Endless,
}

/// The numbers that decide the words of a structure, besides the items. A stored structure has them
/// all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bits of a tag, in [1, 45]: r.
    pub tag_bits: u8,
    /// What the payload of a slot is.
    pub payload: Payload,
    /// Doublings before tags get longer.
    pub doublings: u8,
    /// Slots of a page on average when it is split: 1,984 d, in [256, 65535].
    pub page_slots: u16,
    /// Pages of an empty structure, in [1, `MAX_FIRST`].
    pub first_pages: u64,
}

/// The most pages.
pub const MAX_PAGES: u64 = 1 << 40;

/// The most pages of an empty structure: 17 TB and more.
const MAX_FIRST: u64 = u32::MAX as u64;

/// The longest tag of a plan, and of fewer pages than the first ones: an entry of the small form,
/// which has a place of 11 bits and a payload of up to 8, then has 64 bits.
const MAX_TAG_BITS: u8 = 45;

/// The longest tag of a slot. It leaves 3 bits for levels of longer tags, which are as many as the
/// hash has.
const MAX_SLOT_TAG_BITS: u8 = 48;

impl Plan {
    /// The plan of least memory for a rate, for `capacity` items before it grows.
    ///
    /// # Errors
    /// `Error::ErrorRate` unless the rate is in (0, 1); `Error::Capacity`.
    pub fn new(rate: f64, capacity: u64, growth: Growth, payload: Payload) -> Result<Self, Error> {
        if !(rate > 0.0 && rate < 1.0) {
            return Err(Error::ErrorRate(rate));
        }
        if capacity > MAX_CAPACITY {
            return Err(Error::Capacity(capacity));
        }
        let rate = rate.clamp(*RATES.start(), *RATES.end());
        let doublings = match growth {
            Growth::Never => 0,
            Growth::Doublings(doublings) => doublings.clamp(1, ENDLESS) - 1,
            Growth::Endless => ENDLESS,
        };
        let later = match growth {
            Growth::Never => 0.0,
            _ => 0.75 * f64::from(doublings) + 1.25,
        };
        let plan = |first: f64| {
            let load = |bits: u8| rate * (1_u64 << bits) as f64 / (first + later);
            let tag_bits =
                (1..MAX_TAG_BITS).find(|&bits| load(bits) >= LEAST_LOAD).unwrap_or(MAX_TAG_BITS);
            let page_slots = (load(tag_bits) * PAGE_BUCKETS as f64) as u16;
            let first_pages = capacity.div_ceil(page_slots.into()).clamp(1, MAX_FIRST);
            Self { tag_bits, payload, doublings, page_slots, first_pages }
        };
        // A power of two of pages, of which one is nearly as often the case as all others, has the
        // lower sum.
        let even = plan(1.0);
        Ok(if even.first_pages.is_power_of_two() { even } else { plan(1.125) })
    }

    /// Checks the ranges, of a plan that may come from anywhere.
    ///
    /// # Errors
    /// `Error::Capacity` for the number of pages, otherwise `Error::Window`.
    pub fn check(&self) -> Result<(), Error> {
        if !(1..=MAX_FIRST).contains(&self.first_pages) {
            return Err(Error::Capacity(self.first_pages));
        }
        let payload = self.payload == Payload::Nothing || (1..=8).contains(&self.payload.bits());
        let sound =
            payload && (1..=MAX_TAG_BITS).contains(&self.tag_bits) && self.page_slots >= 256;
        if sound { Ok(()) } else { Err(Error::Window) }
    }

    /// The slots of `pages` pages above which one of them is split.
    #[inline]
    #[must_use]
    pub fn most_slots(&self, pages: u64) -> u64 {
        pages.saturating_mul(self.page_slots.into())
    }

    /// Whether two of `pages` pages are joined before only `slots` slots are left: less than three
    /// quarters of those that one page less may have. The distance to the limit for splits keeps a
    /// page from being split and joined again and again.
    #[inline]
    pub(super) fn joins_below(&self, pages: u64, slots: u64) -> bool {
        pages > self.first_pages && slots < self.most_slots(pages - 1) / 4 * 3
    }

    /// The slots of pages of a level.
    #[inline(always)]
    #[must_use]
    pub fn format(&self, level: u32) -> Format {
        let (first, tag_bits) = (self.first_pages.ilog2(), u32::from(self.tag_bits));
        let tag_bits = if level < first {
            // An item of fewer pages than the first ones gets as many bits as one of those.
            (tag_bits + first - level).min(MAX_TAG_BITS.into()) as u8
        } else {
            let longer = level.saturating_sub(first + u32::from(self.doublings));
            (tag_bits + longer).min(MAX_SLOT_TAG_BITS.into()) as u8
        };
        Format { tag_bits, payload_bits: self.payload.bits() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rate: f64, capacity: u64, growth: Growth) -> Plan {
        Plan::new(rate, capacity, growth, Payload::Nothing).expect("a rate in range")
    }

    /// The exact sum for a plan after growing from its first pages to `doublings` times twice as
    /// many, with the rate of each level weighed by the items that come at it.
    fn rate(plan: &Plan, doublings: u32) -> f64 {
        let weight = |level: u32| {
            // An item has no more bits than its hash.
            let bits = (u32::from(plan.format(level).tag_bits) + level).min(u64::BITS);
            libm::exp2(-f64::from(bits)) / PAGE_BUCKETS as f64
        };
        let first = plan.first_pages.ilog2();
        let mut sum = 0.0;
        let count = f64::from(plan.page_slots);
        // Items of the first pages: the split ones, and the others.
        let (all, split) = (plan.first_pages as f64, plan.first_pages - (1 << first));
        let share = split as f64 / f64::from(1_u32 << first);
        sum += count * all * ((1.0 - share) * weight(first) + share * weight(first + 1));
        let mut pages = plan.first_pages;
        while pages < plan.first_pages << doublings {
            let level = pages.ilog2();
            // In steps of a hundredth of a doubling, with the share of split pages at the end.
            let next = pages + (1_u64 << level).div_ceil(100).min((2 << level) - pages);
            let share = (next - (1 << level)) as f64 / (1_u64 << level) as f64;
            let weight = (1.0 - share) * weight(level) + share * weight(level + 1);
            sum += count * (next - pages) as f64 * weight;
            pages = next;
        }
        sum
    }

    #[test]
    fn the_sum_over_all_items_stays_below_the_rate() {
        for asked in [0.25, 0.1, 0.01, 0.001, 1e-6, 1e-9, 1e-10, 1e-11, 1e-12, 2.5e-13] {
            for capacity in [0, 1, 100_000, 1_000_000, 1_234_567] {
                for growth in [Growth::Never, Growth::Doublings(4), Growth::Endless] {
                    // Only pages above a layer have a lower rate.
                    if asked < 1e-12 && (growth, capacity) != (Growth::Endless, 0) {
                        continue;
                    }
                    let plan = plan(asked, capacity, growth);
                    let most = match growth {
                        Growth::Never => 0,
                        // To a billion items.
                        _ if asked < 1e-6 => 29 - plan.most_slots(plan.first_pages).ilog2(),
                        _ => 24,
                    };
                    for doublings in 0..=most {
                        let rate = rate(&plan, doublings);
                        assert!(rate <= asked, "{plan:?}: {rate} after {doublings} doublings");
                    }
                    // Of what the first pages leave, at least a third is used in the end: the rest
                    // is what rounding to whole bits costs, and doublings that are not tried.
                    assert!(rate(&plan, most) >= 0.4 * asked, "{plan:?}: {}", rate(&plan, most));
                }
            }
        }
    }

    #[test]
    fn tags_have_the_lengths_of_the_design() {
        let bits = |rate, growth| plan(rate, 1_000_000, growth).tag_bits;
        assert_eq!((bits(0.01, Growth::Endless), bits(0.001, Growth::Endless)), (11, 14));
        assert_eq!((bits(0.01, Growth::Doublings(4)), bits(0.01, Growth::Never)), (9, 7));
    }
}
