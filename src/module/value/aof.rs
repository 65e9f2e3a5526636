//! AOF rewrite: writes a filter as BF.LOADCHUNK commands of at most 16 MiB, far below the server's
//! limit of 512 MB for an argument. A filter of valkey-bloom's type is a single BF.LOAD, as
//! valkey-bloom writes it.

use std::ffi::c_void;

use super::{Stored, with_value};
use crate::{
    codec::{native::dump, valkey_bloom},
    module::api::{Str, Stream, raw},
};

pub(super) unsafe extern "C" fn rewrite(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: the server passes its stream and a name, for this call.
    let (stream, key) = unsafe { lent(io, key) };
    // SAFETY: the server passes a live value.
    unsafe { with_value("aof_rewrite", (), value, |value| emit_chunks(stream, key, value)) };
}

/// Wraps what the server passes to a callback.
///
/// # Safety
/// Both are alive for `'a`.
unsafe fn lent<'a>(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
) -> (Stream<'a>, Str<'a>) {
    // SAFETY: the caller's promise.
    let stream = unsafe { Stream::new(io) };
    // SAFETY: the caller's promise.
    (stream, unsafe { Str::new(key) })
}

/// Writes a value as BF.LOADCHUNK commands.
fn emit_chunks(stream: Stream, key: Str, value: &Stored) {
    let (mut from, header) = dump::header(value);
    stream.emit_chunk(key, from, &header);
    while let Some((to, data)) = dump::at(value, from) {
        stream.emit_chunk(key, to, &data);
        from = to;
    }
}

/// Writes a filter of the type with valkey-bloom's name as one BF.LOAD command. A placeholder
/// there has no such form.
pub(super) unsafe extern "C" fn rewrite_valkey(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: the server passes its stream and a name, for this call.
    let (stream, key) = unsafe { lent(io, key) };
    let emit = |value: &Stored| {
        if let Stored::Layers(filter) = value
            && let Some(blob) = valkey_bloom::blob(filter)
        {
            stream.emit(c"BF.LOAD", key, &blob);
        } else {
            emit_chunks(stream, key, value);
        }
    };
    // SAFETY: the server passes a live value.
    unsafe { with_value("aof_rewrite", (), value, emit) };
}
