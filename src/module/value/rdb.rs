//! RDB, DUMP and RESTORE: the server's stream as source and sink of the codec. Each read is checked
//! before its result is used, as HANDLE_IO_ERRORS demands (`module/mod.rs`).
//!
//! A server exits if it cannot load an RDB file, an AOF or a full sync. So a replica that has no
//! memory for a filter of its primary keeps a placeholder (`module/unapplied.rs`) and continues. A
//! server that loads its own files does not: its next file would lack the filter.

use std::ffi::{c_int, c_void};

use super::{Stored, placeholder, with_value};
use crate::{
    codec::{Error, io::NumberSink, native, redisbloom, valkey_bloom},
    filter::{Error as FilterError, Family},
    module::{
        api::{Stream, logged, raw},
        guarded, limit, stats, unapplied,
    },
};

/// The number of layers of a placeholder of valkey-bloom's type; nothing else of it is stored. No
/// filter has 0 layers, and valkey-bloom refuses a filter that does.
const PLACEHOLDER: u64 = 0;

/// Saves a value; `VALKEYS` is whether its type is valkey-bloom's.
pub(super) unsafe extern "C" fn save<const VALKEYS: bool>(
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
pub(super) unsafe extern "C" fn load<const VALKEYS: bool>(
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
