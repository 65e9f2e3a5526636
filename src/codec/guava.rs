//! Reads the bytes of Guava's `BloomFilter.writeTo`, and bitmaps that clients fill with SETBIT by
//! Guava's algorithm. Never writes them.
//!
//! ```text
//!   writeTo  ┌──────────┬────────┬───────┬─────────┬─ ─ ─┐   strategy 0: MURMUR128_MITZ_32
//!   (big     │ strategy │ probes │ longs │ long 0  │ ... │            1: MURMUR128_MITZ_64
//!   endian)  │ u8       │ u8     │ i32   │ 8 bytes │     │   bit i is bit i % 64 of long i / 64
//!            └──────────┴────────┴───────┴─────────┴─ ─ ─┘
//!
//!   bitmap   bit i is bit 7 - i % 8 of byte i / 8; the string ends at the last byte written
//! ```
//!
//! Neither format contains capacity and error rate. For `writeTo` they are computed from bits and
//! probes (`foreign::guava::design`), or the caller gives them. For a bitmap the caller must. A
//! bitmap that cannot be of that size is refused: its items would test absent.
//!
//! Neither format contains the number of items; it is estimated from the set bits
//! (`foreign::guava::items_of`).

use super::{Error, reader::Reader};
use crate::filter::{Classic, Expansion, Family, Filter, LayerPlan, Plan, Rule, foreign};

/// Most bits of `MURMUR128_MITZ_32`, which computes positions in a Java `int`.
const MOST_BITS_32: u64 = i32::MAX as u64;
/// Most bits of a bitmap: SETBIT accepts offsets below 2^32.
const MOST_BITS_64: u64 = 1 << 32;

/// A bitmap less probable than 10^-9 is refused as too short; the natural logarithm of that.
const IMPROBABLE: f64 = -20.7;

/// What a filter is designed for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Purpose {
    /// Items, in [1, 2^62].
    pub capacity: u64,
    /// False positive rate at that number of items, in (0, 1).
    pub error_rate: f64,
}

/// The strategy of Guava that computes the positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// `MURMUR128_MITZ_32`.
    Mitz32,
    /// `MURMUR128_MITZ_64`.
    Mitz64,
}

impl Strategy {
    fn rule(self) -> Rule {
        match self {
            Self::Mitz32 => Rule::Mitz32,
            Self::Mitz64 => Rule::Mitz64,
        }
    }
}

/// Reads the bytes of `writeTo` into a filter of at most `ceiling` bytes of bits. Computes the
/// purpose from bits and probes if it is `None`.
///
/// # Errors
/// `Error::Design` if `purpose` gives other bits or probes, and any other [`Error`] for bad bytes;
/// nothing stays allocated.
pub fn read(bytes: &[u8], purpose: Option<Purpose>, ceiling: u64) -> Result<Filter, Error> {
    let mut reader = Reader::plain(bytes);
    let strategy = match reader.u8()? {
        0 => Strategy::Mitz32,
        1 => Strategy::Mitz64,
        _ => return Err(Error::Malformed("a strategy that Guava does not have")),
    };
    let probes = reader.u8()?;
    let longs = u32::from_be_bytes(reader.array()?);
    let (whole, rest) = reader.rest().as_chunks::<8>();
    if probes == 0 || longs == 0 || longs as usize != whole.len() || !rest.is_empty() {
        return Err(Error::Malformed("a Guava filter without bits or of another length"));
    }
    let bits = u64::from(longs).saturating_mul(64);
    let purpose = match purpose {
        None => {
            let (capacity, error_rate) = foreign::guava::design(bits, probes.into());
            Purpose { capacity, error_rate }
        }
        Some(purpose) => match foreign::guava::optimal(purpose.capacity, purpose.error_rate) {
            (wanted, wanted_probes)
                if wanted.div_ceil(64) == u64::from(longs)
                    && [wanted_probes, foreign::guava::probes_of_rate(purpose.error_rate)]
                        .contains(&u64::from(probes)) =>
            {
                purpose
            }
            (wanted, probes) => return Err(Error::Design { wanted, probes }),
        },
    };
    let shape = Classic { bits, bytes: bits / 8, probes: probes.into(), rule: strategy.rule() };
    filter(shape, purpose, ceiling, whole.iter().map(|long| u64::from_be_bytes(*long)))
}

