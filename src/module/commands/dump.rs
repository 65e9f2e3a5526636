//! `BF.SCANDUMP key iterator`: returns one chunk of a filter, with at most 16 MiB of data.
//! `BF.LOADCHUNK key iterator data`: loads the chunks, in order.
//!
//! The header creates the key, if a filter of the announced size is allowed. Memory is allocated as
//! the chunks arrive. Until the last chunk has arrived, the key answers no query and takes no item:
//! an item of a later chunk would be reported absent. In the meantime the key can be deleted,
//! saved, copied and replicated.

use super::{Argument, Call, Command, Kind};
use crate::{
    codec::{
        self,
        native::{Load, Taken, dump},
    },
    command::{number, refusal::Refusal},
    module::{
        api::{Access, Context, Key},
        effects, limit,
        stats::{self, Share},
        value::{Stored, is_placeholder},
    },
};

pub(super) const SCANDUMP: Command = Command {
    name: c"bf.scandump",
    flags: c"readonly",
    arity: 3,
    summary: c"Dumps a Bloom filter, one chunk for each call",
    complexity: c"O(N), where N is the size of the chunk, at most 16 MiB",
    since: c"1.0.0",
    tips: Some(c"dont_cache"),
    arguments: &[Argument::new(c"iterator", Kind::Integer)],
    run: bf_scandump,
    ..Command::READS
};

fn bf_scandump(call: &Call) -> Result<(), Refusal> {
    let [iterator] = call.exactly()?;
    let mut key = Key::open(call.ctx, call.key, Access::Read);
    let value = &*Stored::complete_in_key(&mut key)?.ok_or(Refusal::NOT_FOUND)?;
    let chunk = match number::integer(iterator.bytes()).ok_or(Refusal::BAD_ITERATOR)? {
        0 => Some(dump::header(value)),
        from => dump::at(value, from),
    };
    // The last reply has an empty string, because go-redis and redis-rs do not accept null.
    let (next, data) = chunk.unwrap_or_default();
    call.ctx.reply_array(2);
    call.ctx.reply_integer(next.unsigned_abs());
    call.ctx.reply_bulk(&data);
    Ok(())
}

pub(super) const LOADCHUNK: Command = Command {
    name: c"bf.loadchunk",
    arity: 4,
    summary: c"Restores a Bloom filter from a chunk of a dump",
    complexity: c"O(N), where N is the size of the chunk",
    since: c"1.0.0",
    arguments: &[Argument::new(c"iterator", Kind::Integer), Argument::new(c"data", Kind::String)],
    run: bf_loadchunk,
    ..Command::FILLS
};

fn bf_loadchunk(call: &Call) -> Result<(), Refusal> {
    let [iterator, data] = call.exactly()?;
    let iterator = number::integer(iterator.bytes()).ok_or(Refusal::BAD_ITERATOR)?;
    let mut key = Key::open(call.ctx, call.key, Access::Write);
    let refused = |error| call.refused(error, Refusal::of_chunk(error));
    let (taken, finished) = match Stored::in_key(&mut key)? {
        None if iterator == 1 => {
            let ceiling = limit::ceiling_of_new(call.ctx);
            let load = Load::begin(data.bytes(), ceiling).map_err(refused)?;
            Stored::Partial(Box::new(load)).put(&mut key)?;
            (Taken::Next, Ok(()))
        }
        None => return Err(Refusal::NOT_FOUND),
        Some(value) => {
            let taken = take(call.ctx, value, iterator, data.bytes()).map_err(refused)?;
            let is_last = taken == Taken::Last;
            (taken, if is_last { value.finish_load() } else { Ok(()) })
        }
    };
    drop(key);
    let complete = taken == Taken::Last && finished.is_ok();
    stats::LOADS.add(complete.into());
    // A last chunk that found no memory to finish the load is replicated, too: it was taken,
    // and sending any chunk again finishes the load.
    if taken != Taken::Repeated {
        effects::loaded(call.ctx, call.key, complete);
    }
    finished.map_err(refused)?;
    call.ctx.reply_simple(c"OK");
    Ok(())
}

/// Takes a chunk into a key that exists.
fn take(
    ctx: Context,
    value: &mut Stored,
    iterator: i64,
    data: &[u8],
) -> Result<Taken, codec::Error> {
    match value {
        // After a chunk, the header would begin another dump. The filter may have changed in
        // between, and pages that have arrived would not be replaced by newer ones.
        Stored::Partial(load) if iterator == 1 && load.began_with(data) => match load.received() {
            0 => Ok(Taken::Repeated),
            _ => Err(codec::Error::Exists),
        },
        // The seed of a placeholder is public, so a client could make chunks that fit it.
        Stored::Partial(load) if is_placeholder(load) => Err(codec::Error::OtherFilter),
        Stored::Partial(load) => {
            let ceiling = |demand| limit::ceiling(ctx, demand);
            let before = Share::of_part(load);
            let taken = load.take(iterator, data, ceiling);
            before.changed(Share::of_part(load));
            taken
        }
        complete => {
            dump::repeat(&*complete, iterator, data)?;
            Ok(Taken::Repeated)
        }
    }
}
