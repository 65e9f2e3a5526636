//! How many items a layer holds, computed from its nonzero positions: its set bits.
//!
//! An item has k' different positions among the c of its block (in a classic layer, of the layer):
//!
//! ```text
//!   k' = c (1 - (1 - 1/c)^k)                 one line, or a block not of whole lines
//!   k' = c (1 - (1 - h(4) / l)^(k / 4))      l > 1 lines of 512 positions
//!   h(g) = 1 - (1 - 1/512)^g                 a group of g probes hits a given position of its line
//! ```
//!
//! Let f = r / m be the share of nonzero positions among all m. Each item hits a given position
//! with probability k' / m. So the mean of 1 - f depends only on the number of items, not on how
//! they are spread over the blocks.
//!
//! Of all new items, 1 - f^k are counted, and each item makes k' (1 - f) more positions nonzero. So
//! the number of counted items n grows by m / k' * (1 - f^k) / (1 - f) per unit of f. The sum from
//! the empty layer on needs no logarithm:
//!
//! ```text
//!   n(r) = m / k' * (f + f^2 / 2 + ... + f^k / k)
//! ```
//!
//! n(r) has a maximum, where all positions are nonzero: twice the capacity at 50 %, four times at
//! 1 %. Replicas must agree on it, so this file computes as `sizing.rs` does.

use super::{Classic, Geometry, Shape};
use crate::filter::hash::PROBE_GROUP;

/// The sum ends at the first power of f below this.
const SMALL: f64 = 1e-15;

/// n(r): the items that a layer counts with `nonzero` nonzero positions.
pub(in crate::filter) fn counted(shape: Shape, nonzero: u64) -> f64 {
    let (positions, each) = match shape {
        Shape::Blocked(geometry) => (geometry.words() * 64, distinct(geometry)),
        Shape::Classic(Classic { bits, probes, .. }) => (bits, hit(bits as f64, probes)),
    };
    let positions = positions as f64;
    // The last word of a damaged classic layer may have bits that no position reaches.
    let fill = (nonzero as f64 / positions).min(1.0);
    positions / each * series(fill, shape.probes())
}

/// All items of a layer of blocks with this share of nonzero positions, counted or not.
pub(in crate::filter) fn all(geometry: Geometry, fill: f64) -> f64 {
    let positions = geometry.words() as f64 * 64.0;
    // Where no position is zero, half a position counts as such.
    let zero = (1.0 - fill).max(0.5 / positions);
    -positions / distinct(geometry) * libm::log(zero)
}

/// The number of different positions of an item in a layer of blocks: k' above.
fn distinct(geometry: Geometry) -> f64 {
    let positions = f64::from(geometry.block_words) * 64.0;
    let (groups, left) = (geometry.probes / PROBE_GROUP, geometry.probes % PROBE_GROUP);
    match geometry.lines() {
        // A group misses a position in another line, and in its own line by other places.
        Some(lines) if lines > 1 => {
            let line = positions / lines as f64;
            let by = |probes: u8| libm::log1p(-hit(line, probes.into()) / positions);
            -positions * libm::expm1(f64::from(groups) * by(PROBE_GROUP) + by(left))
        }
        _ => hit(positions, geometry.probes.into()),
    }
}

fn hit(positions: f64, probes: u16) -> f64 {
    -positions * libm::expm1(f64::from(probes) * libm::log1p(-1.0 / positions))
}

/// f + f^2 / 2 + ... + f^k / k.
fn series(fill: f64, probes: u16) -> f64 {
    let (mut sum, mut power) = (0.0, 1.0);
    for i in 1..=probes {
        power *= fill;
        sum += power / f64::from(i);
        if power < SMALL {
            break;
        }
    }
    sum
}
