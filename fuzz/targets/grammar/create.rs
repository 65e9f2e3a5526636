//! What the grammar fills, as in `src/module/create.rs`, whose other half asks the server.

use redis_bloom::filter::{Cells, Expansion, Valkey};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Options {
    pub(crate) error_rate: Option<f64>,
    pub(crate) capacity: Option<u64>,
    pub(crate) expansion: Option<Expansion>,
    pub(crate) seed: Option<u64>,
    pub(crate) cells: Cells,
    pub(crate) valkey: Option<Valkey>,
}
