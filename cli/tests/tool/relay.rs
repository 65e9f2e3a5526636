//! The tool behind a relay, which does something before the Nth command that the tool sends, or
//! before each one.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    process::{Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use crate::{harness::Server, run::command};

/// A run of the tool behind a relay.
pub(crate) struct Relayed {
    pub(crate) output: Output,
    /// Whether it sent that many commands.
    pub(crate) reached: bool,
    /// What it sent from that command on.
    pub(crate) later: Vec<u8>,
}

/// The command of the tool before which something is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    /// Counts the commands behind one that contains this.
    pub(crate) after: &'static str,
    /// The number of the command, from 0.
    pub(crate) command: usize,
}

/// Runs the tool in `dir`. Before it sends the command, `event` is called with its process id; the
/// command is sent if that returns true. Each command of the tool is one write.
pub(crate) fn relayed(
    server: &Server,
    dir: &Path,
    words: &str,
    before: Before,
    event: impl FnOnce(u32) -> bool,
) -> Relayed {
    let mut event = Some(event);
    let mut run =
        run(server, dir, words, Some(before), |pid| event.take().is_some_and(|event| event(pid)));
    run.reached = event.is_none();
    run
}

/// Runs the tool in `dir`, and calls `event` before each command that it sends.
pub(crate) fn relayed_each(
    server: &Server,
    dir: &Path,
    words: &str,
    mut event: impl FnMut(),
) -> Output {
    let event = |_| {
        event();
        true
    };
    run(server, dir, words, None, event).output
}

fn run(
    server: &Server,
    dir: &Path,
    words: &str,
    before: Option<Before>,
    mut event: impl FnMut(u32) -> bool,
) -> Relayed {
    let relay = Relay::start(server.port(), before);
    let mut command = command();
    command.args(["-p", &relay.port.to_string(), "--quiet"]);
    command.args(words.split_whitespace()).current_dir(dir);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the tool runs");
    let pid = child.id();
    let (sender, ended) = mpsc::channel();
    thread::spawn(move || {
        let _ = sender.send(child.wait_with_output().expect("the tool ends"));
    });
    let output = loop {
        if let Ok(output) = ended.recv_timeout(Duration::from_millis(5)) {
            break output;
        }
        let Ok(go) = relay.reached.try_recv() else { continue };
        if event(pid) {
            go.send(()).expect("the relay waits");
        }
    };
    let later = relay.later.lock().expect("no thread panicked").clone();
    Relayed { output, reached: false, later }
}

/// The tool's way to the server.
struct Relay {
    port: u16,
    /// Receives a sender at the chosen command, or at each one, which waits for it.
    reached: mpsc::Receiver<mpsc::Sender<()>>,
    later: Arc<Mutex<Vec<u8>>>,
    stop: Arc<AtomicBool>,
}

impl Relay {
    fn start(server: u16, before: Option<Before>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (sender, reached) = mpsc::channel();
        let later = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (kept, stopped) = (later.clone(), stop.clone());
        thread::spawn(move || {
            let left = before.map_or(("", Left::Each), |at| (at.after, Left::Some(at.command)));
            let left = Arc::new(Mutex::new(left));
            while let Ok((tool, _)) = listener.accept() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let there = TcpStream::connect(("127.0.0.1", server)).expect("the server");
                let (mut back, mut from) =
                    (tool.try_clone().expect("a socket"), there.try_clone().expect("a socket"));
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut back);
                    // What the tool still sends must be read: the kernel would keep a connection
                    // that was shut down with a full buffer for a minute.
                    let _ = back.shutdown(Shutdown::Write);
                });
                let (left, kept, sender) = (left.clone(), kept.clone(), sender.clone());
                thread::spawn(move || {
                    pass(tool, &there, &left, &kept, &sender);
                    let _ = there.shutdown(Shutdown::Both);
                });
            }
        });
        Self { port, reached, later, stop }
    }
}

/// The commands before the next one that waits.
#[derive(Clone, Copy)]
enum Left {
    Some(usize),
    None,
    /// Each command waits.
    Each,
}

/// Sends on what the tool sends, and stops where it was killed.
fn pass(
    mut tool: TcpStream,
    mut there: &TcpStream,
    left: &Mutex<(&str, Left)>,
    later: &Mutex<Vec<u8>>,
    sender: &mpsc::Sender<mpsc::Sender<()>>,
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length @ 1..) = tool.read(&mut buffer) {
        let mut left = left.lock().expect("no thread panicked");
        let waits = !left.0.is_empty();
        if waits && buffer[..length].windows(left.0.len()).any(|part| part == left.0.as_bytes()) {
            left.0 = "";
        }
        match left.1 {
            _ if waits => {}
            Left::Some(more @ 1..) => left.1 = Left::Some(more - 1),
            Left::None => {}
            Left::Some(0) | Left::Each => {
                if let Left::Some(_) = left.1 {
                    left.1 = Left::None;
                }
                let (go, gone) = mpsc::channel();
                if sender.send(go).is_err() || gone.recv().is_err() {
                    return;
                }
            }
        }
        if matches!(left.1, Left::None) {
            later.lock().expect("no thread panicked").extend_from_slice(&buffer[..length]);
        }
        drop(left);
        if there.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}
