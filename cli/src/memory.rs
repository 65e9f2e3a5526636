//! The memory that filters need, including the allocator, a rebuild and a save, and the memory that
//! a server has: the formula of docs/guide/operations.md, maxmemory.
//!
//! ```text
//!   allocated   sizes of the filters, rounded up by the allocator     below maxmemory
//!   rebuild     the largest of them once more                         below maxmemory
//!   saving      at most what is allocated: copied while a child saves, on top of maxmemory
//! ```

use serde::Serialize;

use crate::{amount::readable_bytes, connection::Connection, error::Error};

/// Bytes that the allocator (jemalloc) takes for a filter of this size: it has four sizes for each
/// power of two. This is an upper bound: pages have such sizes already, and jemalloc 5.3.1 rounds
/// sizes above 14 KiB only to multiples of 4 KiB.
pub(crate) fn allocated(bytes: u64) -> u64 {
    /// The smallest distance of two sizes.
    const QUANTUM: u64 = 16;
    let step = bytes.max(1).checked_next_power_of_two().unwrap_or(1 << 63) / 8;
    bytes.checked_next_multiple_of(step.max(QUANTUM)).unwrap_or(u64::MAX)
}

/// What some filters need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Need {
    /// Bytes with what the allocator adds.
    #[serde(rename = "allocated_bytes")]
    pub(crate) allocated: u64,
    /// Bytes of the largest of them, which is there twice while it is rebuilt.
    #[serde(rename = "rebuild_bytes")]
    pub(crate) largest: u64,
}

impl Need {
    /// Of filters with these sizes.
    pub(crate) fn of(sizes: impl IntoIterator<Item = u64>) -> Self {
        Self::of_allocated(sizes.into_iter().map(allocated))
    }

    /// Of filters that take these bytes, with what the allocator adds.
    pub(crate) fn of_allocated(all: impl IntoIterator<Item = u64>) -> Self {
        all.into_iter().fold(Self::default(), |need, bytes| Self {
            allocated: need.allocated.saturating_add(bytes),
            largest: need.largest.max(bytes),
        })
    }

    /// Bytes below `maxmemory`.
    pub(crate) fn most(self) -> u64 {
        self.allocated.saturating_add(self.largest)
    }

    pub(crate) fn text(self) -> String {
        format!(
            "{} allocated, {} with a rebuild, and {} on top of maxmemory for a save",
            readable_bytes(self.allocated),
            readable_bytes(self.most()),
            readable_bytes(self.allocated)
        )
    }
}

/// The memory of a server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Room {
    pub(crate) server: String,
    used_bytes: u64,
    /// `maxmemory`, or the memory of the machine.
    limit_bytes: u64,
    /// Whether `maxmemory` is set.
    maxmemory: bool,
}

impl Room {
    /// Asks a server; `None` if the user may not ask, or if the server does not tell.
    pub(crate) fn of(server: &mut Connection) -> Result<Option<Self>, Error> {
        let name = server.target().to_string();
        let Some(info) = server.info(&["memory"])? else { return Ok(None) };
        let limit = info.number("maxmemory").filter(|&most| most > 0);
        let machine = info.number("total_system_memory");
        Ok(info.number("used_memory").zip(limit.or(machine)).map(|(used_bytes, limit_bytes)| {
            Self { server: name, used_bytes, limit_bytes, maxmemory: limit.is_some() }
        }))
    }

    /// Bytes that are left.
    pub(crate) fn free(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }

    /// Whether there is a `maxmemory` that this many bytes more would exceed.
    pub(crate) fn refuses(&self, bytes: u64) -> bool {
        self.maxmemory && bytes > self.free()
    }
}

/// Whether planned filters fit into a server.
#[derive(Debug, Serialize)]
pub(crate) struct Fit {
    #[serde(flatten)]
    room: Room,
    #[serde(flatten)]
    need: Need,
    pub(crate) fits: bool,
    /// Bytes that are left with the filters, without a rebuild.
    left_bytes: u64,
}

impl Fit {
    pub(crate) fn of(room: Room, need: Need) -> Self {
        let left_bytes = room.free().saturating_sub(need.allocated);
        Self { fits: need.most() <= room.free(), left_bytes, room, need }
    }

    pub(crate) fn text(&self) -> String {
        let Self { room, need, .. } = self;
        let limit = match room.maxmemory {
            true => "maxmemory",
            false => "the machine: maxmemory is not set",
        };
        let ends = match self.fits {
            true => format!("It fits, and leaves {}", readable_bytes(self.left_bytes)),
            false => {
                let lacks = need.most().saturating_sub(room.free());
                format!("It does NOT fit: {} are missing", readable_bytes(lacks))
            }
        };
        format!(
            "{}: {} of {} used ({limit}).\nOne node needs {}.\n{ends}.",
            room.server,
            readable_bytes(room.used_bytes),
            readable_bytes(room.limit_bytes),
            need.text()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/guide/sizing.md, less the 128 bytes of the key and the filter's struct.
    #[test]
    fn the_allocator_rounds_up() {
        for (size, taken) in [
            (1_360, 1_536),
            (13_456, 14_336),
            (133_456, 163_840),
            (1_333_392, 1_572_864),
            (13_332_624, 14_680_064),
            (1_333_249_424, 1_342_177_280),
            (0, 0),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(allocated(size), taken, "{size}");
        }
        let need = Need::of([133_456, 1_360]);
        assert_eq!((need.allocated, need.most()), (165_376, 329_216));
    }
}