/// Copies the bits of a bitmap into a filter of at most `ceiling` bytes of bits.
///
/// # Errors
/// `Error::Beyond` and `Error::Short` if the bitmap is not one of `purpose`, `Error::Design` if no
/// bitmap is, and those of the filter that `purpose` gives.
pub fn read_bitmap(
    bitmap: &[u8],
    strategy: Strategy,
    purpose: Purpose,
    ceiling: u64,
) -> Result<Filter, Error> {
    let (bits, _) = foreign::guava::optimal(purpose.capacity, purpose.error_rate);
    let bits = match strategy {
        // Java converts to `int` by saturation.
        Strategy::Mitz32 => bits.min(MOST_BITS_32),
        Strategy::Mitz64 => bits,
    };
    // Guava computes the probes after it limits the bits.
    let probes = foreign::guava::optimal_probes(bits, purpose.capacity);
    let none = Error::Design { wanted: bits, probes };
    let probes = u16::try_from(probes).map_err(|_| none)?;
    if bits == 0 || bits > MOST_BITS_64 {
        return Err(none);
    }
    let set: u64 = bitmap.iter().map(|byte| u64::from(byte.count_ones())).sum();
    let last = bitmap.iter().enumerate().rev().find(|(_, byte)| **byte != 0);
    // The first bit of a byte is its most significant.
    let highest = last.map(|(at, byte)| {
        let within = 7_u64.saturating_sub(byte.trailing_zeros().into());
        (at as u64).saturating_mul(8).saturating_add(within)
    });
    if let Some(highest) = highest {
        if highest >= bits {
            return Err(Error::Beyond { highest, bits });
        }
        let share = share_below(highest.saturating_add(1), bits, strategy);
        // `libm`, because this decides acceptance, and a replica must decide the same.
        if libm::log(share) * (set as f64) < IMPROBABLE {
            return Err(Error::Short { highest, bits });
        }
    }
    let shape = Classic { bits, bytes: bits.div_ceil(8), probes, rule: strategy.rule() };
    let words = bitmap.chunks(8).map(|bytes| {
        let mut word = [0; 8];
        for (to, from) in word.iter_mut().zip(bytes) {
            *to = from.reverse_bits();
        }
        u64::from_le_bytes(word)
    });
    filter(shape, purpose, ceiling, words)
}

/// The probability that a position is below `end`.
fn share_below(end: u64, bits: u64, strategy: Strategy) -> f64 {
    match strategy {
        Strategy::Mitz64 => end as f64 / bits as f64,
        // A position is one of 2^31 numbers modulo `bits`: the lowest may have one number more.
        Strategy::Mitz32 => {
            let numbers = 1_u64 << 31;
            let rounds = numbers.checked_div(bits).unwrap_or(0).saturating_mul(end);
            let rest = numbers.checked_rem(bits).unwrap_or(0).min(end);
            rounds.saturating_add(rest) as f64 / numbers as f64
        }
    }
}

/// Builds a filter of one layer from the words of its bits.
fn filter(
    shape: Classic,
    purpose: Purpose,
    ceiling: u64,
    mut words: impl Iterator<Item = u64>,
) -> Result<Filter, Error> {
    let Purpose { capacity, error_rate } = purpose;
    let plan = Plan {
        family: Family::Guava,
        seed: 0,
        error_rate,
        expansion: Expansion::NONSCALING,
        shard: None,
        layers: vec![LayerPlan { capacity, items: 0, error_rate, shape: shape.into() }],
    };
    plan.check()?;
    let mut filter = plan.allocate(ceiling)?;
    if let Some(layer) = filter.layers_from_mut(0).next() {
        layer.merge(0, &mut words);
        let items = foreign::guava::items_of(layer.bits().count_ones(), shape.bits, shape.probes);
        layer.set_counted(items.min(capacity));
    }
    Ok(filter)
}
