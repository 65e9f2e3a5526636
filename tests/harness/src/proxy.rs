//! A proxy between a replica and its primary that can cut the connection or change a byte.
//!
//! ```text
//!   replica ──▶ proxy ──▶ primary    passes every byte unchanged
//!           ◀── fault ◀──            changes one byte, or cuts the connection after some bytes
//! ```

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A fault of one connection, at a position in the bytes that the primary sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Ends the connection after this many bytes.
    Cut(u64),
    /// Inverts all bits of the byte at this position.
    Change(u64),
}

/// A proxy in front of a primary; its threads end with their connections.
pub struct Proxy {
    port: u16,
    faults: Arc<Mutex<Vec<Fault>>>,
}

impl Proxy {
    /// Starts a proxy for the primary's port. Each connection gets the next fault; connections
    /// after the last fault work normally.
    pub fn before(primary: u16, faults: &[Fault]) -> Proxy {
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
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Number of faults that no connection has got yet.
    pub fn left(&self) -> usize {
        self.faults.lock().map_or(0, |faults| faults.len())
    }
}

/// Starts one thread for each direction of a connection.
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
                // The connection is cut whether or not this write succeeds.
                let _ = to.write_all(&bytes[..kept]);
                break;
            }
            Some(Fault::Change(at)) if (passed..end).contains(&at) => {
                let offset = usize::try_from(at - passed).expect("less than the buffer");
                bytes[offset] = !bytes[offset];
            }
            _ => {}
        }
        passed = end;
        if to.write_all(bytes).is_err() {
            break;
        }
    }
    // Either side may be closed already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
