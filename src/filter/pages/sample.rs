//! The rate of a structure now, from its slots.
//!
//! A slot with t bits of tag left matches a query with probability 2^-t / 1984, if the address of
//! the query belongs to the slot's page. No query matches two slots of a bucket. So the rate is the
//! mean, over all addresses, of the sum over the slots of the page. At most `MOST` addresses are
//! read, which takes half a millisecond. They follow no pattern: pages whose numbers have equal low
//! bits were split at about the same time, so a pattern would bias the sample.

use super::{Pages, Slot, level_of, page::PAGE_BUCKETS};
use crate::filter::hash::scale;

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
        let (plan, generations) = (self.plan, self.generations());
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
            let (number, _) = self.levels.page(address, pages);
            let level = level_of(number, pages);
            let addresses = (all >> level) as f64;
            Slot::of_page(&self.table[number], plan.format(level), number as u64, level)
                .for_each(|slot| note(slot, level, addresses));
        }
        let error_rate = matching as f64 * libm::exp2(-64.0) / (read as f64 * PAGE_BUCKETS as f64);
        let saturated = saturated * all as f64 / read as f64;
        Sample { error_rate: error_rate.min(1.0), saturated: saturated as u64 }
    }
}
