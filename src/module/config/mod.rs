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
//!
//! ```text
//!   arguments   the words behind --loadmodule: other defaults
//!   this file   what settings there are, and what they are now
//!   server      a setting as the server sees it: registered, asked, set
//! ```

mod arguments;
mod server;

use std::{
    ffi::{CStr, c_int},
    sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU64, Ordering::Relaxed},
};

use super::api::{Context, Str, call, raw};
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
/// our name wins (`server.rs` tells a line that says the default from none).
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
    arguments::take(ctx, arguments)?;
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
