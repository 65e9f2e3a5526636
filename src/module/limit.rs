//! How many bytes one filter may take.
//!
//! * `max-filter-bytes`, where it is set; else `maxmemory`, where that is set; else the machine's memory.
//! * Under `maxmemory` with `noeviction` also what is left of it: the server judges a command's memory before it runs,
//!   and a new layer of a large filter would overshoot by its whole size.
//! * None for what comes from a primary, the AOF or a slot on its way here, and none on a replica: one that refuses what
//!   its primary did is no replica. Such an item goes into a full filter that does not grow, too (`commands/add.rs`).
//! * For what is read from an RDB file only the machine's memory, which is what stops a forged size. For RESTORE also
//!   `maxmemory`, where a larger filter could never stay, but not `max-filter-bytes`: a slot migration sends filters by
//!   RESTORE, and the node that refuses one stops it. Half a filter, which allocates the whole and may be a hundred bytes
//!   long itself, is held to what BF.LOADCHUNK would be.
//!
//! The machine's memory is what the control group of the server's container may use, where that is less.
//!
//! The server's settings are read once at load and again when it says that its configuration changed; a filter is made
//! (BF.ADD makes them) without a question to the server.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::{
    api::{Context, call, raw},
    config,
    entry::guarded,
};

/// `maxmemory` in bytes, 0 for none.
static MAXMEMORY: AtomicU64 = AtomicU64::new(0);
/// Whether a server at `maxmemory` refuses writes instead of evicting keys.
static NOEVICTION: AtomicBool = AtomicBool::new(true);
/// Bytes of memory of the machine.
static MACHINE: AtomicU64 = AtomicU64::new(u64::MAX);

/// The most bytes of bits that a filter may take, of which it has `present` already.
pub(crate) fn ceiling(ctx: Context, present: u64) -> u64 {
    if must_obey(ctx) {
        return u64::MAX;
    }
    let configured = config::max_filter_bytes();
    let maxmemory = MAXMEMORY.load(Relaxed);
    let whole = match (configured, maxmemory) {
        (0, 0) => MACHINE.load(Relaxed),
        (0, maxmemory) => maxmemory,
        (configured, _) => configured,
    };
    if maxmemory == 0 || !NOEVICTION.load(Relaxed) {
        return whole;
    }
    let used: f32 = call!(RedisModule_GetUsedMemoryRatio());
    let room = maxmemory as f64 * (1.0 - f64::from(used)).max(0.0);
    whole.min(present.saturating_add(room as u64))
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
    NOEVICTION.store(info.is(c"maxmemory_policy", "noeviction"), Relaxed);
    let total = info.number(c"total_system_memory").filter(|&bytes| bytes > 0);
    MACHINE.store(total.unwrap_or(u64::MAX).min(container()), Relaxed);
}

/// What the control group of this process may use, `u64::MAX` for no bound.
fn container() -> u64 {
    // Inside a container these are its own; version 2 says "max" and version 1 a number near 2^63 for no bound.
    [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .iter()
    .filter_map(|path| std::fs::read_to_string(path).ok()?.trim().parse().ok())
    .min()
    .unwrap_or(u64::MAX)
}

/// Bytes of memory of the machine.
pub(crate) fn machine() -> u64 {
    MACHINE.load(Relaxed)
}

/// The most bytes of bits of a complete filter that is read from an RDB file or RESTORE.
pub(crate) fn load_ceiling() -> u64 {
    match MAXMEMORY.load(Relaxed) {
        maxmemory if maxmemory > 0 && !must_obey(anybody()) => maxmemory.min(machine()),
        _ => machine(),
    }
}

/// The most bytes of bits of a filter of which a part is read from an RDB file or RESTORE.
pub(crate) fn partial_load_ceiling() -> u64 {
    ceiling(anybody(), 0).min(machine())
}

/// Where the server does not say who asks: RESTORE and the reading of files have a context without a client, which is
/// not to be asked about it.
fn anybody() -> Context {
    // SAFETY: the flags take a null context.
    unsafe { Context::new(std::ptr::null_mut()) }
}

/// Whether the command must not be refused: it comes from a primary, the AOF or a node that hands over a slot, or this
/// is a replica.
pub(crate) fn must_obey(ctx: Context) -> bool {
    if ctx.must_obey_client() == Some(true) {
        return true;
    }
    let obeyed = raw::REDISMODULE_CTX_FLAGS_REPLICATED
        | raw::REDISMODULE_CTX_FLAGS_LOADING
        | raw::REDISMODULE_CTX_FLAGS_SLAVE;
    ctx.flags() & obeyed as std::ffi::c_int != 0
}
