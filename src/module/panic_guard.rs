//! The net under every entry: a panic that crosses into the server aborts the whole database, so
//! none does.
//!
//! Every `extern "C"` function of this module runs its body through `guarded`. That is the net, not
//! the plan: the lints keep what can panic out of `module/` and `codec/`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::api::{Context, raw};

/// Runs `body`; a panic ends in the log and in `fallback`, or, in a child process of the server, in
/// the end of the child.
///
/// A child writes a snapshot or a new AOF. Half a filter in it would replace the whole one in the
/// old file; a child that dies leaves the old file as it is.
#[inline]
pub(super) fn guarded<T>(entry: &str, fallback: T, body: impl FnOnce() -> T) -> T {
    // What a body leaves half done stays memory-safe: it works on owned values and on filters,
    // whose every state is a valid one.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(_) => {
            report(entry);
            fallback
        }
    }
}

#[cold]
fn report(entry: &str) {
    // SAFETY: the log takes a null context.
    let server = unsafe { Context::new(std::ptr::null_mut()) };
    server.warn(&format!(
        "bf: a panic in {entry} was stopped; please report it with the lines above"
    ));
    if server.flags() & raw::REDISMODULE_CTX_FLAGS_IS_CHILD as std::ffi::c_int != 0 {
        std::process::abort();
    }
}
