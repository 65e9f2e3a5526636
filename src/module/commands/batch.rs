//! The items of a command, and the answers for them.

use crate::{
    filter::Answers,
    module::{api::Str, effects::Items},
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

/// Answers in chunks. The first chunk has its own field, so that a small batch allocates nothing.
#[derive(Default)]
pub(super) struct Chunks {
    first: Option<Answers>,
    more: Vec<Answers>,
}

impl Chunks {
    #[inline]
    pub(super) fn push(&mut self, chunk: Answers) {
        if self.first.is_none() {
            self.first = Some(chunk);
        } else {
            self.more.push(chunk);
        }
    }

    /// The number of answers.
    pub(super) fn count(&self) -> usize {
        self.iter().map(Answers::count).sum()
    }

    /// The number of answers that are true.
    pub(super) fn ones(&self) -> usize {
        self.iter().map(Answers::ones).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Answers> {
        self.first.into_iter().chain(self.more.iter().copied())
    }

    /// The answers one by one.
    pub(super) fn each(&self) -> impl Iterator<Item = bool> {
        self.iter().flat_map(Answers::each)
    }
}
