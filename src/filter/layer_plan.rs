//! A layer without its bits: what a family makes of a capacity and a rate, and what a decoder has read of one.

use super::layer::Shape;

/// A layer without its bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerPlan {
    /// Items it was made for.
    pub capacity: u64,
    /// Items counted.
    pub items: u64,
    /// Rate of this layer.
    pub error_rate: f64,
    /// Shape of the bit array.
    pub shape: Shape,
}
