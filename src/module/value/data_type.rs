//! The data types: their names, and the callbacks by which the server saves, loads, copies,
//! measures and frees a value (`value/mod.rs`).
//!
//! ```text
//!   type        holds                       RDB                              rewritten AOF
//!   MBbloom--   any filter, even partial    ours, reads RedisBloom's too     BF.LOADCHUNK
//!   bloomfltr   a filter of valkey-bloom's  valkey-bloom's, both ways        BF.LOAD
//! ```
//!
//! Where another module has taken the second name, such a filter gets the first type.
//!
//! COPY creates a value of the type of its source. So a placeholder (`module/unapplied.rs`) may be
//! of the second type, too: its RDB has 0 layers and nothing else, its AOF is a BF.LOADCHUNK.

use std::{
    ffi::{CStr, c_void},
    sync::atomic::Ordering::Relaxed,
};

use super::{DATA_TYPE, Stored, VALKEY_TYPE, aof, defrag, placeholder, rdb, with_value};
use crate::{
    codec::{native, valkey_bloom},
    module::{
        api::{Context, Digest, Str, logged, raw},
        guarded, stats, unapplied,
    },
};

/// What TYPE answers.
const NAME: &CStr = c"MBbloom--";
/// What it answers of a filter of valkey-bloom's.
const VALKEY_NAME: &CStr = c"bloomfltr";

/// Makes the types known to the server; false if it refuses the first (the name is taken).
pub(crate) fn register(ctx: Context) -> bool {
    let own = raw::RedisModuleTypeMethods {
        version: u64::from(raw::REDISMODULE_TYPE_METHOD_VERSION),
        rdb_load: Some(rdb::load::<false>),
        rdb_save: Some(rdb::save::<false>),
        aof_rewrite: Some(aof::rewrite::<false>),
        mem_usage: Some(mem_usage),
        free: Some(free),
        free_effort: Some(free_effort),
        copy: Some(copy),
        digest: Some(digest),
        defrag: Some(defrag::defrag),
        ..NO_METHODS
    };
    let valkeys = raw::RedisModuleTypeMethods {
        rdb_load: Some(rdb::load::<true>),
        rdb_save: Some(rdb::save::<true>),
        aof_rewrite: Some(aof::rewrite::<true>),
        ..own
    };
    let own = ctx.create_type(NAME, native::rdb::ENCODING_VERSION, own);
    if own.is_null() {
        return false;
    }
    let valkeys = ctx.create_type(VALKEY_NAME, valkey_bloom::ENCODING_VERSION, valkeys);
    if valkeys.is_null() {
        ctx.warn(
            "the type bloomfltr is taken: files and replication of valkey-bloom cannot be read",
        );
    }
    DATA_TYPE.store(own, Relaxed);
    VALKEY_TYPE.store(valkeys, Relaxed);
    true
}

/// Every callback that is not named above.
// SAFETY: a null function pointer is `None`, and zero is a valid `version` and trigger.
const NO_METHODS: raw::RedisModuleTypeMethods = unsafe { std::mem::zeroed() };

unsafe extern "C" fn free(value: *mut c_void) {
    guarded(c"free", (), || {
        // SAFETY: the server hands back what it was given, once.
        drop(unsafe { Stored::from_raw(value) });
    });
}

unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    // SAFETY: the server passes a live value.
    unsafe { with_value(c"mem_usage", 0, value, Stored::memory) }
}

/// How much work it is to free a value. Above 64 the server frees it in a background thread, which
/// pays from 64 KiB on.
unsafe extern "C" fn free_effort(_: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    // SAFETY: the server passes a live value.
    unsafe { with_value(c"free_effort", 1, value, |value| (value.bytes() / 1024) as usize + 1) }
}

unsafe extern "C" fn copy(
    _: *mut raw::RedisModuleString,
    to: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    let duplicate = |value: &Stored| {
        // No ceiling: the server does not say whose COPY it is, and what comes from a primary or
        // with a slot must be obeyed. The filter that is copied was accepted already.
        value.duplicate().map_or_else(
            |error| {
                stats::REFUSED.add(1);
                // SAFETY: the server lends the name until the callback returns.
                let to = unsafe { Str::new(to) };
                if unapplied::report_without_client("COPY", to, error) {
                    return placeholder();
                }
                Context::none().warn_rate_limited(|| {
                    format!("bf: key '{}': COPY refused: {error}", logged(to.bytes()))
                });
                std::ptr::null_mut()
            },
            Stored::into_raw,
        )
    };
    // SAFETY: the server passes a live value.
    unsafe { with_value(c"copy", std::ptr::null_mut(), value, duplicate) }
}

/// For DEBUG DIGEST: sees every number and every bit, as they are saved.
unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    // SAFETY: the server passes its own sum, for this call.
    let mut digest = unsafe { Digest::new(digest) };
    // SAFETY: the server passes a live value.
    unsafe { with_value(c"digest", (), value, |value| native::rdb::save(value, &mut digest)) };
}
