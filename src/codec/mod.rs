//! Converts filters to bytes and back. Pure: no server. No input is trusted.
//!
//! ```text
//!   io             strings and numbers of an RDB, as traits: the server's stream or a test's
//!   reader         a checked cursor over bytes
//!   native         this module's own encodings (RDB, DUMP, SCANDUMP)
//!   redisbloom     RedisBloom's RDB, encoding versions 0 to 4, and its SCANDUMP chunks
//!   valkey_bloom   valkey-bloom's RDB, encoding version 1, and the blob of its BF.LOAD
//!   guava          the bytes of Guava's BloomFilter.writeTo; read only
//!   packed         many items in one string, and their answers in another (BF.BULKADD)
//! ```
//!
//! A decoder checks each count before it uses it, and gets its memory limit from the caller. For
//! native encodings, Guava's, and chunks it allocates no bits before `filter::Plan::check` passes.
//! For the RDB of another product and a blob it allocates a layer when its bits have arrived and
//! have the computed length. A released layout never changes.

#![deny(clippy::arithmetic_side_effects, reason = "every input is hostile")]

mod error;
pub mod guava;
pub mod io;
pub mod native;
pub mod packed;
mod reader;
pub mod redisbloom;
pub mod valkey_bloom;

pub use error::Error;
