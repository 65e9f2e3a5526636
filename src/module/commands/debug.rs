//! `BF.DEBUG key`: one line for the filter and one line for each layer, oldest first.

use super::{Call, Command, CommandSpec, Uses};
use crate::{
    command::{number, refusal::Refusal},
    filter::{Family, Generation, Layer, NEVER, RedisBloom, Ring, Rules, Shape, Span},
    module::{
        api::{Access, Key},
        value::Value,
    },
};

pub(super) struct Debug;

impl Command for Debug {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.debug",
        flags: c"readonly fast",
        arity: 2,
        uses: Uses::Reads,
        categories: "read",
        summary: c"Describes each layer of a Bloom filter",
        complexity: c"O(L), where L is the number of layers of the filter",
        since: c"1.0.0",
        tips: Some(c"dont_cache"),
        arguments: &[],
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, []) = call.key_and()?;
        let mut key = Key::open(call.ctx, name, Access::Read);
        let filter = Value::filter_in_key(&mut key)?.ok_or(Refusal::NotFound)?;
        let layers = filter.layers().map(|layer| describe(layer, filter.family()));
        let shard = filter.shard().map_or(String::new(), |shard| {
            format!(" shard:{} shards:{}", shard.index(), shard.count())
        });
        let window = filter.window().map_or(String::new(), describe_window);
        let lines: Vec<String> = std::iter::once(format!("size:{}{shard}{window}", filter.items()))
            .chain(layers)
            .collect();
        call.ctx.reply_array(lines.len());
        lines.iter().for_each(|line| call.ctx.reply_bulk(line.as_bytes()));
        Ok(())
    }
}

/// What the first line says of a window: its rules, and the start and number of layers of each
/// generation, oldest first.
fn describe_window(ring: &Ring) -> String {
    let Rules { span, generations, refresh } = ring.rules;
    let span = match span {
        Span::Time(span) => format!("{span}ms"),
        Span::Items => "count".into(),
    };
    let present: Vec<String> = ring
        .generations
        .iter()
        .map(|&Generation { start, layers }| match start {
            NEVER => format!("-+{layers}"),
            start => format!("{start}+{layers}"),
        })
        .collect();
    format!(
        " window:{span} generations:{generations} refresh:{} starts:{}",
        u8::from(refresh),
        present.join(",")
    )
}

/// The line for a layer: RedisBloom's fields, then the fields of this kind of layer.
fn describe(layer: &Layer, family: Family) -> String {
    let shape = layer.shape();
    let (bytes, bits, own) = match shape {
        Shape::Blocked(blocked) => {
            let own = format!(
                " blocks:{} blockbits:{}",
                blocked.blocks,
                u32::from(blocked.block_words) * 64
            );
            (blocked.words() * 8, blocked.words() * 64, own)
        }
        Shape::Counting(counting) => {
            let own = format!(
                " blocks:{} blockcounters:{} counterbits:4",
                counting.geometry.blocks,
                u32::from(counting.geometry.block_words) * 64
            );
            (counting.words() * 8, counting.words() * 64, own)
        }
        Shape::Classic(classic) => (classic.bytes, classic.bits, String::new()),
    };
    let width = match family {
        Family::RedisBloom(RedisBloom { hash64: false, .. }) => 32,
        Family::Native | Family::RedisBloom(_) | Family::Valkey(_) | Family::Guava => 64,
    };
    format!(
        "bytes:{bytes} bits:{bits} hashes:{} hashwidth:{width} capacity:{} size:{} ratio:{}{own}",
        shape.probes(),
        layer.capacity(),
        layer.items(),
        number::six_digits(layer.error_rate()),
    )
}
