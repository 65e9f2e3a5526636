//! A plain client: it sends arguments as bulk strings and returns each reply as a `Reply`.

use std::io::{BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use super::decode::read_reply;
use super::reply::Reply;

/// How long a reply may take before the test fails. Only a hanging server or a reply shorter than
/// announced takes this long; the slowest command of these tests takes a few seconds.
const REPLY_TIMEOUT: Duration = Duration::from_secs(180);

/// The protocol version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Resp2,
    Resp3,
}

impl Protocol {
    pub const BOTH: [Protocol; 2] = [Protocol::Resp2, Protocol::Resp3];

    /// The answer for one item ("new", "may exist"): an integer in RESP2, a boolean in RESP3.
    pub fn bit(self, yes: bool) -> Reply {
        match self {
            Protocol::Resp2 => Reply::Int(yes.into()),
            Protocol::Resp3 => Reply::Bool(yes),
        }
    }

    /// An array of answers, one per item; 1 means yes.
    pub fn bits<const N: usize>(self, answers: [u8; N]) -> Reply {
        Reply::Array(answers.iter().map(|&answer| self.bit(answer == 1)).collect())
    }
}

pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects to a port of this machine, in RESP2; `None` if nothing listens there.
    pub fn try_connect(port: u16) -> Option<Client> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT)).ok()?;
        Some(Client { stream: BufReader::new(stream) })
    }

    /// Splits a line at spaces, sends the words as one command and reads its reply:
    /// `run("BF.ADD key item")`.
    #[track_caller]
    pub fn run(&mut self, line: &str) -> Reply {
        self.cmd(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Sends one command of arbitrary bytes and reads its reply.
    #[track_caller]
    pub fn cmd<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Reply {
        self.send(arguments);
        self.read()
    }

    /// Sends the command `name key items...` and reads its reply.
    #[track_caller]
    pub fn call<A: AsRef<[u8]>>(&mut self, name: &str, key: &str, items: &[A]) -> Reply {
        let words =
            [name.as_bytes(), key.as_bytes()].into_iter().chain(items.iter().map(AsRef::as_ref));
        self.cmd(&words.collect::<Vec<_>>())
    }

    /// Sends all commands at once, then reads all replies.
    #[track_caller]
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> Vec<Reply> {
        let wire: Vec<u8> = commands.iter().flat_map(|arguments| encode(arguments)).collect();
        self.write(&wire);
        commands.iter().map(|_| self.read()).collect()
    }

    /// Sends one command and reads no reply: for SHUTDOWN, which only closes the connection.
    #[track_caller]
    pub fn send<A: AsRef<[u8]>>(&mut self, arguments: &[A]) {
        self.write(&encode(arguments));
    }

    #[track_caller]
    pub fn read(&mut self) -> Reply {
        self.try_read().unwrap_or_else(|error| panic!("no reply: {error}"))
    }

    /// Reads the next reply, or returns the error.
    pub fn try_read(&mut self) -> std::io::Result<Reply> {
        read_reply(&mut self.stream)
    }

    /// Sends one command and reads its reply, or returns the error: for servers that may die.
    pub fn try_cmd<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> std::io::Result<Reply> {
        self.stream.get_mut().write_all(&encode(arguments))?;
        self.try_read()
    }

    #[track_caller]
    fn write(&mut self, wire: &[u8]) {
        self.stream
            .get_mut()
            .write_all(wire)
            .unwrap_or_else(|error| panic!("cannot send: {error}"));
    }

    /// Asserts that the connection is in step: the next reply belongs to the next command.
    #[track_caller]
    pub fn assert_in_step(&mut self) {
        assert_eq!(self.run("PING"), Reply::Simple("PONG".into()), "replies are out of step");
    }

    /// The value of one field of `INFO section`.
    #[track_caller]
    pub fn server_info(&mut self, section: &str, field: &str) -> String {
        let all = self.cmd(&["INFO", section]).text();
        let prefix = format!("{field}:");
        let line = all.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("INFO {section} has no field {field}:\n{all}")).to_owned()
    }

    /// Whether a child of the server saves or rewrites, or a rewrite is scheduled. One INFO answers
    /// all three: with one request each, a scheduled rewrite that starts between two requests would
    /// be missed.
    #[track_caller]
    pub fn has_child(&mut self) -> bool {
        let all = self.cmd(&["INFO", "persistence"]).text();
        ["rdb_bgsave_in_progress:1", "aof_rewrite_in_progress:1", "aof_rewrite_scheduled:1"]
            .iter()
            .any(|line| all.lines().any(|found| found == *line))
    }

    /// A numeric field of `INFO memory`.
    #[track_caller]
    pub fn memory(&mut self, field: &str) -> i64 {
        self.server_info("memory", field).parse().expect("a field of INFO memory is a number")
    }

    /// The value of one configuration parameter, or `None` if the server does not know it.
    #[track_caller]
    pub fn config_get(&mut self, name: &str) -> Option<String> {
        let reply = self.cmd(&["CONFIG", "GET", name]);
        reply.get(name).map(Reply::text)
    }
}

fn encode<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut wire = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments.iter().map(AsRef::as_ref) {
        wire.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        wire.extend_from_slice(argument);
        wire.extend_from_slice(b"\r\n");
    }
    wire
}
