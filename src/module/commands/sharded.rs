//! Filters that are a shard of a sharded filter (`src/sharding.rs`): an item of another shard ends
//! a client's command with an error.
//!
//! ```text
//!   queries                 the error is the whole reply: some client libraries turn an error
//!                           inside the reply to BF.MEXISTS into "no"
//!   additions, deletions    the error is the whole reply if the first item is foreign: nothing was
//!                           changed. Otherwise it is the last element, after the answers for the
//!                           items before
//! ```
//!
//! A client with a wrong rule would otherwise lose items: it would add them to one shard and query
//! another. What a primary, an AOF or a slot migration sends is obeyed: the item is in the filter
//! there, and a refusal would lose it here.
//!
//! Commands look for the shard once, so other filters pay no time for each item. In shards the
//! check is a part of the loop that hashes the items: a pass of its own takes twice the time.

use std::cell::Cell;

use super::Call;
use crate::{
    command::refusal::Refusal,
    module::{api::logged, stats},
    sharding::Shard,
};

/// Whether the item of a single command belongs to the filter.
#[inline]
pub(super) fn owns(shard: Option<Shard>, item: &[u8]) -> bool {
    shard.is_none_or(|shard| owner(shard, item) == shard)
}

/// Not inlined, so that the code for other filters does not depend on it.
#[inline(never)]
fn owner(shard: Shard, item: &[u8]) -> Shard {
    shard.of(item)
}

/// Refuses the item of a single query if it belongs to another shard than the filter is.
#[inline]
pub(super) fn check(call: &Call, shard: Option<Shard>, item: &[u8]) -> Result<(), Refusal> {
    match shard {
        Some(own) if !owns(shard, item) => {
            Err(refused(call, shard, Refusal::OtherShard(owner(own, item))))
        }
        _ => Ok(()),
    }
}

/// Refuses a client's additions if the first item belongs to another shard than `shard`: nothing
/// may change then, neither the keyspace nor the generations of a window.
pub(super) fn check_first<'a>(
    call: &Call,
    shard: Option<Shard>,
    mut items: impl Iterator<Item = &'a [u8]>,
) -> Result<(), Refusal> {
    match items.next() {
        Some(item) if shard.is_some() && !call.ctx.is_replayed() => check(call, shard, item),
        _ => Ok(()),
    }
}

/// Refuses a client's command that names another shard than the filter is, if it names one.
pub(super) fn check_named(
    call: &Call,
    shard: Option<Shard>,
    named: Option<Shard>,
) -> Result<(), Refusal> {
    match named {
        Some(named) if shard != Some(named) => Err(refused(call, shard, Refusal::NotShard(named))),
        _ => Ok(()),
    }
}

/// Finds the items of a command that belong to the shard that its filter is.
pub(super) struct OwnItems<'a> {
    call: &'a Call<'a>,
    shard: Shard,
    /// A shard that one of the items belongs to, and that the filter is not.
    foreign: Cell<Option<Shard>>,
}

impl<'c> OwnItems<'c> {
    pub(super) fn of(call: &'c Call<'c>, shard: Shard) -> Self {
        Self { call, shard, foreign: Cell::new(None) }
    }

    /// The items before the first one of another shard; all items of a command that is obeyed.
    pub(super) fn before_foreign<'a>(
        &self,
        items: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> impl Iterator<Item = &'a [u8]> + Clone {
        self.shard.own(items, |owner| {
            self.foreign.set(Some(owner));
            self.call.ctx.is_replayed()
        })
    }

    /// The refusal of the item of another shard at which the items ended, if they did. Logs items
    /// of other shards in a command that is obeyed.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let (call, owner) = (self.call, self.foreign.get()?);
        if !call.ctx.is_replayed() {
            return Some(refused(call, Some(self.shard), Refusal::OtherShard(owner)));
        }
        call.ctx.warn_rate_limited(|| {
            let (key, shard) = (logged(call.key()), self.shard);
            format!(
                "key '{key}': an item of shard {owner} taken, from a primary or an AOF, though the \
                 filter is shard {shard}"
            )
        });
        None
    }
}

/// Counts and logs the refusal of a command for another shard than `shard`, which the filter is.
#[cold]
fn refused(call: &Call, shard: Option<Shard>, refusal: Refusal) -> Refusal {
    stats::MISROUTED.add(1);
    call.ctx.warn_rate_limited(|| {
        let text = refusal.text(std::iter::empty());
        let is = shard.map_or_else(|| "no shard".into(), |shard| format!("shard {shard}"));
        let (key, text) = (logged(call.key()), text.to_string_lossy());
        format!("key '{key}': refused: {text} (the filter is {is})")
    });
    refusal
}
