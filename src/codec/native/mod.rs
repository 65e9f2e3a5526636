//! This module's own encodings of a filter.
//!
//! ```text
//!   rdb      RDB, DUMP, full sync: a header, then the bits in strings of 1 MiB
//!   dump     BF.SCANDUMP, BF.LOADCHUNK, the rewritten AOF: a header, then chunks of at most 16 MiB in any number of calls
//!   header   everything but the bits; both begin with it
//!   stream   the bits of all layers as one stream of bytes; both cut it
//! ```

pub mod dump;
pub(super) mod header;
pub mod rdb;
pub(super) mod stream;
