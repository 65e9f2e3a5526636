//! The server's streams of a value: RDB, DUMP, RESTORE, a full sync; the rewrite of the AOF; and
//! the sum of DEBUG DIGEST.

use std::{
    ffi::{CStr, c_char, c_int},
    marker::PhantomData,
    slice,
};

use super::{Context, Str, raw};
use crate::codec::io;

/// A stream of strings and numbers, for the time of a callback.
#[derive(Clone, Copy)]
pub(crate) struct Stream<'a>(*mut raw::RedisModuleIO, PhantomData<&'a raw::RedisModuleIO>);

impl<'a> Stream<'a> {
    /// Wraps the stream that the server passed to a callback.
    ///
    /// # Safety
    /// `io` is alive for `'a`.
    pub(crate) unsafe fn new(io: *mut raw::RedisModuleIO) -> Self {
        Self(io, PhantomData)
    }

    /// A context, for the log.
    #[cold]
    pub(crate) fn context(self) -> Context<'a> {
        let ctx: *mut raw::RedisModuleCtx = call!(RedisModule_GetContextFromIO(self.0));
        // SAFETY: the server makes the context for this callback and keeps it until the callback
        // returns.
        unsafe { Context::new(ctx) }
    }

    /// The name of the key that is read.
    #[cold]
    pub(crate) fn key(self) -> Str<'a> {
        let key: *const raw::RedisModuleString = call!(RedisModule_GetKeyNameFromIO(self.0));
        // SAFETY: the server lends the name until the callback returns. For null it returns the
        // bytes of a text that says so.
        unsafe { Str::new(key.cast_mut()) }
    }

    /// Writes `BF.LOADCHUNK key iterator data` to the AOF.
    pub(crate) fn emit_chunk(self, key: Str, iterator: i64, data: &[u8]) {
        let (command, format) = (c"BF.LOADCHUNK".as_ptr(), c"slb".as_ptr());
        call!(RedisModule_EmitAOF(
            self.0,
            command,
            format,
            key.0,
            iterator,
            data.as_ptr(),
            data.len()
        ));
    }

    /// Writes `command key data` to the AOF.
    pub(crate) fn emit(self, command: &CStr, key: Str, data: &[u8]) {
        let (command, format) = (command.as_ptr(), c"sb".as_ptr());
        call!(RedisModule_EmitAOF(self.0, command, format, key.0, data.as_ptr(), data.len()));
    }

    /// Whether the last read, or one before it, went wrong.
    fn failed(self) -> bool {
        let failed: c_int = call!(RedisModule_IsIOError(self.0));
        failed != 0
    }
}

impl io::Sink for Stream<'_> {
    fn put(&mut self, bytes: &[u8]) {
        call!(RedisModule_SaveStringBuffer(self.0, bytes.as_ptr().cast(), bytes.len()));
    }
}

impl io::NumberSink for Stream<'_> {
    fn unsigned(&mut self, number: u64) {
        call!(RedisModule_SaveUnsigned(self.0, number));
    }

    fn double(&mut self, number: f64) {
        call!(RedisModule_SaveDouble(self.0, number));
    }
}

impl io::Source for Stream<'_> {
    type Piece = Piece;

    fn next(&mut self) -> Option<Piece> {
        let mut len = 0;
        let start: *mut c_char = call!(RedisModule_LoadStringBuffer(self.0, &raw mut len));
        let piece = Piece { start, len };
        (!self.failed() && !start.is_null()).then_some(piece)
    }
}

impl io::NumberSource for Stream<'_> {
    fn unsigned(&mut self) -> Option<u64> {
        let value: u64 = call!(RedisModule_LoadUnsigned(self.0));
        (!self.failed()).then_some(value)
    }

    fn double(&mut self) -> Option<f64> {
        let value: f64 = call!(RedisModule_LoadDouble(self.0));
        (!self.failed()).then_some(value)
    }
}

/// A string that the server read and allocated.
pub(crate) struct Piece {
    start: *mut c_char,
    len: usize,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the server allocated `len` bytes at `start`, which is not null where a piece is
        // handed out; they are ours until dropped.
        unsafe { slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if !self.start.is_null() {
            call!(RedisModule_Free(self.start.cast()));
        }
    }
}

/// The sum of a value for DEBUG DIGEST. Drop ends it.
pub(crate) struct Digest(*mut raw::RedisModuleDigest);

impl Digest {
    /// Wraps the sum that the server passed to a callback.
    ///
    /// # Safety
    /// `digest` is alive until the digest is dropped.
    pub(crate) unsafe fn new(digest: *mut raw::RedisModuleDigest) -> Self {
        Self(digest)
    }
}

impl io::Sink for Digest {
    fn put(&mut self, bytes: &[u8]) {
        call!(RedisModule_DigestAddStringBuffer(self.0, bytes.as_ptr().cast(), bytes.len()));
    }
}

impl Drop for Digest {
    fn drop(&mut self) {
        call!(RedisModule_DigestEndSequence(self.0));
    }
}
