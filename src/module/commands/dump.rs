//! Filters as bytes. `BF.SCANDUMP key iterator`: returns one chunk of a filter, with at most 16 MiB
//! of data. `BF.LOADCHUNK key iterator data`: loads the chunks, in order.
//!
//! The header creates the key, if a filter of the announced size is allowed. Memory is allocated as
//! the chunks arrive. Until the last chunk has arrived, the key answers no query and takes no item:
//! an item of a later chunk would be reported absent.
//!
//! `BF.IMPORT key GUAVA bytes`: a filter that Guava wrote. `BF.LOAD key blob`: a filter of a
//! rewritten AOF of valkey-bloom. The key must be free, and gets the whole filter or nothing.

use super::{Argument, Call, Command, Kind};
use crate::{
    codec::{
        self, guava,
        native::{Load, Taken, dump},
        valkey_bloom,
    },
    command::{number, refusal::Refusal},
    filter::Filter,
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
    let refused = |error| call.refused(error, Refusal::of_bytes(error, Refusal::BAD_DATA));
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
            (taken, if taken == Taken::Last { value.finish_load() } else { Ok(()) })
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

pub(super) const IMPORT: Command = Command {
    name: c"bf.import",
    arity: 4,
    summary: c"Creates a Bloom filter from one that Guava wrote",
    complexity: c"O(N), where N is the size of the filter",
    arguments: &[Argument::block(c"GUAVA", &[Argument::new(c"bytes", Kind::String)])],
    run: bf_import,
    ..Command::FILLS
};

fn bf_import(call: &Call) -> Result<(), Refusal> {
    let [form, data] = call.exactly()?;
    if !form.bytes().eq_ignore_ascii_case(b"GUAVA") {
        return Err(Refusal::UNKNOWN_ARGUMENT);
    }
    let refusal = |error| Refusal::of_bytes(error, Refusal::BAD_GUAVA);
    put(call, |ceiling| guava::read(data.bytes(), ceiling), refusal)
}

pub(super) const LOAD: Command = Command {
    name: c"bf.load",
    arity: 3,
    summary: c"Restores a Bloom filter from the AOF of valkey-bloom",
    complexity: c"O(N), where N is the size of the filter",
    arguments: &[Argument::new(c"blob", Kind::String)],
    run: bf_load,
    ..Command::FILLS
};

fn bf_load(call: &Call) -> Result<(), Refusal> {
    let [blob] = call.exactly()?;
    put(
        call,
        |ceiling| valkey_bloom::read_blob(blob.bytes(), ceiling),
        |error| Refusal::of_bytes(error, Refusal::BAD_BLOB),
    )
}

/// Puts the filter that is read into a key that must be free.
fn put(
    call: &Call,
    read: impl FnOnce(u64) -> Result<Filter, codec::Error>,
    refusal: fn(codec::Error) -> Refusal,
) -> Result<(), Refusal> {
    let mut key = Key::open(call.ctx, call.key, Access::Write);
    if Stored::in_key(&mut key)?.is_some() {
        return Err(Refusal::BUSY_KEY);
    }
    let filter = read(limit::ceiling_of_new(call.ctx))
        .map_err(|error| call.refused(error, refusal(error)))?;
    Stored::Layers(filter).put(&mut key)?;
    drop(key);
    stats::LOADS.add(1);
    effects::loaded(call.ctx, call.key, true);
    call.ctx.reply_simple(c"OK");
    Ok(())
}
