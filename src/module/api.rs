//! The server's API: the way to its functions, and safe types over what it passes.
//!
//! The server fills a table of function pointers when it loads the module; what a server is too old to have stays
//! `None`. `missing` is asked once at load and refuses a server without the functions that nothing can do without; a call
//! of another that is not there answers the neutral value of its type.
//!
//! `call!` is the only way to the table (but for the allocator, which comes first). It vouches for the table, not for the
//! arguments: a call with pointers of the server's is as safe as those pointers are alive, which is why they come only from
//! the entries (`entry.rs`) and go no further than the call. What commands use is wrapped here in `Context`, `Str` and
//! `Key`; the callbacks of the data type, of settings and of INFO each call what is theirs alone.
//!
//! Raw pointers, not the `RedisString` of the comfortable API: that one retains, copies and frees every argument of every
//! command.

use std::{
    ffi::{CStr, c_char, c_int, c_long, c_longlong, c_void},
    marker::PhantomData,
    ptr::NonNull,
    slice,
    sync::OnceLock,
};

pub(crate) use redis_module::raw;

/// Calls a function of the table, or gives the neutral value.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: 1. the table is written once, while the server loads the module, before any other entry runs.
        // 2. Only a copy of the pointer is made.
        let function = unsafe { raw::$name };
        match function {
            // SAFETY: 1. the pointer came from the server, with the signature of its header. 2. The arguments are
            // alive: see the module's essay, and each wrapper for what is particular to it.
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

/// The functions without which the module cannot work, that some server in use lacks; the first that is missing.
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
        RedisModule_RegisterNumericConfig,
        RedisModule_RegisterBoolConfig,
        RedisModule_LoadConfigs,
        RedisModule_ReplyWithBool,
        RedisModule_ReplyWithMap,
        RedisModule_GetServerInfo,
        RedisModule_SubscribeToServerEvent,
    );
    None
}

/// `RedisModule_MustObeyClient(ctx)`, which Valkey has since 8.1 and the bindings do not know.
type MustObeyClient = unsafe extern "C" fn(*mut raw::RedisModuleCtx) -> c_int;

static MUST_OBEY_CLIENT: OnceLock<MustObeyClient> = OnceLock::new();

/// Asks the server, once and while it loads the module, for the functions that are not in the table.
pub(crate) fn look_beyond_the_table() {
    let mut found: Option<MustObeyClient> = None;
    call!(RedisModule_GetApi(
        c"RedisModule_MustObeyClient".as_ptr(),
        (&raw mut found).cast()
    ));
    if let Some(function) = found {
        // The only one who sets it.
        let _ = MUST_OBEY_CLIENT.set(function);
    }
}

/// A string that the server owns and lends for the length of a call: a key name, an argument.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Str<'a>(*mut raw::RedisModuleString, PhantomData<&'a [u8]>);

impl<'a> Str<'a> {
    /// Wraps what the server passed to an entry.
    ///
    /// # Safety
    /// `string` is alive and not written to while the value is used.
    pub(crate) unsafe fn new(string: *mut raw::RedisModuleString) -> Self {
        Self(string, PhantomData)
    }

    /// Its bytes.
    #[inline]
    pub(crate) fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        let start: *const c_char = call!(RedisModule_StringPtrLen(self.0, &raw mut len));
        if start.is_null() {
            return &[];
        }
        // SAFETY: 1. the server answers the start and length of the bytes of a live string. 2. Nobody writes to an
        // argument while the command runs.
        unsafe { slice::from_raw_parts(start.cast(), len) }
    }
}

/// A running call: the server's context.
#[derive(Clone, Copy)]
pub(crate) struct Context(*mut raw::RedisModuleCtx);

impl Context {
    /// Wraps what the server passed to an entry.
    ///
    /// # Safety
    /// `ctx` is alive until the entry returns; null only where the functions called with it allow that.
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
        call!(RedisModule_ReplyWithStringBuffer(
            self.0,
            bytes.as_ptr().cast(),
            bytes.len()
        ));
    }

    /// The head of an array of `len` elements, which the caller then sends.
    #[inline]
    pub(crate) fn reply_array(self, len: usize) {
        call!(RedisModule_ReplyWithArray(
            self.0,
            c_long::try_from(len).unwrap_or(c_long::MAX)
        ));
    }

    /// The head of a map of `len` pairs; a flat array of twice as many elements in RESP2.
    pub(crate) fn reply_map(self, len: usize) {
        call!(RedisModule_ReplyWithMap(
            self.0,
            c_long::try_from(len).unwrap_or(c_long::MAX)
        ));
    }

    pub(crate) fn reply_wrong_arity(self) {
        call!(RedisModule_WrongArity(self.0));
    }

    /// Writes a warning to the server's log.
    pub(crate) fn warn(self, text: &str) {
        let text: Vec<u8> = text.bytes().filter(|&byte| byte != 0).chain([0]).collect();
        call!(RedisModule_Log(
            self.0,
            c"warning".as_ptr(),
            c"%s".as_ptr(),
            text.as_ptr()
        ));
    }

    /// The server's context flags (`REDISMODULE_CTX_FLAGS_*`).
    pub(crate) fn flags(self) -> c_int {
        call!(RedisModule_GetContextFlags(self.0))
    }

    /// Whether the server itself calls the client one that must be obeyed; `None` where it has no such notion.
    pub(crate) fn must_obey_client(self) -> Option<bool> {
        let function = MUST_OBEY_CLIENT.get().filter(|_| !self.0.is_null())?;
        // SAFETY: 1. the server named the function, with the signature of its header. 2. The context is alive.
        Some(unsafe { function(self.0) } != 0)
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

/// A string of the server that this side made and frees.
#[repr(transparent)]
pub(crate) struct OwnedStr(NonNull<raw::RedisModuleString>);

impl OwnedStr {
    /// A copy of `bytes`; `None` only when the server has no such function.
    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        let made: *mut raw::RedisModuleString = call!(RedisModule_CreateString(
            std::ptr::null_mut(),
            bytes.as_ptr().cast(),
            bytes.len()
        ));
        NonNull::new(made).map(Self)
    }

    /// Gives it to the server, which frees it.
    pub(crate) fn into_ptr(self) -> *mut raw::RedisModuleString {
        let pointer = self.0.as_ptr();
        std::mem::forget(self);
        pointer
    }
}

