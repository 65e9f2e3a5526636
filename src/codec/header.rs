//! The numbers of a filter, 48 + 32 bytes a layer.
//!
//! ```text
//!   0        6        8               16              24       28      32               40
//!   ┌────────┬────────┬───────────────┬───────────────┬────────┬───────┬────────────────┬─ ─ ─ ─ ─ ─ ─ ─ ─┬──────────┐
//!   │ rbloom │version │ seed          │ error rate    │ expan- │layers │ bytes of bits  │ layers, oldest  │ XXH3-64  │
//!   │        │ = 1    │ u64           │ f64           │ sion   │ u32   │ that follow    │ first, 32 each  │ of all   │
//!   └────────┴────────┴───────────────┴───────────────┴────────┴───────┴────────────────┴─ ─ ─ ─ ─ ─ ─ ─ ─┴──────────┘
//!   a layer:  ┌──────┬────────┬─────────────┬──────────┬──────────┬──────────┬────────────┐
//!             │kind 0│probes  │block_words  │ blocks   │ capacity │ items    │ error rate │
//!             │ u8   │ u8     │ u16         │ u32      │ u64      │ u64      │ f64        │
//!             └──────┴────────┴─────────────┴──────────┴──────────┴──────────┴────────────┘
//! ```
//!
//! "Bytes of bits that follow" is the whole stream for a complete filter, less for one that BF.LOADCHUNK is still
//! filling.

use super::{
    Error,
    reader::{Reader, open, seal},
};
use crate::filter::{Error as FilterError, Expansion, Geometry, LayerPlan, MAX_LAYERS, Plan, checksum};

const MAGIC: &str = "rbloom";
const VERSION: u16 = 1;
/// Bytes of a layer.
const LAYER: usize = 32;
/// Layer kind: a blocked layer, the only one so far.
const BLOCKED: u8 = 0;

/// Writes the header of `plan`, to be followed by `present` bytes of bits.
pub(super) fn encode(plan: &Plan, present: u64) -> Vec<u8> {
    let mut out = open(MAGIC, VERSION);
    out.extend(plan.seed.to_le_bytes());
    out.extend(plan.error_rate.to_le_bytes());
    out.extend(u32::from(plan.expansion.factor().unwrap_or(0)).to_le_bytes());
    // A filter never has more than MAX_LAYERS.
    out.extend((plan.layers.len() as u32).to_le_bytes());
    out.extend(present.to_le_bytes());
    for layer in &plan.layers {
        out.push(BLOCKED);
        out.push(layer.geometry.probes);
        out.extend(layer.geometry.block_words.to_le_bytes());
        out.extend(layer.geometry.blocks.to_le_bytes());
        out.extend(layer.capacity.to_le_bytes());
        out.extend(layer.items.to_le_bytes());
        out.extend(layer.error_rate.to_le_bytes());
    }
    seal(out)
}

/// Reads and checks a header: the plan, and the bytes of bits that follow.
pub(super) fn decode(bytes: &[u8]) -> Result<(Plan, u64), Error> {
    let mut reader = Reader::sealed(bytes, MAGIC, VERSION)?;
    let seed = reader.u64()?;
    let error_rate = reader.f64()?;
    let expansion = Expansion::new(u64::from(reader.u32()?))?;
    let count = reader.u32()? as usize;
    let present = reader.u64()?;
    if count > MAX_LAYERS {
        return Err(FilterError::Layers.into());
    }
    // A count reserves memory only once its layers are there.
    if reader.left() / LAYER < count {
        return Err(Error::Truncated);
    }
    let mut layers = Vec::new();
    layers
        .try_reserve_exact(count)
        .map_err(|_| FilterError::OutOfMemory(count as u64))?;
    for _ in 0..count {
        match reader.u8()? {
            BLOCKED => {}
            kind => return Err(Error::Kind(kind)),
        }
        let probes = reader.u8()?;
        let block_words = reader.u16()?;
        let blocks = reader.u32()?;
        let geometry = Geometry {
            blocks,
            block_words,
            probes,
        };
        let (capacity, items, error_rate) = (reader.u64()?, reader.u64()?, reader.f64()?);
        layers.push(LayerPlan {
            capacity,
            items,
            error_rate,
            geometry,
        });
    }
    reader.end()?;
    let plan = Plan {
        seed,
        error_rate,
        expansion,
        layers,
    };
    plan.check()?;
    let total = plan.bit_bytes();
    if present > total {
        return Err(Error::TooBig {
            from: 0,
            to: present,
            total,
        });
    }
    Ok((plan, present))
}

/// Tells filters apart by everything but their items: two with the same identity have the same bits for the same
/// items. It changes when the filter grows.
pub(super) fn identity(plan: &Plan) -> u64 {
    let mut shape = plan.clone();
    for layer in &mut shape.layers {
        layer.items = 0;
    }
    checksum(&encode(&shape, 0))
}
