//! A running call: replies, the log, replication, signals of changed keys; and what the module
//! tells the server when it loads: commands, data types, settings, callbacks.

use std::{
    ffi::{CStr, c_char, c_int, c_long, c_longlong, c_uint},
    marker::PhantomData,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

use super::{MUST_OBEY_CLIENT, OK, OwnedStr, Str, logged, milliseconds, raw};

/// The server's context of a running call, for the time of that call.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a>(
    pub(super) *mut raw::RedisModuleCtx,
    PhantomData<&'a raw::RedisModuleCtx>,
);

impl Context<'_> {
    /// # Safety
    /// `ctx` is alive as long as this is used, which ends when the entry point returns.
    pub(crate) unsafe fn new(ctx: *mut raw::RedisModuleCtx) -> Self {
        Self(ctx, PhantomData)
    }

    /// A context of no call, for the log, which does not name the module then, and the flags.
    pub(crate) fn none() -> Self {
        // SAFETY: null, and only functions that accept null are called with it.
        unsafe { Self::new(std::ptr::null_mut()) }
    }

    pub(crate) fn reply_simple(self, text: &CStr) {
        call!(RedisModule_ReplyWithSimpleString(self.0, text.as_ptr()));
    }

    #[inline]
    pub(crate) fn reply_error(self, text: &CStr) {
        call!(RedisModule_ReplyWithError(self.0, text.as_ptr()));
    }

    /// Replies a boolean in RESP3, 1 or 0 in RESP2.
    #[inline]
    pub(crate) fn reply_bool(self, value: bool) {
        call!(RedisModule_ReplyWithBool(self.0, c_int::from(value)));
    }

    /// Replies an integer; `i64::MAX` if `value` is larger.
    #[inline]
    pub(crate) fn reply_integer(self, value: u64) {
        let value = c_longlong::try_from(value).unwrap_or(c_longlong::MAX);
        call!(RedisModule_ReplyWithLongLong(self.0, value));
    }

    pub(crate) fn reply_double(self, value: f64) {
        call!(RedisModule_ReplyWithDouble(self.0, value));
    }

    pub(crate) fn reply_null(self) {
        call!(RedisModule_ReplyWithNull(self.0));
    }

    pub(crate) fn reply_bulk(self, bytes: &[u8]) {
        call!(RedisModule_ReplyWithStringBuffer(self.0, bytes.as_ptr().cast(), bytes.len()));
    }

    /// Replies the head of an array; the caller then sends its elements.
    #[inline]
    pub(crate) fn reply_array(self, len: usize) {
        call!(RedisModule_ReplyWithArray(self.0, c_long::try_from(len).unwrap_or(c_long::MAX)));
    }

    /// Replies the head of a map; the caller then sends each key and its value.
    pub(crate) fn reply_map(self, len: usize) {
        call!(RedisModule_ReplyWithMap(self.0, c_long::try_from(len).unwrap_or(c_long::MAX)));
    }

    pub(crate) fn reply_wrong_arity(self) {
        call!(RedisModule_WrongArity(self.0));
    }

    pub(crate) fn warn(self, text: &str) {
        self.log(c"warning", text);
    }

    pub(crate) fn log(self, level: &CStr, text: &str) {
        let text: Vec<u8> = text.bytes().filter(|&byte| byte != 0).chain([0]).collect();
        call!(RedisModule_Log(self.0, level.as_ptr(), c"%s".as_ptr(), text.as_ptr()));
    }

    /// Writes a warning that clients can cause as often as they like. All of these share a pace.
    #[cold]
    pub(crate) fn warn_rate_limited(self, text: impl FnOnce() -> String) {
        static PACE: AtomicI64 = AtomicI64::new(0);
        self.warn_at(&PACE, text);
    }

    #[cold]
    pub(crate) fn warn_at(self, pace: &AtomicI64, text: impl FnOnce() -> String) {
        if allows(pace) {
            self.warn(&text());
        }
    }

    /// The value of a field of a section of INFO; `None` if it is missing or not UTF-8.
    pub(crate) fn info(self, section: &CStr, field: &CStr) -> Option<String> {
        let info: *mut raw::RedisModuleServerInfoData =
            call!(RedisModule_GetServerInfo(self.0, section.as_ptr()));
        let value: *const c_char = call!(RedisModule_ServerInfoGetFieldC(info, field.as_ptr()));
        // SAFETY: the server returns null or a C string that lives as long as the section.
        let text = (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) });
        let text = text.and_then(|text| Some(text.to_str().ok()?.to_owned()));
        call!(RedisModule_FreeServerInfo(std::ptr::null_mut(), info));
        text
    }

    pub(crate) fn flags(self) -> c_int {
        call!(RedisModule_GetContextFlags(self.0))
    }

    pub(crate) fn database(self) -> c_int {
        call!(RedisModule_GetSelectedDb(self.0))
    }

    /// Selects a database. Returns whether there is one with this number.
    pub(crate) fn select_database(self, number: c_int) -> bool {
        call!(RedisModule_SelectDb(self.0, number)) == OK
    }

    /// Whether the running command does not come from an ordinary client: a primary, the AOF or a
    /// node that migrates a slot sends it. Clients of a writable replica are ordinary ones here;
    /// `limit::must_obey` adds them.
    pub(crate) fn is_replayed(self) -> bool {
        self.is_replayed_or(0)
    }

    /// [`Self::is_replayed`], or one of these flags is set. To ask for all flags at once saves 100
    /// instructions.
    pub(crate) fn is_replayed_or(self, flags: u32) -> bool {
        let replayed = raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING;
        let function = MUST_OBEY_CLIENT.filter(|_| !self.0.is_null());
        // SAFETY: 1. the server returned the function, which has the signature in its header.
        // 2. The context is alive.
        function.is_some_and(|function| unsafe { function(self.0) } != 0)
            || self.flags() & (replayed | flags) as c_int != 0
    }

    pub(crate) fn speaks_resp3(self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_RESP3 as c_int != 0
    }

    /// Signals to WATCH and client-side caches that the key changed.
    pub(crate) fn signal_modified(self, key: Str) {
        call!(RedisModule_SignalModifiedKey(self.0, key.0));
    }

    /// Publishes a keyspace event of the generic class.
    pub(crate) fn notify(self, event: &CStr, key: Str) {
        let class = raw::REDISMODULE_NOTIFY_GENERIC;
        call!(RedisModule_NotifyKeyspaceEvent(self.0, class, event.as_ptr(), key.0));
    }

    #[inline]
    pub(crate) fn replicate_verbatim(self) {
        call!(RedisModule_ReplicateVerbatim(self.0));
    }

    /// Replicates `command key arguments... items...`.
    pub(crate) fn replicate(self, command: &CStr, key: Str, arguments: &[OwnedStr], items: &[Str]) {
        // `Str` and `OwnedStr` are transparent over the pointer that the format `v` takes.
        let sent: c_int = call!(RedisModule_Replicate(
            self.0,
            command.as_ptr(),
            c"svv".as_ptr(),
            key.0,
            arguments.as_ptr(),
            arguments.len(),
            items.as_ptr(),
            items.len(),
        ));
        if sent != OK {
            self.warn_rate_limited(|| {
                let (command, key) = (command.to_string_lossy(), logged(key.bytes()));
                format!(
                    "key '{key}': replicas and the AOF miss a change, because {command} was renamed"
                )
            });
        }
    }
}

