//! Reads RDB and DUMP, never writes them. A layer is allocated when its bits have arrived.

use super::{Chain, Link};
use crate::{
    codec::{Error, io::NumberSource, native::stream},
    filter::{Error as FilterError, Filter, MAX_LAYERS},
};

/// The encoding versions of RedisBloom's RDB.
pub const ENCODING_VERSIONS: std::ops::RangeInclusive<i32> = 0..=4;
/// The first version with the number of bits and n2.
const BITS_SINCE: i32 = 1;
/// The first version with options.
const OPTIONS_SINCE: i32 = 2;
/// The first version with the growth factor.
const GROWTH_SINCE: i32 = 4;

/// Reads a filter with one of the `ENCODING_VERSIONS` and at most `ceiling` bytes of bits.
///
/// # Errors
/// Any [`Error`]; nothing stays allocated.
pub fn load(source: &mut impl NumberSource, version: i32, ceiling: u64) -> Result<Filter, Error> {
    let size = source.unsigned()?;
    let count = source.unsigned()?;
    let options = if version >= OPTIONS_SINCE { source.unsigned()? } else { 0 };
    let growth = if version >= GROWTH_SINCE { Some(source.unsigned()?) } else { None };
    let chain = Chain::new(size, options, growth)?;
    if count == 0 || count > MAX_LAYERS as u64 {
        return Err(FilterError::Layers.into());
    }
    let (mut plans, mut layers, mut present) = (Vec::new(), Vec::new(), 0_u64);
    for _ in 0..count {
        let capacity = source.unsigned()?;
        let rate = source.double()?;
        let probes = source.unsigned()?;
        let bits_per_item = source.double()?;
        let (bits, n2) = if version >= BITS_SINCE {
            (source.unsigned()?, source.unsigned()?)
        } else {
            ((capacity as f64 * bits_per_item) as u64, 0)
        };
        let string = source.next()?;
        let bytes = string.as_ref();
        let link = Link {
            capacity,
            rate,
            probes,
            bits_per_item,
            bits,
            n2,
            bytes: bytes.len() as u64,
            items: 0,
        };
        let mut plan = link.plan()?;
        let mut layer = stream::layer(&plan, bytes, &mut present, ceiling)?;
        drop(string);
        plan.items = source.unsigned()?;
        layer.counted = plan.items;
        plans.push(plan);
        layers.push(layer);
    }
    Ok(chain.plan(plans)?.with_layers(layers)?)
}
