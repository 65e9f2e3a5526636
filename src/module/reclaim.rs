//! Frees the layers that a filter dropped.

use std::thread;

use crate::filter::Layer;

/// Bytes of a layer from which on a thread frees it: to give pages back takes 0.1 ms for each MiB.
const LARGE: usize = 4 << 20;

/// Frees the layers, large ones in a thread.
pub(crate) fn free(dropped: Vec<Layer>) {
    if dropped.iter().any(|layer| size_of_val(layer.bits().words()) >= LARGE) {
        // Without a thread, `spawn` drops the closure, and with it the layers, here.
        let _ = thread::Builder::new().name("bf-free".into()).spawn(move || drop(dropped));
    }
}
