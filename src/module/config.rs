//! Settings: the load arguments, and what CONFIG GET and CONFIG SET show.
//! `docs/reference/settings.md` says what each setting does, and its names.
//!
//! When the module loads, the server sets every name, in the order of registration, to the text in
//! the configuration file or to the registered default. A setting may have two names. So a default
//! is ignored at that time: it must not override the value of the other name.
//!
//! Every value is 64 bits here and text for the server. Of numeric settings the server refuses or
//! wraps some numbers before it asks the module, and versions differ in which.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    ptr::null_mut,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::Relaxed},
};

use Role::{Alias, Cuckoo, Own, Unused};

use super::{
    api::{Context, ERR, OK, OwnedStr, Str, free_string, raw},
    guarded,
};
use crate::{
    command::number,
    filter::{MAX_CAPACITY, MAX_EXPANSION},
};

pub(crate) static ERROR_RATE: Setting = Setting::new(Kind::Rate, 0.01_f64.to_bits());
pub(crate) static INITIAL_SIZE: Setting = Setting::new(Kind::Integer(1, MAX_CAPACITY), 100);
pub(crate) static EXPANSION_FACTOR: Setting =
    Setting::new(Kind::Integer(0, MAX_EXPANSION as u64), 2);
/// 0 where the operator has set nothing.
pub(crate) static MAX_FILTER_BYTES: Setting = Setting::new(Kind::Bytes, 0);
pub(crate) static MISSING_KEY_ERROR: Setting = Setting::new(SWITCH, 0);
pub(crate) static LAYOUT: Setting = Setting::new(Kind::Choice(["native", "redisbloom"]), 0);
const SWITCH: Kind = Kind::Choice(["no", "yes"]);
const CUCKOO: Kind = Kind::Integer(0, i64::MAX as u64);

/// The values of settings that have no effect here. Each has the default of RedisBloom or
/// valkey-bloom, so that CONFIG REWRITE writes the same lines as with that module.
static UNUSED: [Setting; 8] = [
    Setting::new(Kind::Rate, 0.5_f64.to_bits()),
    Setting::new(SWITCH, 1),
    Setting::new(SWITCH, 1),
    Setting::new(CUCKOO, 2),
    Setting::new(CUCKOO, 1024),
    Setting::new(CUCKOO, 20),
    Setting::new(CUCKOO, 1),
    Setting::new(CUCKOO, 32),
];

/// Every name, in the order in which the server sets them when it starts. If a file has two names
/// of one setting, our name wins, because it comes later. Exception: a line that states the default
/// is ignored, because the server also sets the default for a missing line.
static NAMES: [Name; 18] = [
    Name { name: c"bloom-fp-rate", role: Alias, setting: &ERROR_RATE },
    Name { name: c"bloom-capacity", role: Alias, setting: &INITIAL_SIZE },
    Name { name: c"bloom-expansion", role: Alias, setting: &EXPANSION_FACTOR },
    Name { name: c"bloom-memory-usage-limit", role: Alias, setting: &MAX_FILTER_BYTES },
    Name { name: c"error-rate", role: Own, setting: &ERROR_RATE },
    Name { name: c"initial-size", role: Own, setting: &INITIAL_SIZE },
    Name { name: c"expansion-factor", role: Own, setting: &EXPANSION_FACTOR },
    Name { name: c"max-filter-bytes", role: Own, setting: &MAX_FILTER_BYTES },
    Name { name: c"missing-key-error", role: Own, setting: &MISSING_KEY_ERROR },
    Name { name: c"layout", role: Own, setting: &LAYOUT },
    Name { name: c"bloom-tightening-ratio", role: Unused, setting: &UNUSED[0] },
    Name { name: c"bloom-use-random-seed", role: Unused, setting: &UNUSED[1] },
    Name { name: c"bloom-defrag-enabled", role: Unused, setting: &UNUSED[2] },
    Name { name: c"cf-bucket-size", role: Cuckoo, setting: &UNUSED[3] },
    Name { name: c"cf-initial-size", role: Cuckoo, setting: &UNUSED[4] },
    Name { name: c"cf-max-iterations", role: Cuckoo, setting: &UNUSED[5] },
    Name { name: c"cf-expansion-factor", role: Cuckoo, setting: &UNUSED[6] },
    Name { name: c"cf-max-expansions", role: Cuckoo, setting: &UNUSED[7] },
];

