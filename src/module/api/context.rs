//! A running call: replies, the log, and what watchers, replicas and the AOF are told.

use std::{
    ffi::{CStr, c_int, c_long, c_longlong, c_void},
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

use super::{MUST_OBEY_CLIENT, OwnedStr, Str, call, milliseconds, raw};

/// A running call: the server's context.
#[derive(Clone, Copy)]
pub(crate) struct Context(pub(super) *mut raw::RedisModuleCtx);

/// What the server calls when something happens: its context, the event, what of it, and more of
/// some.
type Told = unsafe extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut c_void);

impl Context {
    /// Wraps what the server passed to an entry.
    ///
    /// # Safety
    /// `ctx` is alive until the entry returns; null only where the functions called with it allow
    /// that.
    pub(crate) unsafe fn new(ctx: *mut raw::RedisModuleCtx) -> Self {
        Self(ctx)
    }

    pub(crate) fn as_ptr(self) -> *mut raw::RedisModuleCtx {
        self.0
    }

    /// `OK`.
    pub(crate) fn reply_ok(self) {
        call!(RedisModule_ReplyWithSimpleString(self.0, c"OK".as_ptr()));
    }

    pub(crate) fn reply_simple(self, text: &CStr) {
        call!(RedisModule_ReplyWithSimpleString(self.0, text.as_ptr()));
    }

    #[inline]
    pub(crate) fn reply_error(self, text: &CStr) {
        call!(RedisModule_ReplyWithError(self.0, text.as_ptr()));
    }

    /// A boolean in RESP3, 1 or 0 in RESP2.
    #[inline]
    pub(crate) fn reply_bool(self, value: bool) {
        call!(RedisModule_ReplyWithBool(self.0, c_int::from(value)));
    }

    /// An integer; beyond `i64` it stays at its end.
    #[inline]
    pub(crate) fn reply_integer(self, value: u64) {
        call!(RedisModule_ReplyWithLongLong(
            self.0,
            c_longlong::try_from(value).unwrap_or(c_longlong::MAX)
        ));
    }

    /// A double in RESP3, its text in RESP2.
    pub(crate) fn reply_double(self, value: f64) {
        call!(RedisModule_ReplyWithDouble(self.0, value));
    }

    pub(crate) fn reply_null(self) {
        call!(RedisModule_ReplyWithNull(self.0));
    }

    pub(crate) fn reply_bulk(self, bytes: &[u8]) {
        call!(RedisModule_ReplyWithStringBuffer(self.0, bytes.as_ptr().cast(), bytes.len()));
    }

    /// The head of an array of `len` elements, which the caller then sends.
    #[inline]
    pub(crate) fn reply_array(self, len: usize) {
        call!(RedisModule_ReplyWithArray(self.0, c_long::try_from(len).unwrap_or(c_long::MAX)));
    }

    /// The head of a map of `len` pairs; a flat array of twice as many elements in RESP2.
    pub(crate) fn reply_map(self, len: usize) {
        call!(RedisModule_ReplyWithMap(self.0, c_long::try_from(len).unwrap_or(c_long::MAX)));
    }

    pub(crate) fn reply_wrong_arity(self) {
        call!(RedisModule_WrongArity(self.0));
    }

    /// Writes a warning to the server's log.
    pub(crate) fn warn(self, text: &str) {
        let text: Vec<u8> = text.bytes().filter(|&byte| byte != 0).chain([0]).collect();
        call!(RedisModule_Log(self.0, c"warning".as_ptr(), c"%s".as_ptr(), text.as_ptr()));
    }

    /// The same for what clients may bring about all day: ten lines at once, but no more than one a
    /// second in the long run.
    #[cold]
    pub(crate) fn warn_rate_limited(self, text: impl FnOnce() -> String) {
        /// When the last line would have been written if there were one a second.
        static PACE: AtomicI64 = AtomicI64::new(0);
        let now = milliseconds();
        let next = PACE.load(Relaxed).max(now.saturating_sub(10_000)).saturating_add(1_000);
        if next <= now {
            PACE.store(next, Relaxed);
            self.warn(&text());
        }
    }

    /// The server's context flags (`REDISMODULE_CTX_FLAGS_*`).
    pub(crate) fn flags(self) -> c_int {
        call!(RedisModule_GetContextFlags(self.0))
    }

    /// Asks to be told of the server's events of that kind.
    pub(crate) fn subscribe(self, id: u64, told: Told) {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        call!(RedisModule_SubscribeToServerEvent(self.0, event, Some(told)));
    }

    /// Whether the server itself calls the client one that must be obeyed; `None` where it has no
    /// such notion.
    pub(crate) fn must_obey_client(self) -> Option<bool> {
        let function = MUST_OBEY_CLIENT.get().filter(|_| !self.0.is_null())?;
        // SAFETY: 1. the server named the function, with the signature of its header. 2. The
        // context is alive.
        Some(unsafe { function(self.0) } != 0)
    }

    /// Whether the running command is not a client's own: a primary, the AOF or a node that hands
    /// over a slot sends it.
    pub(crate) fn is_replayed(self) -> bool {
        let flags = raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING;
        self.must_obey_client() == Some(true) || self.flags() & flags as c_int != 0
    }

    /// Whether the client speaks RESP3.
    pub(crate) fn speaks_resp3(self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_RESP3 as c_int != 0
    }

    /// Tells the server, watchers and client-side caches that the key changed.
    pub(crate) fn signal_modified(self, key: Str) {
        call!(RedisModule_SignalModifiedKey(self.0, key.0));
    }

    /// Publishes a keyspace event of the generic class.
    pub(crate) fn notify(self, event: &CStr, key: Str) {
        call!(RedisModule_NotifyKeyspaceEvent(
            self.0,
            raw::REDISMODULE_NOTIFY_GENERIC,
            event.as_ptr(),
            key.0
        ));
    }

    /// Whether the server does not want the command to run, but to call `report_key` for each key.
    pub(crate) fn asks_for_keys(self) -> bool {
        call!(RedisModule_IsKeysPositionRequest(self.0)) != 0
    }

    /// Names the word at `position` as a key, with flags as in a key spec
    /// (`REDISMODULE_CMD_KEY_*`).
    pub(crate) fn report_key(self, position: usize, flags: u32) {
        let position = c_int::try_from(position).unwrap_or(0); // which the server passes over
        call!(RedisModule_KeyAtPosWithFlags(self.0, position, flags as c_int));
    }

    /// Replicates the running command word for word.
    #[inline]
    pub(crate) fn replicate_verbatim(self) {
        call!(RedisModule_ReplicateVerbatim(self.0));
    }

    /// Replicates `command key arguments... items...`.
    pub(crate) fn replicate(self, command: &CStr, key: Str, arguments: &[OwnedStr], items: &[Str]) {
        // `Str` and `OwnedStr` are transparent over the pointer that the format `v` wants.
        call!(RedisModule_Replicate(
            self.0,
            command.as_ptr(),
            c"svv".as_ptr(),
            key.0,
            arguments.as_ptr(),
            arguments.len(),
            items.as_ptr(),
            items.len(),
        ));
    }
}
