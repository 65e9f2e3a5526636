//! Reads the bytes of Guava's `BloomFilter.writeTo`. Never writes them.
//!
//! ```text
//!   strategy u8: 0 MURMUR128_MITZ_32, 1 MURMUR128_MITZ_64 · probes u8 · number of longs i32 ·
//!   the longs, big endian: bit i is bit i % 64 of long i / 64
//! ```
//!
//! The bytes do not contain capacity and error rate. They are computed from bits and probes
//! (`foreign::guava::design`). The number of items is estimated from the set bits
//! (`foreign::guava::items_of`).

use super::{Error, reader::Reader};
use crate::filter::{Classic, Expansion, Family, Filter, LayerPlan, Plan, Rule, Shape, foreign};

/// Reads the bytes of `writeTo` into a filter of at most `ceiling` bytes of bits.
///
/// # Errors
/// Any [`Error`] for bad bytes; nothing stays allocated.
pub fn read(bytes: &[u8], ceiling: u64) -> Result<Filter, Error> {
    let mut reader = Reader(bytes);
    let rule = match reader.u8()? {
        0 => Rule::Mitz32,
        1 => Rule::Mitz64,
        _ => return Err(Error::Malformed("a strategy that Guava does not have")),
    };
    let probes = reader.u8()?;
    let longs = u32::from_be_bytes(reader.array()?);
    let (whole, rest) = reader.0.as_chunks::<8>();
    if probes == 0 || longs == 0 || longs as usize != whole.len() || !rest.is_empty() {
        return Err(Error::Malformed("a Guava filter without bits or of another length"));
    }
    let bits = u64::from(longs).saturating_mul(64);
    let (capacity, error_rate) = foreign::guava::design(bits, probes.into());
    let shape = Classic { bits, bytes: bits / 8, probes: probes.into(), rule };
    let layers = vec![LayerPlan { capacity, items: 0, error_rate, shape: Shape::Classic(shape) }];
    let (family, expansion) = (Family::Guava, Expansion::NONSCALING);
    let plan = Plan { family, error_rate, expansion, layers, ..Plan::default() };
    plan.check()?;
    let mut filter = plan.allocate(ceiling)?;
    if let Some(layer) = filter.layers_from_mut(0).next() {
        layer.bits_mut().merge(0, &mut whole.iter().map(|long| u64::from_be_bytes(*long)));
        let items = foreign::guava::items_of(layer.bits().count_ones(), shape.bits, shape.probes);
        layer.counted = items.min(capacity);
    }
    Ok(filter)
}
