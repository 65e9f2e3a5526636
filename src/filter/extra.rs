//! The part of a filter that most filters do not need, behind one pointer.

use super::{
    foreign::{Family, Valkey},
    layer::Layer,
};
use crate::sharding::Shard;

/// The part of a filter that most filters do not need.
#[derive(Debug, Default)]
pub(super) struct Extra {
    /// The layers below the newest, oldest first. All are full.
    pub(super) older: Vec<Layer>,
    /// Keys and tightening ratio of a valkey-bloom filter.
    pub(super) valkey: Option<Box<Valkey>>,
    /// The shard of a sharded filter that the filter is.
    pub(super) shard: Option<Shard>,
}

impl Extra {
    /// Boxes the parts, or returns `None` if there are none.
    pub(super) fn boxed(older: Vec<Layer>, family: Family) -> Option<Box<Self>> {
        let valkey = match family {
            Family::Valkey(valkey) => Some(Box::new(valkey)),
            Family::Native | Family::RedisBloom(_) | Family::Guava => None,
        };
        (!older.is_empty() || valkey.is_some())
            .then(|| Box::new(Self { older, valkey, ..Self::default() }))
    }

    /// Addresses of the allocations; null for an absent one.
    pub(super) fn memory(&self) -> [*const u8; 3] {
        let older = match self.older.as_slice() {
            [] => std::ptr::null(),
            older => older.as_ptr().cast(),
        };
        let valkey = self.valkey.as_deref().map_or(std::ptr::null(), std::ptr::from_ref);
        let this = std::ptr::from_ref(self).cast();
        [this, older, valkey.cast()]
    }
}
