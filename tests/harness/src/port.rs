//! Free ports for servers.

use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a port that nothing listens on, below the range that the kernel uses for outgoing
/// connections. Each test process starts at another offset, so that parallel runs rarely collide.
pub fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = std::process::id().wrapping_mul(97);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let offset = start.wrapping_add(u32::from(step)) % u32::from(COUNT);
        let port = FIRST + u16::try_from(offset).expect("an offset is below COUNT");
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port from {FIRST} on");
}
