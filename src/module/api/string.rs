//! The server's strings: those that it lends for a call, and those that the module creates.

use std::{ffi::c_char, marker::PhantomData, ptr::NonNull, slice};

use super::raw;

/// A string that the server owns and lends for the duration of a call: a key name or an argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Str<'a>(pub(super) *mut raw::RedisModuleString, PhantomData<&'a [u8]>);

impl<'a> Str<'a> {
    /// Wraps a string that the server passed to an entry point.
    ///
    /// # Safety
    /// `string` stays alive and unchanged for `'a`.
    pub(crate) unsafe fn new(string: *mut raw::RedisModuleString) -> Self {
        Self(string, PhantomData)
    }

    /// The bytes of the string.
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
pub(crate) struct OwnedStr(NonNull<raw::RedisModuleString>);

impl OwnedStr {
    /// Creates a string with a copy of `bytes`; `None` only if the server lacks the function.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        let string: *mut raw::RedisModuleString = call!(RedisModule_CreateString(
            std::ptr::null_mut(),
            bytes.as_ptr().cast(),
            bytes.len()
        ));
        NonNull::new(string).map(Self)
    }

    /// The string, as a command gets it.
    pub(crate) fn as_str(&self) -> Str<'_> {
        Str(self.0.as_ptr(), PhantomData)
    }

    /// Gives the string to the server, which frees it.
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

/// Frees a string that [`OwnedStr::into_ptr`] gave to the server and that the server gave back.
/// Null is allowed.
pub(crate) fn free_string(string: *mut raw::RedisModuleString) {
    if !string.is_null() {
        call!(RedisModule_FreeString(std::ptr::null_mut(), string));
    }
}
