//! `BF.SCANDUMP key iterator`: one chunk of a filter, of at most 16 MiB. BF.LOADCHUNK restores it.

use super::{Argument, Call, Command, CommandSpec, Uses};
use crate::{
    command::{number, refusal::Refusal},
    module::{
        api::{Access, Key},
        value::Value,
    },
};

pub(super) struct ScanDump;

impl Command for ScanDump {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.scandump",
        flags: c"readonly",
        arity: 3,
        uses: Uses::Reads,
        categories: "read",
        summary: c"Dumps a Bloom filter, a chunk a call",
        complexity: c"O(N), where N is the size of the chunk, at most 16 MiB",
        since: c"1.0.0",
        tips: Some(c"dont_cache"),
        arguments: &[Argument::Integer(c"iterator")],
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, [iterator]) = call.key_and()?;
        let mut key = Key::open(call.ctx, name, Access::Read);
        let value = Value::complete_in_key(&mut key)?.ok_or(Refusal::NotFound)?;
        let chunk = match number::integer(iterator.bytes()).ok_or(Refusal::BadIterator)? {
            0 => Some(value.dump_header()),
            from => value.dump_at(from),
        };
        // The last reply has an empty string, because go-redis and redis-rs do not accept null.
        let (next, data) = chunk.unwrap_or_default();
        call.ctx.reply_array(2);
        call.ctx.reply_integer(next.unsigned_abs());
        call.ctx.reply_bulk(&data);
        Ok(())
    }
}
