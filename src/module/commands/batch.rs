//! The items of a command, and what adding them did.

use super::{Call, Uses};
use crate::{
    command::refusal::Refusal,
    filter::{Additions, Answers, Error},
    module::{
        api::{Str, logged},
        effects::{Items, Shape},
        limit, stats,
    },
};

/// The items of a command.
pub(super) trait Batch<'a>: Copy {
    /// The items, in order.
    fn items(self) -> impl Iterator<Item = &'a [u8]> + Clone;

    /// The items whose element of `changed` is true, in the form in which they are replicated.
    fn select(self, changed: impl Iterator<Item = bool>) -> Items<'a>;
}

/// Items that are one argument each.
impl<'a> Batch<'a> for &[Str<'a>] {
    fn items(self) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.iter().map(|item| item.bytes())
    }

    fn select(self, changed: impl Iterator<Item = bool>) -> Items<'a> {
        let changed = self.iter().zip(changed).filter(|(_, changed)| *changed);
        Items::Listed(changed.map(|(item, _)| *item).collect())
    }
}

/// The answer for each item, and the error that stopped the additions.
#[derive(Default)]
pub(super) struct Added {
    /// Chunk by chunk.
    pub(super) answers: Vec<Additions>,
    pub(super) shape: Shape,
    pub(super) error: Option<Refusal>,
}

impl Added {
    /// The number of items that were added, new or not.
    pub(super) fn count(&self) -> usize {
        self.chunks().map(Answers::count).sum()
    }

    /// The number of items that were new.
    pub(super) fn ones(&self) -> usize {
        self.chunks().map(Answers::ones).sum()
    }

    /// The number of items tried, including one that caused an error.
    pub(super) fn tried(&self) -> usize {
        self.count() + usize::from(self.error.is_some())
    }

    /// Whether each item was new, chunk by chunk.
    pub(super) fn chunks(&self) -> impl Iterator<Item = Answers> {
        self.answers.iter().map(|chunk| chunk.new)
    }

    /// The items that changed the filter; `items` were added. [`Items::All`] if every item did, and
    /// the command may be replicated `verbatim`.
    pub(super) fn changed<'a>(&self, items: impl Batch<'a>, verbatim: bool) -> Items<'a> {
        let changes: usize = self.answers.iter().map(|chunk| chunk.changed.ones()).sum();
        if changes == 0 {
            Items::Listed(Vec::new())
        } else if verbatim && changes == self.count() && self.error.is_none() {
            Items::All
        } else {
            items.select(self.answers.iter().flat_map(|chunk| chunk.changed.each()))
        }
    }

    /// The refusal that stopped the additions, if any. It is the whole reply, an `Err`, if the
    /// first item belongs to another shard.
    pub(super) fn error(&self) -> Result<Option<Refusal>, Refusal> {
        match self.error {
            Some(refusal @ Refusal::OtherShard(_)) if self.count() == 0 => Err(refusal),
            error => Ok(error),
        }
    }

    /// Replies with an array of booleans; an error is the last element.
    pub(super) fn reply(&self, call: &Call) -> Result<(), Refusal> {
        let error = self.error()?;
        call.ctx.reply_array(self.tried());
        self.chunks().flat_map(Answers::each).for_each(|new| call.ctx.reply_bool(new));
        if let Some(error) = error {
            call.refuse(error, Uses::Adds);
        }
        Ok(())
    }
}

/// Counts a refused addition, and logs which limit caused it: the client's error text does not say.
#[cold]
pub(super) fn refused(call: &Call, error: Error) -> Refusal {
    stats::REFUSED.add(1);
    if error == Error::Full {
        stats::REFUSED_FULL.add(1);
    } else {
        stats::REFUSED_GROWTH.add(1);
        call.ctx.warn_rate_limited(|| {
            format!(
                "key '{}': a full filter could not grow: {}",
                logged(call.key()),
                limit::explained(call.ctx, error)
            )
        });
    }
    Refusal::of_addition(error)
}
