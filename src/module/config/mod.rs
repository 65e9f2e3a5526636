//! Settings: the load arguments, and what CONFIG GET and CONFIG SET show.
//!
//! | setting           | what                                            | default | range      |
//! |-------------------|-------------------------------------------------|---------|------------|
//! | error-rate        | rate of a filter that an addition creates       | 0.01    | (0, 1)     |
//! | initial-size      | its capacity, in items                          | 100     | [1, 2^62]  |
//! | expansion-factor  | its expansion, and BF.RESERVE's; 0: non-scaling | 2       | [0, 32768] |
//! | max-filter-bytes  | most bytes of bits of a filter; 0: see limit.rs | 0       | [0, 2^63)  |
//! | missing-key-error | whether BF.EXISTS of a missing key is an error  | no      | yes, no    |
//! | huge-pages        | whether large arrays get pages of 2 MiB         | no      | yes, no    |
//!
//! Where the server allows names without a prefix (Redis 8) they read `bf-error-rate`, as in
//! RedisBloom 8; elsewhere the server makes them `bf.error-rate`. A configuration file written for
//! another product starts the server, too. Elsewhere that is valkey-bloom's: four of its names are
//! second names of settings of ours (aliases), three have no effect. On Redis 8 it is RedisBloom's:
//! its settings of cuckoo filters (`cf-bucket-size`) have no effect, and keep their values, so that
//! CONFIG REWRITE writes the lines that it found. CONFIG GET shows them by their full names alone.
//!
//! ```text
//!   arguments   the words behind --loadmodule: other defaults
//!   this file   which names there are, and which setting each of them is
//!   setting     a value: how it is written, its range
//!   server      the names as the server sees them: registered, asked, set
//! ```

mod arguments;
mod server;
mod setting;

use std::{
    ffi::{CStr, c_int},
    ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use setting::{Kind, Setting};

use super::api::{Context, Str, call, raw};
use crate::filter::{Expansion, MAX_CAPACITY, MAX_EXPANSION};

static ERROR_RATE: Setting = Setting::new(Kind::Rate, 0.01_f64.to_bits());
static INITIAL_SIZE: Setting = Setting::new(Kind::Integer(1, MAX_CAPACITY), 100);
static EXPANSION_FACTOR: Setting = Setting::new(Kind::Integer(0, MAX_EXPANSION as u64), 2);
static MAX_FILTER_BYTES: Setting = Setting::new(Kind::Bytes, 0);
static MISSING_KEY_ERROR: Setting = Setting::new(Kind::Switch, 0);
static HUGE_PAGES: Setting = Setting::new(Kind::Switch, 0);

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

/// The name of the setting of [`max_filter_bytes`], as the operator writes it.
pub(crate) fn shown_max_filter_bytes() -> String {
    NAMES
        .iter()
        .find(|name| ptr::eq(name.setting, &MAX_FILTER_BYTES))
        .map(Name::shown)
        .unwrap_or_default()
}

/// Every setting of ours with its value, for the log.
pub(crate) fn shown() -> String {
    let own = NAMES.iter().filter(|name| name.role == Role::Own);
    own.map(|name| format!("{} {}", name.shown(), name.setting.text()))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Whether a query of a missing key is an error.
pub(crate) fn missing_key_error() -> bool {
    MISSING_KEY_ERROR.bits() != 0
}

/// Whether large arrays are moved into huge pages.
pub(crate) fn huge_pages() -> bool {
    HUGE_PAGES.bits() != 0
}

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
    /// A setting of valkey-bloom that has no meaning here.
    ValkeyBlooms,
    /// A setting of RedisBloom's cuckoo filters. Its name never gets a prefix.
    Cuckoo,
}

impl Role {
    /// Whether the server gets the name; `unprefixed`: whether it takes names without a prefix.
    fn is_registered(self, unprefixed: bool) -> bool {
        match self {
            Self::Own => true,
            Self::Alias | Self::ValkeyBlooms => !unprefixed,
            Self::Cuckoo => unprefixed,
        }
    }

    /// Whose setting it is, if it has no effect.
    fn ignored(self) -> Option<&'static str> {
        match self {
            Self::Own | Self::Alias => None,
            Self::ValkeyBlooms => Some("valkey-bloom"),
            Self::Cuckoo => Some("RedisBloom's cuckoo filters"),
        }
    }
}

const fn name(name: &'static CStr, role: Role, setting: &'static Setting) -> Name {
    Name { name, role, setting }
}

static TIGHTENING_RATIO: Setting = Setting::new(Kind::Rate, 0.5_f64.to_bits());
static RANDOM_SEED: Setting = Setting::new(Kind::Switch, 1);
static DEFRAG_ENABLED: Setting = Setting::new(Kind::Switch, 1);

