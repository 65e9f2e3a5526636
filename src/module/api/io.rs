//! The server's streams of a value: RDB, DUMP, RESTORE, a full sync; the rewrite of the AOF; and
//! the sum of DEBUG DIGEST.

use std::{ffi::CStr, marker::PhantomData};

use redis_module::RedisBuffer;

use super::{Context, Str, raw};
use crate::codec::{Error, io};

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
}

impl io::Sink for Stream<'_> {
    fn put(&mut self, bytes: &[u8]) {
        raw::save_slice(self.0, bytes);
    }
}

impl io::NumberSink for Stream<'_> {
    fn unsigned(&mut self, number: u64) {
        raw::save_unsigned(self.0, number);
    }

    fn double(&mut self, number: f64) {
        raw::save_double(self.0, number);
    }
}

impl io::Source for Stream<'_> {
    type Piece = RedisBuffer;

    fn next(&mut self) -> Result<RedisBuffer, Error> {
        raw::load_string_buffer(self.0).map_err(|_| Error::Truncated)
    }
}

impl io::NumberSource for Stream<'_> {
    fn unsigned(&mut self) -> Result<u64, Error> {
        raw::load_unsigned(self.0).map_err(|_| Error::Truncated)
    }

    fn double(&mut self) -> Result<f64, Error> {
        raw::load_double(self.0).map_err(|_| Error::Truncated)
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
