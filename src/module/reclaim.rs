//! Frees the layers that a filter dropped.

use std::thread;

use crate::filter::Layer;

/// Bytes from which on a thread frees them: to give pages back takes 0.1 ms for each MiB.
const MANY: usize = 4 << 20;

/// Frees the layers, many bytes in a thread.
pub(crate) fn free(dropped: Vec<Layer>) {
    if dropped.iter().map(|layer| size_of_val(layer.bits().words())).sum::<usize>() >= MANY {
        // Without a thread, `spawn` drops the closure, and with it the layers, here.
        let _ = thread::Builder::new().name("bf-free".into()).spawn(move || drop(dropped));
    }
}
