//! A line between a replica and its primary that a test can cut or disturb.
//!
//! ```text
//!   replica ──▶ proxy ──▶ primary        what the replica sends passes as it is; of what the primary sends, the bytes
//!           ◀── fault ◀──                after a number of them are lost (and the line is cut), or one is changed
//! ```

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// What happens to a connection, counted in bytes that the primary sends on it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// It ends after this many.
    Cut(u64),
    /// The bits of the byte at this place are turned over.
    Change(u64),
}

/// A proxy in front of a primary; its threads end with the connections.
pub(crate) struct Proxy {
    port: u16,
    faults: Arc<Mutex<Vec<Fault>>>,
}

impl Proxy {
    /// Stands in front of the primary. Each connection meets one of the faults, in order; when none
    /// is left they work.
    pub(crate) fn before(primary: u16, faults: &[Fault]) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("its address").port();
        let faults = Arc::new(Mutex::new(faults.iter().rev().copied().collect::<Vec<_>>()));
        let shared = Arc::clone(&faults);
        thread::spawn(move || {
            for replica in listener.incoming().map_while(Result::ok) {
                let Ok(primary) = TcpStream::connect((Ipv4Addr::LOCALHOST, primary)) else {
                    continue;
                };
                let fault = shared.lock().map_or(None, |mut faults| faults.pop());
                join(&replica, &primary, fault);
            }
        });
        Proxy { port, faults }
    }

    /// The port to replicate from.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// How many faults no connection has met yet.
    pub(crate) fn left(&self) -> usize {
        self.faults.lock().map_or(0, |faults| faults.len())
    }
}

/// Starts the two directions of a connection.
fn join(replica: &TcpStream, primary: &TcpStream, fault: Option<Fault>) {
    let streams = || Some((replica.try_clone().ok()?, primary.try_clone().ok()?));
    if let (Some((from, to)), Some((back, source))) = (streams(), streams()) {
        thread::spawn(move || pass(from, to, None));
        thread::spawn(move || pass(source, back, fault));
    }
}

/// Passes bytes until one side closes, then closes the other.
fn pass(mut from: TcpStream, mut to: TcpStream, fault: Option<Fault>) {
    let mut buffer = vec![0; 64 * 1024];
    let mut passed = 0;
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &mut buffer[..count];
        let end = passed + count as u64;
        match fault {
            Some(Fault::Cut(at)) if at <= end => {
                let kept = usize::try_from(at - passed).expect("less than the buffer");
                // The line is cut whether or not this arrives.
                let _ = to.write_all(&bytes[..kept]);
                break;
            }
            Some(Fault::Change(at)) if (passed..end).contains(&at) => {
                let place = usize::try_from(at - passed).expect("less than the buffer");
                bytes[place] = !bytes[place];
            }
            _ => {}
        }
        passed = end;
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    // Either may be closed already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
