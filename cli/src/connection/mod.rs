//! One connection to a server: commands out, replies in.
//!
//! ```text
//!   Options ──target()──▶ Target ──connect()──▶ Connection ──call(command)──▶ reply
//!   as redis-cli's        address, TLS, user    send(), receive(): many commands in flight
//! ```
//!
//! Replies are RESP2, as the `redis` crate parses them. An error reply is an [`Error::Refused`], or
//! a `Value::ServerError` inside an array: code that reads an array looks for it.

mod cluster;
mod options;
mod stream;
mod targets;

use std::{
    io::{self, Read as _, Write as _},
    time::Duration,
};

use redis::{Cmd, Parser, ServerError, Value};

pub(crate) use cluster::Nodes;
pub(crate) use options::{Options, Target};
use stream::Stream;
pub(crate) use targets::Targets;

use crate::{
    error::Error,
    refusal::{Kind, Refusal},
};

/// How often a command follows a redirection before it gives up.
const MAX_REDIRECTIONS: u32 = 5;

/// A connection that is authenticated and has its database selected.
pub(crate) struct Connection {
    target: Target,
    stream: Stream,
    parser: Parser,
    /// Whether the server is about to get the slot of the key (`ASK`): it then answers a command
    /// about the key only directly after `ASKING`, which [`Connection::send`] puts before each.
    pub(crate) asking: bool,
    /// Commands in flight with `ASKING` before them.
    asked: usize,
}

impl Target {
    /// Connects, authenticates, and selects the database.
    pub(crate) fn connect(&self) -> Result<Connection, Error> {
        let stream = Stream::open(self).map_err(self.broken())?;
        let (target, parser) = (self.clone(), Parser::new());
        let mut connection = Connection { target, stream, parser, asking: false, asked: 0 };
        if let Some(password) = &self.password {
            let mut command = redis::cmd("AUTH");
            if let Some(user) = &self.user {
                command.arg(user);
            }
            connection.call(command.arg(password)).map_err(|error| self.unauthenticated(error))?;
        }
        if self.database != 0 {
            connection.call(redis::cmd("SELECT").arg(self.database))?;
        }
        // An old server, or a user without the right to it, has connections without names.
        match connection.call(redis::cmd("CLIENT").arg("SETNAME").arg("redis-bloom")) {
            Ok(_) | Err(Error::Refused { .. }) => Ok(connection),
            // After a timeout the reply may still come, and would be read as the next one.
            Err(error) => Err(error),
        }
    }

    /// Connects to the node of the cluster that has `key`; to this server, if there is no cluster.
    pub(crate) fn connect_for(&self, key: &[u8]) -> Result<Connection, Error> {
        let mut connection = self.connect()?;
        // TYPE is allowed to every user who may read the key. Other errors come back later, from
        // the command that the caller sends.
        match connection.call_for_key(redis::cmd("TYPE").arg(key)) {
            Ok(_) | Err(Error::Refused { .. }) => Ok(connection),
            Err(error) => Err(error),
        }
    }

    /// Like [`Target::connect_for`], but each reply must come within `most`. The time
    /// limit of the options holds again for what is sent later.
    fn connect_soon(&self, key: &[u8], most: Duration) -> Result<Connection, Error> {
        let hurried = Self { timeout: self.timeout.min(most), ..self.clone() };
        let mut connection = hurried.connect_for(key)?;
        connection.target.timeout = self.timeout;
        connection.stream.timeout = self.timeout;
        Ok(connection)
    }

    fn broken(&self) -> impl FnOnce(io::Error) -> Error {
        let server = self.to_string();
        let timeout = self.timeout.as_secs();
        move |source| {
            // Another try would fail, too.
            if source.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) {
                return Error::usage(
                    format!("{server}: {source}"),
                    "Each shard takes a connection: raise the limit of open files (ulimit -n).",
                );
            }
            let late = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
            let source = match source.kind() {
                kind if late.contains(&kind) => {
                    io::Error::new(io::ErrorKind::TimedOut, format!("no reply within {timeout} s"))
                }
                _ => source,
            };
            Error::Connection { server, source }
        }
    }

    fn unauthenticated(&self, error: Error) -> Error {
        match error {
            Error::Refused { refusal, .. } => {
                Error::Authentication { server: self.to_string(), text: refusal.text }
            }
            other => other,
        }
    }
}

