//! Everything that ends a subcommand early: what happened, what to do, and the exit code.

use std::{fmt, io, path::PathBuf, process::ExitCode};

use crate::{
    name,
    refusal::{Kind, Refusal},
};

/// The exit codes of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done.
    Done = 0,
    /// The answer is no: an item is absent, the rate is too high, or a planned filter does not fit.
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
    #[error("{command}: {refusal}")]
    Refused { command: String, refusal: Refusal },
    /// The server answered something that this tool does not understand.
    #[error("{command}: unexpected reply {reply}")]
    Reply { command: String, reply: String },
    /// Anything else: a wrong command line, a part that is done.
    #[error("{what}")]
    Told { exit: Exit, what: String, hint: String },
    /// A file cannot be read or written.
    #[error("{}: {source}", name::readable_path(path))]
    File { path: PathBuf, source: io::Error },
    /// Ctrl-C or SIGTERM, after what was in flight is done.
    #[error("interrupted")]
    Interrupted { hint: String },
}

impl Error {
    /// Whether another try may succeed: the node failed or is busy, or its slots are on the move.
    pub(crate) fn passes(&self) -> bool {
        match self {
            Self::Connection { .. } => true,
            Self::Refused { refusal, .. } => refusal.passes(),
            _ => false,
        }
    }

    /// The server's error reply, if that is what it is.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal),
            _ => None,
        }
    }

    /// Whether it is an error reply of this kind.
    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.refusal().is_some_and(|refusal| refusal.kind == kind)
    }

    fn told(exit: Exit, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Told { exit, what: what.into(), hint: hint.into() }
    }

    /// A part is done, the rest is not.
    pub(crate) fn incomplete(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::told(Exit::Incomplete, what, hint)
    }

    /// The server refused a command, or the tool would not send it.
    pub(crate) fn refused_partly(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::told(Exit::Refused, what, hint)
    }

    /// An error reply to a command.
    pub(crate) fn refused(command: impl Into<String>, refusal: impl Into<Refusal>) -> Self {
        Self::Refused { command: command.into(), refusal: refusal.into() }
    }

    /// A reply to a command that no server should give.
    pub(crate) fn reply(command: impl Into<String>, reply: impl fmt::Debug) -> Self {
        Self::Reply { command: command.into(), reply: format!("{reply:?}") }
    }

    /// A wrong command line.
    pub(crate) fn usage(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::told(Exit::Usage, what, hint)
    }

    /// A file that cannot be read or written.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    /// This error in the middle of work that can be continued; `hint` says how.
    pub(crate) fn partly(self, hint: impl Into<String>) -> Self {
        let (what, hint) = (self.to_string(), hint.into());
        let both = format!("{} {hint}", self.hint());
        match (&self, self.exit()) {
            // It says what to do.
            (Self::Authentication { .. } | Self::Told { exit: Exit::Incomplete, .. }, _) => self,
            (Self::Interrupted { .. }, _) => Self::Interrupted { hint },
            (Self::Connection { .. }, _) => Self::incomplete(what, hint),
            (Self::Reply { .. }, exit) => Self::told(exit, what, hint),
            (_, exit) => Self::told(exit, what, both),
        }
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Connection { .. } | Self::Authentication { .. } => Exit::Connection,
            Self::Refused { .. } | Self::Reply { .. } => Exit::Refused,
            Self::File { .. } => Exit::Usage,
            Self::Told { exit, .. } => *exit,
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
            Self::Refused { refusal, .. } => refusal.hint(),
            Self::Reply { .. } => "Is this a server with the module redis-bloom or RedisBloom?",
            Self::File { source, .. } if source.kind() == io::ErrorKind::InvalidData => {
                "Is this the file of the items? If the items end with a zero byte, use -0."
            }
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "Make room there."
            }
            Self::File { .. } => "Check the name and the permissions of the file.",
            Self::Interrupted { hint } if hint.is_empty() => "Repeat the command to continue.",
            Self::Told { hint, .. } | Self::Interrupted { hint } => hint,
        }
    }
}
