//! RedisBloom's layouts: RDB and DUMP with the encoding versions 0 to 4, and the chunks of its
//! BF.SCANDUMP and AOF.
//!
//! ```text
//!   RDB        size · layers · [options]₂₊ · [growth]₄ · for each layer:
//!              capacity · rate f64 · probes · bits per item f64 · [bits · n2]₁₊ ·
//!              the bits as one string · items
//!              (₁₊, ₂₊, ₄: in the encoding versions from 1 on, from 2 on, 4)
//!
//!   dump       size u64 · layers u32 · options u32 · growth u32 · for each layer, 53 bytes:
//!   header     bytes u64 · bits u64 · items u64 · rate f64 · bits per item f64 · probes u32 ·
//!              capacity u64 · n2 u8                    packed, little-endian
//!              Before 2.2.4 the capacity is a u32, before 2.2 there is no growth; the length of
//!              the header shows which.
//!
//!   chunk      at most 16 MiB of the bits of one layer, without a frame; the iterator gives its
//!              end, as in native/dump.rs
//!
//!   options    1 exact, 4 64-bit hash, 8 non-scaling; 2 is in RedisBloom's code, but no command
//!              ever created such a filter
//!   n2         0, or the layer has 2^n2 positions; bits is then 0 (before 2.2), 2^n2, or 8 * bytes
//! ```
//!
//! A layer is allocated only when its string has arrived and has the length that follows from
//! capacity and rate. Other numbers that can be computed are compared with the computed ones
//! (`foreign::redisbloom::fits`).
//!
//! RedisBloom 2.4 and later read the dumps written here, so users can go back to RedisBloom.

mod dump;
mod rdb;

use super::Error;
use crate::filter::{
    Classic, Error as FilterError, Expansion, Family, LayerPlan, Plan, RedisBloom, Rule, Shape,
    foreign::redisbloom,
};

pub(super) use dump::{cut, header, place, read_header};
pub use rdb::{ENCODING_VERSIONS, load};

const EXACT: u64 = 1;
const HASH64: u64 = 4;
const NONSCALING: u64 = 8;

/// The growth factor of filters without a stored one: RedisBloom's default in all versions.
const GROWTH: u64 = 2;
/// The largest relative difference of bits per item: C libraries differ in the last bit.
const ROUNDING: f64 = 1e-12;

/// The numbers of a filter, in RDB and dump (RedisBloom's `SBChain`).
struct Chain {
    size: u64,
    family: RedisBloom,
    expansion: Expansion,
    /// Whether the filter grows: its layers have half, a quarter, ... of its rate.
    scales: bool,
}

impl Chain {
    fn new(size: u64, options: u64, growth: Option<u64>) -> Result<Self, Error> {
        if options & !(EXACT | HASH64 | NONSCALING) != 0 {
            return Err(Error::Malformed("options that RedisBloom does not write"));
        }
        let scales = options & NONSCALING == 0;
        let expansion = match growth.unwrap_or(GROWTH) {
            _ if !scales => Expansion::NONSCALING,
            // Versions before 2.2.10 lost the growth factor of filters loaded from a dump.
            0 => Expansion::stored(GROWTH as u32),
            growth => Expansion::stored(
                u32::try_from(growth).map_err(|_| FilterError::Expansion(growth))?,
            ),
        };
        Ok(Self {
            size,
            family: RedisBloom { hash64: options & HASH64 != 0, rounds: options & EXACT == 0 },
            expansion,
            scales,
        })
    }

    fn plan(&self, layers: Vec<LayerPlan>) -> Result<Plan, Error> {
        let sum = layers.iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.items));
        if sum != self.size {
            return Err(Error::Malformed("a count that is not the sum of those of the layers"));
        }
        let first = layers.first().map_or(0.0, |layer| layer.error_rate);
        let plan = Plan {
            family: Family::RedisBloom(self.family),
            error_rate: redisbloom::error_rate(first, self.scales),
            expansion: self.expansion,
            layers,
            ..Plan::default()
        };
        plan.check()?;
        Ok(plan)
    }
}

/// The numbers of a layer, in RDB and dump (RedisBloom's `SBLink`).
struct Link {
    capacity: u64,
    rate: f64,
    probes: u64,
    bits_per_item: f64,
    bits: u64,
    n2: u64,
    bytes: u64,
    items: u64,
}

impl Link {
    /// Makes the plan of the layer; refuses numbers that RedisBloom does not compute.
    fn plan(&self) -> Result<LayerPlan, Error> {
        let forged = Error::Malformed("a layer that RedisBloom does not compute from its numbers");
        // Written so that NaN is refused.
        if !(self.rate > 0.0 && self.rate < 1.0) {
            return Err(FilterError::ErrorRate(self.rate).into());
        }
        let per_item = redisbloom::bits_per_item(self.rate);
        let off = (self.bits_per_item - per_item).abs();
        if off.is_nan() || off > per_item * ROUNDING {
            return Err(forged);
        }
        let probes = u16::try_from(self.probes).map_err(|_| forged)?;
        let (bits, rule) = if self.n2 == 0 {
            (self.bits, Rule::Remainder)
        } else {
            let power = u32::try_from(self.n2).ok().and_then(|n2| 1_u64.checked_shl(n2));
            let positions = power.ok_or(forged)?;
            let whole = self.bytes.checked_mul(8).ok_or(forged)?;
            if ![0, positions, whole].contains(&self.bits) {
                return Err(forged);
            }
            (positions, Rule::LowBits)
        };
        let shape = Classic { bits, bytes: self.bytes, probes, rule };
        if !shape.is_sound() || !redisbloom::fits(&shape, self.capacity, self.rate) {
            return Err(forged);
        }
        Ok(LayerPlan {
            capacity: self.capacity,
            items: self.items,
            error_rate: self.rate,
            shape: Shape::Classic(shape),
        })
    }
}
