//! valkey-bloom's filters: how an item is hashed, how a layer is sized, and how a filter grows.
//!
//! ```text
//!   seed, 32 bytes   ┌ key 1, 16 bytes ┬ key 2, 16 bytes ┐
//!   hash of an item  a = SipHash-1-3(key 1), b = SipHash-1-3(key 2)
//!                    of its length as u64 and its bytes
//!   layer n          rate * tightening^n, the capacity of the one before * expansion
//! ```
//!
//! The formulas come from the crate `bloomfilter` 3, on which valkey-bloom is built. A filter
//! grows as it would have in valkey-bloom. A shape that does not follow from capacity and rate is
//! forged. With a ratio of one half, the union of the layers reaches twice the rate that was set.

use std::{f64::consts::LN_2, hash::Hasher};

use siphasher::sip::SipHasher13;

use super::ROUNDING;
use crate::filter::{
    hash::Hash,
    layer::{Classic, LayerPlan, MAX_BITS, Rule, Shape},
    sizing::power,
};

/// valkey-bloom's default for the ratio.
pub const TIGHTENING: f64 = 0.5;

/// The seed of filters made with `bloom-use-random-seed no`. It is public, so it protects nothing.
pub const FIXED_SEED: [u8; 32] = [
    89, 15, 245, 34, 234, 120, 17, 218, 167, 20, 216, 9, 59, 62, 123, 217, 29, 137, 138, 115, 62,
    152, 136, 135, 48, 127, 151, 205, 40, 7, 51, 131,
];

/// What a valkey-bloom filter has beside its layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Valkey {
    /// The keys of its two hashes. They are secret: never send them to a client.
    pub seed: [u8; 32],
    /// The rate of a layer relative to that of the layer before, in (0, 1).
    pub tightening: f64,
}

impl Default for Valkey {
    fn default() -> Self {
        Self { seed: FIXED_SEED, tightening: TIGHTENING }
    }
}

impl Valkey {
    /// The first two words of the probe sequence. Calls `first` with the first word before it
    /// computes the second, so that a prefetch can start.
    pub(in crate::filter) fn hash(&self, item: &[u8], first: impl FnOnce(u64)) -> Hash {
        let (keys, _) = self.seed.as_chunks::<16>();
        let of = |key: &[u8; 16]| {
            let mut hasher = SipHasher13::new_with_key(key);
            // As Rust hashes a slice on a 64-bit machine.
            hasher.write(&(item.len() as u64).to_le_bytes());
            hasher.write(item);
            hasher.finish()
        };
        let block = of(&keys[0]);
        first(block);
        Hash { block, probes: of(&keys[1]) }
    }

    /// The rate of layer `index`. `None` if valkey-bloom would refuse the layer: the rate reaches
    /// the smallest normal double, or the ratio is outside (0, 1).
    pub fn layer_rate(&self, error_rate: f64, index: usize) -> Option<f64> {
        // NaN is outside too.
        if !(self.tightening > 0.0 && self.tightening < 1.0) {
            return None;
        }
        let rate = error_rate * power(self.tightening, index as u32);
        (index == 0 || rate > f64::MIN_POSITIVE).then_some(rate)
    }

    /// A layer for `capacity` items at `rate`; `None` if valkey-bloom would refuse it.
    pub(in crate::filter) fn layer(capacity: u64, rate: f64) -> Option<LayerPlan> {
        let bytes = wanted(capacity, rate).ceil();
        if !(1.0..(MAX_BITS / 8) as f64).contains(&bytes) {
            return None;
        }
        let (bytes, bits) = (bytes as u64, bytes as u64 * 8);
        let probes = u16::try_from(probes(bits, capacity)).ok()?;
        let shape = Classic { bits, bytes, probes, rule: Rule::Prime };
        Some(LayerPlan { capacity, items: 0, error_rate: rate, shape: Shape::Classic(shape) })
    }

    /// Returns whether valkey-bloom gives a layer of `capacity` items at `rate` this shape.
    pub fn fits(shape: &Classic, capacity: u64, rate: f64) -> bool {
        let wanted = wanted(capacity, rate);
        // Any number in this range may be `wanted` rounded up; nearly always both ends are equal.
        let (least, most) = (wanted * (1.0 - ROUNDING), wanted * (1.0 + ROUNDING));
        (least.ceil() as u64..=most.ceil() as u64).contains(&shape.bytes)
            && shape.bytes.checked_mul(8) == Some(shape.bits)
            && u64::from(shape.probes) == probes(shape.bits, capacity)
    }
}

/// Bytes of a layer, before rounding up.
fn wanted(capacity: u64, rate: f64) -> f64 {
    capacity as f64 * libm::log(rate) / (-8.0 * (LN_2 * LN_2))
}

/// Probes of a layer of this many bits.
fn probes(bits: u64, capacity: u64) -> u64 {
    ((bits as f64 / capacity as f64 * LN_2).round() as u64).max(1)
}
