//! Settings: the load arguments, and what CONFIG GET and CONFIG SET show.
//!
//! | setting           | what                                            | default | range      |
//! |-------------------|-------------------------------------------------|---------|------------|
//! | error-rate        | rate of a filter that an addition creates       | 0.01    | (0, 1)     |
//! | initial-size      | its capacity, in items                          | 100     | [1, 2^62]  |
//! | expansion-factor  | its expansion, and BF.RESERVE's; 0: non-scaling | 2       | [0, 32768] |
//! | max-filter-bytes  | most bytes of bits of a filter; 0: see limit.rs | 0       | [0, 2^63)  |
//! | missing-key-error | whether BF.EXISTS of a missing key is an error  | no      | yes, no    |
//! | layout            | as which product makes them: native, redisbloom | native  | two words  |
//!
//! Where the server allows names without a prefix (Redis 8) they read `bf-error-rate`, as in
//! RedisBloom 8; elsewhere the server makes them `bf.error-rate`. A configuration file written for
//! another product starts the server, too. Elsewhere that is valkey-bloom's: four of its names are
//! second names of settings of ours (aliases), three have no effect. On Redis 8 it is RedisBloom's:
//! its settings of cuckoo filters (`cf-bucket-size`) have no effect, and keep their values, so that
//! CONFIG REWRITE writes the lines that it found. CONFIG GET shows them by their full names alone.
//!
//! The last writer wins, under either name, and both names show the value. When the module loads,
//! the server sets every name, in the order of registration: to the text in the configuration file,
//! or to the default of the registration. A default says nothing then, so that it takes nothing
//! back from the other name.

mod setting;

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    ptr::{self, null_mut},
    sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed},
};

use setting::{Kind, Setting};

use super::{
    api::{Context, OwnedStr, Str, call, free_string, raw},
    panic_guard::guarded,
};
use crate::{
    command::number,
    filter::{Expansion, MAX_CAPACITY, MAX_EXPANSION},
};

static ERROR_RATE: Setting = Setting::new(Kind::Rate, 0.01_f64.to_bits());
static INITIAL_SIZE: Setting = Setting::new(Kind::Integer(1, MAX_CAPACITY), 100);
static EXPANSION_FACTOR: Setting = Setting::new(Kind::Integer(0, MAX_EXPANSION as u64), 2);
static MAX_FILTER_BYTES: Setting = Setting::new(Kind::Bytes, 0);
static MISSING_KEY_ERROR: Setting = Setting::new(SWITCH, 0);
static LAYOUT: Setting = Setting::new(Kind::Choice(["native", "redisbloom"]), 0);
const SWITCH: Kind = Kind::Choice(["no", "yes"]);

/// The rate of a filter made by adding to it.
pub(crate) fn error_rate() -> f64 {
    f64::from_bits(ERROR_RATE.bits())
}

/// The capacity of a filter made by adding to it.
pub(crate) fn initial_size() -> u64 {
    INITIAL_SIZE.bits()
}

/// The expansion of a filter that was made without one.
pub(crate) fn expansion() -> Expansion {
    Expansion::new(EXPANSION_FACTOR.bits()).unwrap_or(Expansion::NONSCALING)
}

/// The most bytes of bits of one filter, 0 where the operator has set nothing.
pub(crate) fn max_filter_bytes() -> u64 {
    MAX_FILTER_BYTES.bits()
}

/// Whether a query of a missing key is an error.
pub(crate) fn missing_key_error() -> bool {
    MISSING_KEY_ERROR.bits() != 0
}

/// Whether clients create filters as RedisBloom makes them.
pub(crate) fn layout_of_redisbloom() -> bool {
    LAYOUT.bits() != 0
}

/// The name of the setting of [`max_filter_bytes`], as the operator writes it.
pub(crate) fn shown_max_filter_bytes() -> String {
    let mut own = NAMES.iter().filter(|name| name.role == Role::Own);
    let name = own.find(|name| ptr::eq(name.setting, &MAX_FILTER_BYTES));
    name.map(Name::shown).unwrap_or_default()
}

/// Every setting of ours with its value, for the log.
pub(crate) fn shown() -> String {
    let own = NAMES.iter().filter(|name| name.role == Role::Own);
    own.map(|name| format!("{} {}", name.shown(), name.setting.text()))
        .collect::<Vec<_>>()
        .join(", ")
}

static TIGHTENING_RATIO: Setting = Setting::new(Kind::Rate, 0.5_f64.to_bits());
static RANDOM_SEED: Setting = Setting::new(SWITCH, 1);
static DEFRAG_ENABLED: Setting = Setting::new(SWITCH, 1);

