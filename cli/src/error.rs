//! Everything that ends a subcommand early: what happened, what to do, and the exit code.

use std::{io, path::PathBuf, process::ExitCode};

use crate::name;

/// The exit codes of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// The answer is no: an item is absent, items are lost, or the rate is too high.
    No = 1,
    /// The command line or an input file is wrong.
    Usage = 2,
    /// No connection, or no authentication.
    Connection = 3,
    /// The server refused a command.
    Refused = 4,
    /// A part is done; the rest can be resumed.
    Incomplete = 5,
    /// Stopped by Ctrl-C or SIGTERM.
    Interrupted = 130,
    /// The reader of stdout closed it: 128 and the number of SIGPIPE.
    ReaderGone = 141,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// What ended a subcommand. The text says what happened; [`Error::hint`] says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The server cannot be reached, or the connection broke.
    #[error("{server}: {source}")]
    Connection { server: String, source: io::Error },
    /// The server did not accept the user or the password.
    #[error("{server}: {text}")]
    Authentication { server: String, text: String },
    /// The server answered a command with an error.
    #[error("{command}: {text}")]
    Refused { command: String, text: String },
    /// The server answered something that this tool does not understand.
    #[error("{command}: unexpected reply {reply}")]
    Reply { command: String, reply: String },
    /// The command line asks for something that is not possible.
    #[error("{what}")]
    Usage { what: String, hint: String },
    /// A file cannot be read or written.
    #[error("{}: {source}", name::readable_path(path))]
    File { path: PathBuf, source: io::Error },
    /// The server refused a command when a part was done.
    #[error("{what}")]
    RefusedPartly { what: String, hint: String },
    /// A part is done, the rest is not.
    #[error("{what}")]
    Incomplete { what: String, hint: String },
    /// Ctrl-C or SIGTERM, after what was under way is done.
    #[error("interrupted")]
    Interrupted { hint: String },
}

/// What helps against an error reply that passes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// This connection will do, in a moment.
    Later,
    /// The server has another role now, or is about to: a new connection finds the primary.
    Reconnect,
    /// The reply names the node that has the key.
    Redirected,
}

impl Passing {
    /// By the first words of an error reply; `None` for an error that stays.
    pub(crate) fn of(text: &str) -> Option<Self> {
        // Of a node that was a primary when the connection began.
        const DEMOTED: [&str; 2] =
            ["ERR WAIT cannot be used with replica", "ERR WAITAOF cannot be used with replica"];
        if DEMOTED.iter().any(|start| text.starts_with(start)) {
            return Some(Self::Reconnect);
        }
        match text.split(' ').next().unwrap_or_default() {
            "LOADING" | "TRYAGAIN" | "CLUSTERDOWN" | "BUSY" | "NOREPLICAS" => Some(Self::Later),
            "MASTERDOWN" | "UNBLOCKED" => Some(Self::Reconnect),
            "MOVED" | "ASK" => Some(Self::Redirected),
            _ => None,
        }
    }
}

impl Error {
    /// Whether another try may succeed: the node failed or is busy, or its slots are on the move.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::Connection { .. } => true,
            Self::Refused { text, .. } => Passing::of(text).is_some(),
            _ => false,
        }
    }

    /// Whether the server refused a command, or the key, to this user.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self, Self::Refused { text, .. } if text.starts_with("NOPERM"))
    }

    /// A wrong command line.
    pub(crate) fn usage(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Usage { what: what.into(), hint: hint.into() }
    }

    /// A file that cannot be read or written.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    /// This error in the middle of work that can be continued; `hint` says how.
    pub(crate) fn partly(self, hint: impl Into<String>) -> Self {
        let (what, hint) = (self.to_string(), hint.into());
        match self {
            Self::Refused { text, .. } => {
                Self::RefusedPartly { what, hint: format!("{} {hint}", refusal_hint(&text)) }
            }
            Self::RefusedPartly { .. } => {
                let hint = format!("{} {hint}", self.hint());
                Self::RefusedPartly { what, hint }
            }
            Self::Reply { .. } => Self::RefusedPartly { what, hint },
            Self::Connection { .. } | Self::Incomplete { .. } => Self::Incomplete { what, hint },
            Self::Usage { .. } | Self::File { .. } => {
                let hint = format!("{} {hint}", self.hint());
                Self::Usage { what, hint }
            }
            Self::Interrupted { .. } => Self::Interrupted { hint },
            Self::Authentication { .. } => self,
        }
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Connection { .. } | Self::Authentication { .. } => Exit::Connection,
            Self::Refused { .. } | Self::RefusedPartly { .. } | Self::Reply { .. } => Exit::Refused,
            Self::Usage { .. } | Self::File { .. } => Exit::Usage,
            Self::Incomplete { .. } => Exit::Incomplete,
            Self::Interrupted { .. } => Exit::Interrupted,
        }
    }

    /// One line that says what to do.
    pub(crate) fn hint(&self) -> &str {
        match self {
            Self::Connection { .. } => {
                "Is the server running there? -h, -p, -s and -u name it, --tls turns TLS on."
            }
            Self::Authentication { .. } => {
                "Name the user by --user and the password by REDISCLI_AUTH or --askpass."
            }
            Self::Refused { text, .. } => refusal_hint(text),
            Self::Reply { .. } => "Is this a server with the module redis-bloom or RedisBloom?",
            Self::File { source, .. } if source.kind() == io::ErrorKind::InvalidData => {
                "See that the file has the items, and the options their form: --csv, -0."
            }
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "Make room there."
            }
            Self::File { .. } => "Check the name and the permissions of the file.",
            Self::Usage { hint, .. }
            | Self::RefusedPartly { hint, .. }
            | Self::Incomplete { hint, .. }
            | Self::Interrupted { hint } => hint,
        }
    }
}

