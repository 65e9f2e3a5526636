//! A proxy between a replica and its primary that can cut the connection or change a byte.
//!
//! ```text
//!   replica ──▶ proxy ──▶ primary    passes every byte unchanged
//!           ◀── fault ◀──            changes one byte, or cuts the connection after some bytes
//! ```

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::ops::RangeInclusive;
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
    /// Starts a proxy for the primary's port. Each fault happens to the first connection that
    /// reaches its position after the fault before it; then connections work normally.
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
                join(&replica, &primary, &shared);
            }
        });
        Proxy { port, faults }
    }

    /// The port to replicate from.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Number of faults that have not happened yet.
    pub fn left(&self) -> usize {
        self.faults.lock().map_or(0, |faults| faults.len())
    }
}

/// Starts one thread for each direction of a connection.
fn join(replica: &TcpStream, primary: &TcpStream, faults: &Arc<Mutex<Vec<Fault>>>) {
    let streams = || Some((replica.try_clone().ok()?, primary.try_clone().ok()?));
    if let (Some((from, to)), Some((back, source))) = (streams(), streams()) {
        let faults = Arc::clone(faults);
        thread::spawn(move || pass(from, to, &Mutex::default()));
        thread::spawn(move || pass(source, back, &faults));
    }
}

/// Takes the next fault if its position is among these bytes, or at their end.
fn take(faults: &Mutex<Vec<Fault>>, bytes: RangeInclusive<u64>) -> Option<Fault> {
    let mut faults = faults.lock().ok()?;
    faults.pop_if(|fault| match fault {
        Fault::Cut(at) => bytes.contains(at),
        Fault::Change(at) => bytes.contains(at) && at != bytes.end(),
    })
}

/// Passes bytes until one side closes, then closes the other.
fn pass(mut from: TcpStream, mut to: TcpStream, faults: &Mutex<Vec<Fault>>) {
    let mut buffer = vec![0; 64 * 1024];
    let mut passed = 0;
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &mut buffer[..count];
        let end = passed + count as u64;
        match take(faults, passed..=end) {
            Some(Fault::Cut(at)) => {
                let kept = usize::try_from(at - passed).expect("less than the buffer");
                // The connection is cut whether or not this write succeeds.
                let _ = to.write_all(&bytes[..kept]);
                break;
            }
            Some(Fault::Change(at)) => {
                let offset = usize::try_from(at - passed).expect("less than the buffer");
                bytes[offset] = !bytes[offset];
            }
            None => {}
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
