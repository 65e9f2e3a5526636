//! The encodings of a filter in pages.
//!
//! ```text
//!   header   everything but the pages; rdb and dump begin with it
//!   record   the pages in the order of their positions (filter/pages/pieces.rs)
//!   rdb      RDB, DUMP, full sync: a header, then records in strings of 1 MiB
//!   dump     BF.SCANDUMP, BF.LOADCHUNK, the rewritten AOF: a header, then chunks of 16 MiB
//! ```
//!
//! No number says how many pages there are, so none can be forged: a reader has all pages when they
//! cover all positions, and it allocates as they arrive.

pub mod dump;
mod header;
pub mod rdb;
mod record;

use crate::{filter::Expansion, sharding::Shard};

/// What a filter in pages has besides its pages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Key of the hash.
    pub seed: u64,
    /// Rate of the whole filter.
    pub error_rate: f64,
    /// Items that it was reserved for.
    pub capacity: u64,
    /// How it grows, by what its user set.
    pub expansion: Expansion,
    /// The shard that the filter is, if it is one.
    pub shard: Option<Shard>,
}
