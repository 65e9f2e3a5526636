//! Everything that needs a server. This file loads the module and catches panics.
//!
//! ```text
//!   server ─▶ commands ─▶ value ─▶ filter
//!      │          ├─▶ limit, config         what clients may do, and the defaults
//!      │          ├─▶ effects, unapplied    what replicas, the AOF and subscribers learn
//!      │          └─▶ lookahead, sweeps, stats
//!      └─▶ value::{data_type, defrag} ─▶ codec
//! ```
//!
//! `api` wraps the server's functions, `alloc` its allocator.

mod alloc;
mod api;
mod commands;
mod config;
mod effects;
mod limit;
mod lookahead;
mod stats;
mod sweeps;
mod unapplied;
mod value;

use std::{
    ffi::{CStr, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
};

use api::{Context, ERR, OK, Str, raw};

use crate::filter;

/// What MODULE LIST shows. Clients and tools search for this name.
const NAME: &CStr = c"bf";

/// Why the server has refused the module's name. The server itself does not say why.
const NAME_TAKEN: &str = "bf: not loaded: a module of the name 'bf' is loaded already: this \
     module, RedisBloom or valkey-bloom (MODULE LIST shows its path). Keep one of the loadmodule \
     lines. CONFIG REWRITE writes one into the server's configuration file, also if an included \
     file or the command line names the module";

/// The version as the ecosystem encodes it: MM * 10000 + mm * 100 + pp.
const VERSION: c_int = part(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
    + part(env!("CARGO_PKG_VERSION_MINOR")) * 100
    + part(env!("CARGO_PKG_VERSION_PATCH"));

/// Valkey 9 migrates slots atomically only if every module has this option.
const HANDLE_ATOMIC_SLOT_MIGRATION: u32 = 1 << 5;

/// # Safety
/// Only the server calls this, once, with a live context and `argc` strings at `argv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    let api_version = raw::REDISMODULE_APIVER_1 as c_int;
    // This fills the table of server functions, including the allocator, so it precedes every
    // allocation. SAFETY: `ctx` is the server's own context.
    let filled = unsafe { raw::Export_RedisModule_Init(ctx, NAME.as_ptr(), VERSION, api_version) };
    if filled != OK {
        // The table is filled all the same: only the name was refused.
        guarded(c"load", (), || Context::none().warn(NAME_TAKEN));
        return ERR;
    }
    guarded(c"load", ERR, || {
        // SAFETY: `ctx` is the server's own context, alive until this function returns.
        let ctx = unsafe { Context::new(ctx) };
        let arguments: &[Str] = match usize::try_from(argc) {
            // SAFETY: `argv` has `argc` live strings. `Str` is transparent over a pointer to one.
            Ok(count @ 1..) => unsafe { std::slice::from_raw_parts(argv.cast(), count) },
            _ => &[],
        };
        match load(ctx, arguments) {
            Ok(()) => OK,
            Err(why) => {
                ctx.warn(&format!("not loaded: {why}"));
                ERR
            }
        }
    })
}

fn load(ctx: Context, arguments: &[Str]) -> Result<(), String> {
    if api::is_too_old() {
        return Err("this server is too old: Redis 7.0 or later, or Valkey, is needed".into());
    }
    // HANDLE_IO_ERRORS: a damaged stream is a failed load, not a crash.
    // HANDLE_REPL_ASYNC_LOAD: a load shares no state with live keys, so replicas may serve reads.
    // NO_IMPLICIT_SIGNAL_MODIFIED: opening a key for writing does not mark it as modified.
    let mut options = raw::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS
        | raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD
        | raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED;
    // Outside of a key, the module stores a prefetch hint (lookahead.rs) and names of windows to
    // sweep (sweeps.rs). Neither relies on what is in the key. So an incomplete slot may arrive key
    // by key. Only Valkey gets this bit: in Redis it may get another meaning.
    let is_valkey = ctx.info(c"server", c"server_name").as_deref() == Some("valkey");
    if is_valkey {
        options |= HANDLE_ATOMIC_SLOT_MIGRATION;
    }
    ctx.set_options(options);
    if !value::data_type::register(ctx) {
        return Err(
            "the data type cannot be registered: is another Bloom filter module loaded?".into()
        );
    }
    let (name, field) =
        if is_valkey { ("Valkey", c"valkey_version") } else { ("Redis", c"redis_version") };
    let version = ctx.info(c"server", field);
    let major = version.as_ref().and_then(|version| version.split('.').next()?.parse().ok());
    // Settings without a prefix. Valkey calls itself Redis 7.2 in one field.
    let takes_unprefixed = !is_valkey && major.is_some_and(|major: u32| major >= 8);
    commands::register(ctx)?;
    config::register(ctx, arguments, takes_unprefixed)?;
    limit::read(ctx);
    for event in [raw::REDISMODULE_EVENT_CONFIG, raw::REDISMODULE_EVENT_LOADING] {
        ctx.subscribe(event, Some(happened));
    }
    ctx.register_info(Some(stats::info));
    let line = format!(
        "redis-bloom {} in {name} {}, {} code; {}; one filter may take {} bytes",
        env!("CARGO_PKG_VERSION"),
        version.as_deref().unwrap_or("of an unknown version"),
        if filter::uses_avx512() { "AVX-512" } else { "portable" },
        config::shown(),
        limit::of_settings()
    );
    ctx.log(c"notice", &line);
    Ok(())
}

/// The server's configuration changed, or it begins or ends to load.
unsafe extern "C" fn happened(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    what: u64,
    _: *mut c_void,
) {
    // SAFETY: the server's own context, for this call.
    let ctx = unsafe { Context::new(ctx) };
    guarded(c"event", (), || match event.id {
        raw::REDISMODULE_EVENT_CONFIG => limit::read(ctx),
        _ => unapplied::loading(what),
    });
}

const fn part(digits: &str) -> c_int {
    match c_int::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}

/// Runs the body of an entry. Every `extern "C"` function of this module does: a panic that reaches
/// the server would abort the database. The lints of `lib.rs` forbid code that can panic; this is
/// the second defence. A panic writes a line to the log and returns `fallback`.
///
/// In a child process of the server, a panic aborts the child, which writes a snapshot or a new
/// AOF: with an incomplete filter in it, that file would replace the old one.
#[inline]
fn guarded<T>(entry: &CStr, fallback: T, body: impl FnOnce() -> T) -> T {
    // A body that stops halfway leaves memory safe: it works on owned values and on filters, and
    // every state of a filter is valid.
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        report(entry);
        fallback
    })
}

#[cold]
fn report(entry: &CStr) {
    let (server, entry) = (Context::none(), entry.to_string_lossy());
    server.warn(&format!(
        "bf: a panic in {entry} was stopped; please report it with the lines above"
    ));
    if server.flags() & raw::REDISMODULE_CTX_FLAGS_IS_CHILD as c_int != 0 {
        std::process::abort();
    }
}
