//! Ctrl-C and SIGTERM: the first one asks a subcommand to end cleanly, the second one ends the
//! program. If the subcommand has nothing to finish, the first one ends it.

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicBool, Ordering},
};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

use crate::error::{Error, Exit};

/// Whether the user asked to stop.
static REQUESTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// Whether SIGTERM ends the program: until a subcommand takes it over.
static AT_ONCE: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));

/// From now on SIGTERM ends the program with the exit code of Ctrl-C. Ctrl-C does so by default.
pub(crate) fn end_at_once_by_sigterm() {
    end_by(SIGTERM, &AT_ONCE);
}

/// From now on the signal ends the program if the flag is set.
fn end_by(signal: i32, flag: &Arc<AtomicBool>) {
    let exit = Exit::Interrupted as i32;
    let registered = flag::register_conditional_shutdown(signal, exit, Arc::clone(flag));
    debug_assert!(registered.is_ok(), "both signals can be handled");
}

/// Takes over SIGINT and SIGTERM. System calls in flight are continued, so the subcommand calls
/// [`requested`] between two steps.
pub(crate) fn register() {
    for signal in [SIGINT, SIGTERM] {
        // The order matters: the first signal finds the flag unset, and only sets it.
        end_by(signal, &REQUESTED);
    }
    register_polled();
}

/// Like [`register`], but a second signal does not end the program: there is something to restore
/// first. The subcommand calls [`requested`] many times a second.
pub(crate) fn register_polled() {
    for signal in [SIGINT, SIGTERM] {
        let set = flag::register(signal, Arc::clone(&REQUESTED));
        debug_assert!(set.is_ok(), "both signals can be handled");
    }
    AT_ONCE.store(false, Ordering::Relaxed);
}

/// Whether the user asked to stop.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// Ends a subcommand if the user asked to stop. `hint` says how to continue.
pub(crate) fn check(hint: &str) -> Result<(), Error> {
    match requested() {
        true => Err(Error::Interrupted { hint: hint.to_owned() }),
        false => Ok(()),
    }
}