// The defaults are RedisBloom's, so that CONFIG REWRITE writes the lines that RedisBloom's would.
static CF_BUCKET_SIZE: Setting = Setting::new(CUCKOO, 2);
static CF_INITIAL_SIZE: Setting = Setting::new(CUCKOO, 1024);
static CF_MAX_ITERATIONS: Setting = Setting::new(CUCKOO, 20);
static CF_EXPANSION_FACTOR: Setting = Setting::new(CUCKOO, 1);
static CF_MAX_EXPANSIONS: Setting = Setting::new(CUCKOO, 32);
const CUCKOO: Kind = Kind::Integer(0, i64::MAX as u64);

/// Every name, in the order in which the server sets them when it starts. Our names come first: the
/// server sets each to its default if the configuration file has no such line, and must not
/// overwrite what the file says under an alias.
static NAMES: [Name; 18] = [
    name(c"error-rate", Role::Own, &ERROR_RATE),
    name(c"initial-size", Role::Own, &INITIAL_SIZE),
    name(c"expansion-factor", Role::Own, &EXPANSION_FACTOR),
    name(c"max-filter-bytes", Role::Own, &MAX_FILTER_BYTES),
    name(c"missing-key-error", Role::Own, &MISSING_KEY_ERROR),
    name(c"huge-pages", Role::Own, &HUGE_PAGES),
    name(c"bloom-fp-rate", Role::Alias, &ERROR_RATE),
    name(c"bloom-capacity", Role::Alias, &INITIAL_SIZE),
    name(c"bloom-expansion", Role::Alias, &EXPANSION_FACTOR),
    name(c"bloom-memory-usage-limit", Role::Alias, &MAX_FILTER_BYTES),
    name(c"bloom-tightening-ratio", Role::ValkeyBlooms, &TIGHTENING_RATIO),
    name(c"bloom-use-random-seed", Role::ValkeyBlooms, &RANDOM_SEED),
    name(c"bloom-defrag-enabled", Role::ValkeyBlooms, &DEFRAG_ENABLED),
    name(c"cf-bucket-size", Role::Cuckoo, &CF_BUCKET_SIZE),
    name(c"cf-initial-size", Role::Cuckoo, &CF_INITIAL_SIZE),
    name(c"cf-max-iterations", Role::Cuckoo, &CF_MAX_ITERATIONS),
    name(c"cf-expansion-factor", Role::Cuckoo, &CF_EXPANSION_FACTOR),
    name(c"cf-max-expansions", Role::Cuckoo, &CF_MAX_EXPANSIONS),
];

/// Whether the server takes names without a prefix.
static UNPREFIXED: AtomicBool = AtomicBool::new(false);
/// Whether the configuration file was applied: a client sets what is set from now on.
static FILE_APPLIED: AtomicBool = AtomicBool::new(false);

/// Takes the load arguments as defaults, then registers every name and lets the server set each.
///
/// # Errors
/// A line for the log that says why the module must not load.
pub(crate) fn register(ctx: Context, arguments: &[Str]) -> Result<(), String> {
    arguments::take(ctx, arguments)?;
    keep();
    let defaults = NAMES.each_ref().map(|name| name.setting.bits());
    let unprefixed = takes_unprefixed_names(ctx);
    UNPREFIXED.store(unprefixed, Relaxed);
    for name in NAMES.iter().filter(|name| name.role.is_registered(unprefixed)) {
        if !name.register(ctx) {
            return Err(format!("the server refuses the setting {}", name.shown()));
        }
    }
    let status: c_int = call!(RedisModule_LoadConfigs(ctx.as_ptr()));
    if status != raw::REDISMODULE_OK as c_int {
        return Err("a setting in the configuration file is not valid (see the line above)".into());
    }
    keep();
    FILE_APPLIED.store(true, Relaxed);
    let set = NAMES.iter().zip(defaults).filter(|(name, default)| name.setting.bits() != *default);
    warn_of_ignored(ctx, set.map(|(name, _)| name));
    for alias in NAMES.iter().filter(|name| name.role == Role::Alias) {
        let own = NAMES.iter().zip(defaults).find(|(own, _)| ptr::eq(own.setting, alias.setting));
        if let Some((own, default)) = own {
            alias.warn_of_conflict(ctx, own, default);
        }
    }
    Ok(())
}

/// Warns of those of the names that were set and have no effect.
fn warn_of_ignored<'a>(ctx: Context, set: impl Iterator<Item = &'a Name>) {
    let ignored: Vec<_> =
        set.filter_map(|name| Some((name.shown(), name.role.ignored()?))).collect();
    // A server registers ignored names of one product.
    if let Some((_, product)) = ignored.first() {
        let names: Vec<_> = ignored.iter().map(|(name, _)| name.as_str()).collect();
        ctx.warn(&format!("bf: settings of {product} have no effect here: {}", names.join(", ")));
    }
}

/// The server says that a CONFIG SET succeeded: it undoes none of it any more.
pub(crate) fn keep() {
    NAMES.iter().for_each(|name| name.setting.keep());
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