/// A name that the server knows a setting by.
struct Name {
    name: &'static CStr,
    role: Role,
    setting: &'static Setting,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    /// Ours.
    Own,
    /// valkey-bloom's name for one of ours.
    Alias,
    /// A setting of valkey-bloom that has no effect here.
    Unused,
    /// A setting of RedisBloom's cuckoo filters. Its name never gets a prefix.
    Cuckoo,
}

/// Every setting of ours with its value, for the log.
pub(crate) fn shown() -> String {
    let own = NAMES.iter().filter(|name| name.role == Own);
    let shown = own.map(|name| format!("{} {}", name.shown(), name.setting.text()));
    shown.collect::<Vec<_>>().join(", ")
}

/// A setting. The server reads and sets settings in its main thread alone.
pub(crate) struct Setting {
    kind: Kind,
    bits: AtomicU64,
    default: AtomicU64,
}

/// How a value is written, and its range.
enum Kind {
    /// A number in (0, 1); its bits are those of the double.
    Rate,
    /// An integer in a closed range.
    Integer(u64, u64),
    /// A number of bytes in [0, 2^63), perhaps with a unit as the server writes them (`1gb`).
    Bytes,
    /// One of two words; its bits are 0 or 1.
    Choice([&'static str; 2]),
}

impl Setting {
    const fn new(kind: Kind, default: u64) -> Self {
        Self { kind, bits: AtomicU64::new(default), default: AtomicU64::new(default) }
    }

    pub(crate) fn bits(&self) -> u64 {
        self.bits.load(Relaxed)
    }

    /// The value as CONFIG GET shows it.
    fn text(&self) -> String {
        let bits = self.bits();
        match self.kind {
            Kind::Rate => number::shortest(f64::from_bits(bits)),
            Kind::Integer(..) | Kind::Bytes => bits.to_string(),
            Kind::Choice([no, yes]) => if bits == 0 { no } else { yes }.to_owned(),
        }
    }

    /// The value that a text stands for, or why it is refused; `name` is for the error.
    fn read(&self, text: &[u8], name: &str) -> Result<u64, String> {
        let invalid = || format!("Invalid value for `{name}`");
        let (min, max, number) = match self.kind {
            Kind::Rate => {
                let rate = number::float(text).ok_or_else(invalid)?;
                if rate > 0.0 && rate < 1.0 {
                    return Ok(rate.to_bits());
                }
                return Err(format!("{name} must be in the range (0.000000, 1.000000)"));
            }
            Kind::Choice([no, yes]) => {
                let is = |word: &str| text.eq_ignore_ascii_case(word.as_bytes());
                let unknown = || format!("{name} must be '{yes}' or '{no}'");
                return if is(no) || is(yes) { Ok(is(yes).into()) } else { Err(unknown()) };
            }
            Kind::Integer(min, max) => (min, max, number::integer::<i128>(text)),
            Kind::Bytes => (0, i64::MAX.unsigned_abs(), bytes(text)),
        };
        u64::try_from(number.ok_or_else(invalid)?)
            .ok()
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| format!("{name} must be in the range [{min}, {max}]"))
    }
}

/// A number of bytes, perhaps with one of the server's units.
fn bytes(text: &[u8]) -> Option<i128> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, unit) = text.split_at_checked(digits)?;
    let factor: i128 = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1_000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    number::integer::<i128>(digits)?.checked_mul(factor)
}

/// Whether the server takes names without a prefix.
static UNPREFIXED: AtomicBool = AtomicBool::new(false);
/// Whether the configuration file was applied. From then on, each change comes from a client.
static FILE_APPLIED: AtomicBool = AtomicBool::new(false);

/// Takes the load arguments as defaults, then registers every name and lets the server set each.
pub(crate) fn register(ctx: Context, arguments: &[Str], unprefixed: bool) -> Result<(), String> {
    take_arguments(ctx, arguments)?;
    UNPREFIXED.store(unprefixed, Relaxed);
    for name in &NAMES {
        let fits = match name.role {
            Own => true,
            Alias | Unused => !unprefixed,
            Cuckoo => unprefixed,
        };
        if fits && !name.register(ctx) {
            return Err(format!("the server refuses the setting {}", name.shown()));
        }
    }
    if !ctx.load_settings() {
        return Err("a setting in the configuration file is not valid (see the line above)".into());
    }
    FILE_APPLIED.store(true, Relaxed);
    Ok(())
}

