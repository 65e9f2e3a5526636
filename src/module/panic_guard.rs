//! Catches panics in every entry point. A panic that reaches the server would abort the database.
//!
//! Every `extern "C"` function of this module runs its body through `guarded`. This is the second
//! defence. The first is the lints of `lib.rs`, which forbid code that can panic. Only `filter/`
//! may index and call `expect`.

use std::{
    ffi::CStr,
    panic::{AssertUnwindSafe, catch_unwind},
};

use super::api::{Context, raw};

/// Runs `body`. If it panics, writes a line to the log and returns `fallback`; in a child process
/// of the server, aborts the child.
///
/// A child writes a snapshot or a new AOF. With an incomplete filter in it, that file would replace
/// the old file, whose filter is complete. A child that aborts leaves the old file in place.
#[inline]
pub(super) fn guarded<T>(entry: &CStr, fallback: T, body: impl FnOnce() -> T) -> T {
    // A body that stops halfway leaves memory safe: it works on owned values and on filters, and
    // every state of a filter is valid.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(_) => {
            report(entry);
            fallback
        }
    }
}

#[cold]
fn report(entry: &CStr) {
    let server = Context::none();
    let entry = entry.to_string_lossy();
    server.warn(&format!(
        "bf: a panic in {entry} was stopped; please report it with the lines above"
    ));
    if server.flags() & raw::REDISMODULE_CTX_FLAGS_IS_CHILD as std::ffi::c_int != 0 {
        std::process::abort();
    }
}
