//! Tests of the codec: what is written is read back, and nothing else that is read does harm.

// A counting allocator cannot stand beside the module's.
#[cfg_attr(feature = "module", path = "uncounted.rs")]
mod allocation;
mod damage;
mod done;
mod fixtures;
mod forge;
mod forged;
mod guava;
mod iterators;
mod meanwhile;
mod order;
#[path = "../fixtures/products.rs"]
mod products;
mod redisbloom;
mod round_trip;
mod sample;
mod sane;
#[path = "../filter/support.rs"]
mod support;
mod valkey;
