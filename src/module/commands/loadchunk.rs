//! `BF.LOADCHUNK key iterator data`: restores what BF.SCANDUMP gave, chunk by chunk, in order.
//!
//! The header makes the key, if a filter of the size that it announces may be made; the memory is
//! allocated as the chunks arrive. Until the last chunk is in, the key answers no query and takes
//! no item: it would say "absent" of what it is about to hold. It can be deleted, saved, copied and
//! replicated meanwhile.

use super::{Argument, Call, Command, CommandSpec, Uses};
use crate::{
    codec::{
        self,
        native::{
            dump::{self, Taken},
            kinds::Load,
            paged,
        },
    },
    command::{number, refusal::Refusal},
    module::{
        api::{Access, Context, Key},
        effects, limit,
        stats::{self, Share},
        value::Value,
    },
};

pub(super) struct LoadChunk;

impl Command for LoadChunk {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.loadchunk",
        flags: c"write deny-oom",
        arity: 4,
        uses: Uses::Fills,
        categories: "write",
        summary: c"Restores a Bloom filter from a chunk of a dump",
        complexity: c"O(N), where N is the size of the chunk",
        since: c"1.0.0",
        tips: None,
        arguments: &[Argument::Integer(c"iterator"), Argument::String(c"data")],
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, [iterator, data]) = call.key_and()?;
        let iterator = number::integer(iterator.bytes()).ok_or(Refusal::BadIterator)?;
        let mut key = Key::open(call.ctx, name, Access::Write);
        let refused = |error| super::refused(call, "BF.LOADCHUNK", error, Refusal::of_chunk(error));
        let taken = match Value::in_key(&mut key)? {
            None if iterator == 1 => {
                let begin = |ceiling| Load::begin(data.bytes(), ceiling);
                let load = limit::within(call.ctx, begin).map_err(refused)?;
                Value::Loading(Box::new(load)).put(&mut key)?;
                Taken::Next
            }
            None => return Err(Refusal::NotFound),
            Some(value) => take(call.ctx, value, iterator, data.bytes()).map_err(refused)?,
        };
        drop(key);
        if taken != Taken::Repeated {
            effects::loaded(call.ctx, name, taken == Taken::Last);
        }
        call.ctx.reply_ok();
        Ok(())
    }
}

/// Takes a chunk into a key that exists.
fn take(
    ctx: Context,
    value: &mut Value,
    iterator: i64,
    data: &[u8],
) -> Result<Taken, codec::Error> {
    match value {
        Value::Ready(filter) => {
            dump::repeat(filter, iterator, data)?;
            Ok(Taken::Repeated)
        }
        Value::Paged(filter) => {
            paged::dump::repeat(filter, iterator, data)?;
            Ok(Taken::Repeated)
        }
        Value::Loading(load) if iterator == 1 && load.began_with(data) => Ok(Taken::Repeated),
        Value::Loading(load) => {
            let ceiling = |demand| limit::ceiling(ctx, demand);
            let before = Share::of_part(load);
            let taken = load.take(iterator, data, ceiling);
            before.changed(Share::of_part(load));
            let taken = taken?;
            if taken == Taken::Last {
                value.finish_load()?;
                stats::LOADS.add(1);
            }
            Ok(taken)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        codec::native::dump::tests::{most_steps, of_layers},
        filter::steps,
    };

    /// RedisBloom's dumps have a chunk for every layer, and a forged header has as many layers as
    /// there may be: the whole command looks at a few layers a chunk, not at all of them.
    #[test]
    fn the_steps_of_a_load_are_those_of_its_layers() -> Result<(), codec::Error> {
        for count in [1, 2, 3, 1_000, 20_000] {
            let (_, header) = dump::header(&of_layers(count)?);
            let mut value = Value::Loading(Box::new(Load::begin(&header, u64::MAX)?));
            // SAFETY: layers of a word have all their memory, and ask no server for more.
            let none = unsafe { Context::new(std::ptr::null_mut()) };
            let (taken, steps) = steps::counted(|| {
                let end = |chunk: i64| chunk.saturating_mul(8).saturating_add(1);
                (1..=count as i64)
                    .flat_map(|chunk| [chunk, chunk])
                    .map(|chunk| take(none, &mut value, end(chunk), &[0; 8]))
                    .collect::<Result<Vec<_>, _>>()
            });
            let taken = taken?;
            let repeated = taken.iter().filter(|&&taken| taken == Taken::Repeated).count();
            assert_eq!(repeated, count);
            assert!(matches!(value, Value::Ready(_)));
            // Each chunk comes twice.
            let most = most_steps(taken.len(), count);
            assert!(steps <= most, "{count} layers: {steps} steps, at most {most}");
        }
        Ok(())
    }
}
