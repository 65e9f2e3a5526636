//! The floor: a module that answers `BF.*` without a filter. Its cost is the cost of a command in
//! any module.
//!
//! It does what no module can leave out, through the bare API: it opens the key and checks its
//! type, reads the bytes of each item, replies, and replicates additions. The rest of the cost of a
//! real filter is hashing, probing and publishing changes. `make bench` measures both side by side.
//!
//! ```text
//!   BF.RESERVE key ...                          creates a value of the type           OK
//!   BF.ADD, BF.MADD key item [item ...]         "new", always; replicated             1 ...
//!   BF.EXISTS, BF.MEXISTS key item [item ...]   whether the last byte is odd          1 or 0 ...
//! ```
//!
//! Never load it into a server with data: it saves nothing.

use std::ffi::{CStr, c_int, c_longlong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use redis_module::raw;

type Ctx = *mut raw::RedisModuleCtx;
type Words = *mut *mut raw::RedisModuleString;

const OK: c_int = raw::REDISMODULE_OK as c_int;
const ERR: c_int = raw::REDISMODULE_ERR as c_int;

/// Calls a function of the server.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the table is filled once, before the first command.
        match unsafe { raw::$name } {
            // SAFETY: the server's function with the server's own pointers, all of them alive
            // during a command.
            Some(function) => unsafe { function($($argument),*) },
            None => std::process::abort(),
        }
    }};
}

static TYPE: AtomicPtr<raw::RedisModuleType> = AtomicPtr::new(std::ptr::null_mut());

/// What every key holds.
static VALUE: u8 = 0;

/// Word `i` of a command.
///
/// # Safety
/// The command has more than `i` words.
unsafe fn word(words: Words, i: usize) -> *mut raw::RedisModuleString {
    // SAFETY: the caller's promise.
    let at = unsafe { words.add(i) };
    // SAFETY: the caller's promise.
    unsafe { *at }
}

/// Opens the key. Replies with an error and returns `None` if it holds no value of the type.
fn open(ctx: Ctx, key: *mut raw::RedisModuleString, mode: u32) -> Option<*mut raw::RedisModuleKey> {
    let key = call!(RedisModule_OpenKey(ctx, key, mode as c_int)).cast::<raw::RedisModuleKey>();
    if !key.is_null() {
        if call!(RedisModule_ModuleTypeGetType(key)) == TYPE.load(Relaxed) {
            std::hint::black_box(call!(RedisModule_ModuleTypeGetValue(key)));
            return Some(key);
        }
        call!(RedisModule_CloseKey(key));
    }
    call!(RedisModule_ReplyWithError(ctx, c"ERR not found".as_ptr()));
    None
}

/// Reads the first and the last byte of an item, so that its memory is touched as by a hash.
/// Returns whether the last byte is odd.
fn touch(item: *mut raw::RedisModuleString) -> bool {
    let mut len = 0;
    let start = call!(RedisModule_StringPtrLen(item, &raw mut len)).cast::<u8>();
    // SAFETY: the start and length of a live string of the server's, which nobody writes to while
    // the command runs.
    let bytes = unsafe { std::slice::from_raw_parts(start, len) };
    std::hint::black_box(bytes.first());
    bytes.last().is_some_and(|last| last & 1 == 1)
}

fn items(ctx: Ctx, words: Words, count: c_int, adds: bool) -> c_int {
    if count < 3 {
        return call!(RedisModule_WrongArity(ctx));
    }
    // SAFETY: there are three words or more.
    let name = unsafe { word(words, 1) };
    let mode =
        if adds { raw::REDISMODULE_READ | raw::REDISMODULE_WRITE } else { raw::REDISMODULE_READ };
    let Some(key) = open(ctx, name, mode) else {
        return OK;
    };
    // Commands of one item reply with an integer, those of many items with an array. The length of
    // the name tells them apart: BF.ADD is shorter than BF.MADD, and BF.EXISTS than BF.MEXISTS.
    let mut len = 0;
    // SAFETY: there are three words or more.
    let command = unsafe { word(words, 0) };
    call!(RedisModule_StringPtrLen(command, &raw mut len));
    if len == if adds { "BF.MADD".len() } else { "BF.MEXISTS".len() } {
        call!(RedisModule_ReplyWithArray(ctx, (count - 2).into()));
    }
    for i in 2..count as usize {
        // SAFETY: `i` is below the count of words.
        let answer = touch(unsafe { word(words, i) }) || adds;
        call!(RedisModule_ReplyWithLongLong(ctx, c_longlong::from(answer)));
    }
    call!(RedisModule_CloseKey(key));
    if adds {
        call!(RedisModule_ReplicateVerbatim(ctx));
    }
    OK
}

unsafe extern "C" fn add(ctx: Ctx, words: Words, count: c_int) -> c_int {
    items(ctx, words, count, true)
}

unsafe extern "C" fn exists(ctx: Ctx, words: Words, count: c_int) -> c_int {
    items(ctx, words, count, false)
}

unsafe extern "C" fn reserve(ctx: Ctx, words: Words, _: c_int) -> c_int {
    // SAFETY: the server checks that there are at least four words.
    let name = unsafe { word(words, 1) };
    let mode = raw::REDISMODULE_READ | raw::REDISMODULE_WRITE;
    let key = call!(RedisModule_OpenKey(ctx, name, mode as c_int)).cast::<raw::RedisModuleKey>();
    let value = (&raw const VALUE).cast_mut().cast::<c_void>();
    call!(RedisModule_ModuleTypeSetValue(key, TYPE.load(Relaxed), value));
    call!(RedisModule_CloseKey(key));
    call!(RedisModule_ReplyWithSimpleString(ctx, c"OK".as_ptr()))
}

unsafe extern "C" fn free(_: *mut c_void) {}

/// The entry point of the module.
///
/// # Safety
/// Only the server may call this, once, with a live context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(ctx: Ctx, _: Words, _: c_int) -> c_int {
    // SAFETY: the server's own context.
    let filled = unsafe {
        raw::Export_RedisModule_Init(ctx, c"floor".as_ptr(), 1, raw::REDISMODULE_APIVER_1 as c_int)
    };
    if filled != OK {
        return ERR;
    }
    // SAFETY: null function pointers are `None`, and zero is valid for the rest.
    let empty: raw::RedisModuleTypeMethods = unsafe { std::mem::zeroed() };
    let mut methods = raw::RedisModuleTypeMethods {
        version: u64::from(raw::REDISMODULE_TYPE_METHOD_VERSION),
        free: Some(free),
        ..empty
    };
    TYPE.store(
        call!(RedisModule_CreateDataType(ctx, c"floorflor".as_ptr(), 0, &raw mut methods)),
        Relaxed,
    );
    type Command = unsafe extern "C" fn(Ctx, Words, c_int) -> c_int;
    let commands: [(&CStr, Command, &CStr); 5] = [
        (c"bf.reserve", reserve, c"write deny-oom"),
        (c"bf.add", add, c"write deny-oom"),
        (c"bf.madd", add, c"write deny-oom"),
        (c"bf.exists", exists, c"readonly fast"),
        (c"bf.mexists", exists, c"readonly fast"),
    ];
    for (name, run, flags) in commands {
        let made = call!(RedisModule_CreateCommand(
            ctx,
            name.as_ptr(),
            Some(run),
            flags.as_ptr(),
            1,
            1,
            1
        ));
        if made != OK {
            return ERR;
        }
    }
    OK
}
