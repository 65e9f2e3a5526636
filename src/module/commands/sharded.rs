//! Filters that are a shard of a sharded filter (`sharding/mod.rs`): an item of another shard ends
//! the command with an error, in additions and in questions.
//!
//! A client with a wrong rule would else lose items: it would add them to one shard and ask
//! another. The shard is asked for once a command, so other filters pay no time for each item.

use super::add::Batch;
use crate::{command::refusal::Refusal, filter::Filter, sharding::Shard};

/// Refuses the item of a single command if it belongs to another shard than the filter is.
#[inline]
pub(super) fn check(filter: &Filter, item: &[u8]) -> Result<(), Refusal> {
    match filter.shard() {
        None => Ok(()),
        Some(shard) => check_item(shard, item),
    }
}

#[inline(never)]
fn check_item(shard: Shard, item: &[u8]) -> Result<(), Refusal> {
    let owner = shard.of(item);
    if owner == shard { Ok(()) } else { Err(Refusal::OtherShard(owner)) }
}

/// The items before the first item that belongs to another shard, and the refusal of that item.
#[inline]
pub(super) fn cut<'a, B: Batch<'a>>(filter: &Filter, items: B) -> (B, Option<Refusal>) {
    match filter.shard() {
        None => (items, None),
        Some(shard) => cut_items(shard, items),
    }
}

#[inline(never)]
fn cut_items<'a, B: Batch<'a>>(shard: Shard, items: B) -> (B, Option<Refusal>) {
    match shard.first_foreign(items.items()) {
        None => (items, None),
        Some((place, owner)) => (items.first(place), Some(Refusal::OtherShard(owner))),
    }
}
