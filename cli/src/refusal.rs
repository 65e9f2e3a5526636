//! The error reply of a server, read once: what kind it is, and whether another try may help.

use std::fmt;

/// What an error reply says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// There is no such key.
    NotFound,
    /// There is such a filter already.
    Exists,
    /// The key holds something else.
    WrongType,
    /// The filter is not the shard that it should be.
    NotShard,
    /// A filter that is being loaded, or that this server could not make.
    Unfinished,
    /// The filter takes no more items.
    Full,
    /// The server has no such command.
    UnknownCommand,
    /// The user may not send this command.
    Forbidden,
    /// The user may not access this key.
    ForbiddenKey,
    /// The module has no such field of BF.INFO.
    NoField,
    /// A chunk that does not belong there.
    BadChunk,
    OutOfMemory,
    /// The server is in no cluster.
    NoCluster,
    /// The server is a replica.
    ReadOnly,
    /// This connection will do, in a moment.
    Later,
    /// The server has another role now, or is about to: a new connection finds the primary.
    Demoted,
    /// Another node has the slot of the key.
    Moved,
    /// Another node is about to get it.
    Asked,
    Other,
}

/// What helps against an error reply that is temporary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passing {
    /// This connection will do, in a moment.
    Later,
    /// A new connection finds the primary.
    Reconnect,
    /// The reply names the node that has the key.
    Redirected,
}

/// An error reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) kind: Kind,
    /// As the server wrote it.
    pub(crate) text: String,
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(text: T) -> Self {
        let text = text.into();
        Self { kind: Kind::of(&text), text }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl Kind {
    fn of(text: &str) -> Self {
        const STARTS: [(&str, Kind); 25] = [
            ("ERR not found", Kind::NotFound),
            ("ERR no such key", Kind::NotFound),
            ("ERR item exists", Kind::Exists),
            ("WRONGTYPE", Kind::WrongType),
            ("ERR filter is not shard", Kind::NotShard),
            ("ERR item belongs to shard", Kind::NotShard),
            ("ERR non scaling filter is full", Kind::Full),
            ("ERR unknown command", Kind::UnknownCommand),
            ("ERR received bad data", Kind::BadChunk),
            ("ERR invalid offset", Kind::BadChunk),
            ("OOM", Kind::OutOfMemory),
            ("ERR This instance has cluster support disabled", Kind::NoCluster),
            ("READONLY ", Kind::ReadOnly),
            ("LOADING", Kind::Later),
            ("TRYAGAIN", Kind::Later),
            ("CLUSTERDOWN", Kind::Later),
            ("BUSY ", Kind::Later),
            ("NOREPLICAS", Kind::Later),
            ("MASTERDOWN", Kind::Demoted),
            ("UNBLOCKED", Kind::Demoted),
            // Of a node that was a primary when the connection began.
            ("ERR WAIT cannot be used with replica", Kind::Demoted),
            ("MOVED ", Kind::Moved),
            ("ASK ", Kind::Asked),
            // `access one of the keys used as arguments`, `access a key`.
            ("NOPERM", Kind::Forbidden),
            ("ERR invalid information value", Kind::NoField),
        ];
        let found = STARTS.iter().find(|(start, _)| text.starts_with(start)).map(|(_, kind)| *kind);
        match found {
            Some(Self::Forbidden) if text.contains("to access ") => Self::ForbiddenKey,
            Some(kind) => kind,
            None if text.contains("BF.LOADCHUNK") || text.contains("its copy of the filter") => {
                Self::Unfinished
            }
            None if text.to_ascii_lowercase().ends_with("invalid information value") => {
                Self::NoField
            }
            None => Self::Other,
        }
    }
}

impl Refusal {
    /// What helps, if it is temporary. `loaded`: the server took items before, so a change of
    /// its role may be temporary.
    pub(crate) fn passing(&self, loaded: bool) -> Option<Passing> {
        match self.kind {
            Kind::Later => Some(Passing::Later),
            Kind::Demoted => Some(Passing::Reconnect),
            Kind::ReadOnly if loaded => Some(Passing::Reconnect),
            Kind::Moved | Kind::Asked => Some(Passing::Redirected),
            _ => None,
        }
    }

    /// Whether another try may succeed.
    pub(crate) fn passes(&self) -> bool {
        self.passing(false).is_some()
    }

    /// Whether the user may not do this.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self.kind, Kind::Forbidden | Kind::ForbiddenKey)
    }

    /// Whether another command may do: the server has none of this name, or the user may not send
    /// it. No other command helps a user who may not access the key.
    pub(crate) fn lacks_command(&self) -> bool {
        matches!(self.kind, Kind::UnknownCommand | Kind::Forbidden)
    }

    /// Whether the key is not the shard that it should be: it is lost, or the filter was rebuilt.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.kind, Kind::NotFound | Kind::WrongType | Kind::NotShard)
    }

    /// Whether the key is missing, or no filter that can be queried.
    pub(crate) fn is_no_filter(&self) -> bool {
        matches!(self.kind, Kind::NotFound | Kind::WrongType | Kind::Unfinished)
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> &'static str {
        // By their first words.
        const STARTS: [(&str, &str); 3] = [
            ("LOADING", "Wait until the server has loaded its data."),
            (
                "ERR unknown command 'BF.SCANDUMP'",
                "This server's module cannot dump one filter (valkey-bloom): use DUMP and RESTORE.",
            ),
            (
                "ERR Protocol error: invalid bulk length",
                "An item or --batch is longer than the server's proto-max-bulk-len.",
            ),
        ];
        // Rights for commands that the user did not name.
        const RIGHTS: [(&str, &str); 2] = [
            (
                "'wait' command",
                "WAIT reports whether replicas have the items: ACL SETUSER ... +wait. \
                 `load --acks 0` does not need it.",
            ),
            ("'info' command", "INFO identifies the server: ACL SETUSER ... +info."),
        ];
        if let Some((_, hint)) = STARTS.iter().find(|(start, _)| self.text.starts_with(start)) {
            return hint;
        }
        match self.kind {
            Kind::ForbiddenKey => {
                "Give the user this key: ACL SETUSER ... ~NAME, and ~{NAME:* for shards."
            }
            Kind::Forbidden => {
                let right = RIGHTS.iter().find(|(words, _)| self.text.contains(words));
                right.map_or("Give the user this command and key: ACL SETUSER.", |(_, hint)| hint)
            }
            Kind::WrongType => "The key is not a Bloom filter; use another name.",
            Kind::OutOfMemory => "Raise maxmemory, or remove other keys.",
            Kind::ReadOnly => "This is a replica; connect to its primary.",
            Kind::BadChunk => "The server's log says why: another module's format?",
            Kind::UnknownCommand => {
                "Load a module with BF.* commands into the server (MODULE LIST)."
            }
            Kind::NotFound => "There is no filter of this name; create it first.",
            Kind::Exists => "Drop the filter first, or use another name.",
            Kind::Full => "Create a larger filter, or one that grows.",
            _ => "The server's log and docs/reference/commands.md say more.",
        }
    }
}
