//! RDB, DUMP and RESTORE: the server's stream as source and sink of the codec.
//!
//! The module declares that it handles read errors: a short or damaged stream is a failed load,
//! never a crash. Each read is checked before its result is used.
//!
//! A server that loads an RDB file or an AOF, or takes a full sync, exits if a load fails. So a
//! replica that has no memory for a filter of its primary keeps a placeholder instead
//! (`module/unapplied.rs`). A server that loads its own files does not: its next file would be
//! without the filter.

use std::ffi::{c_int, c_void};

use super::{Stored, placeholder, with_value};
use crate::{
    codec::{Error, io::NumberSink, native, redisbloom, valkey_bloom},
    filter::Error as FilterError,
    module::{
        api::{Stream, logged, raw},
        limit,
        panic_guard::guarded,
        stats, unapplied,
    },
};

pub(super) unsafe extern "C" fn save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: the server passes its stream, for this call.
    let mut stream = unsafe { Stream::new(io) };
    // SAFETY: the server passes a live value.
    unsafe { with_value("rdb_save", (), value, |value| native::rdb::save(value, &mut stream)) };
}

/// Null refuses the load.
pub(super) unsafe extern "C" fn load(io: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    guarded("rdb_load", std::ptr::null_mut(), || {
        // SAFETY: the server passes its stream, for this call.
        let mut stream = unsafe { Stream::new(io) };
        let ceiling = limit::ADDRESSABLE;
        let stored = match version {
            native::rdb::ENCODING_VERSION => native::rdb::load(&mut stream, ceiling),
            old if redisbloom::ENCODING_VERSIONS.contains(&old) => {
                redisbloom::load(&mut stream, old, ceiling).map(Stored::Layers)
            }
            _ => {
                stream.context().warn_rate_limited(|| {
                    format!("bf: cannot read encoding version {version} of a filter")
                });
                return std::ptr::null_mut();
            }
        };
        // Other formats are not read to the end if there is no memory.
        let out_of_memory = matches!(stored, Err(Error::Filter(FilterError::OutOfMemory(_))));
        let native = version == native::rdb::ENCODING_VERSION;
        let value = accept(stream, stored);
        if value.is_null() && out_of_memory && native && unapplied::is_from_the_primary() {
            return placeholder();
        }
        value
    })
}

/// The value of what was read; null, and a line in the log, for what was not.
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

/// The number of layers, and all that is stored, of a placeholder of the type that has
/// valkey-bloom's name. No filter has 0 layers, and valkey-bloom refuses one.
const PLACEHOLDER: u64 = 0;

/// As `save`, of the type that has valkey-bloom's name.
pub(super) unsafe extern "C" fn save_valkey(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: the server passes its stream, for this call.
    let mut stream = unsafe { Stream::new(io) };
    let save = |value: &Stored| match value {
        Stored::Layers(filter) => valkey_bloom::save(filter, &mut stream),
        Stored::Pages(_) | Stored::Partial(_) => stream.unsigned(PLACEHOLDER),
    };
    // SAFETY: the server passes a live value.
    unsafe { with_value("rdb_save", (), value, save) };
}

/// As `load`, of the type that has valkey-bloom's name.
pub(super) unsafe extern "C" fn load_valkey(
    io: *mut raw::RedisModuleIO,
    version: c_int,
) -> *mut c_void {
    guarded("rdb_load", std::ptr::null_mut(), || {
        // SAFETY: the server passes its stream, for this call.
        let mut stream = unsafe { Stream::new(io) };
        if version != valkey_bloom::ENCODING_VERSION {
            stream.context().warn_rate_limited(|| {
                format!("bf: cannot read encoding version {version} of a filter of valkey-bloom's")
            });
            return std::ptr::null_mut();
        }
        match valkey_bloom::load(&mut stream, limit::ADDRESSABLE) {
            // If more follows, the server refuses the value. A number of layers above the maximum
            // is not told apart, and does no harm: a placeholder answers no query.
            Err(Error::Filter(FilterError::Layers)) => placeholder(),
            stored => accept(stream, stored.map(Stored::Layers)),
        }
    })
}
