//! The rate of a structure now, from its slots.
//!
//! A query matches a slot of a page of level l, of whose tag t bits are left, with probability
//! 2^-(l + t) / 1984, and no two slots of a bucket. So the rate is the sum over the slots. Of each
//! level, `MOST` pages stand for all of them: half a millisecond at most. Their numbers have no
//! pattern, because pages whose numbers have equal low bits were split at about the same times.

use super::{Pages, Payload, marker, page::PAGE_BUCKETS, slot::Format};
use crate::filter::hash::probe::scale;

/// The most pages read of a level.
const MOST: usize = 64;

/// 2^64 divided by the golden ratio: its multiples are spread evenly.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// What slots show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Probability that an item which was never added matches a slot; in a window, one of a
    /// generation that is alive.
    pub error_rate: f64,
    /// Slots with the highest payload.
    pub saturated: u64,
}

/// The slots of some pages of a level.
struct Tally {
    level: u32,
    /// Slots that are not dead, by the number of bits left of their tag.
    tags: [u64; 64],
    saturated: u64,
}

impl Tally {
    fn note(&mut self, bits: usize, payload: u64, pages: &Pages) {
        let dead =
            matches!(pages.plan().payload, Payload::Generation { .. }) && !pages.is_alive(payload);
        self.tags[bits] += u64::from(!dead);
        self.saturated += u64::from(payload == pages.plan().payload.most());
    }

    /// The sums, each slot being one of `weight`.
    fn sums(&self, weight: f64) -> (f64, f64) {
        let rate = |(bits, &slots): (usize, &u64)| {
            slots as f64 * libm::exp2(-(f64::from(self.level) + bits as f64))
        };
        let rate = self.tags.iter().enumerate().map(rate).sum::<f64>() / PAGE_BUCKETS as f64;
        (rate * weight, self.saturated as f64 * weight)
    }
}

impl Pages {
    /// Reads the slots of some pages: the same ones, and the same numbers, on every machine.
    #[must_use]
    pub fn sample(&self) -> Sample {
        let tally = |level| Tally { level, tags: [0; 64], saturated: 0 };
        let table = self.pages();
        let mut sums = (0.0, 0.0);
        let mut add = |tally: &Tally, weight| {
            let (rate, saturated) = tally.sums(weight);
            sums = (sums.0 + rate, sums.1 + saturated);
        };
        if table.is_empty() {
            let (mut all, format) = (tally(0), self.plan().format(0));
            self.slots().for_each(|slot| all.note(format.tag_bits.into(), slot.payload, self));
            add(&all, 1.0);
        } else {
            let lower = table.len().ilog2();
            for level in [lower, lower + 1] {
                // Those that are still to be split, or their halves and all that were split.
                let unsplit = (2 << lower) - table.len();
                let (first, count) = match level == lower {
                    true => (table.len() - (1 << lower), unsplit),
                    false => (0, table.len() - unsplit),
                };
                let (format, mut some): (Format, _) = (self.plan().format(level), tally(level));
                let read = count.min(MOST);
                for i in 0..read {
                    let mut page = match count <= MOST {
                        true => i,
                        false => scale((i as u64 + 1).wrapping_mul(GOLDEN), count as u64) as usize,
                    };
                    // The numbers of the pages that are not split lie between those of the others.
                    if level > lower && page >= count / 2 {
                        page += unsplit;
                    }
                    for (_, slot) in table[first + page].slots(format) {
                        some.note(marker(format.tag(slot)), format.payload(slot), self);
                    }
                }
                if read > 0 {
                    add(&some, count as f64 / read as f64);
                }
            }
        }
        Sample { error_rate: sums.0.min(1.0), saturated: sums.1 as u64 }
    }
}
