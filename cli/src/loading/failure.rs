//! Why a load ended early, and what the user is told about it.

use std::fmt;

use crate::{
    amount,
    error::Error,
    refusal::{Kind, Refusal},
};

/// What is said where nothing proves that the items are in.
const RESTARTED: &str = "the server restarted, or another one took its place, and nothing proves \
                         that it has the items sent before";

/// What is said about a filter that was there.
pub(crate) const GONE: &str =
    "the filter is gone: removed, evicted, or lost when the server restarted";

/// Why a load ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The server refused a command, and would again.
    Refused(Refusal),
    /// There was no answer, or only "try again", for as long as the user wants to wait.
    Unreachable(String),
    /// Another process answers, and nothing proves that it has the items that were confirmed.
    Restarted,
    /// Items that were confirmed are not in the filter.
    Lost(String),
    /// Ctrl-C.
    Interrupted,
    /// Anything else.
    Failed(Error),
}

impl Stop {
    /// Whether it may mean that the key is no shard any more: a rebuild has replaced it.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.is_gone())
    }

    /// Whether another connection may work, if items were added before.
    pub(super) fn passes(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.passing(true).is_some(),
            Self::Failed(error) => {
                matches!(error, Error::Connection { .. } | Error::Authentication { .. })
            }
            _ => false,
        }
    }

    /// The reason, for a stop that is temporary.
    pub(super) fn why(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.text.clone(),
            Self::Failed(error) => error.to_string(),
            _ => String::new(),
        }
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused { refusal, .. } => Self::Refused(refusal),
            Error::Interrupted { .. } => Self::Interrupted,
            error => Self::Failed(error),
        }
    }
}

/// Why a load ended early.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) stop: Stop,
    /// The number of the shard, and the number of shards.
    pub(crate) shard: Option<(usize, usize)>,
}

impl<S: Into<Stop>> From<S> for Failure {
    fn from(stop: S) -> Self {
        Self { stop: stop.into(), shard: None }
    }
}

impl Failure {
    /// Whether items may be lost that were confirmed.
    pub(crate) fn is_loss(&self) -> bool {
        matches!(self.stop, Stop::Lost(_) | Stop::Restarted)
    }

    /// A shard that is missing, or has another filter in its place, is lost. The caller has seen in
    /// the descriptor that no rebuild replaced it.
    pub(super) fn lost(self) -> Self {
        let stop = match self.stop {
            Stop::Refused(refusal) if refusal.kind == Kind::NotFound => Stop::Lost(GONE.to_owned()),
            Stop::Refused(refusal) if refusal.kind == Kind::NotShard => Stop::Lost(format!(
                "{refusal}: the key was recreated without the items of the shard"
            )),
            other => other,
        };
        Self { stop, ..self }
    }

    /// The error for the user. `task` is the subcommand with the filter. `items` says how many
    /// items are in, `on` what to do when the cause is removed, `lost` what to do if a shard is
    /// lost.
    pub(crate) fn explained(self, task: &str, items: &Items, on: &str, lost: &str) -> Error {
        let (this, task) = match self.shard {
            Some((shard, shards)) => (self.lost(), format!("{task}: shard {shard} of {shards}")),
            None => (self, task.to_owned()),
        };
        let what = |text: &str| format!("{task}: {text}; {items}");
        // Where it is the first sentence, it begins without `Then`.
        let go_on = || match on.strip_prefix("Then ").and_then(|on| on.split_at_checked(1)) {
            Some((first, rest)) => first.to_uppercase() + rest,
            None => on.to_owned(),
        };
        match (this.stop, this.shard) {
            (Stop::Failed(error), _) => error,
            (Stop::Lost(text), Some(_)) => Error::incomplete(format!("{task}: {text}"), lost),
            (Stop::Refused(refusal), _) if items.count == 0 => Error::refused(task, refusal),
            (Stop::Refused(refusal), None) if refusal.kind == Kind::WrongType => Error::incomplete(
                format!("{task}: another key replaced the filter: {refusal}"),
                "That key has none of the items. Restore or create the filter, then load \
                 everything from the beginning.",
            ),
            // Another filter has nothing of what this one took.
            (Stop::Refused(refusal), _) if refusal.kind == Kind::Full => Error::refused_partly(
                what(&refusal.text),
                "Create a larger filter, or one that grows, and load everything into it \
                 from the beginning, without --resume.",
            ),
            (Stop::Refused(refusal), _) => {
                Error::refused_partly(what(&refusal.text), format!("{} {on}", refusal.hint()))
            }
            // Whether the server has what it acknowledged is seen when it answers again.
            (Stop::Unreachable(text), _) => Error::incomplete(
                what(&text),
                format!("See whether the server runs, and what its log says. {on}"),
            ),
            (Stop::Restarted, _) => Error::incomplete(
                what(RESTARTED),
                format!("{} --acks proves that a replica that takes over has the items.", go_on()),
            ),
            (Stop::Lost(text), None) => Error::incomplete(
                format!("{task}: {text}"),
                "Load again from the beginning; --acks waits for replicas.",
            ),
            (Stop::Interrupted, _) => Error::Interrupted { hint: go_on() },
        }
    }
}

/// How many items are in.
pub(crate) struct Items {
    pub(crate) count: u64,
    /// Whether replicas have them.
    pub(crate) confirmed: bool,
    /// Nothing proves it.
    pub(crate) unknown: bool,
}

impl fmt::Display for Items {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unknown {
            return formatter.write_str("it is unknown how many items are in the filter");
        }
        let are = if self.confirmed { "confirmed" } else { "in the filter" };
        write!(formatter, "{} items are {are}", amount::grouped(self.count))
    }
}
