//! The Bloom filter itself: pure maths and memory, no server, no bytes on disk.
//!
//! ```text
//!   params ─▶ scaling ─▶ layer ─▶ bits            batch: many items through scaling at once
//!                │         └───▶ probe            check: what must hold of a stored filter
//!                ├─▶ budget (whose share of the error rate)
//!                └─▶ sizing (how many bits)       hash: one XXH3-128 per item      estimate: how full it is now
//! ```

mod batch;
mod bits;
mod budget;
mod check;
mod error;
mod estimate;
mod hash;
mod layer;
mod params;
mod probe;
mod scaling;
mod sizing;

pub use bits::Bits;
pub use budget::layer_rate;
pub use check::{Broken, LayerPlan, Plan};
pub use error::Error;
pub use estimate::Estimate;
pub use hash::{Hash, checksum};
pub use layer::{Blocked, Layer};
pub use params::{Expansion, MAX_CAPACITY, MAX_EXPANSION, MAX_LAYERS, Params};
pub use probe::{Walk, scale};
pub use scaling::Filter;
pub use sizing::{Geometry, MAX_PROBES, geometry};
