//! The server's API: calls of its functions, and safe types over its pointers.
//!
//! The server fills a table of function pointers when it loads the module. `call!` passes any
//! pointer to them, so only this directory can use it. A pointer of the server becomes one of these
//! types by an `unsafe fn new`, in an entry or a callback, and lives no longer than that call.
//!
//! The `RedisString` of the `redis-module` crate is not used, because it retains, copies and frees
//! every argument of every command.

use std::{
    ffi::{CStr, c_char, c_int, c_longlong, c_void},
    marker::PhantomData,
    slice,
    sync::LazyLock,
};

use redis_module::RedisBuffer;
pub(crate) use redis_module::raw;

use crate::codec::{Error, io};

/// Calls a function of the table; returns zero or null if the server lacks it.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: 1. the table is written once, while the server loads the module, before any
        // other entry point runs. 2. This copies the pointer.
        let function = unsafe { raw::$name };
        match function {
            // SAFETY: 1. the pointer comes from the server, with the signature in its header.
            // 2. The arguments are alive: see the top of this file, and each wrapper.
            Some(function) => unsafe { function($($argument),*) },
            None => Default::default(),
        }
    }};
}

mod context;

pub(crate) use context::Context;

/// What functions of the server and callbacks return.
pub(crate) const OK: c_int = raw::REDISMODULE_OK as c_int;
pub(crate) const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// Whether the server is Redis 6.2 or older. Redis 7.0 has all functions that the module needs.
pub(crate) fn is_too_old() -> bool {
    // SAFETY: the table is written once, before this runs.
    unsafe { raw::RedisModule_RegisterStringConfig }.is_none()
}

/// `RedisModule_MustObeyClient(ctx)`, which Valkey has since 8.1 and the bindings lack.
type MustObeyClient = unsafe extern "C" fn(*mut raw::RedisModuleCtx) -> c_int;

static MUST_OBEY_CLIENT: LazyLock<Option<MustObeyClient>> = LazyLock::new(|| {
    let mut found = None;
    call!(RedisModule_GetApi(c"RedisModule_MustObeyClient".as_ptr(), (&raw mut found).cast()));
    found
});

/// The share of `maxmemory` that is used.
pub(crate) fn used_memory_ratio() -> f32 {
    call!(RedisModule_GetUsedMemoryRatio())
}

/// Whether clients are paused for a failover, and nothing may be replicated.
pub(crate) fn replication_is_paused() -> bool {
    call!(RedisModule_AvoidReplicaTraffic()) != 0
}

/// Milliseconds since 1970.
pub(crate) fn milliseconds() -> i64 {
    call!(RedisModule_Milliseconds())
}

/// The time of the running command in milliseconds since 1970. In a transaction or a script it
/// stands still, except in Redis 7.0, whose clock is read here.
pub(crate) fn clock() -> i64 {
    let microseconds: c_longlong = call!(RedisModule_CachedMicroseconds());
    if microseconds > 0 { microseconds / 1_000 } else { milliseconds() }
}

/// Bytes that the server's allocator uses for the allocation at `pointer`; 0 for null.
pub(crate) fn malloc_size<T>(pointer: *const T) -> usize {
    // An allocation with a larger alignment is not from the server's allocator (`alloc.rs`), and
    // some servers crash when asked for its size.
    const { assert!(align_of::<T>() <= 8) };
    if pointer.is_null() { 0 } else { call!(RedisModule_MallocSize(pointer.cast_mut().cast())) }
}

/// A string that the server owns and lends for the duration of a call: a key name or an argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Str<'a>(*mut raw::RedisModuleString, PhantomData<&'a [u8]>);

impl<'a> Str<'a> {
    /// # Safety
    /// `string` stays alive and unchanged for `'a`.
    pub(crate) unsafe fn new(string: *mut raw::RedisModuleString) -> Self {
        Self(string, PhantomData)
    }

    #[inline]
    pub(crate) fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        let start: *const c_char = call!(RedisModule_StringPtrLen(self.0, &raw mut len));
        if start.is_null() {
            return &[];
        }
        // SAFETY: 1. the server returns the start and length of the bytes of a live string. 2. The
        // string does not change for `'a` (see `new`).
        unsafe { slice::from_raw_parts(start.cast(), len) }
    }
}

