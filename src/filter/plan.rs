//! A layer without its bits: computed by a family from a capacity and a rate, or read by a decoder.

use super::{
    error::Error,
    layer::{Layer, Shape},
    params::MAX_CAPACITY,
    sizing,
};

/// The memory that a filter asks for: bytes of bits, of all its layers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Bytes that are allocated already, those that are about to be dropped included.
    pub present: u64,
    /// Bytes in total with what is asked for, and without what is dropped for it; `u64::MAX` if
    /// they cannot be addressed.
    pub wanted: u64,
}

/// A layer without its bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerPlan {
    /// Items that the layer is sized for.
    pub capacity: u64,
    /// Items counted.
    pub items: u64,
    /// Rate of this layer.
    pub error_rate: f64,
    /// Shape of the bit array.
    pub shape: Shape,
}

impl LayerPlan {
    /// The plan of an existing layer.
    pub(super) fn of(layer: &Layer) -> Self {
        Self {
            capacity: layer.capacity(),
            items: layer.counted(),
            error_rate: layer.error_rate(),
            shape: layer.shape(),
        }
    }

    /// The native layer for `capacity` items at `rate`; `None` if its bits cannot be addressed.
    pub(super) fn native(capacity: u64, rate: f64) -> Option<Self> {
        let shape = sizing::geometry(capacity, rate)?.into();
        Some(Self { capacity, items: 0, error_rate: rate, shape })
    }

    /// Makes the empty layer of a plan. `present` is the bytes of bits that the filter has already;
    /// `ceiling` returns the bytes that it may have in total.
    ///
    /// # Errors
    /// `Error::Ceiling`, also if `plan` is `None`; `Error::OutOfMemory`.
    pub(super) fn make(
        plan: Option<Self>,
        present: u64,
        ceiling: impl FnOnce(Demand) -> u64,
    ) -> Result<Layer, Error> {
        let words = plan.map_or(u64::MAX, |plan| plan.shape.words());
        let wanted = words.saturating_mul(8).saturating_add(present);
        let ceiling = ceiling(Demand { present, wanted });
        match plan {
            Some(plan) if wanted <= ceiling && plan.capacity <= MAX_CAPACITY => {
                Layer::new(plan.shape, plan.capacity, plan.error_rate)
            }
            _ => Err(Error::Ceiling { wanted, ceiling }),
        }
    }
}
