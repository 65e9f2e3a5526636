//! `BF.IMPORT key GUAVA bytes`: a filter that Guava wrote. `BF.LOAD key blob`: a filter of a
//! rewritten AOF of valkey-bloom.
//!
//! The key must not exist. It gets the whole filter, or nothing. Replicas and the AOF get the
//! command unchanged, because its arguments determine the filter.

use super::{Argument, Call, Command, Kind};
use crate::{
    codec::{guava, valkey_bloom},
    command::refusal::Refusal,
    filter::Filter,
    module::{
        api::{Access, Key},
        effects, limit, stats,
        value::Stored,
    },
};

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
    put(call, || {
        guava::read(data.bytes(), limit::ceiling_of_new(call.ctx))
            .map_err(|error| call.refused(error, Refusal::of_bytes(error, Refusal::BAD_GUAVA)))
    })
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
    put(call, || {
        valkey_bloom::read_blob(blob.bytes(), limit::ceiling_of_new(call.ctx))
            .map_err(|error| call.refused(error, Refusal::of_blob(error)))
    })
}

/// Puts what `read` makes into a key that must be free.
fn put(call: &Call, read: impl FnOnce() -> Result<Filter, Refusal>) -> Result<(), Refusal> {
    let mut key = Key::open(call.ctx, call.key, Access::Write);
    if Stored::in_key(&mut key)?.is_some() {
        return Err(Refusal::BUSY_KEY);
    }
    let filter = read()?;
    Stored::Layers(filter).put(&mut key)?;
    drop(key);
    stats::LOADS.add(1);
    effects::loaded(call.ctx, call.key, true);
    call.ctx.reply_simple(c"OK");
    Ok(())
}
