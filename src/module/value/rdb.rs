//! RDB, DUMP and RESTORE: the server's stream as source and sink of the codec.
//!
//! The module declares that it handles read errors: a short or damaged stream is a failed load,
//! never a crash. Each read is checked before its result is used.
//!
//! A server that loads an RDB file or an AOF, or takes a full sync, ends when a load fails. On a
//! replica that would be so each time that it takes a new copy, and a RESTORE of the primary would
//! leave no key, which answers "absent". So a replica that has no memory for a filter of its
//! primary keeps a placeholder instead (`module/unapplied.rs`). A server that loads its own files
//! does not: its next file would be without the filter.

use std::ffi::{c_char, c_int, c_void};

use super::{Value, with_value};
use crate::{
    codec::{
        Error,
        io::{self, NumberSink},
        native::{self, kinds::Stored},
        redisbloom, valkey_bloom,
    },
    filter::Error as FilterError,
    module::{
        api::{Context, Str, call, logged, raw},
        limit,
        panic_guard::guarded,
        stats, unapplied,
    },
};

/// Writes a value as RDB and DUMP have it.
pub(super) fn write(value: &Value, sink: &mut impl io::Sink) {
    match value {
        Value::Ready(filter) => native::rdb::save(filter, sink),
        Value::Paged(paged) => native::paged::rdb::save(paged, sink),
        Value::Loading(load) => load.save(sink),
    }
}

pub(super) unsafe extern "C" fn save(io: *mut raw::RedisModuleIO, value: *mut c_void) {
    // SAFETY: the server passes a live value.
    unsafe { with_value("rdb_save", (), value, |value| write(value, &mut Stream(io))) };
}

/// Null refuses the load.
pub(super) unsafe extern "C" fn load(io: *mut raw::RedisModuleIO, version: c_int) -> *mut c_void {
    guarded("rdb_load", std::ptr::null_mut(), || {
        let (stream, ceiling) = (&mut Stream(io), limit::load_ceiling());
        let stored = match version {
            native::rdb::ENCODING_VERSION => native::kinds::load(stream, ceiling),
            old if redisbloom::ENCODING_VERSIONS.contains(&old) => {
                redisbloom::load(stream, old, ceiling).map(Stored::Layers)
            }
            _ => {
                context(io).warn_rate_limited(|| {
                    format!("bf: cannot read encoding version {version} of a filter")
                });
                return std::ptr::null_mut();
            }
        };
        // Other formats are not read to the end if there is no memory.
        let out_of_memory = matches!(stored, Err(Error::Filter(FilterError::OutOfMemory(_))));
        let native = version == native::rdb::ENCODING_VERSION;
        let value = accept(io, stored);
        if value.is_null() && out_of_memory && native && unapplied::is_from_the_primary() {
            return placeholder();
        }
        value
    })
}

/// The pointer to a placeholder, or null if there is no memory for a few bytes.
fn placeholder() -> *mut c_void {
    Value::placeholder().map_or(std::ptr::null_mut(), Value::into_raw)
}

/// The value of what was read; null, and a line in the log, for what was not.
fn accept(io: *mut raw::RedisModuleIO, stored: Result<Stored, Error>) -> *mut c_void {
    match stored {
        Ok(stored) => {
            let complete = !matches!(stored, Stored::Partial(_));
            stats::LOADS.add(complete.into());
            Value::of(stored).into_raw()
        }
        Err(error) => {
            let key: *const raw::RedisModuleString = call!(RedisModule_GetKeyNameFromIO(io));
            // SAFETY: the server lends the name until the callback returns. For null it returns
            // the bytes of a text that says so.
            let key = unsafe { Str::new(key.cast_mut()) };
            let line = || {
                let (name, why) = (logged(key.bytes()), limit::explained(context(io), error));
                format!("bf: key '{name}': a stored filter was refused: {why}")
            };
            // A client can send a RESTORE as often as it likes.
            if unapplied::report_without_client("a stored filter", key, error) {
                context(io).warn(&line());
            } else {
                context(io).warn_rate_limited(line);
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
    let save = |value: &Value| match value {
        Value::Ready(filter) => valkey_bloom::save(filter, &mut Stream(io)),
        Value::Paged(_) | Value::Loading(_) => Stream(io).unsigned(PLACEHOLDER),
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
        if version != valkey_bloom::ENCODING_VERSION {
            context(io).warn_rate_limited(|| {
                format!("bf: cannot read encoding version {version} of a filter of valkey-bloom's")
            });
            return std::ptr::null_mut();
        }
        match valkey_bloom::load(&mut Stream(io), limit::load_ceiling()) {
            // If more follows, the server refuses the value. A number of layers above the maximum
            // is not told apart, and does no harm: a placeholder answers no query.
            Err(Error::Filter(FilterError::Layers)) => placeholder(),
            stored => accept(io, stored.map(Stored::Layers)),
        }
    })
}

/// The context of a callback, for the log.
#[cold]
fn context<'a>(io: *mut raw::RedisModuleIO) -> Context<'a> {
    let ctx: *mut raw::RedisModuleCtx = call!(RedisModule_GetContextFromIO(io));
    // SAFETY: the server makes the context for this callback and keeps it until the callback
    // returns.
    unsafe { Context::new(ctx) }
}

/// The server's stream of strings and numbers.
struct Stream(*mut raw::RedisModuleIO);

impl io::Sink for Stream {
    fn put(&mut self, bytes: &[u8]) {
        call!(RedisModule_SaveStringBuffer(self.0, bytes.as_ptr().cast(), bytes.len()));
    }
}

impl io::NumberSink for Stream {
    fn unsigned(&mut self, number: u64) {
        call!(RedisModule_SaveUnsigned(self.0, number));
    }

    fn double(&mut self, number: f64) {
        call!(RedisModule_SaveDouble(self.0, number));
    }
}

impl io::Source for Stream {
    type Piece = Piece;

    fn next(&mut self) -> Option<Piece> {
        let mut len = 0;
        let start: *mut c_char = call!(RedisModule_LoadStringBuffer(self.0, &raw mut len));
        let piece = Piece { start, len };
        (!self.failed() && !start.is_null()).then_some(piece)
    }
}

impl io::NumberSource for Stream {
    fn unsigned(&mut self) -> Option<u64> {
        let value: u64 = call!(RedisModule_LoadUnsigned(self.0));
        (!self.failed()).then_some(value)
    }

    fn double(&mut self) -> Option<f64> {
        let value: f64 = call!(RedisModule_LoadDouble(self.0));
        (!self.failed()).then_some(value)
    }
}

impl Stream {
    /// Whether the last read, or one before it, went wrong.
    fn failed(&self) -> bool {
        let failed: c_int = call!(RedisModule_IsIOError(self.0));
        failed != 0
    }
}

/// A string that the server read and allocated.
struct Piece {
    start: *mut c_char,
    len: usize,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the server allocated `len` bytes at `start`, which is not null where a piece is
        // handed out; they are ours until dropped.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if !self.start.is_null() {
            call!(RedisModule_Free(self.start.cast()));
        }
    }
}
