//! How many bytes one filter may take: "Memory bounds" in `docs/guide/operations.md`. The bounds
//! apply to what clients create, also on a writable replica. They do not apply to data from a
//! primary, an AOF or a file: what one server accepted, every server loads.
//!
//! Under `noeviction`, what is left of `maxmemory` is a bound of its own, because the server judges
//! a command's memory before the command runs. Other policies make room.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::{
    api::{Context, raw, used_memory_ratio},
    config,
};
use crate::{
    codec,
    filter::{Demand, Error},
};

/// `maxmemory` in bytes, 0 for none.
static MAXMEMORY: AtomicU64 = AtomicU64::new(0);
/// Whether a server at `maxmemory` evicts keys.
static EVICTS: AtomicBool = AtomicBool::new(false);
/// Bytes of memory of the machine or the container.
static MACHINE: AtomicU64 = AtomicU64::new(u64::MAX);

/// The most bytes of bits of a stored filter: what a process can address. More is forged.
pub(crate) const ADDRESSABLE: u64 = 1 << 48;

/// The most bytes of bits that a filter with this demand may take.
pub(crate) fn ceiling(ctx: Context, demand: Demand) -> u64 {
    // On a read-only replica, a script or another module also acts for the primary.
    if ctx.is_replayed_or(raw::REDISMODULE_CTX_FLAGS_READONLY) {
        return u64::MAX;
    }
    let maxmemory = MAXMEMORY.load(Relaxed);
    if maxmemory == 0 || EVICTS.load(Relaxed) {
        return of_settings();
    }
    let share = (1.0 - f64::from(used_memory_ratio())).max(0.0);
    of_settings().min(demand.present.saturating_add((maxmemory as f64 * share) as u64))
}

/// The most bytes of bits of a new filter.
pub(crate) fn ceiling_of_new(ctx: Context) -> u64 {
    ceiling(ctx, Demand { present: 0, wanted: 0 })
}

/// The most bytes of bits that a filter of a client may take by the settings.
pub(crate) fn of_settings() -> u64 {
    match (config::MAX_FILTER_BYTES.bits(), MAXMEMORY.load(Relaxed)) {
        (0, 0) => MACHINE.load(Relaxed),
        (0, maxmemory) => maxmemory,
        (configured, _) => configured,
    }
}

/// A refusal as the log shows it: the error, and the settings if it is a ceiling.
#[cold]
pub(crate) fn explained(error: impl Into<codec::Error>) -> String {
    let error = error.into();
    if !matches!(error, codec::Error::Filter(Error::Ceiling { .. })) {
        return error.to_string();
    }
    format!(
        "{error} (max-filter-bytes {}, maxmemory {}, {})",
        config::MAX_FILTER_BYTES.bits(),
        MAXMEMORY.load(Relaxed),
        if EVICTS.load(Relaxed) { "evicting" } else { "noeviction" },
    )
}

/// Reads the server's settings: at load, and when the server says that they changed.
pub(crate) fn read(ctx: Context) {
    let number = |field| ctx.info(c"memory", field)?.parse().ok();
    MAXMEMORY.store(number(c"maxmemory").unwrap_or(0), Relaxed);
    let policy = ctx.info(c"memory", c"maxmemory_policy");
    EVICTS.store(policy.as_deref() != Some("noeviction"), Relaxed);
    let total = number(c"total_system_memory").filter(|&bytes| bytes > 0);
    MACHINE.store(total.unwrap_or(u64::MAX).min(container()), Relaxed);
}

/// What the control group of this process may use, `u64::MAX` for no bound.
fn container() -> u64 {
    // Without a bound, version 2 says "max" and version 1 a number near 2^63.
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok())
        .min()
        .unwrap_or(u64::MAX)
}

/// Whether no item may be refused: the command is replayed, or this server is a replica. Only the
/// second test recognizes a full sync, which has no client, and what a script or another module
/// calls for a primary. It also exempts clients of a writable replica.
pub(crate) fn must_obey(ctx: Context) -> bool {
    ctx.is_replayed_or(raw::REDISMODULE_CTX_FLAGS_SLAVE)
}
