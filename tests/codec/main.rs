//! Tests of the codec: it reads back what it writes, and refuses or survives all other bytes.

// A program has one global allocator. With the feature `module` that is the module's, so nothing is
// counted.
#[cfg_attr(feature = "module", path = "uncounted.rs")]
mod allocation;
mod damage;
mod fixtures;
mod forge;
mod forged;
mod guava;
mod iterators;
mod meanwhile;
mod numbers;
mod order;
mod packed;
mod paged;
#[path = "../fixtures/products.rs"]
mod products;
mod redisbloom;
mod replica;
mod round_trip;
mod sample;
mod sane;
#[path = "../filter/support.rs"]
mod support;
mod valkey;
