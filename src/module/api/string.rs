//! The server's strings: those that it lends for a call, and those that this side makes.

use std::{ffi::c_char, marker::PhantomData, ptr::NonNull, slice};

use super::{call, raw};

/// A string that the server owns and lends for the length of a call: a key name, an argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Str<'a>(pub(super) *mut raw::RedisModuleString, PhantomData<&'a [u8]>);

impl<'a> Str<'a> {
    /// Wraps what the server passed to an entry.
    ///
    /// # Safety
    /// `string` is alive and not written to while the value is used.
    pub(crate) unsafe fn new(string: *mut raw::RedisModuleString) -> Self {
        Self(string, PhantomData)
    }

    /// Its bytes.
    #[inline]
    pub(crate) fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        let start: *const c_char = call!(RedisModule_StringPtrLen(self.0, &raw mut len));
        if start.is_null() {
            return &[];
        }
        // SAFETY: 1. the server answers the start and length of the bytes of a live string. 2.
        // Nobody writes to an argument while the command runs.
        unsafe { slice::from_raw_parts(start.cast(), len) }
    }
}

/// A string of the server that this side made and frees.
#[repr(transparent)]
pub(crate) struct OwnedStr(NonNull<raw::RedisModuleString>);

impl OwnedStr {
    /// A copy of `bytes`; `None` only when the server has no such function.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        let made: *mut raw::RedisModuleString = call!(RedisModule_CreateString(
            std::ptr::null_mut(),
            bytes.as_ptr().cast(),
            bytes.len()
        ));
        NonNull::new(made).map(Self)
    }

    /// Gives it to the server, which frees it.
    pub(crate) fn into_ptr(self) -> *mut raw::RedisModuleString {
        let pointer = self.0.as_ptr();
        std::mem::forget(self);
        pointer
    }
}

impl Drop for OwnedStr {
    fn drop(&mut self) {
        free_string(self.0.as_ptr());
    }
}

/// Frees a string that [`OwnedStr::into_ptr`] gave away and that came back; nothing for null.
pub(crate) fn free_string(string: *mut raw::RedisModuleString) {
    if !string.is_null() {
        call!(RedisModule_FreeString(std::ptr::null_mut(), string));
    }
}
