//! The names of settings as the server sees them: how they are registered, and the callbacks that
//! CONFIG GET, CONFIG SET, CONFIG REWRITE and the configuration file go through. The server hands
//! each callback the name that it is about.
//!
//! When the module loads, the server sets every name once, in the order of registration: to the
//! text in the configuration file, or to the default of the registration. CONFIG REWRITE writes
//! what is not the default. An alias has the default "", which says nothing, and shows a value only
//! while the value was set under it; our name always shows the value in force. So CONFIG REWRITE
//! writes an alias only while it is in force, and then our name too, with the same value.
//!
//! In a file with both names the alias is in force, whichever line is first, because the aliases
//! are registered last. If the two lines differ, the log says so ([`Name::warn_of_conflict`]).

use std::{
    ffi::{CString, c_char, c_int, c_uint, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

use super::{FILE_APPLIED, Name, Role, UNPREFIXED, warn_of_ignored};
use crate::module::{
    api::{Context, OwnedStr, Str, call, free_string, raw},
    panic_guard::guarded,
};

impl Name {
    /// As the operator writes it.
    pub(super) fn shown(&self) -> String {
        if self.role == Role::Cuckoo {
            return self.name.to_string_lossy().into_owned();
        }
        let join = if UNPREFIXED.load(Relaxed) { '-' } else { '.' };
        format!("bf{join}{}", self.name.to_string_lossy())
    }

    /// Registers it with the value that its setting has now as the default; false if the server
    /// refuses.
    pub(super) fn register(&'static self, ctx: Context) -> bool {
        let (name, flags) = match UNPREFIXED.load(Relaxed) {
            true => (self.shown(), raw::REDISMODULE_CONFIG_UNPREFIXED),
            false => (self.name.to_string_lossy().into_owned(), raw::REDISMODULE_CONFIG_DEFAULT),
        };
        let hidden = if self.role == Role::Cuckoo { raw::REDISMODULE_CONFIG_HIDDEN } else { 0 };
        let name = CString::new(name).unwrap_or_default();
        let default = CString::new(self.text().unwrap_or_default()).unwrap_or_default();
        let status: c_int = call!(RedisModule_RegisterStringConfig(
            ctx.as_ptr(),
            name.as_ptr(),
            default.as_ptr(),
            (flags | hidden) as c_uint,
            Some(get),
            Some(set),
            None,
            std::ptr::from_ref(self).cast_mut().cast()
        ));
        status == raw::REDISMODULE_OK as c_int
    }

    /// The value as CONFIG GET shows it under this name.
    fn text(&self) -> Option<String> {
        match self.role {
            Role::Alias => self.setting.text_of_alias(),
            Role::Own | Role::ValkeyBlooms | Role::Cuckoo => Some(self.setting.text()),
        }
    }

    /// Warns if this alias is in force, but our name was set to something else, neither that nor
    /// the default. `own` is our name, and `default` the value that it has where it is not set: a
    /// line that says it looks like none.
    pub(super) fn warn_of_conflict(&self, ctx: Context, own: &Name, default: u64) {
        let setting = self.setting;
        let Some(covered) = setting.covered() else {
            return;
        };
        if covered != default && covered != setting.bits() {
            let (alias, own) = (self.shown(), own.shown());
            let (value, covered) = (setting.text(), setting.written(covered));
            ctx.warn(&format!(
                "bf: {alias} ({value}) and {own} ({covered}) are two names of one setting and \
                 differ: {alias} is in force; remove one of the two"
            ));
        }
    }

    fn set(&self, text: &[u8]) -> Result<(), String> {
        match self.role {
            Role::Own => self.setting.set(text, false, &self.shown()),
            Role::Alias => self.setting.set(text, true, &self.shown()),
            Role::ValkeyBlooms | Role::Cuckoo => {
                let before = self.setting.bits();
                self.setting.set(text, false, &self.shown())?;
                if self.setting.bits() != before && FILE_APPLIED.load(Relaxed) {
                    // SAFETY: the log takes a null context.
                    let server = unsafe { Context::new(null_mut()) };
                    warn_of_ignored(server, std::iter::once(self));
                }
                Ok(())
            }
        }
    }
}

/// The name that a callback is about.
///
/// # Safety
/// `private` is what `Name::register` handed to the server.
unsafe fn named(private: *mut c_void) -> &'static Name {
    // SAFETY: the caller's promise; the names are static.
    unsafe { &*private.cast() }
}

/// The text that `get` answered last. The server copies it before it asks again.
static LENT: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(null_mut());

unsafe extern "C" fn get(_: *const c_char, private: *mut c_void) -> *mut raw::RedisModuleString {
    guarded("config get", null_mut(), || {
        // SAFETY: `private` is a name of ours.
        let text = unsafe { named(private) }.text();
        let text = text.and_then(|text| OwnedStr::new(text.as_bytes()));
        let text = text.map_or(null_mut(), OwnedStr::into_ptr);
        free_string(LENT.swap(text, Relaxed));
        text
    })
}

unsafe extern "C" fn set(
    _: *const c_char,
    value: *mut raw::RedisModuleString,
    private: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    guarded("config set", raw::REDISMODULE_ERR as c_int, || {
        // SAFETY: the server's own string, for this call.
        let value = unsafe { Str::new(value) };
        // SAFETY: `private` is a name of ours.
        let Err(why) = unsafe { named(private) }.set(value.bytes()) else {
            return raw::REDISMODULE_OK as c_int;
        };
        if let Some(why) = OwnedStr::new(why.as_bytes())
            && !error.is_null()
        {
            // SAFETY: the server passes a place for the text, which it then owns.
            unsafe { *error = why.into_ptr() };
        }
        raw::REDISMODULE_ERR as c_int
    })
}
