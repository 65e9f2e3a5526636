//! A setting as the server sees it: how it is registered, and the callbacks that CONFIG GET, CONFIG SET and the configuration
//! file go through. The server hands each callback the row that it is about.

use std::{
    ffi::{CString, c_char, c_int, c_longlong, c_uint, c_void},
    sync::atomic::Ordering::Relaxed,
};

use super::{Role, STARTING, Setting, UNPREFIXED, Value};
use crate::module::{
    api::{Context, OwnedStr, Str, call, free_string, raw},
    entry::guarded,
    number,
};

/// The number that stands for a line that is not there: nobody asks for it, and the server takes it for a size too.
const ABSENT: i64 = i64::MAX;

impl Setting {
    /// As the operator writes it.
    pub(super) fn shown_name(&self) -> String {
        let join = if UNPREFIXED.load(Relaxed) { '-' } else { '.' };
        format!("bf{join}{}", self.name.to_string_lossy())
    }

    pub(super) fn register(&'static self, ctx: Context) -> bool {
        let (name, mut flags) = match UNPREFIXED.load(Relaxed) {
            true => (
                CString::new(self.shown_name()).unwrap_or_default(),
                raw::REDISMODULE_CONFIG_UNPREFIXED,
            ),
            false => (self.name.to_owned(), raw::REDISMODULE_CONFIG_DEFAULT),
        };
        let itself = std::ptr::from_ref(self).cast_mut().cast::<c_void>();
        let marked = self.marks_absence();
        let status: c_int = match &self.value {
            Value::Rate(cell, _) => {
                self.default.store(cell.load(Relaxed), Relaxed);
                let default = match marked {
                    true => CString::default(),
                    false => {
                        CString::new(number::shortest(f64::from_bits(cell.load(Relaxed)))).unwrap_or_default()
                    }
                };
                call!(RedisModule_RegisterStringConfig(
                    ctx.as_ptr(),
                    name.as_ptr(),
                    default.as_ptr(),
                    flags as c_uint,
                    Some(get_rate),
                    Some(set_rate),
                    None,
                    itself
                ))
            }
            Value::Integer { cell, bytes, .. } => {
                self.default.store(cell.load(Relaxed).cast_unsigned(), Relaxed);
                if *bytes {
                    flags |= raw::REDISMODULE_CONFIG_MEMORY;
                }
                // The range is checked in `set_integer`, for a text that names it; a size has no sign for the server.
                let (min, max) = if *bytes {
                    (0, c_longlong::MAX)
                } else {
                    (c_longlong::MIN, c_longlong::MAX)
                };
                call!(RedisModule_RegisterNumericConfig(
                    ctx.as_ptr(),
                    name.as_ptr(),
                    if marked { ABSENT } else { cell.load(Relaxed) },
                    flags as c_uint,
                    min,
                    max,
                    Some(get_integer),
                    Some(set_integer),
                    None,
                    itself
                ))
            }
            Value::Switch(cell) => {
                self.default.store(u64::from(cell.load(Relaxed)), Relaxed);
                call!(RedisModule_RegisterBoolConfig(
                    ctx.as_ptr(),
                    name.as_ptr(),
                    c_int::from(cell.load(Relaxed)),
                    flags as c_uint,
                    Some(get_switch),
                    Some(set_switch),
                    None,
                    itself
                ))
            }
        };
        status == raw::REDISMODULE_OK as c_int
    }

    /// Whether the server is told of a default that nobody writes, so that a line of the file is known from none: ours wins
    /// over an alias also where it says what would be the default. The price is that CONFIG REWRITE writes such a setting
    /// always.
    fn marks_absence(&self) -> bool {
        let aliased = matches!(self.value, Value::Rate(..) | Value::Integer { .. });
        self.role == Role::Own && aliased && !UNPREFIXED.load(Relaxed)
    }

    /// Whether the server says at the start that the file has no such line.
    fn is_absent(&self, default: bool) -> bool {
        default && STARTING.load(Relaxed)
    }

    /// Whether the cell takes this value.
    ///
    /// At the start the server sets every row that the configuration file does not have to its default. The cells hold the
    /// defaults then; setting them again would undo what the file says under the other name.
    fn takes(&self, bits: u64) -> bool {
        let default = bits == self.default.load(Relaxed);
        if self.role == Role::Ignored && !default {
            // SAFETY: the log takes a null context.
            let server = unsafe { Context::new(std::ptr::null_mut()) };
            let text = format!(
                "bf: {} is valkey-bloom's and has no effect here",
                self.shown_name()
            );
            server.warn(&text);
        }
        self.marks_absence() || !self.is_absent(default)
    }
}

