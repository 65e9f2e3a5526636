//! Filters that are a shard of a sharded filter (`src/sharding.rs`): an item of another shard is an
//! error, which is the whole reply, and the command changes nothing.
//!
//! A client with a wrong rule would otherwise lose items: it would add them to one shard and query
//! another. What a primary, an AOF or a slot migration sends is obeyed: the item is in the filter
//! there, and a refusal would lose it here.

use super::Call;
use crate::{command::refusal::Refusal, module::stats, sharding::Shard};

/// Refuses a client's command if one of its items belongs to another shard than the filter is.
#[inline]
pub(super) fn check<'a>(
    call: &Call,
    shard: Option<Shard>,
    items: impl Iterator<Item = &'a [u8]>,
) -> Result<(), Refusal> {
    shard.map_or(Ok(()), |shard| check_each(call, shard, items))
}

/// Not inlined, so that the code for other filters does not depend on it.
#[inline(never)]
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
        Some(owner) => Err(refused(call, Some(shard), Refusal::OtherShard(owner))),
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

/// Counts and logs the refusal of a command for another shard than `shard`, which the filter is.
#[cold]
fn refused(call: &Call, shard: Option<Shard>, refusal: Refusal) -> Refusal {
    stats::MISROUTED.add(1);
    let text = refusal.text(std::iter::empty());
    let is = shard.map_or_else(|| "no shard".into(), |shard| format!("shard {shard}"));
    call.log(format_args!("refused: {} (the filter is {is})", text.to_string_lossy()));
    refusal
}
