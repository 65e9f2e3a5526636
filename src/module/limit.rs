//! How many bytes one filter may take.
//!
//! **What one server accepted, every server loads.** Files of the server's own (RDB, AOF), the
//! stream of a primary, a replica, and a slot on its way here have no ceiling; what the allocator
//! refuses is an error. The server does not say which RESTORE belongs to a slot, so no RESTORE in a
//! cluster has a ceiling. Elsewhere RESTORE has that of `maxmemory`: a larger filter could never
//! stay. Forged sizes do no harm: memory is allocated as bytes arrive (`codec/native`).
//!
//! **What a client makes** (a filter, a layer, a load by BF.LOADCHUNK, BF.LOAD or BF.IMPORT) has a
//! ceiling:
//!
//! * `max-filter-bytes`, if the operator has set it, also above the machine's memory; otherwise
//!   `maxmemory`, if that is set; otherwise the memory of the machine or the container;
//! * under `maxmemory` also what is left of it, if the server can evict nothing: it judges a
//!   command's memory before the command runs, so a large filter would overshoot by its whole size,
//!   and then every write fails. That is so under `noeviction`, and under `volatile-*` while no key
//!   expires.
//!
//! The server's settings are read at load and when it says that its configuration changed. Whether
//! a key expires is asked last, and only under `volatile-*`: that is an INFO, which takes some
//! microseconds, and which MONITOR shows. `RedisModule_GetServerInfo` cannot list its fields.

