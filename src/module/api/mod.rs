//! The server's API: the way to its functions, and safe types over what it passes.
//!
//! The server fills a table of function pointers when it loads the module; what a server is too old
//! to have stays `None`. `missing` is asked once at load and refuses a server without the functions
//! that nothing can do without; a call of another that is not there answers the neutral value of
//! its type.
//!
//! `call!` is the only way to the table (but for the allocator, which comes first). It vouches for
//! the table, not for the arguments: a call with pointers of the server's is as safe as those
//! pointers are alive, which is why they come only from the entries (`panic_guard.rs`) and go no
//! further than the call. What commands use is wrapped in the files beside this one; the callbacks
//! of the data type, of settings and of INFO each call what is theirs alone.
//!
//! ```text
//!   context       a running call: replies, the log, what the rest of the world is told
//!   string        the server's strings: those it lends, those made here
//!   key           an open key and the value in it
//!   server_info   a section of INFO, a setting of the server's
//! ```
//!
//! Raw pointers, not the `RedisString` of the comfortable API: that one retains, copies and frees
//! every argument of every command.

mod context;
mod key;
mod server_info;
mod string;

use std::{
    ffi::{c_int, c_longlong},
    sync::OnceLock,
};

pub(crate) use redis_module::raw;

pub(crate) use context::Context;
pub(crate) use key::{Access, Key};
pub(crate) use string::{OwnedStr, Str, free_string};

/// Calls a function of the table, or gives the neutral value.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: 1. the table is written once, while the server loads the module, before any other
        // entry runs.
        // 2. Only a copy of the pointer is made.
        let function = unsafe { raw::$name };
        match function {
            // SAFETY: 1. the pointer came from the server, with the signature of its header. 2. The
            // arguments are alive: see the module's essay, and each wrapper for what is particular
            // to it.
            Some(function) => unsafe { function($($argument),*) },
            None => $crate::module::api::Neutral::NEUTRAL,
        }
    }};
}
pub(crate) use call;

/// What a function that is not there would answer.
pub(crate) trait Neutral {
    /// Nothing, zero, null.
    const NEUTRAL: Self;
}
macro_rules! neutral {
    ($($type:ty),*) => { $(impl Neutral for $type { const NEUTRAL: Self = 0 as Self; })* };
}
neutral!(c_int, c_longlong, u64, usize, f32, f64);

impl Neutral for () {
    const NEUTRAL: Self = ();
}
impl<T> Neutral for *mut T {
    const NEUTRAL: Self = std::ptr::null_mut();
}
impl<T> Neutral for *const T {
    const NEUTRAL: Self = std::ptr::null();
}

/// The functions without which the module cannot work, that some server in use lacks; the first
/// that is missing.
///
/// Redis 7.0 has all of them, 6.2 does not.
pub(crate) fn missing() -> Option<&'static str> {
    macro_rules! first_missing {
        ($($name:ident),* $(,)?) => {
            $(
                // SAFETY: as in `call!`.
                if unsafe { raw::$name }.is_none() {
                    return Some(stringify!($name));
                }
            )*
        };
    }
    first_missing!(
        RedisModule_TryAlloc,
        RedisModule_MallocSize,
        RedisModule_SetCommandInfo,
        RedisModule_GetCommand,
        RedisModule_RegisterStringConfig,
        RedisModule_LoadConfigs,
        RedisModule_ReplyWithBool,
        RedisModule_ReplyWithMap,
        RedisModule_GetServerInfo,
        RedisModule_SubscribeToServerEvent,
        RedisModule_KeyAtPosWithFlags,
    );
    None
}

/// `RedisModule_MustObeyClient(ctx)`, which Valkey has since 8.1 and the bindings do not know.
type MustObeyClient = unsafe extern "C" fn(*mut raw::RedisModuleCtx) -> c_int;

static MUST_OBEY_CLIENT: OnceLock<MustObeyClient> = OnceLock::new();

/// Asks the server, once and while it loads the module, for the functions that are not in the
/// table.
pub(crate) fn look_beyond_the_table() {
    let mut found: Option<MustObeyClient> = None;
    call!(RedisModule_GetApi(c"RedisModule_MustObeyClient".as_ptr(), (&raw mut found).cast()));
    if let Some(function) = found {
        // The only one who sets it.
        let _ = MUST_OBEY_CLIENT.set(function);
    }
}

/// Milliseconds since 1970.
pub(crate) fn milliseconds() -> i64 {
    call!(RedisModule_Milliseconds())
}

/// Bytes that the server's allocator really spends on the allocation at `pointer`, 0 for null.
pub(crate) fn malloc_size<T>(pointer: *const T) -> usize {
    // What is aligned to more is not from the server's allocator (`alloc.rs`), and some servers end
    // when they are asked.
    const { assert!(align_of::<T>() <= 8) };
    if pointer.is_null() { 0 } else { call!(RedisModule_MallocSize(pointer.cast_mut().cast())) }
}
