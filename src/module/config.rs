//! Settings: the load arguments, and what CONFIG GET and CONFIG SET show.
//!
//! | setting           | what                                                       | default | range          |
//! |-------------------|------------------------------------------------------------|---------|----------------|
//! | error-rate        | rate of a filter that BF.ADD, MADD or INSERT makes          | 0.01    | (0, 1)         |
//! | initial-size      | its capacity, in items                                     | 100     | [1, 2^62]      |
//! | expansion-factor  | its expansion, and that of BF.RESERVE; 0 = non-scaling      | 2       | [0, 32768]     |
//! | max-filter-bytes  | the most bytes of bits of one filter; 0 = see `limit.rs`   | 0       | [0, 2^63)      |
//! | missing-key-error | whether BF.EXISTS of a missing key is an error             | no      | yes, no        |
//!
//! Where the server allows names without a prefix (Redis 8) they read `bf-error-rate`, as in RedisBloom 8; elsewhere the
//! server makes them `bf.error-rate`. There the seven names of valkey-bloom are understood too, so that a configuration
//! file written for it starts the server: four mean a setting of ours, three have no meaning here and say so in the log.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_longlong, c_uint, c_void},
    sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering::Relaxed},
};

use super::{
    api::{Context, OwnedStr, Str, call, free_string, raw},
    entry::guarded,
    number,
};
use crate::filter::{Expansion, MAX_CAPACITY, MAX_EXPANSION};

static ERROR_RATE: AtomicU64 = AtomicU64::new(0.01_f64.to_bits());
static INITIAL_SIZE: AtomicI64 = AtomicI64::new(100);
static EXPANSION_FACTOR: AtomicI64 = AtomicI64::new(2);
static MAX_FILTER_BYTES: AtomicI64 = AtomicI64::new(0);
static MISSING_KEY_ERROR: AtomicBool = AtomicBool::new(false);

/// The rate of a filter made by adding to it.
pub(crate) fn error_rate() -> f64 {
    f64::from_bits(ERROR_RATE.load(Relaxed))
}

/// The capacity of a filter made by adding to it.
pub(crate) fn initial_size() -> u64 {
    INITIAL_SIZE.load(Relaxed).unsigned_abs()
}

/// The expansion of a filter that was made without one.
pub(crate) fn expansion() -> Expansion {
    Expansion::new(EXPANSION_FACTOR.load(Relaxed).unsigned_abs()).unwrap_or(Expansion::NONSCALING)
}

/// The most bytes of bits of one filter, 0 where the operator has set nothing.
pub(crate) fn max_filter_bytes() -> u64 {
    MAX_FILTER_BYTES.load(Relaxed).unsigned_abs()
}

/// Whether a query of a missing key is an error.
pub(crate) fn missing_key_error() -> bool {
    MISSING_KEY_ERROR.load(Relaxed)
}

/// A row of the configuration.
struct Setting {
    name: &'static CStr,
    role: Role,
    value: Value,
    /// The default that the server was told, as the bits of the cell.
    default: AtomicU64,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// Ours.
    Own,
    /// valkey-bloom's name for one of ours.
    Alias,
    /// A knob of valkey-bloom that has no meaning here.
    Ignored,
}

