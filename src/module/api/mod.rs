//! The server's API: calls of its functions, and safe types over its pointers.
//!
//! The server fills a table of function pointers when it loads the module. `call!` passes any
//! pointer to them, so only this directory can use it. A pointer of the server becomes one of these
//! types by an `unsafe fn new`, in an entry or a callback, and lives no longer than that call.
//!
//! The `RedisString` of the `redis-module` crate is not used, because it retains, copies and frees
//! every argument of every command.

use std::{
    ffi::{c_int, c_longlong},
    sync::LazyLock,
};

pub(crate) use redis_module::raw;

/// Calls a function of the table; returns zero or null if the server lacks it.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: 1. the table is written once, while the server loads the module, before any
        // other entry point runs. 2. This copies the pointer.
        let function = unsafe { raw::$name };
        match function {
            // SAFETY: 1. the pointer comes from the server, with the signature in its header.
            // 2. The arguments are alive: see the top of this file, and each wrapper.
            Some(function) => unsafe { function($($argument),*) },
            None => Default::default(),
        }
    }};
}

mod context;
mod handles;

pub(crate) use context::Context;
pub(crate) use handles::{Access, Digest, Key, OwnedStr, Str, Stream, free_string, logged};

/// What functions of the server and callbacks return.
pub(crate) const OK: c_int = raw::REDISMODULE_OK as c_int;
/// As [`OK`], for a failure.
pub(crate) const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// Whether the server is Redis 6.2 or older, which lack functions that the module needs. Redis 7.0
/// has all of them.
pub(crate) fn is_too_old() -> bool {
    // SAFETY: the table is written once, before this runs.
    unsafe { raw::RedisModule_RegisterStringConfig }.is_none()
}

/// `RedisModule_MustObeyClient(ctx)`, which Valkey has since 8.1 and the bindings lack.
type MustObeyClient = unsafe extern "C" fn(*mut raw::RedisModuleCtx) -> c_int;

static MUST_OBEY_CLIENT: LazyLock<Option<MustObeyClient>> = LazyLock::new(|| {
    let mut found = None;
    call!(RedisModule_GetApi(c"RedisModule_MustObeyClient".as_ptr(), (&raw mut found).cast()));
    found
});

/// The share of `maxmemory` that is used.
pub(crate) fn used_memory_ratio() -> f32 {
    call!(RedisModule_GetUsedMemoryRatio())
}

/// Whether clients are paused for a failover, and nothing may be replicated.
pub(crate) fn replication_is_paused() -> bool {
    call!(RedisModule_AvoidReplicaTraffic()) != 0
}

/// Milliseconds since 1970.
pub(crate) fn milliseconds() -> i64 {
    call!(RedisModule_Milliseconds())
}

/// The time of the running command in milliseconds since 1970. In a transaction or a script it
/// stands still, except in Redis 7.0, whose clock is read here.
pub(crate) fn clock() -> i64 {
    let microseconds: c_longlong = call!(RedisModule_CachedMicroseconds());
    if microseconds > 0 { microseconds / 1_000 } else { milliseconds() }
}

/// Bytes that the server's allocator uses for the allocation at `pointer`; 0 for null.
pub(crate) fn malloc_size<T>(pointer: *const T) -> usize {
    // An allocation with a larger alignment is not from the server's allocator (`alloc.rs`), and
    // some servers crash when asked for its size.
    const { assert!(align_of::<T>() <= 8) };
    if pointer.is_null() { 0 } else { call!(RedisModule_MallocSize(pointer.cast_mut().cast())) }
}