// The defaults are RedisBloom's, so that CONFIG REWRITE writes the lines that RedisBloom's would.
static CF_BUCKET_SIZE: Setting = Setting::new(CUCKOO, 2);
static CF_INITIAL_SIZE: Setting = Setting::new(CUCKOO, 1024);
static CF_MAX_ITERATIONS: Setting = Setting::new(CUCKOO, 20);
static CF_EXPANSION_FACTOR: Setting = Setting::new(CUCKOO, 1);
static CF_MAX_EXPANSIONS: Setting = Setting::new(CUCKOO, 32);
const CUCKOO: Kind = Kind::Integer(0, i64::MAX as u64);

/// Every name, in the order in which the server sets them when it starts: in a file with two names
/// of one setting ours wins, unless its line states the default, which the server also sets for a
/// missing line.
static NAMES: [Name; 18] = [
    name(c"bloom-fp-rate", Role::Alias, &ERROR_RATE),
    name(c"bloom-capacity", Role::Alias, &INITIAL_SIZE),
    name(c"bloom-expansion", Role::Alias, &EXPANSION_FACTOR),
    name(c"bloom-memory-usage-limit", Role::Alias, &MAX_FILTER_BYTES),
    name(c"error-rate", Role::Own, &ERROR_RATE),
    name(c"initial-size", Role::Own, &INITIAL_SIZE),
    name(c"expansion-factor", Role::Own, &EXPANSION_FACTOR),
    name(c"max-filter-bytes", Role::Own, &MAX_FILTER_BYTES),
    name(c"missing-key-error", Role::Own, &MISSING_KEY_ERROR),
    name(c"layout", Role::Own, &LAYOUT),
    name(c"bloom-tightening-ratio", Role::ValkeyBlooms, &TIGHTENING_RATIO),
    name(c"bloom-use-random-seed", Role::ValkeyBlooms, &RANDOM_SEED),
    name(c"bloom-defrag-enabled", Role::ValkeyBlooms, &DEFRAG_ENABLED),
    name(c"cf-bucket-size", Role::Cuckoo, &CF_BUCKET_SIZE),
    name(c"cf-initial-size", Role::Cuckoo, &CF_INITIAL_SIZE),
    name(c"cf-max-iterations", Role::Cuckoo, &CF_MAX_ITERATIONS),
    name(c"cf-expansion-factor", Role::Cuckoo, &CF_EXPANSION_FACTOR),
    name(c"cf-max-expansions", Role::Cuckoo, &CF_MAX_EXPANSIONS),
];

/// A name that the server knows a setting by.
struct Name {
    name: &'static CStr,
    role: Role,
    setting: &'static Setting,
}

const fn name(name: &'static CStr, role: Role, setting: &'static Setting) -> Name {
    Name { name, role, setting }
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// Ours.
    Own,
    /// valkey-bloom's name for one of ours.
    Alias,
    /// A setting of valkey-bloom that has no meaning here.
    ValkeyBlooms,
    /// A setting of RedisBloom's cuckoo filters. Its name never gets a prefix.
    Cuckoo,
}

/// Whether the server takes names without a prefix.
static UNPREFIXED: AtomicBool = AtomicBool::new(false);
/// Whether the configuration file was applied: a client sets what is set from now on.
static FILE_APPLIED: AtomicBool = AtomicBool::new(false);

/// Takes the load arguments as defaults, then registers every name and lets the server set each.
/// The error is a line for the log.
pub(crate) fn register(ctx: Context, arguments: &[Str]) -> Result<(), String> {
    take_arguments(ctx, arguments)?;
    let unprefixed = takes_unprefixed_names(ctx);
    UNPREFIXED.store(unprefixed, Relaxed);
    for name in &NAMES {
        let fits = match name.role {
            Role::Own => true,
            Role::Alias | Role::ValkeyBlooms => !unprefixed,
            Role::Cuckoo => unprefixed,
        };
        if fits && !name.register(ctx) {
            return Err(format!("the server refuses the setting {}", name.shown()));
        }
    }
    let status: c_int = call!(RedisModule_LoadConfigs(ctx.as_ptr()));
    if status != raw::REDISMODULE_OK as c_int {
        return Err("a setting in the configuration file is not valid (see the line above)".into());
    }
    FILE_APPLIED.store(true, Relaxed);
    Ok(())
}

