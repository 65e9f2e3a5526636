//! AOF rewrite: writes a filter as BF.LOADCHUNK commands of at most 16 MiB, far below the server's
//! limit of 512 MB for an argument. A filter of valkey-bloom's type is a single BF.LOAD, as
//! valkey-bloom writes it.

use std::ffi::{c_longlong, c_void};

use super::{Value, with_value};
use crate::{
    codec::valkey_bloom,
    module::api::{call, raw},
};

pub(super) unsafe extern "C" fn rewrite(
    io: *mut raw::RedisModuleIO,
    key: *mut raw::RedisModuleString,
    value: *mut c_void,
) {
    // SAFETY: the server passes a live value.
    unsafe { with_value("aof_rewrite", (), value, |value| emit_chunks(io, key, value)) };
}

/// Writes a value as BF.LOADCHUNK commands.
fn emit_chunks(io: *mut raw::RedisModuleIO, key: *mut raw::RedisModuleString, value: &Value) {
    let emit = |iterator: i64, data: &[u8]| {
        call!(RedisModule_EmitAOF(
            io,
            c"BF.LOADCHUNK".as_ptr(),
            c"slb".as_ptr(),
            key,
            iterator as c_longlong,
            data.as_ptr(),
            data.len(),
        ));
    };
    let (mut from, header) = value.dump_header();
    emit(from, &header);
    while let Some((to, data)) = value.dump_at(from) {
        emit(to, &data);
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
    let emit = |value: &Value| {
        if let Value::Ready(filter) = value
            && let Some(blob) = valkey_bloom::blob(filter)
        {
            call!(RedisModule_EmitAOF(
                io,
                c"BF.LOAD".as_ptr(),
                c"sb".as_ptr(),
                key,
                blob.as_ptr(),
                blob.len(),
            ));
        } else {
            emit_chunks(io, key, value);
        }
    };
    // SAFETY: the server passes a live value.
    unsafe { with_value("aof_rewrite", (), value, emit) };
}
