//! `BF.INFO key [field]`: what a filter is, in five fields, and more on request.
//!
//! The full reply has exactly RedisBloom's five pairs: go-redis fails on a sixth. What else there is to know has a word of
//! its own. A single field is an array of one in RESP2 and a map of one pair in RESP3.

use std::ffi::CStr;

use super::{Argument, Call, Command, Row, Uses};
use crate::{
    filter::Filter,
    module::{
        api::{Access, Context, Key},
        reply::Refusal,
        value::Value,
    },
};

pub(super) struct Info;

impl Command for Info {
    const ROW: Row = Row {
        name: c"bf.info",
        flags: c"readonly fast",
        arity: -2,
        uses: Uses::Reads,
        categories: "read fast",
        summary: c"Describes a Bloom filter",
        complexity: c"O(L), where L is the number of layers of the filter; FPR, FILL and LAYERS read up to 65,536 words, LAYERS has L maps",
        since: c"1.0.0",
        tips: Some(c"dont_cache"),
        arguments: &[Argument::OneOf(
            c"single_value",
            &[
                (c"capacity", c"CAPACITY"),
                (c"size", c"SIZE"),
                (c"filters", c"FILTERS"),
                (c"items", c"ITEMS"),
                (c"expansion", c"EXPANSION"),
                (c"error", c"ERROR"),
                (c"fpr", c"FPR"),
                (c"fill", c"FILL"),
                (c"layers", c"LAYERS"),
                (c"saturated", c"SATURATED"),
                (c"undeleted", c"UNDELETED"),
            ],
        )],
    };

    fn run(call: &Call) -> Result<(), Refusal> {
        let (name, words) = call.key_and_rest(0)?;
        let mut key = Key::open(call.ctx, name, Access::Read);
        let asked = match words {
            [] | [_] => Value::filter_in_key(&mut key)?.ok_or(Refusal::NotFound)?,
            _ => return Err(Refusal::Arity),
        };
        match words.first() {
            None => {
                let full = FIELDS.iter().take(FULL);
                call.ctx.reply_map(full.len());
                full.for_each(|field| field.reply_pair(call.ctx, asked));
            }
            Some(word) => {
                let field = FIELDS
                    .iter()
                    .find(|field| word.bytes().eq_ignore_ascii_case(field.word.as_bytes()));
                let field = field.ok_or(Refusal::UnknownField)?;
                if call.ctx.speaks_resp3() {
                    call.ctx.reply_map(1);
                    field.reply_pair(call.ctx, asked);
                } else {
                    call.ctx.reply_array(1);
                    (field.reply)(call.ctx, asked);
                }
            }
        }
        Ok(())
    }
}

/// A field: the word that asks for it, its name in the reply, how its value is sent.
struct Field {
    word: &'static str,
    label: &'static CStr,
    reply: fn(Context, &Filter),
}

/// How many of the fields make up the full reply.
const FULL: usize = 5;

const FIELDS: [Field; 11] = [
    Field {
        word: "CAPACITY",
        label: c"Capacity",
        reply: |ctx, filter| ctx.reply_integer(filter.capacity()),
    },
    Field {
        word: "SIZE",
        label: c"Size",
        reply: |ctx, filter| ctx.reply_integer(filter.bytes()),
    },
    Field {
        word: "FILTERS",
        label: c"Number of filters",
        reply: |ctx, filter| ctx.reply_integer(filter.layers().len() as u64),
    },
    Field {
        word: "ITEMS",
        label: c"Number of items inserted",
        reply: |ctx, filter| ctx.reply_integer(filter.items()),
    },
    Field {
        word: "EXPANSION",
        label: c"Expansion rate",
        reply: |ctx, filter| match filter.expansion().factor() {
            Some(factor) => ctx.reply_integer(u64::from(factor)),
            None => ctx.reply_null(),
        },
    },
    // The rate that was asked for, and is never exceeded.
    Field {
        word: "ERROR",
        label: c"Error rate",
        reply: |ctx, filter| ctx.reply_double(filter.error_rate()),
    },
    // The rate right now, estimated from the bits that are set.
    Field {
        word: "FPR",
        label: c"False positive rate",
        reply: |ctx, filter| ctx.reply_double(filter.estimate().error_rate),
    },
    // The share of bits that are set, or of counters that are not 0; a filter at its capacity has about half of them set.
    Field {
        word: "FILL",
        label: c"Fill",
        reply: |ctx, filter| ctx.reply_double(filter.estimate().fill),
    },
    Field {
        word: "LAYERS",
        label: c"Layers",
        reply: reply_layers,
    },
    // Counters that reached 15, where they stay. Null for a filter of bits, as the next.
    Field {
        word: "SATURATED",
        label: c"Saturated counters",
        reply: |ctx, filter| reply_count(ctx, filter.stuck()),
    },
    // Deletions of items that tested present and stay, since the filter came to this server.
    Field {
        word: "UNDELETED",
        label: c"Refused deletions",
        reply: |ctx, filter| reply_count(ctx, filter.counts().then(|| filter.refused())),
    },
];

impl Field {
    fn reply_pair(&self, ctx: Context, filter: &Filter) {
        ctx.reply_simple(self.label);
        (self.reply)(ctx, filter);
    }
}

fn reply_count(ctx: Context, count: Option<u64>) {
    match count {
        Some(count) => ctx.reply_integer(count),
        None => ctx.reply_null(),
    }
}

/// A map for each layer, oldest first.
fn reply_layers(ctx: Context, filter: &Filter) {
    ctx.reply_array(filter.layers().len());
    for (layer, estimate) in filter.estimate_layers() {
        ctx.reply_map(6);
        ctx.reply_simple(c"Capacity");
        ctx.reply_integer(layer.capacity());
        ctx.reply_simple(c"Items");
        ctx.reply_integer(layer.items());
        ctx.reply_simple(c"Size");
        ctx.reply_integer(size_of_val(layer.bits().words()) as u64);
        ctx.reply_simple(c"Error rate");
        ctx.reply_double(layer.error_rate());
        ctx.reply_simple(c"False positive rate");
        ctx.reply_double(estimate.error_rate);
        ctx.reply_simple(c"Fill");
        ctx.reply_double(estimate.fill);
    }
}
