//! `BF.DEBUG key`: one line for the filter and one line for each layer, oldest first.

use super::{Call, Command, CommandSpec};
use crate::{
    command::{number, refusal::Refusal},
    filter::{Family, Layer, RedisBloom, Shape, paged::Paged},
    module::{
        api::{Access, Key},
        value::{Stored, stored_items},
    },
};

pub(super) struct Debug;

impl Command for Debug {
    const SPEC: CommandSpec = CommandSpec {
        name: c"bf.debug",
        summary: c"Describes each layer of a Bloom filter",
        complexity: c"O(L), where L is the number of layers of the filter",
        since: c"1.0.0",
        tips: Some(c"dont_cache"),
        ..CommandSpec::READS
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, []) = call.key_and()?;
        let mut key = Key::open(call.ctx, name, Access::Read);
        let filter = &*Stored::complete_in_key(&mut key)?.ok_or(Refusal::NOT_FOUND)?;
        let items = match filter {
            Stored::Pages(paged) => stored_items(paged),
            filter => filter.items(),
        };
        let mut lines = vec![format!("size:{items}")];
        match filter {
            Stored::Layers(filter) => {
                lines.extend(filter.layers().map(|layer| describe(layer, filter.family())));
            }
            Stored::Pages(paged) => {
                lines.extend(paged.base().map(|layer| describe(layer, Family::Native)));
                lines.push(describe_pages(paged, items));
            }
            Stored::Partial(_) => {}
        }
        call.ctx.reply_array(lines.len());
        lines.iter().for_each(|line| call.ctx.reply_bulk(line.as_bytes()));
        Ok(())
    }
}

/// The line for the pages: RedisBloom's fields, then their own. One hash finds the place of a slot.
fn describe_pages(paged: &Paged, items: u64) -> String {
    let (pages, plan) = (paged.pages(), paged.pages().plan());
    let (_, capacity) = paged.stack(items);
    let (below, held) = paged.base().map_or((0, 0), |base| (base.capacity(), base.counted()));
    let bytes = pages.bytes();
    format!(
        "bytes:{bytes} bits:{} hashes:1 hashwidth:64 capacity:{} size:{} ratio:{} pages:{} \
         slots:{} tagbits:{} payloadbits:{}",
        bytes.saturating_mul(8),
        capacity.saturating_sub(below),
        items.saturating_sub(held),
        number::six_digits(paged.error_rate_of_pages()),
        pages.pages().len(),
        pages.slot_count(),
        plan.tag_bits,
        plan.payload.bits(),
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
        layer.counted(),
        number::six_digits(layer.error_rate()),
    )
}
