//! AOF rewrite: writes a filter as BF.LOADCHUNK commands of at most 16 MiB, far below the server's
//! limit of 512 MB for an argument. A filter of valkey-bloom's type is a single BF.LOAD, as
//! valkey-bloom writes it.

use std::ffi::c_void;

use super::{Stored, with_value};
use crate::{
    codec::{native::dump, valkey_bloom},
    module::api::{Str, Stream, raw},
};

/// Writes a value; `BLOB` is whether its type is valkey-bloom's.
pub(super) unsafe extern "C" fn rewrite<const BLOB: bool>(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: the server passes its stream, for this call.
    let stream = unsafe { Stream::new(io) };
    // SAFETY: the server passes a name, for this call.
    let key = unsafe { Str::new(key) };
    // SAFETY: the server passes a live value.
    unsafe { with_value(c"aof_rewrite", (), value, |value| emit::<BLOB>(stream, key, value)) };
}

fn emit<const BLOB: bool>(stream: Stream, key: Str, value: &Stored) {
    // A placeholder of that type has no blob.
    if BLOB
        && let Stored::Layers(filter) = value
        && let Some(blob) = valkey_bloom::blob(filter)
    {
        return stream.emit(c"BF.LOAD", key, &blob);
    }
    let (mut from, header) = dump::header(value);
    stream.emit_chunk(key, from, &header);
    while let Some((to, data)) = dump::at(value, from) {
        stream.emit_chunk(key, to, &data);
        from = to;
    }
}
