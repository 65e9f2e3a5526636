//! This module's own encodings of a filter.
//!
//! ```text
//!   header   everything but bits and pages; rdb and dump begin with it
//!   body     the bits of all layers, then the pages; rdb and dump cut it into pieces
//!   load     a filter of which header and pieces arrive
//!   rdb      RDB, DUMP, full sync: a header, then strings of 1 MiB
//!   dump     BF.SCANDUMP, BF.LOADCHUNK, the rewritten AOF: a header, then chunks of at most 16 MiB
//!   stream   bits as bytes
//! ```

mod body;
pub mod dump;
pub(super) mod header;
mod load;
pub mod rdb;
pub(super) mod stream;

pub use body::Body;
pub use load::{Load, Stored, Taken};