/// Takes the load arguments, pairs of a name and a value, as RedisBloom has them (`ERROR_RATE`).
fn take_arguments(ctx: Context, arguments: &[Str]) -> Result<(), String> {
    // Tools that template the line leave an empty argument where they have none.
    let arguments = match arguments {
        [only] if only.bytes().is_empty() => &[],
        arguments => arguments,
    };
    for pair in arguments.chunks(2) {
        let mut words = pair.iter().map(|word| word.bytes());
        let given = String::from_utf8_lossy(words.next().unwrap_or_default());
        let value = words.next().ok_or_else(|| format!("load argument {given} has no value"))?;
        let plain = given.to_ascii_lowercase().replace('_', "-");
        let plain = plain.strip_prefix("bf-").unwrap_or(&plain);
        let mut names = NAMES.iter().filter(|name| matches!(name.role, Own | Cuckoo));
        let Some(name) = names.find(|name| name.name.to_bytes() == plain.as_bytes()) else {
            return Err(format!("load argument {given} is not known"));
        };
        let refused = |why| format!("bad load argument: {why}");
        let value = name.setting.read(value, &given).map_err(refused)?;
        name.setting.default.store(value, Relaxed);
        name.setting.bits.store(value, Relaxed);
        if name.role == Cuckoo {
            ctx.warn(&format!("load argument {given} has no effect here"));
        }
    }
    Ok(())
}

impl Name {
    /// As the operator writes it.
    fn shown(&self) -> String {
        let name = self.name.to_string_lossy();
        let join = if UNPREFIXED.load(Relaxed) { '-' } else { '.' };
        if self.role == Cuckoo { name.into_owned() } else { format!("bf{join}{name}") }
    }

    /// Registers it with the default of its setting; false if the server refuses.
    fn register(&'static self, ctx: Context) -> bool {
        let shown = CString::new(self.shown()).unwrap_or_default();
        let (name, flags) = match UNPREFIXED.load(Relaxed) {
            true => (shown.as_c_str(), raw::REDISMODULE_CONFIG_UNPREFIXED),
            false => (self.name, raw::REDISMODULE_CONFIG_DEFAULT),
        };
        let hidden = if self.role == Cuckoo { raw::REDISMODULE_CONFIG_HIDDEN } else { 0 };
        let default = CString::new(self.setting.text()).unwrap_or_default();
        ctx.register_setting(name, &default, flags | hidden, Some(get), Some(set), self)
    }

    /// Sets the value. After an error, which says why the text is refused, the value is unchanged.
    fn set(&self, text: &[u8]) -> Result<(), String> {
        let (name, setting) = (self.shown(), self.setting);
        let new = setting.read(text, &name)?;
        let says_nothing = !FILE_APPLIED.load(Relaxed) && new == setting.default.load(Relaxed);
        if new == setting.bits() || says_nothing {
            return Ok(());
        }
        setting.bits.store(new, Relaxed);
        if matches!(self.role, Unused | Cuckoo) {
            Context::none().warn(&format!("bf: the setting {name} has no effect here"));
        }
        Ok(())
    }
}

/// The text that `get` answered last. The server copies it before it asks again.
static LENT: AtomicPtr<raw::RedisModuleString> = AtomicPtr::new(null_mut());

unsafe extern "C" fn get(_: *const c_char, private: *mut c_void) -> *mut raw::RedisModuleString {
    guarded(c"config get", null_mut(), || {
        // SAFETY: `Name::register` handed this pointer to the server; the names are static.
        let text = unsafe { &*private.cast::<Name>() }.setting.text();
        let text = OwnedStr::new(text.as_bytes()).into_ptr();
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
    guarded(c"config set", ERR, || {
        // SAFETY: the server's own string, for this call.
        let value = unsafe { Str::new(value) };
        // SAFETY: as in `get`.
        let Err(why) = unsafe { &*private.cast::<Name>() }.set(value.bytes()) else { return OK };
        // SAFETY: the server passes a place for the text, which it then owns.
        unsafe { *error = OwnedStr::new(why.as_bytes()).into_ptr() };
        ERR
    })
}
