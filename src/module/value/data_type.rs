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
//!
//! A server exits if it cannot load an RDB file, an AOF or a full sync. So a replica that has no
//! memory for a filter of its primary keeps a placeholder and continues. A server that loads its
//! own files does not: its next file would lack the filter.

use std::{
    ffi::{c_int, c_void},
    sync::atomic::Ordering::Relaxed,
};

use super::{DATA_TYPE, Stored, VALKEY_TYPE, defrag, placeholder, with_value};
use crate::{
    codec::{Error, io::NumberSink, native, redisbloom, valkey_bloom},
    filter::{Error as FilterError, Family},
    module::{
        api::{Context, Digest, Str, Stream, logged, raw},
        guarded, limit, stats, unapplied,
    },
};

/// Makes the types known to the server; false if it refuses the first (the name is taken).
pub(crate) fn register(ctx: Context) -> bool {
    let own = raw::RedisModuleTypeMethods {
        version: u64::from(raw::REDISMODULE_TYPE_METHOD_VERSION),
        rdb_load: Some(rdb_load::<false>),
        rdb_save: Some(rdb_save::<false>),
        aof_rewrite: Some(aof_rewrite::<false>),
        mem_usage: Some(mem_usage),
        free: Some(free),
        free_effort: Some(free_effort),
        copy: Some(copy),
        digest: Some(digest),
        defrag: Some(defrag::defrag),
        // SAFETY: a null function pointer is `None`, and zero is a valid trigger.
        ..unsafe { std::mem::zeroed() }
    };
    let valkeys = raw::RedisModuleTypeMethods {
        rdb_load: Some(rdb_load::<true>),
        rdb_save: Some(rdb_save::<true>),
        aof_rewrite: Some(aof_rewrite::<true>),
        ..own
    };
    let own = ctx.create_type(c"MBbloom--", native::rdb::ENCODING_VERSION, own);
    if own.is_null() {
        return false;
    }
    let valkeys = ctx.create_type(c"bloomfltr", valkey_bloom::ENCODING_VERSION, valkeys);
    if valkeys.is_null() {
        ctx.warn(
            "the type bloomfltr is taken: files and replication of valkey-bloom cannot be read",
        );
    }
    DATA_TYPE.store(own, Relaxed);
    VALKEY_TYPE.store(valkeys, Relaxed);
    true
}

/// The number of layers of a placeholder of valkey-bloom's type; nothing else of it is stored. No
/// filter has 0 layers, and valkey-bloom refuses a filter that does.
const PLACEHOLDER: u64 = 0;

/// Saves a value; `VALKEYS` is whether its type is valkey-bloom's.
unsafe extern "C" fn rdb_save<const VALKEYS: bool>(
    io: *mut raw::RedisModuleIO,
    value: *mut c_void,
) {
    // SAFETY: the server passes its stream, for this call.
    let mut stream = unsafe { Stream::new(io) };
    let save = |value: &Stored| match value {
        value if !VALKEYS => native::rdb::save(value, &mut stream),
        Stored::Layers(filter) if matches!(filter.family(), Family::Valkey(_)) => {
            valkey_bloom::save(filter, &mut stream);
        }
        _ => stream.unsigned(PLACEHOLDER),
    };
    // SAFETY: the server passes a live value.
    unsafe { with_value(c"rdb_save", (), value, save) };
}

/// Loads a value; `VALKEYS` is whether its type is valkey-bloom's. Null refuses the load.
unsafe extern "C" fn rdb_load<const VALKEYS: bool>(
    io: *mut raw::RedisModuleIO,
    version: c_int,
) -> *mut c_void {
    guarded(c"rdb_load", std::ptr::null_mut(), || {
        // SAFETY: the server passes its stream, for this call.
        let mut stream = unsafe { Stream::new(io) };
        let ceiling = limit::ADDRESSABLE;
        let stored = match (VALKEYS, version) {
            (false, native::rdb::ENCODING_VERSION) => native::rdb::load(&mut stream, ceiling),
            (false, old) if redisbloom::ENCODING_VERSIONS.contains(&old) => {
                redisbloom::load(&mut stream, old, ceiling).map(Stored::Layers)
            }
            (true, valkey_bloom::ENCODING_VERSION) => {
                valkey_bloom::load(&mut stream, ceiling).map(Stored::Layers)
            }
            _ => {
                let whose = if VALKEYS { " of valkey-bloom's" } else { "" };
                stream.context().warn_rate_limited(|| {
                    format!("bf: cannot read encoding version {version} of a filter{whose}")
                });
                return std::ptr::null_mut();
            }
        };
        // If more follows, the server refuses the value. A number of layers above the maximum gives
        // the same error as 0 layers. That does no harm: a placeholder answers no query.
        if VALKEYS && matches!(stored, Err(Error::Filter(FilterError::Layers))) {
            return placeholder();
        }
        // RedisBloom's formats are not read to the end if there is no memory.
        let is_read = VALKEYS || version == native::rdb::ENCODING_VERSION;
        let out_of_memory = matches!(stored, Err(Error::Filter(FilterError::OutOfMemory(_))));
        let value = accept(stream, stored);
        if is_read && out_of_memory && unapplied::is_from_the_primary() {
            return placeholder();
        }
        value
    })
}

/// The value that was read. If reading failed, writes a line to the log and returns null.
fn accept(stream: Stream, stored: Result<Stored, Error>) -> *mut c_void {
    match stored {
        Ok(stored) => {
            let complete = !matches!(stored, Stored::Partial(_));
            stats::LOADS.add(complete.into());
            stored.into_raw()
        }
        Err(error) => {
            let key = stream.key();
            let line = || {
                let (name, why) = (logged(key.bytes()), limit::explained(error));
                format!("bf: key '{name}': a stored filter was refused: {why}")
            };
            // A client can send a RESTORE as often as it likes.
            if unapplied::report_without_client("a stored filter", key, error) {
                stream.context().warn(&line());
            } else {
                stream.context().warn_rate_limited(line);
            }
            std::ptr::null_mut()
        }
    }
}

/// Writes a value to the AOF: chunks of at most 16 MiB, far below the server's limit of 512 MB for
/// an argument, or a BF.LOAD, as valkey-bloom writes it.
unsafe extern "C" fn aof_rewrite<const VALKEYS: bool>(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: the server passes its stream, for this call.
    let stream = unsafe { Stream::new(io) };
    // SAFETY: the server passes a name, for this call.
    let key = unsafe { Str::new(key) };
    let emit = |value: &Stored| {
        // A placeholder of that type has no blob.
        if VALKEYS
            && let Stored::Layers(filter) = value
            && let Some(blob) = valkey_bloom::blob(filter)
        {
            return stream.emit(c"BF.LOAD", key, &blob);
        }
        let (mut from, header) = native::dump::header(value);
        stream.emit_chunk(key, from, &header);
        while let Some((to, data)) = native::dump::at(value, from) {
            stream.emit_chunk(key, to, &data);
            from = to;
        }
    };
    // SAFETY: the server passes a live value.
    unsafe { with_value(c"aof_rewrite", (), value, emit) };
}

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
        let error = match value.duplicate() {
            Ok(copy) => return copy.into_raw(),
            Err(error) => error,
        };
        stats::REFUSED.add(1);
        // SAFETY: the server lends the name until the callback returns.
        let to = unsafe { Str::new(to) };
        if unapplied::report_without_client("COPY", to, error) {
            return placeholder();
        }
        let line = || format!("bf: key '{}': COPY refused: {error}", logged(to.bytes()));
        Context::none().warn_rate_limited(line);
        std::ptr::null_mut()
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