/// The row that a callback is about.
///
/// # Safety
/// `private` is what `Setting::register` handed to the server.
unsafe fn row(private: *mut c_void) -> &'static Setting {
    // SAFETY: the caller's promise; the rows are static.
    unsafe { &*private.cast() }
}

/// Tells the server why a value is refused.
fn refuse(error: *mut *mut raw::RedisModuleString, text: &str) -> c_int {
    if let Some(text) = OwnedStr::new(text.as_bytes())
        && !error.is_null()
    {
        // SAFETY: the server passes a place for the text, which it then owns.
        unsafe { *error = text.into_ptr() };
    }
    raw::REDISMODULE_ERR as c_int
}

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

unsafe extern "C" fn get_rate(_: *const c_char, private: *mut c_void) -> *mut raw::RedisModuleString {
    guarded("config get", std::ptr::null_mut(), || {
        // SAFETY: `private` is a row of ours.
        let Value::Rate(cell, lent) = &unsafe { row(private) }.value else {
            return std::ptr::null_mut();
        };
        let text = number::shortest(f64::from_bits(cell.load(Relaxed)));
        let text = OwnedStr::new(text.as_bytes()).map_or(std::ptr::null_mut(), OwnedStr::into_ptr);
        // The server copies the string that it is lent, so the one lent before can go.
        free_string(lent.swap(text, Relaxed));
        text
    })
}

unsafe extern "C" fn set_rate(
    _: *const c_char,
    value: *mut raw::RedisModuleString,
    private: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    guarded("config set", ERR, || {
        // SAFETY: `private` is a row of ours.
        let setting = unsafe { row(private) };
        let Value::Rate(cell, _) = &setting.value else {
            return ERR;
        };
        // SAFETY: the server's own string, for this call.
        let value = unsafe { Str::new(value) };
        if setting.marks_absence() && setting.is_absent(value.bytes().is_empty()) {
            return OK;
        }
        let Some(rate) = number::float(value.bytes()) else {
            return refuse(error, &format!("Invalid value for `{}`", setting.shown_name()));
        };
        if !(rate > 0.0 && rate < 1.0) {
            return refuse(
                error,
                &format!(
                    "{} must be in the range (0.000000, 1.000000)",
                    setting.shown_name()
                ),
            );
        }
        if setting.takes(rate.to_bits()) {
            cell.store(rate.to_bits(), Relaxed);
        }
        OK
    })
}

unsafe extern "C" fn get_integer(_: *const c_char, private: *mut c_void) -> c_longlong {
    // SAFETY: `private` is a row of ours.
    guarded("config get", 0, || match &unsafe { row(private) }.value {
        Value::Integer { cell, .. } => cell.load(Relaxed),
        _ => 0,
    })
}

unsafe extern "C" fn set_integer(
    _: *const c_char,
    value: c_longlong,
    private: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    guarded("config set", ERR, || {
        // SAFETY: `private` is a row of ours.
        let setting = unsafe { row(private) };
        let Value::Integer { cell, min, max, .. } = &setting.value else {
            return ERR;
        };
        if setting.marks_absence() && setting.is_absent(value == ABSENT) {
            return OK;
        }
        if !(*min..=*max).contains(&value) {
            return refuse(
                error,
                &format!("{} must be in the range [{min}, {max}]", setting.shown_name()),
            );
        }
        if setting.takes(value.cast_unsigned()) {
            cell.store(value, Relaxed);
        }
        OK
    })
}

unsafe extern "C" fn get_switch(_: *const c_char, private: *mut c_void) -> c_int {
    // SAFETY: `private` is a row of ours.
    guarded("config get", 0, || match &unsafe { row(private) }.value {
        Value::Switch(cell) => c_int::from(cell.load(Relaxed)),
        _ => 0,
    })
}

unsafe extern "C" fn set_switch(
    _: *const c_char,
    value: c_int,
    private: *mut c_void,
    _: *mut *mut raw::RedisModuleString,
) -> c_int {
    guarded("config set", ERR, || {
        // SAFETY: `private` is a row of ours.
        let setting = unsafe { row(private) };
        let Value::Switch(cell) = &setting.value else {
            return ERR;
        };
        if setting.takes(u64::from(value != 0)) {
            cell.store(value != 0, Relaxed);
        }
        OK
    })
}
