//! The parameters of a new filter.

use super::error::Error;
use crate::sharding::Shard;

/// The most items that a layer may be reserved for.
pub const MAX_CAPACITY: u64 = 1 << 62;
/// The largest factor from the capacity of a layer to that of the next.
pub const MAX_EXPANSION: u16 = 32_768;

/// The most layers of a filter. A query visits all of them.
pub const MAX_LAYERS: usize = 1 << 18;

/// How a full filter continues: by this factor larger, or not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expansion(u32);

impl Expansion {
    /// The filter refuses new items once it is full.
    pub const NONSCALING: Self = Self(0);

    /// By 2, which is the default of the commands.
    pub const USUAL: Self = Self(2);

    /// An expansion by `factor`; 0 is [`Self::NONSCALING`]. `Error::Expansion` above
    /// [`MAX_EXPANSION`].
    pub fn new(factor: u64) -> Result<Self, Error> {
        match u16::try_from(factor) {
            Ok(factor) if factor <= MAX_EXPANSION => Ok(Self(factor.into())),
            _ => Err(Error::Expansion(factor)),
        }
    }

    /// The expansion of a stored filter: any number, because old versions of RedisBloom took any.
    pub fn stored(factor: u32) -> Self {
        Self(factor)
    }

    /// The factor, at most `MAX_EXPANSION` in a native filter. `None` for a non-scaling filter.
    pub fn factor(self) -> Option<u32> {
        (self.0 != 0).then_some(self.0)
    }
}

/// Everything that determines the bits of an empty filter, and the items that it takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// The false positive rate that the filter does not exceed on average, in (0, 1).
    pub error_rate: f64,
    /// Items that the first layer is sized for, in [1, `MAX_CAPACITY`].
    pub capacity: u64,
    /// What happens when the first layer is full.
    pub expansion: Expansion,
    /// Secret key of the hash.
    pub seed: u64,
    /// Whether items are counted, so that they can be deleted.
    pub counts: bool,
    /// The shard of a sharded filter that this native filter is; `None` for a filter that takes all
    /// items. The caller checks the items, not the filter.
    pub shard: Option<Shard>,
}

/// Checks the numbers of parameters or of a layer: `Error::ErrorRate` (NaN included) or
/// `Error::Capacity`.
pub fn check_ranges(error_rate: f64, capacity: u64) -> Result<(), Error> {
    if !(error_rate > 0.0 && error_rate < 1.0) {
        return Err(Error::ErrorRate(error_rate));
    }
    if !(1..=MAX_CAPACITY).contains(&capacity) {
        return Err(Error::Capacity(capacity));
    }
    Ok(())
}
