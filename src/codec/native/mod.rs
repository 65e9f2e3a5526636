//! This module's own encodings of a filter.
//!
//! ```text
//!   header   everything but the bits; rdb and dump begin with it
//!   stream   the bits of all layers as one stream of bytes; rdb and dump cut it into pieces
//!   rdb      RDB, DUMP, full sync: a header, then the bits in strings of 1 MiB
//!   dump     BF.SCANDUMP, BF.LOADCHUNK, the rewritten AOF: a header, then chunks of at most 16 MiB
//!   paged/   the same encodings of filters in pages
//!   kinds    filters of layers or pages: which of them an input has
//! ```

pub mod dump;
pub(super) mod header;
pub mod kinds;
pub mod paged;
pub mod rdb;
pub(super) mod stream;
