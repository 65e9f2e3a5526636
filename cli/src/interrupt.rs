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
        let requested = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the first signal finds the flag unset, and only sets it.
            let second = signal_hook::flag::register_conditional_shutdown(
                signal,
                130,
                Arc::clone(&requested),
            );
            let first = signal_hook::flag::register(signal, Arc::clone(&requested));
            debug_assert!(second.is_ok() && first.is_ok(), "both signals can be handled");
        }
        Self(requested)
    }

    /// Whether the user asked to stop.
    pub(crate) fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