/// Takes the load arguments, pairs of a name and a value, as RedisBloom has them. An unknown name
/// is refused: a server with a setting that has no effect is worse than one that does not start.
fn take_arguments(ctx: Context, arguments: &[Str]) -> Result<(), String> {
    // Tools that template the line leave an empty argument where they have none.
    let arguments = match arguments {
        [only] if only.bytes().is_empty() => &[],
        arguments => arguments,
    };
    for pair in arguments.chunks(2) {
        let mut words = pair.iter().map(|word| word.bytes());
        let name = String::from_utf8_lossy(words.next().unwrap_or_default());
        let Some(value) = words.next() else {
            return Err(format!("load argument {name} has no value"));
        };
        let setting = match name.to_ascii_uppercase().as_str() {
            "ERROR_RATE" | "BF-ERROR-RATE" => &ERROR_RATE,
            "INITIAL_SIZE" | "BF-INITIAL-SIZE" => &INITIAL_SIZE,
            "LAYOUT" | "BF-LAYOUT" => &LAYOUT,
            cuckoo if cuckoo.starts_with("CF_") || cuckoo.starts_with("CF-") => {
                if number::integer::<i64>(value).is_none() {
                    return Err(format!("bad load argument: Invalid value for `{name}`"));
                }
                ctx.warn(&format!(
                    "load argument {name} is ignored: there are no cuckoo filters here"
                ));
                continue;
            }
            _ => return Err(format!("load argument {name} is not known")),
        };
        let value =
            setting.read(value, &name).map_err(|why| format!("bad load argument: {why}"))?;
        setting.set_default(value);
    }
    Ok(())
}

/// Redis from version 8 on; not Valkey, which calls itself Redis 7.2 in one field and by its own
/// name in another.
fn takes_unprefixed_names(ctx: Context) -> bool {
    let Some(server) = ctx.server_info(c"server") else {
        return false;
    };
    let major =
        server.text(c"redis_version").and_then(|version| version.split('.').next()?.parse().ok());
    !server.is(c"server_name", "valkey") && major.is_some_and(|major: u32| major >= 8)
}

impl Name {
    /// As the operator writes it.
    fn shown(&self) -> String {
        if self.role == Role::Cuckoo {
            return self.name.to_string_lossy().into_owned();
        }
        let join = if UNPREFIXED.load(Relaxed) { '-' } else { '.' };
        format!("bf{join}{}", self.name.to_string_lossy())
    }

    /// Registers it with the default of its setting; false if the server refuses.
    fn register(&'static self, ctx: Context) -> bool {
        let (name, flags) = match UNPREFIXED.load(Relaxed) {
            true => (self.shown(), raw::REDISMODULE_CONFIG_UNPREFIXED),
            false => (self.name.to_string_lossy().into_owned(), raw::REDISMODULE_CONFIG_DEFAULT),
        };
        let hidden = if self.role == Role::Cuckoo { raw::REDISMODULE_CONFIG_HIDDEN } else { 0 };
        let name = CString::new(name).unwrap_or_default();
        let default = CString::new(self.setting.text()).unwrap_or_default();
        let status: c_int = call!(RedisModule_RegisterStringConfig(
            ctx.as_ptr(),
            name.as_ptr(),
            default.as_ptr(),
            (flags | hidden) as c_uint,
            Some(get),
            Some(set),
            None,
            ptr::from_ref(self).cast_mut().cast()
        ));
        status == raw::REDISMODULE_OK as c_int
    }

    /// Sets the value. For an error, which says why the text is refused, it is as before.
    fn set(&self, text: &[u8]) -> Result<(), String> {
        let setting = self.setting;
        let (new, before) = (setting.read(text, &self.shown())?, setting.bits());
        let loading = !FILE_APPLIED.load(Relaxed);
        if new == before || (loading && new == setting.default()) {
            return Ok(());
        }
        setting.set(new);
        let name = self.shown();
        let ignored = match self.role {
            Role::Own if loading && before != setting.default() => {
                let other = NAMES.iter().find(|other| ptr::eq(other.setting, setting));
                Context::none().warn(&format!(
                    "bf: {name} ({}) and {} ({}) are two names of one setting and differ: {name} \
                     is in force; remove one of the two",
                    setting.text(),
                    other.map(Self::shown).unwrap_or_default(),
                    setting.written(before)
                ));
                return Ok(());
            }
            Role::Own | Role::Alias => return Ok(()),
            Role::ValkeyBlooms => "valkey-bloom",
            Role::Cuckoo => "RedisBloom's cuckoo filters",
        };
        Context::none().warn(&format!("bf: settings of {ignored} have no effect here: {name}"));
        Ok(())
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
        let text = unsafe { named(private) }.setting.text();
        let text = OwnedStr::new(text.as_bytes()).map_or(null_mut(), OwnedStr::into_ptr);
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
