//! The data type: its name, the value behind a key, and the callbacks by which the server saves, loads, copies, measures
//! and frees one.
//!
//! The name is RedisBloom's, with an encoding version of our own (100): the server finds a type by name and hands
//! `rdb_load` the version it found, so one type can read both, and tools that know Bloom keys by TYPE keep working.
//!
//! A filter that comes from valkey-bloom is of a second type, under valkey-bloom's name and with its encoding version:
//!
//! ```text
//!   type        holds                       RDB                              rewritten AOF
//!   MBbloom--   any filter, or half of one  ours, reads RedisBloom's too     BF.LOADCHUNK
//!   bloomfltr   a filter of valkey-bloom's  valkey-bloom's, both ways        BF.LOAD
//! ```
//!
//! All else they share: the value is the same, so is every command. Where another module has taken the second name, such
//! a filter lives under the first.

use std::{
    ffi::{CStr, c_void},
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

use super::{
    aof,
    api::{Context, Key, call, malloc_size, raw},
    defrag,
    entry::guarded,
    limit, rdb,
    reply::Refusal,
    stats,
};
use crate::{
    codec::{chunk::Load, v100, valkey, values},
    filter::{Family, Filter, Layer},
};

/// What TYPE answers.
const NAME: &CStr = c"MBbloom--";
/// What it answers of a filter of valkey-bloom's.
const VALKEY_NAME: &CStr = c"bloomfltr";

/// The value behind a key.
#[derive(Debug)]
pub(crate) enum Value {
    /// A filter.
    Ready(Filter),
    /// A filter that BF.LOADCHUNK has begun and not finished. It answers no query: what it will hold is not all in.
    Loading(Box<Load>),
}

/// The server's handle of the type, set by `register`.
static DATA_TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(std::ptr::null_mut());

/// The handle of valkey-bloom's; null where its name was taken.
static VALKEY_TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(std::ptr::null_mut());

/// The server's handle of the type.
#[inline]
pub(crate) fn handle() -> *mut raw::RedisModuleType {
    DATA_TYPE.load(Relaxed)
}

/// Makes the types known to the server; false if it refuses the first (the name is taken).
pub(crate) fn register(ctx: Context) -> bool {
    let own = raw::RedisModuleTypeMethods {
        version: u64::from(raw::REDISMODULE_TYPE_METHOD_VERSION),
        rdb_load: Some(rdb::load),
        rdb_save: Some(rdb::save),
        aof_rewrite: Some(aof::rewrite),
        mem_usage: Some(mem_usage),
        free: Some(free),
        free_effort: Some(free_effort),
        copy: Some(copy),
        digest: Some(digest),
        defrag: Some(defrag::defrag),
        ..NO_METHODS
    };
    let valkeys = raw::RedisModuleTypeMethods {
        rdb_load: Some(rdb::load_valkey),
        rdb_save: Some(rdb::save_valkey),
        aof_rewrite: Some(aof::rewrite_valkey),
        ..own
    };
    DATA_TYPE.store(create(ctx, NAME, v100::ENCODING_VERSION, own), Relaxed);
    if handle().is_null() {
        return false;
    }
    VALKEY_TYPE.store(
        create(ctx, VALKEY_NAME, valkey::ENCODING_VERSION, valkeys),
        Relaxed,
    );
    if VALKEY_TYPE.load(Relaxed).is_null() {
        ctx.warn("the type bloomfltr is taken: files and replication of valkey-bloom cannot be read");
    }
    true
}

/// Makes a type known to the server; null if it refuses.
fn create(
    ctx: Context,
    name: &CStr,
    version: i32,
    mut methods: raw::RedisModuleTypeMethods,
) -> *mut raw::RedisModuleType {
    call!(RedisModule_CreateDataType(
        ctx.as_ptr(),
        name.as_ptr(),
        version,
        &raw mut methods
    ))
}

/// Every callback that is not named above.
// SAFETY: a null function pointer is `None`, and zero is a valid `version` and trigger.
const NO_METHODS: raw::RedisModuleTypeMethods = unsafe { std::mem::zeroed() };

impl Value {
    /// The value in an open key.
    ///
    /// # Errors
    /// `WrongType`; a key that is not there is `Ok(None)`.
    #[inline]
    pub(crate) fn in_key(key: &mut Key) -> Result<Option<&mut Self>, Refusal> {
        let mut raw = key.value(handle()).cast::<Self>();
        if raw.is_null() {
            raw = Self::under_the_second_name(key)?;
        }
        // SAFETY: 1. a value of our type was made by `into_raw`: only this file gives the server any. 2. It lives as long
        // as the key is open, and the exclusive borrow of the key makes this the only reference: commands run one at a
        // time.
        Ok(unsafe { raw.as_mut() })
    }

    /// What a key that holds nothing of the first type holds of the second; null if the key is not there.
    #[cold]
    fn under_the_second_name(key: &Key) -> Result<*mut Self, Refusal> {
        let raw = key.value(VALKEY_TYPE.load(Relaxed)).cast::<Self>();
        if raw.is_null() && !key.is_empty() {
            return Err(Refusal::WrongType);
        }
        Ok(raw)
    }

    /// The type under which it is stored.
    fn data_type(&self) -> *mut raw::RedisModuleType {
        match self {
            Self::Ready(filter) if matches!(filter.family(), Family::Valkey(_)) => {
                let second = VALKEY_TYPE.load(Relaxed);
                if second.is_null() { handle() } else { second }
            }
            Self::Ready(_) | Self::Loading(_) => handle(),
        }
    }

    /// The filter in an open key.
    ///
    /// # Errors
    /// `WrongType`; `Loading` for one that is not complete; a key that is not there is `Ok(None)`.
    #[inline]
    pub(crate) fn filter_in_key(key: &mut Key) -> Result<Option<&mut Filter>, Refusal> {
        match Self::in_key(key)? {
            None => Ok(None),
            Some(Self::Ready(filter)) => Ok(Some(filter)),
            Some(Self::Loading(_)) => Err(Refusal::Loading),
        }
    }

    /// Puts the value into an open, empty key.
    ///
    /// # Errors
    /// `NoMemory` if the server refuses it.
    pub(crate) fn put(self, key: &mut Key) -> Result<(), Refusal> {
        let data_type = self.data_type();
        let raw = self.into_raw();
        if key.set(data_type, raw) {
            return Ok(());
        }
        // SAFETY: it was made above, and the server did not take it.
        drop(unsafe { Self::from_raw(raw) });
        Err(Refusal::NoMemory)
    }

    /// Makes a filter of a load that is complete.
    pub(crate) fn finish_load(&mut self) {
        if let Self::Loading(load) = self {
            // SAFETY: `self` is valid for reads, and is overwritten below before anyone can use or drop it again:
            // nothing in between can panic.
            let load = unsafe { std::ptr::read(load) };
            // SAFETY: `self` is valid for writes; its old content was moved out by the line above.
            unsafe { std::ptr::write(self, Self::Ready(load.into_filter())) };
        }
    }

    /// Gives it to the server.
    pub(crate) fn into_raw(self) -> *mut c_void {
        stats::made(self.filter());
        Box::into_raw(Box::new(self)).cast()
    }

    /// Takes it back.
    ///
    /// # Safety
    /// `raw` came from [`Self::into_raw`], and is not used again.
    unsafe fn from_raw(raw: *mut c_void) -> Box<Self> {
        // SAFETY: the caller's promise.
        let value: Box<Self> = unsafe { Box::from_raw(raw.cast()) };
        stats::freed(value.filter());
        value
    }

    /// What the server passed to a callback.
    ///
    /// # Safety
    /// `raw` came from [`Self::into_raw`], and is not written to or freed while the reference lives.
    pub(crate) unsafe fn borrow<'a>(raw: *const c_void) -> &'a Self {
        // SAFETY: the caller's promise.
        unsafe { &*raw.cast() }
    }

    /// The filter, complete or not: to measure, save and copy.
    pub(crate) fn filter(&self) -> &Filter {
        match self {
            Self::Ready(filter) => filter,
            Self::Loading(load) => load.filter(),
        }
    }

    /// The filter, complete or not: to move its memory.
    pub(crate) fn filter_mut(&mut self) -> &mut Filter {
        match self {
            Self::Ready(filter) => filter,
            Self::Loading(load) => load.filter_mut(),
        }
    }

    /// Bytes that the allocator really spends on it.
    fn memory(&self) -> usize {
        let boxed = match self {
            Self::Ready(_) => 0,
            Self::Loading(load) => malloc_size(std::ptr::from_ref::<Load>(load)),
        };
        let filter = self.filter();
        let list: usize = filter.older_memory().into_iter().flatten().map(malloc_size).sum();
        let bits: usize = filter
            .layers()
            .map(|layer| malloc_size(layer.bits().words().as_ptr()))
            .sum();
        let boxes: usize = filter
            .layers()
            .filter_map(Layer::boxed)
            .map(|(address, _)| malloc_size(address))
            .sum();
        malloc_size(std::ptr::from_ref(self)) + boxed + list + bits + boxes
    }
}

unsafe extern "C" fn free(value: *mut c_void) {
    guarded("free", (), || {
        // SAFETY: the server hands back what it was given, once.
        drop(unsafe { Value::from_raw(value) });
    });
}

unsafe extern "C" fn mem_usage(value: *const c_void) -> usize {
    // SAFETY: the server passes a live value, and nothing writes to it meanwhile.
    guarded("mem_usage", 0, || unsafe { Value::borrow(value) }.memory())
}

/// How much work it is to free: more than 64 sends it to a background thread, and freeing 64 KiB is where that pays.
unsafe extern "C" fn free_effort(_: *mut raw::RedisModuleString, value: *const c_void) -> usize {
    // SAFETY: the server passes a live value, and nothing writes to it meanwhile.
    guarded("free_effort", 1, || {
        // SAFETY: the server passes a live value, and nothing writes to it meanwhile.
        let value = unsafe { Value::borrow(value) };
        (value.filter().bit_bytes() / 1024) as usize + 1
    })
}

unsafe extern "C" fn copy(
    _: *mut raw::RedisModuleString,
    _: *mut raw::RedisModuleString,
    value: *const c_void,
) -> *mut c_void {
    guarded("copy", std::ptr::null_mut(), || {
        // SAFETY: the server passes a live value, and nothing writes to it meanwhile.
        let value = unsafe { Value::borrow(value) };
        // The server does not say whose COPY it is, and what comes from a primary or a slot on its way here must be obeyed.
        // The filter that is copied has passed the limits already.
        if value.filter().bit_bytes() > limit::machine() {
            stats::REFUSED.add(1);
            return std::ptr::null_mut();
        }
        let copied = match value {
            Value::Ready(filter) => filter.duplicate().map(Value::Ready),
            Value::Loading(load) => load.duplicate().map(|load| Value::Loading(Box::new(load))),
        };
        copied.map_or(std::ptr::null_mut(), Value::into_raw)
    })
}

/// For DEBUG DIGEST: sees every number and every bit, as they are saved.
unsafe extern "C" fn digest(digest: *mut raw::RedisModuleDigest, value: *mut c_void) {
    guarded("digest", (), || {
        // SAFETY: the server passes a live value, and nothing writes to it meanwhile.
        rdb::write(unsafe { Value::borrow(value) }, &mut Digest(digest));
        call!(RedisModule_DigestEndSequence(digest));
    });
}

struct Digest(*mut raw::RedisModuleDigest);

impl values::Sink for Digest {
    fn put(&mut self, bytes: &[u8]) {
        call!(RedisModule_DigestAddStringBuffer(
            self.0,
            bytes.as_ptr().cast(),
            bytes.len()
        ));
    }
}
