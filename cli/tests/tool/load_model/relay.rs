//! A relay between the tool and a server. It knows the protocol, so a fault comes after a given
//! number of commands, not after a given time.
//!
//! ```text
//!   tool ──command──▶ relay ──▶ server   one command at a time
//!        ◀──reply────       ◀──          an event of the script: before a command, when its reply
//!                                        has come, or when its reply was passed
//! ```
//!
//! Replies may be withheld until the event: those commands are executed, and the tool does not know
//! it. Several relays act as a cluster of servers that know nothing of it: they answer
//! `CLUSTER SLOTS`, and `MOVED` for the keys of another relay.

use std::{
    io::{self, BufRead, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::sharding::key_slot;

use super::stage::{After, Stage};
use crate::harness::SLOTS;

/// How long the next command is waited for while replies are withheld. If the tool waits for one of
/// them, the event comes now.
const PATIENCE: Duration = Duration::from_millis(20);

/// The ports of all relays, in the order of their servers.
#[derive(Clone)]
pub(super) struct Ports(Arc<[u16]>);

/// Relays that listen; they take connections until the value is dropped.
pub(super) struct Relays {
    ports: Ports,
    ended: Arc<AtomicBool>,
}

impl Relays {
    /// Starts a relay for each server of the stage.
    pub(super) fn start(stage: &Arc<Stage>, servers: usize) -> Self {
        let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let listeners: Vec<_> = (0..servers).map(bind).collect();
        let port = |listener: &TcpListener| listener.local_addr().expect("its address").port();
        let ports = Ports(listeners.iter().map(port).collect());
        let ended = Arc::<AtomicBool>::default();
        for (node, listener) in listeners.into_iter().enumerate() {
            let (stage, ports, ended) = (Arc::clone(stage), ports.clone(), Arc::clone(&ended));
            thread::spawn(move || {
                for tool in listener.incoming().map_while(Result::ok) {
                    if ended.load(Ordering::Relaxed) {
                        return;
                    }
                    let (stage, ports) = (Arc::clone(&stage), ports.clone());
                    thread::spawn(move || {
                        // A broken connection is what the tool must live with.
                        let _ = join(&tool, node, &stage, &ports);
                        let _ = tool.shutdown(Shutdown::Both);
                    });
                }
            });
        }
        Self { ports, ended }
    }

    /// The port of the first server.
    pub(super) fn port(&self) -> u16 {
        self.ports.0[0]
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        for &port in self.ports.0.iter() {
            // Wakes the listener.
            let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        }
    }
}

impl Ports {
    /// The place of the server that has the slot of a key.
    pub(super) fn node_of(key: &[u8], servers: usize) -> usize {
        usize::from(key_slot(key)) * servers / SLOTS
    }

    /// What a cluster would answer in the place of server `node`; `None` if that answers itself.
    fn answer(&self, node: usize, words: &[Vec<u8>]) -> Option<Vec<u8>> {
        let servers = self.0.len();
        if servers == 1 {
            return None;
        }
        let name = words.first()?.to_ascii_uppercase();
        if name == b"CLUSTER" {
            let ranges = self.0.iter().enumerate().map(|(number, port)| {
                let first = (number * SLOTS).div_ceil(servers);
                let last = ((number + 1) * SLOTS).div_ceil(servers) - 1;
                format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n$9\r\n127.0.0.1\r\n:{port}\r\n")
            });
            return Some(format!("*{servers}\r\n{}", ranges.collect::<String>()).into_bytes());
        }
        let keyed = name.starts_with(b"BF.") || matches!(&name[..], b"TYPE" | b"HGETALL" | b"SET");
        let key = words.get(1).filter(|_| keyed)?;
        let owner = Self::node_of(key, servers);
        let moved =
            || format!("-MOVED {} 127.0.0.1:{}\r\n", key_slot(key), self.0[owner]).into_bytes();
        (owner != node).then(moved)
    }
}

/// Passes commands and replies until either side closes, or an event ends the connection.
fn join(tool: &TcpStream, node: usize, stage: &Stage, ports: &Ports) -> io::Result<()> {
    let server = TcpStream::connect((Ipv4Addr::LOCALHOST, stage.port_of(node)))?;
    for stream in [tool, &server] {
        stream.set_nodelay(true)?;
    }
    let mut commands = BufReader::new(tool.try_clone()?);
    let mut replies = BufReader::new(server.try_clone()?);
    let (mut tool, mut server) = (tool, &server);
    let mut withheld = Vec::new();
    loop {
        if !withheld.is_empty() && is_quiet(&mut commands)? {
            if stage.play_now() {
                return Ok(());
            }
            tool.write_all(&withheld)?;
            withheld.clear();
        }
        let mut command = Vec::new();
        copy(&mut commands, &mut command)?;
        let words = words(&command);
        if let Some(answer) = ports.answer(node, &words) {
            tool.write_all(&answer)?;
            continue;
        }
        let step = is_step(&words).then(|| stage.step());
        if step.is_some_and(|step| stage.before(step)) {
            return Ok(());
        }
        server.write_all(&command)?;
        copy(&mut replies, &mut withheld)?;
        match step.map_or(After::Pass, |step| stage.after(step)) {
            After::Withhold => continue,
            After::Unanswered => {
                if stage.play_now() {
                    return Ok(());
                }
            }
            After::Answered => {
                tool.write_all(&withheld)?;
                withheld.clear();
                if stage.play_now() {
                    return Ok(());
                }
            }
            After::Pass => {}
        }
        tool.write_all(&withheld)?;
        withheld.clear();
    }
}

/// Whether this is a command that events are counted by: it adds items, or waits for replicas or
/// the append-only file.
fn is_step(words: &[Vec<u8>]) -> bool {
    match &words[0].to_ascii_uppercase()[..] {
        // The tool sends one without items to see whether it may.
        b"BF.BULKADD" => words.last().is_some_and(|items| !items.is_empty()),
        b"BF.INSERT" | b"WAIT" | b"WAITAOF" => true,
        _ => false,
    }
}

/// Whether no command comes for a while.
fn is_quiet(commands: &mut BufReader<TcpStream>) -> io::Result<bool> {
    commands.get_ref().set_read_timeout(Some(PATIENCE))?;
    let quiet = match commands.fill_buf() {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        result => result.map(|_| false),
    };
    commands.get_ref().set_read_timeout(None)?;
    quiet
}

/// Copies one value of the protocol, a command or a reply in RESP2.
fn copy(from: &mut impl BufRead, to: &mut Vec<u8>) -> io::Result<()> {
    let mut values = 1_u64;
    while values > 0 {
        values -= 1;
        let mut line = Vec::new();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.extend_from_slice(&line);
        let number = || str::from_utf8(&line[1..]).ok()?.trim().parse::<i64>().ok();
        match (line[0], number()) {
            (b'*', Some(count @ 1..)) => values += count.unsigned_abs(),
            (b'$', Some(length @ 0..)) => {
                let bytes = length.unsigned_abs() + 2;
                if from.take(bytes).read_to_end(to)? as u64 != bytes {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The words of a command.
fn words(command: &[u8]) -> Vec<Vec<u8>> {
    /// The number of a line such as `*3` or `$5`, and what follows it.
    fn header(bytes: &[u8]) -> (usize, &[u8]) {
        let end = bytes.iter().position(|&byte| byte == b'\n').expect("a whole command");
        let digits = str::from_utf8(&bytes[1..end]).expect("digits").trim();
        (digits.parse().expect("a number"), &bytes[end + 1..])
    }
    let (count, mut rest) = header(command);
    let word = |_| {
        let (length, word) = header(rest);
        rest = &word[length + 2..];
        word[..length].to_vec()
    };
    (0..count).map(word).collect()
}
