//! The numbers of a paged structure, so that it keeps its error rate at every size.
//!
//! An item that is added to a page of level l with r bits of its tag matches a random query with
//! probability 2^-(l + r) / 1984: the item fills one of 2^(l + r) * 1984 combinations of address,
//! bucket and tag. A split does not change the probability: the bit that leaves the tag enters the
//! address. No query matches two slots of a bucket. So the rate is exactly the sum over all slots.
//!
//! Let a page hold d slots a bucket on average. While the number of pages grows from 2^l to
//! 2^(l + 1), of which the share x is split, a new item falls into a split page with probability x:
//!
//! ```text
//!   first pages   d 2^-r (1 + x/2 - x^2/2) <= d 2^-r 9/8;   d 2^-r if a power of 2 in number
//!   a doubling    d 2^-r ∫ (1 - x/2) dx     = d 2^-r 3/4,   whatever the level
//! ```
//!
//! After D doublings the rate is at most d 2^-r (9/8 + 3/4 D), as long as r is fixed. After the
//! planned doublings, each new level has tags that are one bit longer. The k-th of these doublings
//! (from k = 0 on) adds d 2^-r 2^-k ∫ (1 - 3x/4) dx = 5/8 d 2^-r 2^-k. Together they add at most
//! 5/4 d 2^-r, so the filter may grow for ever.
//!
//! Deletions keep the bound: no level ever has more items than it is made for.

use super::{page::PAGE_BUCKETS, slot::Format};
use crate::filter::{error::Error, params::check_ranges};

/// Doublings before tags get longer, in a structure that may grow without end: to a billion items.
const ENDLESS: u8 = 19;

/// The fewest slots a bucket: with fewer, the ends of buckets cost more than a bit of each tag.
const LEAST_LOAD: f64 = 0.9;

/// The rates that a plan keeps. The lowest is kept up to a billion items: beyond, level and tag
/// would need more bits than `Hash::block` has. Above the highest, slots are void after few splits.
const RATES: std::ops::RangeInclusive<f64> = 2.5e-13..=0.25;

/// What the payload of a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// No bits.
    Nothing,
    /// Additions less deletions, minus 1, in [1, 8] bits. The highest number stays.
    Count(u8),
    /// The number of the generation in which the item came last, in [1, 8] bits.
    Generation(u8),
}

impl Payload {
    /// Bits of a payload.
    pub fn bits(self) -> u8 {
        match self {
            Self::Nothing => 0,
            Self::Count(bits) | Self::Generation(bits) => bits,
        }
    }

    /// The highest payload.
    pub fn most(self) -> u64 {
        super::words::low(self.bits().into())
    }
}

/// How far a structure may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It never has more items than it is reserved for.
    Never,
    /// It takes the least memory up to 2^doublings times its reservation, and may grow without end.
    Doublings(u8),
    /// It may grow without end.
    Endless,
}

/// The numbers that decide the words of a structure, besides the items, in 10 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(Rust, packed(2))]
pub struct Plan {
    /// Bits of a tag, in [1, 45]: r.
    pub tag_bits: u8,
    /// What the payload of a slot is.
    pub payload: Payload,
    /// Doublings before tags get longer.
    pub doublings: u8,
    /// Slots of a page on average when it is split: 1,984 d, in [256, 65535].
    pub page_slots: u16,
    /// Pages of an empty structure, from 1 to 2^32 - 1; that many hold 17 TB or more.
    pub first_pages: u32,
}

/// The most pages.
pub const MAX_PAGES: u64 = 1 << 40;

/// The longest tag of a plan.
const MAX_TAG_BITS: u8 = 45;

/// The longest tag of a slot, with 3 bits for levels of longer tags. With 5 bits more in a short
/// page, a marker and the longest payload, a slot has 62 bits.
const MAX_SLOT_TAG_BITS: u8 = 48;

impl Plan {
    /// The plan of least memory for a rate, for `capacity` items before it grows; 0 is allowed.
    ///
    /// # Errors
    /// Those of [`check_ranges`].
    pub fn new(rate: f64, capacity: u64, growth: Growth, payload: Payload) -> Result<Self, Error> {
        check_ranges(rate, capacity.max(1))?;
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
            let first_pages = capacity.div_ceil(page_slots.into()).clamp(1, u32::MAX.into()) as u32;
            Self { tag_bits, payload, doublings, page_slots, first_pages }
        };
        // A power of two of pages has the lower sum.
        let even = plan(1.0);
        Ok(if even.first_pages.is_power_of_two() { even } else { plan(1.125) })
    }

    /// Checks the ranges, of a plan that may come from anywhere.
    ///
    /// # Errors
    /// `Error::Capacity` for the number of pages, otherwise `Error::Window`.
    pub fn check(&self) -> Result<(), Error> {
        if self.first_pages == 0 {
            return Err(Error::Capacity(0));
        }
        let payload = self.payload == Payload::Nothing || (1..=8).contains(&self.payload.bits());
        let sound =
            payload && (1..=MAX_TAG_BITS).contains(&self.tag_bits) && self.page_slots >= 256;
        if sound { Ok(()) } else { Err(Error::Window) }
    }

    /// The slots of `pages` pages above which one of them is split.
    pub fn most_slots(&self, pages: u64) -> u64 {
        pages.saturating_mul(self.page_slots.into())
    }

    /// Whether two of `pages` pages are joined: if less than three quarters of the slots that
    /// `pages - 1` pages may have are left. So a page is not split and joined repeatedly.
    pub(super) fn joins_below(&self, pages: u64, slots: u64) -> bool {
        pages > self.first_pages.into() && slots < self.most_slots(pages - 1) / 4 * 3
    }

    /// The slots of pages of a level.
    pub fn format(&self, level: u32) -> Format {
        let (first, tag_bits) = (self.first_pages.ilog2(), u32::from(self.tag_bits));
        let tag_bits = if level < first {
            // Below the level of the first pages, level and tag together have a fixed length.
            (tag_bits + first - level).min(MAX_TAG_BITS.into()) as u8
        } else {
            let longer = level.saturating_sub(first + u32::from(self.doublings));
            (tag_bits + longer).min(MAX_SLOT_TAG_BITS.into()) as u8
        };
        Format { tag_bits, payload_bits: self.payload.bits() }
    }
}