/// Whether an error reply means that another command may do: the server has none of this name, or
/// the user may not send it. No other command helps a user who may not access the key.
pub(crate) fn lacks_command(text: &str) -> bool {
    text.starts_with("ERR unknown command")
        || text.starts_with("NOPERM") && !text.contains(FORBIDDEN_KEY)
}

/// Whether an error reply means that the module has no such field of BF.INFO.
pub(crate) fn lacks_field(text: &str) -> bool {
    text.to_ascii_lowercase().ends_with("invalid information value")
}

/// In the error reply to a user who may not access the key: `access one of the keys used as
/// arguments`, `access a key`.
const FORBIDDEN_KEY: &str = "to access ";

/// What to do about an error reply, by its first words.
pub(crate) fn refusal_hint(text: &str) -> &'static str {
    const HINTS: &[(&str, &str)] = &[
        ("NOPERM", "Give the user this command and key: ACL SETUSER."),
        ("WRONGTYPE", "The key is not a Bloom filter; use another name."),
        ("OOM", "Raise maxmemory, or remove other keys."),
        ("LOADING", "Wait until the server has loaded its data."),
        ("READONLY", "This is a replica; connect to its primary."),
        (
            "ERR unknown command 'BF.SCANDUMP'",
            "This server's module cannot dump one filter (valkey-bloom): use DUMP and RESTORE.",
        ),
        ("ERR received bad data", "The server's log says why: another module's format?"),
        (
            "ERR Protocol error: invalid bulk length",
            "An item or --batch is longer than the server's proto-max-bulk-len.",
        ),
        ("ERR unknown command", "Load a module with BF.* commands into the server (MODULE LIST)."),
        ("ERR not found", "There is no filter of this name; create it first."),
        ("ERR item exists", "Drop the filter first, or use another name."),
        ("ERR non scaling filter is full", "Create a larger filter, or one that grows."),
    ];
    // Rights that no command of the user's asks for.
    const RIGHTS: &[(&str, &str)] = &[
        (
            "'wait' command",
            "WAIT tells whether a replica has what was written: ACL SETUSER ... +wait. \
             `--acks 0` of load does not wait.",
        ),
        ("'waitaof' command", "--durable needs the right to WAITAOF: ACL SETUSER ... +waitaof."),
        ("'info' command", "INFO tells whether there are replicas: ACL SETUSER ... +info."),
    ];
    if text.starts_with("NOPERM") && text.contains(FORBIDDEN_KEY) {
        return "Give the user this key: ACL SETUSER ... ~NAME, and ~{NAME:* for shards.";
    }
    if text.starts_with("NOPERM")
        && let Some((_, hint)) = RIGHTS.iter().find(|(words, _)| text.contains(words))
    {
        return hint;
    }
    let found = HINTS.iter().find(|(start, _)| text.starts_with(start));
    found.map_or("The server's log and docs/commands.md say more.", |(_, hint)| hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forbidden_key_is_no_missing_command() {
        for text in [
            "ERR unknown command 'BF.BULKADD', with args beginning with: ",
            "NOPERM this user has no permissions to run the 'bf.bulkadd' command",
            "NOPERM User u has no permissions to run the 'bf.bulkadd' command",
        ] {
            assert!(lacks_command(text), "{text}");
            assert!(!refusal_hint(text).starts_with("Give the user this key"), "{text}");
        }
        for text in [
            "NOPERM this user has no permissions to access one of the keys used as arguments",
            "NOPERM No permissions to access a key",
        ] {
            assert!(!lacks_command(text), "{text}");
            assert!(refusal_hint(text).starts_with("Give the user this key"), "{text}");
        }
        assert!(!lacks_command("ERR not found"));
    }

    #[test]
    fn errors_that_pass_are_told_from_those_that_stay() {
        for (text, passing) in [
            ("BUSY Redis is busy running a script", Some(Passing::Later)),
            ("LOADING Redis is loading the dataset in memory", Some(Passing::Later)),
            ("NOREPLICAS Not enough good replicas to write.", Some(Passing::Later)),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Some(Passing::Later)),
            ("CLUSTERDOWN The cluster is down", Some(Passing::Later)),
            ("MASTERDOWN Link with MASTER is down", Some(Passing::Reconnect)),
            ("UNBLOCKED force unblock from blocking operation", Some(Passing::Reconnect)),
            (
                "ERR WAIT cannot be used with replica instances. Please also note that since Redis \
                 4.0 if a replica is configured to be writable",
                Some(Passing::Reconnect),
            ),
            (
                "ERR WAITAOF cannot be used with replica instances. Please also note",
                Some(Passing::Reconnect),
            ),
            ("MOVED 1 127.0.0.1:7000", Some(Passing::Redirected)),
            ("ASK 1 127.0.0.1:7000", Some(Passing::Redirected)),
            ("BUSYKEY Target key name already exists.", None),
            ("ERR other", None),
            ("READONLY You can't write against a read only replica.", None),
        ] {
            assert_eq!(Passing::of(text), passing, "{text}");
            let error = Error::Refused { command: String::new(), text: text.to_owned() };
            assert_eq!(error.passes(), passing.is_some(), "{text}");
        }
    }
}
