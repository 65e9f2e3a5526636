//! A server process for the bench, on a free port of 127.0.0.1, in a temporary directory. Dropping
//! the value ends the process.

use std::{
    fs::File,
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::{scope, sleep},
    time::{Duration, Instant},
};

use redis::{Connection, FromRedisValue, ToRedisArgs};

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A command whose reply marks the end of a stream of replies.
const SENTINEL: &[u8] = b"*2\r\n$4\r\nECHO\r\n$8\r\nsentinel\r\n";
const SENTINEL_REPLY: &[u8] = b"sentinel\r\n";

/// A running server, with one connection for single commands and one for prepared bytes.
pub(crate) struct Server {
    child: Child,
    dir: tempfile::TempDir,
    port: u16,
    commands: Connection,
    bytes: TcpStream,
}

/// The cost of a stream of commands, and its replies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// CPU time of the server's main thread, in nanoseconds.
    pub(crate) cpu: f64,
    /// Time from the first byte sent to the last received, in nanoseconds.
    pub(crate) wall: f64,
    /// Integer replies that were 1, including those in arrays.
    pub(crate) ones: u64,
}

impl Server {
    /// Starts a server with the module, if one is given, and further arguments.
    pub(crate) fn start(module: Option<(&PathBuf, &[String])>, extra: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory can be made");
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let port = listener.local_addr().expect("it is bound").port();
        drop(listener);
        let program = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
        let log = File::create(dir.path().join("log")).expect("the directory can be written to");
        let mut command = Command::new(program);
        command
            .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""])
            .args(["--enable-debug-command", "yes", "--dir"])
            .arg(dir.path())
            .args(extra);
        if let Some((path, arguments)) = module {
            command.arg("--loadmodule").arg(path).args(arguments);
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(log)
            .spawn()
            .expect("the server can be run: see REDIS_SERVER");
        let bytes = connect(port).unwrap_or_else(|| {
            let log = std::fs::read_to_string(dir.path().join("log")).unwrap_or_default();
            panic!("the server did not start:\n{log}")
        });
        bytes.set_nodelay(true).expect("a socket has the option");
        let commands = redis::Client::open(format!("redis://127.0.0.1:{port}"))
            .and_then(|client| client.get_connection())
            .expect("the server answers");
        Self { child, dir, port, commands, bytes }
    }

    /// The port of the server.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The process id of the server.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The working directory of the server.
    pub(crate) fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    /// Runs a command; the words of `line` are separated by spaces.
    pub(crate) fn run<T: FromRedisValue>(&mut self, line: &str) -> T {
        let mut words = line.split_whitespace();
        let mut command = redis::cmd(words.next().unwrap_or_default());
        words.for_each(|word| {
            command.arg(word);
        });
        command.query(&mut self.commands).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Runs a command with binary arguments.
    pub(crate) fn call<T: FromRedisValue>(
        &mut self,
        name: &str,
        arguments: &[impl ToRedisArgs],
    ) -> redis::RedisResult<T> {
        redis::cmd(name).arg(arguments).query(&mut self.commands)
    }

    /// A field of INFO.
    pub(crate) fn info(&mut self, field: &str) -> String {
        let text: String = self.run("INFO everything");
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("INFO has no {field}")).trim().to_owned()
    }

    /// A field of INFO, as a number.
    pub(crate) fn info_number(&mut self, field: &str) -> u64 {
        self.info(field).parse().unwrap_or_else(|_| panic!("INFO {field} is no number"))
    }

    /// CPU nanoseconds of the main thread. Waits until the thread sleeps: the kernel accounts the
    /// time of a running thread only at the next tick, which is longer than a turn.
    pub(crate) fn cpu(&self) -> f64 {
        let thread = format!("/proc/{0}/task/{0}", self.pid());
        let read = |name: &str| {
            std::fs::read_to_string(format!("{thread}/{name}"))
                .expect("Linux, with schedstat; the server is alive")
        };
        // The state follows the name, which is in brackets.
        while !read("stat").rsplit(')').next().is_some_and(|rest| rest.starts_with(" S")) {
            sleep(Duration::from_micros(100));
        }
        let schedstat = read("schedstat");
        let run = schedstat.split(' ').next().and_then(|run| run.parse().ok());
        run.expect("a number comes first")
    }

    /// Runs a command that keeps the main thread busy; returns seconds of wall time and of CPU
    /// time.
    pub(crate) fn timed(&mut self, line: &str) -> (f64, f64) {
        let (cpu, begin) = (self.cpu(), Instant::now());
        self.run::<()>(line);
        (begin.elapsed().as_secs_f64(), (self.cpu() - cpu) / 1e9)
    }

    /// Sends prepared commands, and reads their replies at the same time.
    pub(crate) fn stream(&mut self, commands: &[u8]) -> Cost {
        let (cpu, begin) = (self.cpu(), Instant::now());
        let mut writer = self.bytes.try_clone().expect("a socket can be shared");
        let ones = scope(|scope| {
            scope.spawn(move || {
                writer.write_all(commands).expect("the server reads");
                writer.write_all(SENTINEL).expect("the server reads");
            });
            read_ones(&mut self.bytes)
        });
        let wall = begin.elapsed().as_nanos() as f64;
        Cost { cpu: self.cpu() - cpu, wall, ones }
    }

    /// Sends packed batches of `items` items, `batch` in each command, and reads their answers at
    /// the same time. The last batch is as long as the others.
    pub(crate) fn exchange(
        &mut self,
        commands: impl Iterator<Item = Vec<u8>> + Send,
        items: u64,
        batch: u64,
    ) -> Cost {
        assert_eq!(items % batch, 0, "replies of one length");
        let head = format!("*2\r\n:{batch}\r\n${}\r\n", batch.div_ceil(8));
        let bits = head.len()..head.len() + batch.div_ceil(8) as usize;
        let mut reply = vec![0; bits.end + 2];
        let (cpu, begin) = (self.cpu(), Instant::now());
        let mut writer = self.bytes.try_clone().expect("a socket can be shared");
        let mut ones = 0;
        scope(|scope| {
            scope.spawn(move || {
                for command in commands {
                    writer.write_all(&command).expect("the server reads");
                }
            });
            for _ in 0..items / batch {
                self.bytes.read_exact(&mut reply).expect("the server answers");
                assert!(reply.starts_with(head.as_bytes()), "{}", reply.escape_ascii());
                ones += reply[bits.clone()]
                    .iter()
                    .map(|byte| u64::from(byte.count_ones()))
                    .sum::<u64>();
            }
        });
        let wall = begin.elapsed().as_nanos() as f64;
        Cost { cpu: self.cpu() - cpu, wall, ones }
    }

    /// Sends prepared commands in one write, and reads `replies` replies of one line each. No other
    /// command may be in flight.
    pub(crate) fn round_trip(&mut self, command: &[u8], replies: usize) {
        self.bytes.write_all(command).expect("the server reads");
        let mut buffer = [0; 4096];
        let mut lines = 0;
        while lines < replies {
            let count = self.bytes.read(&mut buffer).expect("the server answers");
            assert!(count > 0, "the server went away");
            assert_ne!(buffer[0], b'-', "{}", String::from_utf8_lossy(&buffer[..count]));
            lines += buffer[..count].iter().filter(|&&byte| byte == b'\n').count();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing in it has to be saved.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(port: u16) -> Option<TcpStream> {
    let begin = Instant::now();
    while begin.elapsed() < START_TIMEOUT {
        if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) {
            return Some(stream);
        }
        sleep(Duration::from_millis(10));
    }
    None
}

/// Reads replies up to that of the sentinel; returns how many integers were 1. An error among them
/// ends the run.
fn read_ones(stream: &mut TcpStream) -> u64 {
    let mut buffer = vec![0; 1 << 18];
    let mut tail = Vec::<u8>::new();
    let (mut ones, mut last) = (0, [b'\n', b'\n']);
    loop {
        let count = match stream.read(&mut buffer) {
            Ok(0) => panic!("the server went away"),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => panic!("the server does not answer: {error}"),
        };
        for &byte in &buffer[..count] {
            match (last, byte) {
                ([b'\n', b':'], b'1') => ones += 1,
                ([_, b'\n'], b'-') => {
                    panic!("an error: {}", String::from_utf8_lossy(&buffer[..count.min(200)]))
                }
                _ => {}
            }
            last = [last[1], byte];
        }
        tail.extend(&buffer[count.saturating_sub(SENTINEL_REPLY.len())..count]);
        tail.drain(..tail.len().saturating_sub(SENTINEL_REPLY.len()));
        if tail == SENTINEL_REPLY {
            return ones;
        }
    }
}