use std::{
    ffi::c_int,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use super::{
    api::{Context, call, raw},
    config,
    panic_guard::guarded,
};
use crate::{
    codec,
    filter::{self, Demand},
};

/// `maxmemory` in bytes, 0 for none.
static MAXMEMORY: AtomicU64 = AtomicU64::new(0);
/// Whether a server at `maxmemory` evicts no key that does not expire.
static KEEPS_LASTING: AtomicBool = AtomicBool::new(true);
/// Whether a server at `maxmemory` evicts no key that expires.
static KEEPS_EXPIRING: AtomicBool = AtomicBool::new(true);
/// Bytes of memory of the machine.
static MACHINE: AtomicU64 = AtomicU64::new(u64::MAX);

/// Bytes that a process can address, on any machine in use. A stored filter that announces more is
/// forged.
const ADDRESSABLE: u64 = 1 << 48;

/// The most bytes of bits that a filter with this demand may take.
pub(crate) fn ceiling(ctx: Context, demand: Demand) -> u64 {
    let Some(whole) = whole(ctx) else {
        return u64::MAX;
    };
    if demand.wanted > whole {
        return whole;
    }
    let room = room(demand.present);
    if demand.wanted <= room || can_evict(ctx) { whole } else { room }
}

/// Makes a new filter, or reads one, under its ceiling. How much it wants is known only once it was
/// tried: so `make` is tried first with what fits even if no key can be evicted.
pub(crate) fn within<T, E: Copy + Into<codec::Error>>(
    ctx: Context,
    make: impl Fn(u64) -> Result<T, E>,
) -> Result<T, E> {
    let Some(whole) = whole(ctx) else {
        return make(u64::MAX);
    };
    let without_eviction = whole.min(room(0));
    let made = make(without_eviction);
    if let Err(error) = made
        && let codec::Error::Filter(filter::Error::Ceiling { wanted, .. }) = error.into()
    {
        let ceiling = ceiling(ctx, Demand { present: 0, wanted });
        if ceiling > without_eviction {
            return make(ceiling);
        }
    }
    made
}

/// The most bytes of bits that a filter may take by the settings alone; `None` where nothing must
/// be refused.
fn whole(ctx: Context) -> Option<u64> {
    (!must_obey(ctx)).then(of_settings)
}

/// The most bytes of bits that a filter of a client may take by the settings.
fn of_settings() -> u64 {
    match (config::max_filter_bytes(), MAXMEMORY.load(Relaxed)) {
        (0, 0) => MACHINE.load(Relaxed),
        (0, maxmemory) => maxmemory,
        (configured, _) => configured,
    }
}

/// What decides [`of_settings`], as the log names it.
fn deciding() -> String {
    match (config::max_filter_bytes(), MAXMEMORY.load(Relaxed)) {
        (0, 0) if container() == MACHINE.load(Relaxed) => "the memory of the container".into(),
        (0, 0) => "the memory of the machine".into(),
        (0, _) => "maxmemory".into(),
        _ => config::shown_max_filter_bytes(),
    }
}

/// The largest filter that a client may make now, and what decides that, for the log.
pub(crate) fn shown() -> String {
    format!("one filter may take {} bytes ({})", of_settings(), deciding())
}

/// A refusal as the log shows it: the error, and the setting that decided if it was a ceiling.
#[cold]
pub(crate) fn explained(ctx: Context, error: impl Into<codec::Error>) -> String {
    let error = error.into();
    let codec::Error::Filter(filter::Error::Ceiling { ceiling, .. }) = error else {
        return error.to_string();
    };
    let whole = of_settings();
    let why = if ceiling >= ADDRESSABLE {
        "more cannot be addressed".into()
    } else if ceiling == whole {
        deciding()
    } else if ceiling > whole {
        // Only that of a load is above `max-filter-bytes`.
        "maxmemory".into()
    } else {
        let memory = ctx.server_info(c"memory");
        let policy = memory.as_ref().and_then(|memory| memory.text(c"maxmemory_policy"));
        format!(
            "what is left of maxmemory {}, and maxmemory-policy {} can evict nothing",
            MAXMEMORY.load(Relaxed),
            policy.unwrap_or("unknown")
        )
    };
    format!("{error} ({why})")
}

/// What is left of `maxmemory`, and what is `present` already.
fn room(present: u64) -> u64 {
    let maxmemory = MAXMEMORY.load(Relaxed);
    if maxmemory == 0 {
        return u64::MAX;
    }
    let used: f32 = call!(RedisModule_GetUsedMemoryRatio());
    let left = maxmemory as f64 * (1.0 - f64::from(used)).max(0.0);
    present.saturating_add(left as u64)
}

/// Whether the server has a key to evict at `maxmemory`.
fn can_evict(ctx: Context) -> bool {
    !KEEPS_LASTING.load(Relaxed) || (!KEEPS_EXPIRING.load(Relaxed) && any_key_expires(ctx))
}

/// Whether any database has a key that expires; false where INFO was renamed, so that no filter
/// overshoots there.
fn any_key_expires(ctx: Context) -> bool {
    // A line is `db0:keys=1,expires=0,avg_ttl=0`, and more fields in some servers. There is none of
    // an empty database.
    let keyspace = ctx.info_text("keyspace").unwrap_or_default();
    keyspace
        .lines()
        .flat_map(|line| line.split(','))
        .any(|field| field.strip_prefix("expires=").is_some_and(|count| count != "0"))
}

/// Reads the server's settings, and asks to be told when they change.
pub(crate) fn watch(ctx: Context) {
    read(ctx);
    ctx.subscribe(raw::REDISMODULE_EVENT_CONFIG, config_changed);
}

unsafe extern "C" fn config_changed(
    ctx: *mut raw::RedisModuleCtx,
    _: raw::RedisModuleEvent,
    _: u64,
    _: *mut std::ffi::c_void,
) {
    // SAFETY: the server's own context, for this call.
    let ctx = unsafe { Context::new(ctx) };
    guarded("config event", (), || read(ctx));
}

fn read(ctx: Context) {
    let Some(info) = ctx.server_info(c"memory") else {
        return;
    };
    MAXMEMORY.store(info.number(c"maxmemory").unwrap_or(0), Relaxed);
    let policy = info.text(c"maxmemory_policy").unwrap_or_default();
    KEEPS_LASTING.store(!policy.starts_with("allkeys-"), Relaxed);
    KEEPS_EXPIRING.store(policy == "noeviction", Relaxed);
    let total = info.number(c"total_system_memory").filter(|&bytes| bytes > 0);
    MACHINE.store(total.unwrap_or(u64::MAX).min(container()), Relaxed);
}

/// What the control group of this process may use, `u64::MAX` for no bound.
fn container() -> u64 {
    // Inside a container these are its own; version 2 says "max" and version 1 a number near 2^63
    // for no bound.
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok())
        .min()
        .unwrap_or(u64::MAX)
}

/// The most bytes of bits of a filter that is read from an RDB file, a full sync or RESTORE.
pub(crate) fn load_ceiling() -> u64 {
    let maxmemory = MAXMEMORY.load(Relaxed);
    // The context of these callbacks has no client, and is not to be asked about it.
    let none = Context::none();
    let cluster = none.flags() & raw::REDISMODULE_CTX_FLAGS_CLUSTER as c_int != 0;
    if maxmemory == 0 || cluster || must_obey(none) {
        ADDRESSABLE
    } else {
        maxmemory.max(config::max_filter_bytes())
    }
}

/// Whether nothing may be refused: the command is replayed, or this server is a replica. A full
/// sync has no client, so only the second test recognizes it. That test also exempts commands that
/// clients send to a writable replica, although these are not replayed.
pub(crate) fn must_obey(ctx: Context) -> bool {
    ctx.is_replayed_or(raw::REDISMODULE_CTX_FLAGS_SLAVE)
}
