//! Ctrl-C: the first one asks a subcommand to end in order, the second one ends the program.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Whether the user asked to stop.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over SIGINT and SIGTERM. System calls under way are continued, so the caller asks
    /// [`Interrupt::requested`] between two steps.
    pub(crate) fn register() -> Self {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the first signal finds the flag unset, and only sets it.
            let second = signal_hook::flag::register_conditional_shutdown(
                signal,
                130,
                Arc::clone(&interrupt.0),
            );
            debug_assert!(second.is_ok(), "both signals can be handled");
        }
        interrupt.set_by_signals();
        interrupt
    }

    /// Like [`Interrupt::register`], but a second signal does not end the program: there is
    /// something to restore first. The caller asks many times a second.
    pub(crate) fn register_polled() -> Self {
        let interrupt = Self::default();
        interrupt.set_by_signals();
        interrupt
    }

    fn set_by_signals(&self) {
        for signal in [SIGINT, SIGTERM] {
            let set = signal_hook::flag::register(signal, Arc::clone(&self.0));
            debug_assert!(set.is_ok(), "both signals can be handled");
        }
    }

    /// Whether the user asked to stop.
    pub(crate) fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