enum Value {
    /// A number in (0, 1), which the server takes as text; the second cell keeps the text lent to CONFIG GET.
    Rate(&'static AtomicU64, AtomicPtr<raw::RedisModuleString>),
    /// An integer in a closed range, perhaps with a unit of bytes ("1gb").
    Integer {
        cell: &'static AtomicI64,
        min: i64,
        max: i64,
        bytes: bool,
    },
    Switch(&'static AtomicBool),
}

const fn row_of(name: &'static CStr, role: Role, value: Value) -> Setting {
    Setting {
        name,
        role,
        value,
        default: AtomicU64::new(0),
    }
}

const fn rate(name: &'static CStr, role: Role, cell: &'static AtomicU64) -> Setting {
    row_of(
        name,
        role,
        Value::Rate(cell, AtomicPtr::new(std::ptr::null_mut())),
    )
}

const fn integer(name: &'static CStr, role: Role, cell: &'static AtomicI64, min: i64, max: i64) -> Setting {
    row_of(
        name,
        role,
        Value::Integer {
            cell,
            min,
            max,
            bytes: false,
        },
    )
}

const fn bytes(name: &'static CStr, role: Role, cell: &'static AtomicI64) -> Setting {
    row_of(
        name,
        role,
        Value::Integer {
            cell,
            min: 0,
            max: i64::MAX,
            bytes: true,
        },
    )
}

const fn switch(name: &'static CStr, role: Role, cell: &'static AtomicBool) -> Setting {
    row_of(name, role, Value::Switch(cell))
}

static TIGHTENING_RATIO: AtomicU64 = AtomicU64::new(0.5_f64.to_bits());
static RANDOM_SEED: AtomicBool = AtomicBool::new(true);
static DEFRAG_ENABLED: AtomicBool = AtomicBool::new(true);

/// Every setting. An alias stands before what it means: the server sets the rows in this order, and where a file has both,
/// our name wins.
static SETTINGS: [Setting; 12] = [
    rate(c"bloom-fp-rate", Role::Alias, &ERROR_RATE),
    integer(
        c"bloom-capacity",
        Role::Alias,
        &INITIAL_SIZE,
        1,
        MAX_CAPACITY as i64,
    ),
    integer(
        c"bloom-expansion",
        Role::Alias,
        &EXPANSION_FACTOR,
        0,
        MAX_EXPANSION as i64,
    ),
    bytes(c"bloom-memory-usage-limit", Role::Alias, &MAX_FILTER_BYTES),
    rate(c"error-rate", Role::Own, &ERROR_RATE),
    integer(c"initial-size", Role::Own, &INITIAL_SIZE, 1, MAX_CAPACITY as i64),
    integer(
        c"expansion-factor",
        Role::Own,
        &EXPANSION_FACTOR,
        0,
        MAX_EXPANSION as i64,
    ),
    bytes(c"max-filter-bytes", Role::Own, &MAX_FILTER_BYTES),
    switch(c"missing-key-error", Role::Own, &MISSING_KEY_ERROR),
    rate(c"bloom-tightening-ratio", Role::Ignored, &TIGHTENING_RATIO),
    switch(c"bloom-use-random-seed", Role::Ignored, &RANDOM_SEED),
    switch(c"bloom-defrag-enabled", Role::Ignored, &DEFRAG_ENABLED),
];

/// Whether the server takes names without a prefix.
static UNPREFIXED: AtomicBool = AtomicBool::new(false);
/// Whether the server is setting each row once, to its value in the configuration file or to its default.
static STARTING: AtomicBool = AtomicBool::new(true);

/// Takes the load arguments as defaults, then registers every setting and lets the server set them.
///
/// # Errors
/// A line for the log that says why the module must not load.
pub(crate) fn register(ctx: Context, arguments: &[Str]) -> Result<(), String> {
    load_arguments(ctx, arguments)?;
    let unprefixed = takes_unprefixed_names(ctx);
    UNPREFIXED.store(unprefixed, Relaxed);
    for setting in &SETTINGS {
        if unprefixed && setting.role != Role::Own {
            continue;
        }
        if !setting.register(ctx) {
            return Err(format!("the server refuses the setting {}", setting.shown_name()));
        }
    }
    let status: c_int = call!(RedisModule_LoadConfigs(ctx.as_ptr()));
    STARTING.store(false, Relaxed);
    if status != raw::REDISMODULE_OK as c_int {
        return Err("a setting in the configuration file is not valid (see the line above)".into());
    }
    Ok(())
}

/// Redis from version 8 on; not Valkey, which calls itself Redis 7.2 in one field and by its own name in another.
fn takes_unprefixed_names(ctx: Context) -> bool {
    let Some(server) = ctx.server_info(c"server") else {
        return false;
    };
    let major = server
        .text(c"redis_version")
        .and_then(|version| version.split('.').next()?.parse().ok());
    !server.is(c"server_name", "valkey") && major.is_some_and(|major: u32| major >= 8)
}

/// Pairs of a name and a value, as RedisBloom has them.
fn load_arguments(ctx: Context, arguments: &[Str]) -> Result<(), String> {
    // Tools that template the line leave an empty argument where they have none.
    let arguments = match arguments {
        [only] if only.bytes().is_empty() => &[],
        arguments => arguments,
    };
    for pair in arguments.chunks(2) {
        let name = pair.first().map_or(String::new(), |name| {
            String::from_utf8_lossy(name.bytes()).into_owned()
        });
        let Some(value) = pair.get(1).map(|value| value.bytes()) else {
            return Err(format!("load argument {name} has no value"));
        };
        let odd = || {
            format!(
                "load argument {name} has a bad value: {}",
                String::from_utf8_lossy(value)
            )
        };
        match name.to_ascii_uppercase().as_str() {
            "ERROR_RATE" | "BF-ERROR-RATE" => {
                let rate = number::float(value)
                    .filter(|rate| *rate > 0.0 && *rate < 1.0)
                    .ok_or_else(odd)?;
                ERROR_RATE.store(rate.to_bits(), Relaxed);
            }
            "INITIAL_SIZE" | "BF-INITIAL-SIZE" => {
                let range = 1..=MAX_CAPACITY as i64;
                let size = number::integer(value)
                    .filter(|size| range.contains(size))
                    .ok_or_else(odd)?;
                INITIAL_SIZE.store(size, Relaxed);
            }
            cuckoo if cuckoo.starts_with("CF_") || cuckoo.starts_with("CF-") => {
                number::integer(value).ok_or_else(odd)?;
                ctx.warn(&format!(
                    "load argument {name} is ignored: there are no cuckoo filters here"
                ));
            }
            _ => return Err(format!("load argument {name} is not known")),
        }
    }
    Ok(())
}

impl Setting {
    /// As the operator writes it.
    fn shown_name(&self) -> String {
        let join = if UNPREFIXED.load(Relaxed) { '-' } else { '.' };
        format!("bf{join}{}", self.name.to_string_lossy())
    }

    fn register(&'static self, ctx: Context) -> bool {
        let (name, mut flags) = match UNPREFIXED.load(Relaxed) {
            true => (
                CString::new(self.shown_name()).unwrap_or_default(),
                raw::REDISMODULE_CONFIG_UNPREFIXED,
            ),
            false => (self.name.to_owned(), raw::REDISMODULE_CONFIG_DEFAULT),
        };
        let itself = std::ptr::from_ref(self).cast_mut().cast::<c_void>();
        let status: c_int = match &self.value {
            Value::Rate(cell, _) => {
                self.default.store(cell.load(Relaxed), Relaxed);
                let default =
                    CString::new(f64::from_bits(cell.load(Relaxed)).to_string()).unwrap_or_default();
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
                    cell.load(Relaxed),
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
        !(default && STARTING.load(Relaxed))
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
        let text = f64::from_bits(cell.load(Relaxed)).to_string();
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
