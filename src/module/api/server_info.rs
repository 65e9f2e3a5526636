//! Sections of INFO, which are read.

use std::{
    ffi::{CStr, c_char},
    ptr::NonNull,
};

use super::{Context, raw};

/// A section of INFO.
pub(crate) struct ServerInfo(NonNull<raw::RedisModuleServerInfoData>);

impl Context<'_> {
    /// Reads a section of INFO.
    pub(crate) fn server_info(self, section: &CStr) -> Option<ServerInfo> {
        NonNull::new(call!(RedisModule_GetServerInfo(self.0, section.as_ptr()))).map(ServerInfo)
    }
}

impl ServerInfo {
    /// The value of a field as an unsigned number; `None` if it is missing or not a number.
    pub(crate) fn number(&self, field: &CStr) -> Option<u64> {
        self.text(field)?.parse().ok()
    }

    /// The value of a field as text; `None` if it is missing or not UTF-8.
    pub(crate) fn text(&self, field: &CStr) -> Option<&str> {
        let value: *const c_char =
            call!(RedisModule_ServerInfoGetFieldC(self.0.as_ptr(), field.as_ptr()));
        if value.is_null() {
            return None;
        }
        // SAFETY: the server returns a C string that lives as long as the section.
        unsafe { CStr::from_ptr(value) }.to_str().ok()
    }

    /// Whether the section has the field and its value is `text`.
    pub(crate) fn is(&self, field: &CStr, text: &str) -> bool {
        self.text(field) == Some(text)
    }
}

impl Drop for ServerInfo {
    fn drop(&mut self) {
        call!(RedisModule_FreeServerInfo(std::ptr::null_mut(), self.0.as_ptr()));
    }
}