impl Drop for OwnedStr {
    fn drop(&mut self) {
        free_string(self.0.as_ptr());
    }
}

/// Frees a string that [`OwnedStr::into_ptr`] gave away and that came back; nothing for null.
pub(crate) fn free_string(string: *mut raw::RedisModuleString) {
    if !string.is_null() {
        call!(RedisModule_FreeString(std::ptr::null_mut(), string));
    }
}

/// An open key; closed when dropped.
pub(crate) struct Key(*mut raw::RedisModuleKey);

/// What an open key is for. Writing expires and propagates a key whose time is over; reading never makes one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Access {
    Read,
    Write,
}

impl Key {
    /// Opens the key.
    #[inline]
    pub(crate) fn open(ctx: Context, name: Str, access: Access) -> Self {
        let mode = match access {
            Access::Read => raw::REDISMODULE_READ,
            Access::Write => raw::REDISMODULE_READ | raw::REDISMODULE_WRITE,
        };
        Self(call!(RedisModule_OpenKey(ctx.0, name.0, mode as c_int)))
    }

    /// Whether there is no such key.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_null() || call!(RedisModule_KeyType(self.0)) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int
    }

    /// The module value it holds if it is of type `data_type`, else null.
    #[inline]
    pub(crate) fn value(&self, data_type: *mut raw::RedisModuleType) -> *mut c_void {
        if self.0.is_null() || call!(RedisModule_ModuleTypeGetType(self.0)) != data_type {
            return std::ptr::null_mut();
        }
        call!(RedisModule_ModuleTypeGetValue(self.0))
    }

    /// The bytes of the string it holds; `None` if it is not there or holds something else.
    pub(crate) fn string(&self) -> Option<&[u8]> {
        if self.0.is_null() || call!(RedisModule_KeyType(self.0)) != raw::REDISMODULE_KEYTYPE_STRING as c_int
        {
            return None;
        }
        let mut len = 0;
        let start: *mut c_char = call!(RedisModule_StringDMA(
            self.0,
            &raw mut len,
            raw::REDISMODULE_READ as c_int
        ));
        if start.is_null() {
            return None;
        }
        // SAFETY: 1. the server answers the start and length of the string's bytes. 2. They stay until another call on the
        // key, which the borrow of it rules out but for reading.
        Some(unsafe { slice::from_raw_parts(start.cast(), len) })
    }

    /// Puts a value there; false if the server refuses, and the value stays the caller's.
    pub(crate) fn set(&self, data_type: *mut raw::RedisModuleType, value: *mut c_void) -> bool {
        call!(RedisModule_ModuleTypeSetValue(self.0, data_type, value)) == raw::REDISMODULE_OK as c_int
    }
}

impl Drop for Key {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_null() {
            call!(RedisModule_CloseKey(self.0));
        }
    }
}

/// Milliseconds since 1970.
pub(crate) fn milliseconds() -> i64 {
    call!(RedisModule_Milliseconds())
}

/// Bytes that the server's allocator really spends on the allocation at `pointer`, 0 for null.
pub(crate) fn malloc_size<T>(pointer: *const T) -> usize {
    if pointer.is_null() {
        0
    } else {
        call!(RedisModule_MallocSize(pointer.cast_mut().cast()))
    }
}

/// A section of INFO.
pub(crate) struct ServerInfo(NonNull<raw::RedisModuleServerInfoData>);

impl Context {
    /// Takes a section of INFO.
    pub(crate) fn server_info(self, section: &CStr) -> Option<ServerInfo> {
        NonNull::new(call!(RedisModule_GetServerInfo(self.0, section.as_ptr()))).map(ServerInfo)
    }
}

impl ServerInfo {
    /// A field that is an unsigned number.
    pub(crate) fn number(&self, field: &CStr) -> Option<u64> {
        let mut error = 0;
        let value: u64 = call!(RedisModule_ServerInfoGetFieldUnsigned(
            self.0.as_ptr(),
            field.as_ptr(),
            &raw mut error
        ));
        (error == 0).then_some(value)
    }

    /// A field as it stands.
    pub(crate) fn text(&self, field: &CStr) -> Option<&str> {
        let value: *const c_char = call!(RedisModule_ServerInfoGetFieldC(self.0.as_ptr(), field.as_ptr()));
        if value.is_null() {
            return None;
        }
        // SAFETY: the server answers a C string that lives as long as the section.
        unsafe { CStr::from_ptr(value) }.to_str().ok()
    }

    /// Whether a field is there and reads `text`.
    pub(crate) fn is(&self, field: &CStr, text: &str) -> bool {
        self.text(field) == Some(text)
    }
}

impl Drop for ServerInfo {
    fn drop(&mut self) {
        call!(RedisModule_FreeServerInfo(std::ptr::null_mut(), self.0.as_ptr()));
    }
}
