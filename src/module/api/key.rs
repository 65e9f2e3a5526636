//! An open key and the value in it.

use std::{
    ffi::{c_char, c_int, c_void},
    slice,
};

use super::{Context, Str, call, raw};

/// An open key; closed when dropped.
pub(crate) struct Key(*mut raw::RedisModuleKey);

/// What an open key is for. Writing expires and propagates a key whose time is over; reading never
/// makes one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Key {
    /// Opens the key.
    #[inline]
    pub(crate) fn open(ctx: Context, name: Str, access: Access) -> Self {
        let mode = match access {
            Access::Read => raw::REDISMODULE_READ,
            Access::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        Self(call!(RedisModule_OpenKey(ctx.0, name.0, mode as c_int)))
    }

    /// Whether there is no such key.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_null()
            || call!(RedisModule_KeyType(self.0)) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int
    }

    /// The module value it holds if it is of type `data_type`, else null.
    #[inline]
    pub(crate) fn value(&self, data_type: *mut raw::RedisModuleType) -> *mut c_void {
        if self.0.is_null() || call!(RedisModule_ModuleTypeGetType(self.0)) != data_type {
            return std::ptr::null_mut();
        }
        call!(RedisModule_ModuleTypeGetValue(self.0))
    }

    /// The bytes of the string it holds; `None` if it is not there or holds something else.
    pub(crate) fn string(&self) -> Option<&[u8]> {
        if self.0.is_null()
            || call!(RedisModule_KeyType(self.0)) != raw::REDISMODULE_KEYTYPE_STRING as c_int
        {
            return None;
        }
        let mut len = 0;
        let start: *mut c_char =
            call!(RedisModule_StringDMA(self.0, &raw mut len, raw::REDISMODULE_READ as c_int));
        if start.is_null() {
            return None;
        }
        // SAFETY: 1. the server answers the start and length of the string's bytes. 2. They stay
        // until another call on the key, which the borrow of it rules out but for reading.
        Some(unsafe { slice::from_raw_parts(start.cast(), len) })
    }

    /// Puts a value there; false if the server refuses, and the value stays the caller's.
    pub(crate) fn set(&self, data_type: *mut raw::RedisModuleType, value: *mut c_void) -> bool {
        call!(RedisModule_ModuleTypeSetValue(self.0, data_type, value))
            == raw::REDISMODULE_OK as c_int
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
