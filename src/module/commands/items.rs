//! The items of a command: the forms in which they come, their shard, and the answers for them.
//!
//! A client's command with an item of another shard is refused (`docs/reference/sharding.md`). What
//! a primary, an AOF or a slot migration sends is obeyed: the item is in the filter there, and a
//! refusal would lose it here.

use super::Call;
use crate::{
    command::refusal::Refusal,
    filter::Answers,
    module::{api::Str, effects::Items, stats},
    sharding::Shard,
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

/// Refuses a client's command if one of its items belongs to a shard that is not the filter's.
#[inline]
pub(super) fn check_shard<'a>(
    call: &Call,
    shard: Option<Shard>,
    items: impl Iterator<Item = &'a [u8]>,
) -> Result<(), Refusal> {
    shard.map_or(Ok(()), |shard| check_each(call, shard, items))
}

#[inline(never)] // So that the code for other filters does not depend on it.
fn check_each<'a>(
    call: &Call,
    shard: Shard,
    items: impl Iterator<Item = &'a [u8]>,
) -> Result<(), Refusal> {
    match shard.foreign(items) {
        None => Ok(()),
        Some(owner) if call.ctx.is_replayed() => {
            call.log(format_args!(
                "of a primary or an AOF took an item of shard {owner}, though the filter is shard \
                 {shard}"
            ));
            Ok(())
        }
        Some(owner) => Err(misrouted(call, Some(shard), Refusal::OtherShard(owner))),
    }
}

/// Counts and logs the refusal of a command for another shard. `shard` is the filter's own.
#[cold]
pub(super) fn misrouted(call: &Call, shard: Option<Shard>, refusal: Refusal) -> Refusal {
    stats::MISROUTED.add(1);
    let text = refusal.text(std::iter::empty());
    let is = shard.map_or_else(|| "no shard".into(), |shard| format!("shard {shard}"));
    call.log(format_args!("refused: {} (the filter is {is})", text.to_string_lossy()));
    refusal
}