/// The most bytes of a name that the log repeats.
const LOGGED: usize = 128;

/// The start of a name as the log shows it: every byte that is not printable is escaped.
pub(crate) fn logged(name: &[u8]) -> String {
    name.get(..LOGGED).unwrap_or(name).escape_ascii().to_string()
}

/// A server string that the module creates and owns. Drop frees it.
#[repr(transparent)]
pub(crate) struct OwnedStr(*mut raw::RedisModuleString);

impl OwnedStr {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let no_context = std::ptr::null_mut();
        Self(call!(RedisModule_CreateString(no_context, bytes.as_ptr().cast(), bytes.len())))
    }

    /// The string, as a command gets it.
    pub(crate) fn as_str(&self) -> Str<'_> {
        Str(self.0, PhantomData)
    }

    /// Gives the string to the server, which frees it.
    pub(crate) fn into_ptr(self) -> *mut raw::RedisModuleString {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for OwnedStr {
    fn drop(&mut self) {
        free_string(self.0);
    }
}

/// Frees what [`OwnedStr::into_ptr`] gave to the server, or null.
pub(crate) fn free_string(string: *mut raw::RedisModuleString) {
    if !string.is_null() {
        call!(RedisModule_FreeString(std::ptr::null_mut(), string));
    }
}

/// An open key. Drop closes it.
pub(crate) struct Key(*mut raw::RedisModuleKey);

/// What a key is opened for. Opening for writing deletes an expired key and replicates the
/// deletion. Opening for reading never creates a key.
#[derive(Clone, Copy)]
pub(crate) enum Access {
    Read = raw::REDISMODULE_READ as isize,
    Write = (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as isize,
}

impl Key {
    /// Opens the key `name`, which may be missing.
    #[inline]
    pub(crate) fn open(ctx: Context, name: Str, access: Access) -> Self {
        Self(call!(RedisModule_OpenKey(ctx.0, name.0, access as c_int)))
    }

    /// Whether the key is missing.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_null()
            || call!(RedisModule_KeyType(self.0)) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int
    }

    /// The module value in the key if it is of type `data_type`, else null.
    #[inline]
    pub(crate) fn value(&self, data_type: *mut raw::RedisModuleType) -> *mut c_void {
        if self.0.is_null() || call!(RedisModule_ModuleTypeGetType(self.0)) != data_type {
            return std::ptr::null_mut();
        }
        call!(RedisModule_ModuleTypeGetValue(self.0))
    }

    /// Returns false if the server refuses; the caller still owns the value then.
    pub(crate) fn set(&self, data_type: *mut raw::RedisModuleType, value: *mut c_void) -> bool {
        call!(RedisModule_ModuleTypeSetValue(self.0, data_type, value)) == OK
    }

    /// Deletes the key, and with it the value. The key stays open, and is empty.
    pub(crate) fn delete(&mut self) {
        call!(RedisModule_DeleteKey(self.0));
    }
}

impl Drop for Key {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_null() {
            call!(RedisModule_CloseKey(self.0));
        }
    }
}

/// The stream of a value, for the time of a callback: RDB, DUMP, RESTORE, or a rewrite of the AOF.
#[derive(Clone, Copy)]
pub(crate) struct Stream<'a>(*mut raw::RedisModuleIO, PhantomData<&'a raw::RedisModuleIO>);

impl<'a> Stream<'a> {
    /// # Safety
    /// `io` is alive for `'a`.
    pub(crate) unsafe fn new(io: *mut raw::RedisModuleIO) -> Self {
        Self(io, PhantomData)
    }

    /// A context, for the log.
    #[cold]
    pub(crate) fn context(self) -> Context<'a> {
        let ctx: *mut raw::RedisModuleCtx = call!(RedisModule_GetContextFromIO(self.0));
        // SAFETY: the server keeps the context that it makes until the callback returns.
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
        let (data, len) = (data.as_ptr(), data.len());
        call!(RedisModule_EmitAOF(self.0, command, format, key.0, iterator, data, len));
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
