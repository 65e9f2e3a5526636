//! Tests that commands finish their work before they begin to reply. After a panic between the head
//! of an array and its last element, the client would take the next reply for the missing elements.
//!
//! A table of fake functions replaces the server. It has one key, and each reply records how many
//! layers the command has visited so far.

use std::{
    cell::{Cell, RefCell},
    ffi::{CStr, c_char, c_int, c_long, c_longlong, c_void},
    ptr,
};

use super::{
    Command, bulk::BulkExists, debug::Debug, exists::MultiExists, info::Info, scandump::ScanDump,
};
use crate::{
    codec::{Error, native::dump::tests::of_layers},
    filter::steps,
    module::{api::raw, value::Value},
};

thread_local! {
    /// The value in the key.
    static VALUE: Cell<*mut c_void> = const { Cell::new(ptr::null_mut()) };
    /// The number of visited layers at each reply.
    static REPLIES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// The argument after the key.
    static WORD: Cell<&'static CStr> = const { Cell::new(c"") };
}

fn replied() -> c_int {
    REPLIES.with_borrow_mut(|replies| replies.push(steps::total()));
    0
}

type Ctx = *mut raw::RedisModuleCtx;
type Text = *mut raw::RedisModuleString;

unsafe extern "C" fn open(_: Ctx, _: Text, _: c_int) -> *mut raw::RedisModuleKey {
    ptr::dangling_mut()
}
unsafe extern "C" fn value(_: *mut raw::RedisModuleKey) -> *mut c_void {
    VALUE.get()
}
unsafe extern "C" fn text(_: *const raw::RedisModuleString, len: *mut usize) -> *const c_char {
    let word = WORD.get();
    // SAFETY: the caller passes a valid pointer for the length.
    unsafe { *len = word.count_bytes() };
    word.as_ptr()
}
unsafe extern "C" fn array(_: Ctx, _: c_long) -> c_int {
    replied()
}
unsafe extern "C" fn boolean(_: Ctx, _: c_int) -> c_int {
    replied()
}
unsafe extern "C" fn integer(_: Ctx, _: c_longlong) -> c_int {
    replied()
}
unsafe extern "C" fn null(_: Ctx) -> c_int {
    replied()
}
unsafe extern "C" fn double(_: Ctx, _: f64) -> c_int {
    replied()
}
unsafe extern "C" fn simple(_: Ctx, _: *const c_char) -> c_int {
    replied()
}
unsafe extern "C" fn bulk(_: Ctx, _: *const c_char, _: usize) -> c_int {
    replied()
}

/// Fills the table. A missing function returns unit, zero or null.
fn fill_table() {
    // SAFETY: no other test of this program calls a function of the table, so no other thread reads
    // the table now.
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "assignments, for one reason")]
    unsafe {
        raw::RedisModule_OpenKey = Some(open);
        raw::RedisModule_ModuleTypeGetValue = Some(value);
        raw::RedisModule_StringPtrLen = Some(text);
        raw::RedisModule_ReplyWithArray = Some(array);
        raw::RedisModule_ReplyWithMap = Some(array);
        raw::RedisModule_ReplyWithBool = Some(boolean);
        raw::RedisModule_ReplyWithLongLong = Some(integer);
        raw::RedisModule_ReplyWithDouble = Some(double);
        raw::RedisModule_ReplyWithNull = Some(null);
        raw::RedisModule_ReplyWithSimpleString = Some(simple);
        raw::RedisModule_ReplyWithStringBuffer = Some(bulk);
    }
}

/// Runs a command of `words` words. Returns the number of its replies and whether it visited a
/// layer after the first reply.
fn run<C: Command>(words: usize) -> (usize, bool) {
    let mut arguments = vec![ptr::dangling_mut(); words];
    REPLIES.with_borrow_mut(Vec::clear);
    // SAFETY: the fake functions accept any context and any string.
    unsafe { super::entry::<C>(ptr::null_mut(), arguments.as_mut_ptr(), words as c_int) };
    let last = steps::total();
    REPLIES.with_borrow(|replies| {
        let works_after = replies.first().is_some_and(|&first| first < last);
        (replies.len(), works_after)
    })
}

#[test]
fn no_command_visits_a_layer_after_its_reply_began() -> Result<(), Error> {
    let mut value = Value::Ready(of_layers(3)?);
    VALUE.set(ptr::from_mut(&mut value).cast());
    fill_table();
    WORD.set(c"item");
    // The head and 200 answers, which are four chunks.
    assert_eq!(run::<MultiExists>(2 + 200), (201, false));
    // Format and blob are both this word.
    WORD.set(c"LINES");
    assert_eq!(run::<BulkExists>(4), (3, false));
    WORD.set(c"1");
    assert_eq!(run::<ScanDump>(3), (3, false));
    assert_eq!(run::<Info>(2), (11, false));
    assert_eq!(run::<Debug>(2), (1 + 4, false));
    for word in [c"CAPACITY", c"SIZE", c"ITEMS", c"FPR", c"FILL", c"SATURATED"] {
        WORD.set(word);
        assert_eq!(run::<Info>(3), (2, false), "{word:?}");
    }
    WORD.set(c"LAYERS");
    assert_eq!(run::<Info>(3), (2 + 3 * 13, false));
    Ok(())
}