impl Connection {
    /// The server.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Sends a command, and returns its reply. Replies of commands sent before must have been
    /// received.
    ///
    /// # Errors
    /// `Error::Refused` for an error reply; an array may hold errors nevertheless.
    pub(crate) fn call(&mut self, command: &Cmd) -> Result<Value, Error> {
        self.send(command)?;
        match self.receive()? {
            Value::ServerError(error) => Err(self.refused(&name_of(command), &error)),
            reply => Ok(reply),
        }
    }

    /// What the server says about itself; `None` without the right to INFO.
    pub(crate) fn info(&mut self, sections: &[&str]) -> Result<Option<Info>, Error> {
        match self.call(redis::cmd("INFO").arg(sections)) {
            Ok(Value::BulkString(text)) => {
                Ok(Some(Info(String::from_utf8_lossy(&text).into_owned())))
            }
            Ok(_) => Ok(Some(Info(String::new()))),
            Err(error) if error.refusal().is_some_and(Refusal::is_forbidden) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the server says about itself.
    ///
    /// # Errors
    /// Also without the right to INFO.
    pub(crate) fn info_needed(&mut self, sections: &[&str]) -> Result<Info, Error> {
        let text = "NOPERM this user has no permissions to run the 'info' command";
        self.info(sections)?.ok_or_else(|| Error::refused("INFO", text))
    }

    /// Sends commands in groups, and returns all replies in order; error replies among them.
    pub(crate) fn request_all(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Error> {
        /// The replies to this many commands fit into the buffers of a connection, so that neither
        /// side waits for the other.
        const GROUP: usize = 64;
        let mut replies = Vec::with_capacity(commands.len());
        for group in commands.chunks(GROUP) {
            for command in group {
                self.send(command)?;
            }
            for _ in group {
                replies.push(self.receive()?);
            }
        }
        Ok(replies)
    }

    /// Like [`Connection::call`]. Follows the redirections of a cluster: this connection then leads
    /// to the node that has the key, also while the slot of the key moves there.
    pub(crate) fn call_for_key(&mut self, command: &Cmd) -> Result<Value, Error> {
        let mut redirections = 0;
        loop {
            let result = self.call(command);
            let Err(Error::Refused { refusal, .. }) = &result else { return result };
            let Some(target) = self.target.redirected(refusal) else { return result };
            redirections += 1;
            if redirections > MAX_REDIRECTIONS {
                return result;
            }
            *self = target.connect()?;
            self.asking = refusal.kind == Kind::Asked;
        }
    }

    /// The error for an error reply.
    pub(crate) fn refused(&self, command: &str, error: &ServerError) -> Error {
        let text = text_of(error);
        if ["NOAUTH", "WRONGPASS"].contains(&error.code()) {
            return Error::Authentication { server: self.target.to_string(), text };
        }
        Error::refused(command.to_owned(), text)
    }

    /// Sends a command without waiting for the reply.
    pub(crate) fn send(&mut self, command: &Cmd) -> Result<(), Error> {
        self.send_asking()?;
        self.send_raw(&command.get_packed_command())
    }

    /// Sends what must come before the next command.
    fn send_asking(&mut self) -> Result<(), Error> {
        if self.asking {
            self.send_raw(&redis::cmd("ASKING").get_packed_command())?;
            self.asked += 1;
        }
        Ok(())
    }

    /// Sends a command whose arguments are too large to copy.
    pub(crate) fn send_parts(&mut self, arguments: &[&[u8]]) -> Result<(), Error> {
        self.send_asking()?;
        let mut small = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            small.extend(format!("${}\r\n", argument.len()).bytes());
            if argument.len() < 1 << 16 {
                small.extend(*argument);
            } else {
                self.send_raw(&small)?;
                self.send_raw(argument)?;
                small.clear();
            }
            small.extend(b"\r\n");
        }
        self.send_raw(&small)
    }

    /// Sends commands that are encoded already, as they are: without `ASKING`.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream.write_all(bytes).map_err(self.target.broken())
    }

    /// The next reply: a `Value::ServerError`, if the server refused the command.
    pub(crate) fn receive(&mut self) -> Result<Value, Error> {
        if self.asked > 0 {
            self.asked -= 1;
            self.receive_after(&[])?;
        }
        self.receive_after(&[])
    }

    /// The next reply, whose first bytes were read already.
    fn receive_after(&mut self, head: &[u8]) -> Result<Value, Error> {
        self.parser.parse_value(head.chain(&mut self.stream)).map_err(|error| {
            let kind = if error.is_timeout() {
                io::ErrorKind::TimedOut
            } else if error.is_io_error() {
                io::ErrorKind::ConnectionReset
            } else {
                io::ErrorKind::InvalidData
            };
            self.target.broken()(io::Error::new(kind, error))
        })
    }
}

/// The longest string that is read in place: the server's own bound (`proto-max-bulk-len`).
const MAX_STRING: usize = 512 << 20;
/// The lines before the string in an array of an integer and a string: `*2`, `:1`, `$3`.
const LONG: [u8; 3] = [b'*', b':', b'$'];

impl Connection {
    /// Like [`Connection::receive`], for a reply of an integer and a long string. The parser of the
    /// `redis` crate copies long strings several times; this reads them in place. No other command
    /// may be in flight, because what the parser has read ahead is not seen.
    pub(crate) fn receive_long(&mut self) -> Result<Value, Error> {
        if self.asked > 0 {
            // The parser reads the reply to ASKING, and perhaps ahead.
            return self.receive();
        }
        let mut head = Vec::new();
        let mut numbers = [0_i64; LONG.len()];
        for (number, start) in numbers.iter_mut().zip(LONG) {
            let begin = head.len();
            while !head.ends_with(b"\r\n") || head.len() == begin {
                let mut byte = [0];
                self.stream.read_exact(&mut byte).map_err(self.target.broken())?;
                head.extend(byte);
            }
            let line = str::from_utf8(&head[begin..]).ok();
            let text = line.and_then(|line| line.trim_end().strip_prefix(char::from(start)));
            match text.and_then(|text| text.parse().ok()) {
                Some(parsed) => *number = parsed,
                None => return self.receive_after(&head),
            }
        }
        let [2, integer, length] = numbers else { return self.receive_after(&head) };
        let Some(length) = usize::try_from(length).ok().filter(|&length| length <= MAX_STRING)
        else {
            return self.receive_after(&head);
        };
        let mut data = Vec::with_capacity(length + 2);
        let ended = (&mut self.stream).take(length as u64 + 2).read_to_end(&mut data);
        ended.map_err(self.target.broken())?;
        if !data.ends_with(b"\r\n") || data.len() != length + 2 {
            return Err(self.target.broken()(io::ErrorKind::UnexpectedEof.into()));
        }
        data.truncate(length);
        Ok(Value::Array(vec![Value::Int(integer), Value::BulkString(data)]))
    }
}

/// A reply to INFO.
pub(crate) struct Info(pub(crate) String);

impl Info {
    /// The fields and their values.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.lines().filter_map(|line| line.trim().split_once(':'))
    }

    /// The value of a field, if it is not empty.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields().find(|(field, _)| *field == name);
        found.map(|(_, value)| value).filter(|value| !value.is_empty())
    }

    /// The number in a field.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }
}

/// The name of a command, for errors. Its arguments may be secret.
pub(crate) fn name_of(command: &Cmd) -> String {
    let name = command.args_iter().next();
    match name {
        Some(redis::Arg::Simple(name)) => String::from_utf8_lossy(name).into_owned(),
        _ => String::new(),
    }
}

/// The reply. If it is the server's error, the error names `command`.
pub(crate) fn accepted(command: &str, reply: Value) -> Result<Value, Error> {
    match reply {
        Value::ServerError(error) => Err(Error::refused(command, text_of(&error))),
        reply => Ok(reply),
    }
}

/// An error reply as the server wrote it: `ERR not found`.
pub(crate) fn text_of(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}