/// When the module loads.
impl Context<'_> {
    pub(crate) fn set_options(self, options: u32) {
        call!(RedisModule_SetModuleOptions(self.0, options as c_int));
    }

    /// Subscribes to the server's events of the kind `id` (`REDISMODULE_EVENT_*`).
    pub(crate) fn subscribe(self, id: u64, callback: raw::RedisModuleEventCallback) {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        call!(RedisModule_SubscribeToServerEvent(self.0, event, callback));
    }

    /// Calls `ring` once, after `milliseconds`.
    pub(crate) fn set_timer(self, milliseconds: i64, ring: raw::RedisModuleTimerProc) {
        let no_data = std::ptr::null_mut();
        let _: u64 = call!(RedisModule_CreateTimer(self.0, milliseconds, ring, no_data));
    }

    pub(crate) fn register_info(self, info: raw::RedisModuleInfoFunc) {
        call!(RedisModule_RegisterInfoFunc(self.0, info));
    }

    /// Adds an ACL category, where the server can.
    pub(crate) fn add_category(self, name: &CStr) {
        call!(RedisModule_AddACLCategory(self.0, name.as_ptr()));
    }

    /// Registers a data type; null if the server refuses, because the name is taken.
    pub(crate) fn create_type(
        self,
        name: &CStr,
        version: i32,
        mut methods: raw::RedisModuleTypeMethods,
    ) -> *mut raw::RedisModuleType {
        call!(RedisModule_CreateDataType(self.0, name.as_ptr(), version, &raw mut methods))
    }

    /// Registers a setting that is kept as text, with its default; false if the server refuses.
    /// `flags` are `REDISMODULE_CONFIG_*`. The callbacks get `setting` as a pointer.
    pub(crate) fn register_setting<T: Sync>(
        self,
        name: &CStr,
        default: &CStr,
        flags: u32,
        get: raw::RedisModuleConfigGetStringFunc,
        set: raw::RedisModuleConfigSetStringFunc,
        setting: &'static T,
    ) -> bool {
        let (name, default, flags) = (name.as_ptr(), default.as_ptr(), flags as c_uint);
        let setting = std::ptr::from_ref(setting).cast_mut().cast();
        call!(RedisModule_RegisterStringConfig(
            self.0, name, default, flags, get, set, None, setting
        )) == OK
    }

    /// Lets the server set every setting; false if a line of its file is not valid.
    pub(crate) fn load_settings(self) -> bool {
        call!(RedisModule_LoadConfigs(self.0)) == OK
    }

    /// Registers a command whose keys are the words from the first to the `last`, and documents it.
    /// It gets the first list of ACL categories of which the server knows every category. Returns
    /// false if the server refuses the command.
    ///
    /// # Safety
    /// All pointers in `info` are alive or null, and each list has its end.
    pub(crate) unsafe fn create_command(
        self,
        name: &CStr,
        entry: raw::RedisModuleCmdFunc,
        flags: &CStr,
        last: c_int,
        categories: &[&CStr],
        info: &raw::RedisModuleCommandInfo,
    ) -> bool {
        let (name, flags) = (name.as_ptr(), flags.as_ptr());
        if call!(RedisModule_CreateCommand(self.0, name, entry, flags, 1, last, 1)) != OK {
            return false;
        }
        let command: *mut raw::RedisModuleCommand = call!(RedisModule_GetCommand(self.0, name));
        let _ = categories
            .iter()
            .any(|list| call!(RedisModule_SetCommandACLCategories(command, list.as_ptr())) == OK);
        call!(RedisModule_SetCommandInfo(command, std::ptr::from_ref(info))) == OK
    }
}

/// Whether a line may be written to the log: ten in a row, and one a second on average. `newest` is
/// the time of the newest line at one line a second, in milliseconds since 1970.
fn allows(newest: &AtomicI64) -> bool {
    let now = milliseconds();
    // If the clock was set back, `newest` would keep all lines out until it is reached again.
    let last = Some(newest.load(Relaxed)).filter(|&last| last <= now).unwrap_or(0);
    let next = last.max(now.saturating_sub(10_000)).saturating_add(1_000);
    let allowed = next <= now;
    if allowed {
        newest.store(next, Relaxed);
    }
    allowed
}
