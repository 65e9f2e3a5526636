//! Tests of the keys, the capacity and the descriptor of sharded filters. Clients in other
//! languages compute the same, so no value here may ever change.

mod capacity;
mod descriptor;
mod keys;
mod specification;

use crate::sharding::{Descriptor, Generation, NameError};

impl Descriptor {
    /// The descriptor of a new filter.
    pub(crate) fn new(
        name: &[u8],
        shards: u16,
        error_rate: f64,
        capacity: u64,
        poll: u64,
    ) -> Result<Self, NameError> {
        let current = Generation::new(name, shards, 1, error_rate, capacity)?;
        Ok(Self { current, next: Ok(None), base: None, poll })
    }
}
