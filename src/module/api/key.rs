//! An open key and its value.

use std::ffi::{c_int, c_void};

use super::{Context, Str, raw};

/// An open key. Drop closes it.
pub(crate) struct Key(*mut raw::RedisModuleKey);

/// What a key is opened for. Opening for writing deletes an expired key and replicates the
/// deletion. Opening for reading never creates a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Key {
    /// Opens the key `name`, which may be missing.
    #[inline]
    pub(crate) fn open(ctx: Context, name: Str, access: Access) -> Self {
        let mode = match access {
            Access::Read => raw::REDISMODULE_READ,
            Access::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        Self(call!(RedisModule_OpenKey(ctx.0, name.0, mode as c_int)))
    }

    /// Makes the server publish what it has to say about keys before any of them is held open: a
    /// subscriber in another module may delete a key, and with it the value of an open one. For a
    /// command that opens the key `written` and others that it only reads.
    ///
    /// Opening for writing deletes an expired key and publishes `expired`; opening for reading
    /// publishes `keymiss`. The command then opens all keys for writing, which publishes nothing
    /// about a missing one.
    pub(crate) fn settle<'a>(ctx: Context, written: Str, read: impl Iterator<Item = Str<'a>>) {
        drop(Self::open(ctx, written, Access::Write));
        for name in read {
            drop(Self::open(ctx, name, Access::Write));
            drop(Self::open(ctx, name, Access::Read));
        }
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

    /// Sets the value of the key. Returns false if the server refuses; the caller still owns the
    /// value then.
    pub(crate) fn set(&self, data_type: *mut raw::RedisModuleType, value: *mut c_void) -> bool {
        call!(RedisModule_ModuleTypeSetValue(self.0, data_type, value))
            == raw::REDISMODULE_OK as c_int
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
